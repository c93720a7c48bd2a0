// One tick's result, ready to be rendered: plain data, no behaviour. Reused from tick to tick, so that a
// steady tick does not allocate. Names and meanings of the exported series: README.md and
// http/metrics_text.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collector/condition.h"
#include "collector/process_state.h"
#include "kprobe.h"

namespace kitty::collector {

// The label of all peers beyond those that have one of their own.
inline constexpr std::string_view kOtherPeers = "other";

struct RttHistogram {
  std::array<uint64_t, KITTY_RTT_BUCKETS> buckets{};  // not cumulative; bounds are KITTY_RTT_BOUNDS_US
  uint64_t sum_us = 0;
};

// What sockets did since the agent could see them. Monotonic, also when sockets close.
struct TcpTotals {
  uint64_t retransmits = 0;
  uint64_t segments_sent = 0;
  uint64_t data_segments_sent = 0;
  uint64_t bytes_sent = 0;

  void add(const TcpTotals& more) {
    retransmits += more.retransmits;
    segments_sent += more.segments_sent;
    data_segments_sent += more.data_segments_sent;
    bytes_sent += more.bytes_sent;
  }
  [[nodiscard]] bool any() const {
    return (retransmits | segments_sent | data_segments_sent | bytes_sent) != 0;
  }
};

struct OwnTotals {
  RttHistogram rtt;
  TcpTotals tcp;
  uint32_t have = 0;  // enum kitty_have: which counters this kernel gives
};

// One remote address that the process's own sockets are connected to. The sums over a process's peers are its
// OwnTotals.
struct PeerMetrics {
  procfs::IpAddress address{};
  bool other = false;  // stands for all peers beyond kMaxPeers
  uint64_t rtt_count = 0;
  uint64_t rtt_sum_us = 0;
  TcpTotals tcp;
  uint64_t busy_ns = 0;                // time with data in flight or queued, of its busiest socket
  std::optional<uint32_t> rtt_min_us;  // of the latest tick that had samples, at most 10 s old
  uint64_t tx_queue_bytes = 0;         // at the latest socket pass

  std::array<char, procfs::kMaxAddressBytes> name{};  // the label's value
  size_t name_bytes = 0;
  [[nodiscard]] std::string_view text() const { return {name.data(), name_bytes}; }
};

// Where a process's time went since its account was opened; the sums and `unsettled_us` make up all of it.
struct TimeMetrics {
  uint64_t accounted_us = 0;  // all of it
  uint64_t owing_us = 0;
  uint64_t moving_us = 0;
  uint64_t unknown_us = 0;
  uint64_t unsettled_us = 0;  // the open silence, and what is too young to be told
  struct Peer {
    uint64_t waiting_us = 0, receiver_limited_us = 0, path_limited_us = 0, receiving_us = 0;
    std::array<char, procfs::kMaxAddressBytes> name{};
    size_t name_bytes = 0;
    [[nodiscard]] std::string_view text() const { return {name.data(), name_bytes}; }
    [[nodiscard]] bool any() const {
      return (waiting_us | receiver_limited_us | path_limited_us | receiving_us) != 0;
    }
  };
  std::vector<Peer> peers;  // the first stands for all others
};

struct ProcessMetrics {
  const TimeMetrics* time = nullptr;    // null: no account; valid until the next tick
  bool sockets_known = false;           // all its sockets are followed, so that sums over them are its own
  std::optional<double> rtt_us;         // mean of the latest tick that had samples, at most 10 s old
  std::optional<uint64_t> retransmits;  // of its network namespace
  std::optional<uint64_t> out_segs;     // of its network namespace
  std::optional<uint64_t> tx_queue_bytes;
  Condition condition;  // at most kConditionsKept old; of a worker empty
  // Owned by the Ledger and valid until its next tick. `own` is null without an RTT hook and where some of
  // the process's flows are not seen, and then the peers have queues only.
  const OwnTotals* own = nullptr;
  std::span<const PeerMetrics> peers;
};

struct Collector {
  bool success = false;
  double duration_seconds = 0;
};

// RTT samples in watched network namespaces that no watched process was credited with.
struct UnattributedSamples {
  uint64_t unowned = 0;   // of a socket that no watched process holds, or that was closed before it was found
  uint64_t no_inode = 0;  // of a socket not yet accepted, or closed by its process already
  uint64_t table_full = 0;  // `pending` refused them
  uint64_t insane = 0;      // over an hour
};

struct FullTables {
  uint64_t owned = 0;          // sockets
  uint64_t pending = 0;        // samples
  uint64_t watched_netns = 0;  // namespaces
};

struct AgentMetrics {
  Collector processes, sockets, network, rtt;
  uint64_t rtt_samples = 0;
  UnattributedSamples unattributed;
  FullTables full;
  uint64_t snmp_parse_errors = 0;
  uint64_t cgroups_dropped = 0;  // processes without their cgroup's figures: kMaxCgroupsRead
};

struct Metrics {
  std::shared_ptr<const ProcessState> state;
  std::vector<ProcessMetrics> processes;  // parallel to state->processes
  AgentMetrics agent;
};

}  // namespace kitty::collector
