// The RTT collector: keeps the BPF map `owned` in step with ProcessState and adds up, per process, what the
// hooks saw. Runs on the tick's thread only. Never writes counts into a map: it reads entries and keeps its
// own sums, so what a closed socket did is not lost and no counter falls.
//
// Hand-over of a new socket: insert a zeroed `owned` entry, let one tick pass (a program that missed it has
// long finished), then take what `pending` kept and add it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "collector/flow_maps.h"
#include "collector/metrics.h"

namespace kitty::collector {

// A value of net_tcp_rtt_us older than this says nothing of now.
inline constexpr uint64_t kRttStaleNs = 10'000'000'000;

class RttCollector {
 public:
  // `have`: RttHook::have.
  RttCollector(FlowMaps& maps, uint32_t have) : maps_(maps), have_(have) {}

  // Fills rtt_us and own of every process of metrics.state, and the agent's sample counters. `now_ns`:
  // CLOCK_MONOTONIC.
  void tick(uint64_t now_ns, Metrics& metrics);

 private:
  struct Totals {
    OwnTotals own;
    uint64_t tick_samples = 0;  // of the tick being added up
    uint64_t tick_sum_us = 0;
    double rtt_us = 0;
    uint64_t rtt_ns = 0;  // when rtt_us was taken; 0: never
    uint64_t seen = 0;    // the generation_ that last named it
  };
  struct Flow {
    Totals* owner = nullptr;
    kitty_flow last{};          // what has been added so far
    uint32_t counted_have = 0;  // counters whose starting point is set
    bool from_birth = true;     // counters start at the socket's birth, not at first sight
    bool pending_due = false;
    bool measured = false;  // has an entry in `owned`; tried again while the table is full
    uint64_t seen = 0;
  };
  struct IdHash {
    size_t operator()(const procfs::ProcessId& id) const {
      // Pids are below 2^22 (PID_MAX_LIMIT of include/linux/threads.h).
      return std::hash<uint64_t>{}((id.start_time_ticks << 22) ^ static_cast<uint64_t>(id.pid));
    }
  };

  void follow(const ProcessState& state);
  void follow_namespaces(const ProcessState& state);
  void read_flow(uint64_t inode, Flow& flow);
  void add_flow(Flow& flow, const kitty_flow& now);
  static void add_counters(Flow& flow, const kitty_counters& now);

  FlowMaps& maps_;
  const uint32_t have_;
  std::shared_ptr<const ProcessState> state_;
  std::unordered_map<procfs::ProcessId, std::unique_ptr<Totals>, IdHash> totals_;
  std::unordered_map<uint64_t, Flow> flows_;  // by inode
  std::unordered_map<uint32_t, uint64_t>
      netns_;  // watched namespaces and the generation_ that last named them
  uint64_t generation_ = 0;
  uint32_t tick_ = 1;
  uint64_t samples_ = 0;
  uint64_t handed_over_ = 0;
  uint64_t unattributed_ = 0;
  uint64_t table_full_ = 0;
};

}  // namespace kitty::collector
