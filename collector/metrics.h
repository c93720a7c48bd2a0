// One tick's result, ready to be rendered: plain data, no behaviour. Reused from tick to tick, so that a
// steady tick does not allocate. Names and meanings of the exported series: README.md and
// http/metrics_text.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collector/process_state.h"
#include "kprobe.h"

namespace kitty::collector {

struct RttHistogram {
  std::array<uint64_t, KITTY_RTT_BUCKETS> buckets{};  // not cumulative; bounds are KITTY_RTT_BOUNDS_US
  uint64_t sum_us = 0;
};

// What a process's own sockets did since the agent could see them. Monotonic, also when sockets close.
struct OwnTotals {
  RttHistogram rtt;
  uint64_t retransmits = 0;
  uint64_t segments_sent = 0;
  uint64_t bytes_sent = 0;
  uint32_t have = 0;  // enum kitty_have: which of the three this kernel gives
};

struct ProcessMetrics {
  std::optional<double> rtt_us;         // mean of the latest tick that had samples, at most 10 s old
  std::optional<uint64_t> retransmits;  // of its network namespace
  std::optional<uint64_t> out_segs;     // of its network namespace
  std::optional<uint64_t> tx_queue_bytes;
  const OwnTotals* own =
      nullptr;  // null without an RTT hook; owned by the RttCollector, valid until its next tick
};

struct Collector {
  bool success = false;
  double duration_seconds = 0;
};

struct AgentMetrics {
  Collector processes, sockets, network, rtt;
  uint64_t rtt_samples = 0;
  uint64_t rtt_samples_unattributed = 0;
  uint64_t flow_table_full = 0;
  uint64_t parse_errors = 0;
};

struct Metrics {
  std::shared_ptr<const ProcessState> state;
  std::vector<ProcessMetrics> processes;  // parallel to state->processes
  AgentMetrics agent;
};

}  // namespace kitty::collector
