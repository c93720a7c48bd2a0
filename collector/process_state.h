// What is known of the watched processes at one moment: who they are, which sockets they own, what those have
// queued. A ProcessState is immutable once published and shared by the collectors; the scanner that makes it
// is in scanner.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "procfs/process.h"

namespace kitty::collector {

// Bounds, each with a counted overflow in ScanReport.
inline constexpr size_t kMaxWatchedProcesses = 1024;
inline constexpr size_t kMaxOwnedSockets = 8192;  // KITTY_MAX_OWNED_FLOWS of kprobe.h

// From the environment at first sight; absent variables are empty. Precedence: identity.h.
struct RankLabels {
  std::string rank;
  std::string job;
  std::string local_rank;
  std::string world_size;
  friend bool operator==(const RankLabels&, const RankLabels&) = default;
};

// One TCP socket, owned by exactly one watched process: of several holders (fork, SCM_RIGHTS) the one started
// first.
struct OwnedSocket {
  uint64_t inode = 0;
  bool older_than_agent = false;  // its kernel counters hold what happened before the agent started
  uint64_t tx_queue_bytes = 0;    // at the latest net/tcp pass; 0 without a row there, and of LISTEN rows
};

struct WatchedProcess {
  procfs::ProcessId id;
  std::string comm;
  RankLabels labels;
  std::string container_id;
  std::string pod_uid;
  uint32_t netns = 0;  // inode number of its network namespace; 0: could not be read
  std::vector<OwnedSocket> sockets;
  bool tx_queue_known = false;  // the latest net/tcp pass read the tables of its namespace
  std::shared_ptr<const procfs::ProcessHandle>
      handle;  // held directory: reads through it cannot hit a reused pid

  [[nodiscard]] bool is_launcher() const { return labels.rank.empty(); }
};

// Blind spots and cost of the scans so far; all counters since the agent's start unless said otherwise.
struct ScanReport {
  uint64_t unreadable_processes = 0;  // at the latest discovery
  uint64_t parse_errors = 0;
  uint64_t dropped_processes = 0;  // beyond kMaxWatchedProcesses, at the latest discovery
  uint64_t dropped_sockets = 0;    // beyond kMaxOwnedSockets, at the latest discovery
  double discovery_seconds = 0;    // the latest one
  double socket_pass_seconds = 0;  // the latest one, all namespaces
  bool discovery_ok = false;
  bool socket_pass_ok = false;
};

struct ProcessState {
  std::vector<WatchedProcess> processes;  // ascending by pid
  ScanReport report;
};

}  // namespace kitty::collector
