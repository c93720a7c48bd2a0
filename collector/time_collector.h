// Keeps the time accounts of the watched processes: which of their flows count, the maps `timed` and
// `accounts`, and what these say, tick by tick. Runs on the tick's thread only.
//
// A flow counts that carries at least kCountedShare of its process's bytes, and whose ports are none of the
// well-known ones: a store that is polled, a log or a storage stream opens and ends no silence.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "collector/flow_maps.h"
#include "collector/metrics.h"
#include "collector/process_state.h"
#include "collector/rtt.h"
#include "collector/time_book.h"

namespace kitty::collector {

// What a job's collectives leave to anything else of theirs, a store or a monitor, is far below. One that
// counts does so until it has fallen to half of it.
inline constexpr double kCountedShare = 0.01;
// Bytes fade: after so many snapshots, of which there is one a second, a third is left.
inline constexpr double kByteMemory = 10;
// Of a process; idle ones give their places up to others, and what they had to "other".
inline constexpr size_t kMaxTimedPeers = 64;
// RFC 6335: system ports.
inline constexpr uint16_t kFirstUserPort = 1024;

class TimeCollector {
 public:
  TimeCollector(FlowMaps& maps, const RttCollector& rtt) : maps_(maps), rtt_(rtt) {}

  // One tick at `now_ns` (CLOCK_MONOTONIC), after the RTT collector's: fills in the time of metrics.state's
  // processes.
  void tick(uint64_t now_ns, Metrics& metrics);

 private:
  struct Flow {
    procfs::ProcessId owner;
    uint16_t peer = 0;
    kitty_timed before{};  // what was taken of it
    std::optional<kitty_counters> counters;
    uint64_t seen = 0;
  };
  struct Weight {
    uint64_t bytes = 0;
    double weight = 0;
    bool counted = false;
    uint64_t seen = 0;
  };
  struct Process {
    Process(uint32_t its_number, uint64_t now_us) : number(its_number), book(now_us) {}

    uint32_t number;  // of its account
    TimeBook book;
    std::unique_ptr<kitty_account> account = std::make_unique<kitty_account>();  // as it was last read
    bool read = false;                                                           // at this tick
    std::vector<PeerGrowth> growth;                                              // by peer
    std::vector<procfs::IpAddress> peers;  // by number, from 1; 0 is all others
    TimeMetrics metrics;
    uint64_t seen = 0;
  };

  void follow(const ProcessState& state, uint64_t now_us);
  void choose(const WatchedProcess& process);
  void take_up(const WatchedProcess& process, uint64_t now_us);
  void read(uint64_t inode, Flow& flow, Process& process);
  uint16_t peer_number(Process& process, const procfs::IpAddress& remote);
  std::optional<uint32_t> free_number() const;
  void describe(Process& process, uint64_t now_us);

  FlowMaps& maps_;
  const RttCollector& rtt_;
  const ProcessState* state_ = nullptr;
  std::unordered_map<uint64_t, Weight> weights_;  // by inode, of all connections that may count
  std::unordered_map<uint64_t, Flow> flows_;      // by inode, of those that do
  std::unordered_map<procfs::ProcessId, Process, ProcessIdHash> processes_;
  std::vector<bool> taken_ = std::vector<bool>(KITTY_MAX_ACCOUNTS);
  uint64_t generation_ = 0;
};

}  // namespace kitty::collector
