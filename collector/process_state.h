// What is known of the watched processes at one moment: who they are, which sockets they own, what those have
// queued. A ProcessState is immutable once published and shared by the collectors; the scanner that makes it
// is in scanner.h.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collector/shares.h"
#include "kprobe.h"
#include "procfs/address.h"
#include "procfs/process.h"

namespace kitty::collector {

// Bounds, each with a counted overflow in ScanReport.
inline constexpr size_t kMaxWatchedProcesses = 1024;
inline constexpr size_t kMaxOwnedSockets = KITTY_MAX_OWNED_FLOWS;
inline constexpr size_t kMaxLocalAddresses = 64;  // of one process

// What a rank that kitty has made up begins with: no launcher's does.
inline constexpr char kOwnRankMark = '?';

// A rank as one launcher's variables have it.
struct RankClaim {
  std::string_view variable;  // of static storage
  std::string value;          // empty: LOCAL_RANK alone, which is none yet
  std::string local_rank;
  std::string world_size;
  std::string stamp;  // what else that launcher set: the same rank with another one was set anew

  friend bool operator==(const RankClaim&, const RankClaim&) = default;
  // Only ranks have both: a pod's or a node's RANK comes alone.
  [[nodiscard]] bool is_workers_own() const { return variable == "RANK" && !local_rank.empty(); }
};

// From the environment at first sight; absent variables are empty. Precedence: identity.h.
struct RankLabels {
  std::string rank;
  std::string job;
  std::string local_rank;
  std::string world_size;
  std::string node_rank = {};
  std::string local_world_size = {};   // ranks on this node
  std::string_view rank_from = {};     // the variable; of static storage; empty where there is no rank
  std::vector<RankClaim> claims = {};  // of all launchers, `rank` first
  bool by_torchrun = false;            // it, or what it comes from, was started by torchrun
  friend bool operator==(const RankLabels&, const RankLabels&) = default;
};

// What the kernel said of a TCP connection when it was last asked.
struct Connection {
  procfs::IpAddress local{};
  procfs::IpAddress remote{};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  uint64_t tx_queue_bytes = 0;
  uint32_t hash = 0;          // as kitty_flow::hash; 0 where net/tcp was the source, which does not tell it
  kitty_counters counters{};  // have == 0 where net/tcp was the source
};

// One socket, owned by exactly one watched process: of several holders (fork, SCM_RIGHTS) the one started
// first. A subflow of an MPTCP socket is one, too: `inode` is its key in the flow maps (kprobe.h).
struct OwnedSocket {
  uint64_t inode = 0;
  bool older_than_agent = false;  // its kernel counters hold what happened before the agent started
  bool handed = false;            // its owner did not open it: what others did with it is not its owner's
  uint64_t listed_ns = 0;         // CLOCK_MONOTONIC: its owner held it then, or a moment later
  bool connected = false;         // the latest pass saw it as a connection, and `connection` says which
  Connection connection;
};

struct WatchedProcess {
  procfs::ProcessId id;
  uid_t uid = kUnknownUid;  // real: who started it
  pid_t parent = 0;         // when it was first seen
  std::string comm;
  RankLabels labels;
  std::string container_id;
  std::string pod_uid;
  uint32_t netns = 0;  // inode number of its network namespace; 0: could not be read
  std::vector<OwnedSocket> sockets;
  bool flows_unseen = false;                 // it has MPTCP subflows that cannot be told to be its own
  bool stuck = false;                        // reads of it hang: what is said here is of before
  bool sockets_known = false;                // all of them: they could be listed, and none was left out
  bool tx_queue_known = false;               // and the latest socket pass saw all its connections
  std::vector<procfs::IpAddress> addresses;  // local ones of its connections; ascending
  std::shared_ptr<const procfs::ProcessHandle>
      handle;  // held directory: reads through it cannot hit a reused pid

  // It has the rank and job of a watched ancestor and has had no socket of its own since it was found: a
  // forked DataLoader worker. It has one line, its identity, and costs next to nothing.
  bool is_worker = false;

  // Roles::assign() leaves no launcher a rank.
  [[nodiscard]] bool is_launcher() const { return labels.rank.empty() && !is_worker; }
};

// Keys of the collectors' tables. Pids are below 2^22 (PID_MAX_LIMIT of include/linux/threads.h).
struct ProcessIdHash {
  size_t operator()(const procfs::ProcessId& id) const {
    return std::hash<uint64_t>{}((id.start_time_ticks << 22) ^ static_cast<uint64_t>(id.pid));
  }
};

// Processes that may be missed, or whose sockets are not known, by what stood in the way.
struct Unreadable {
  uint64_t permission = 0;
  uint64_t open_files = 0;   // the agent's own limit of descriptors
  uint64_t mptcp = 0;        // its subflows cannot be listed
  uint64_t too_long = 0;     // an environment beyond kMaxEnvironBytes
  uint64_t stuck = 0;        // reading does not come back
  uint64_t overwritten = 0;  // its environment, by the process itself (setproctitle), before the agent saw it
  uint64_t waiting = 0;      // not looked at yet: too many reads are stuck
  uint64_t other = 0;

  void count(const procfs::ReadResult& result);
};

// A process whose reads hang.
struct StuckProcess {
  pid_t pid = 0;
  std::string comm;  // empty: could not be read either
  uid_t uid = 0;
  bool watched = false;
};

// Blind spots and cost of the scans so far; all counters since the agent's start unless said otherwise.
struct ScanReport {
  Unreadable unreadable;  // at the latest discovery
  std::vector<StuckProcess> stuck;
  uint64_t discovered_ns = 0;      // CLOCK_MONOTONIC: when all processes were listed last; 0: not yet
  uint64_t stat_parse_errors = 0;  // malformed /proc/PID/stat
  uint64_t tcp_parse_errors = 0;   // rows of net/tcp
  uint64_t dropped_processes = 0;  // beyond the limit of watched processes, at the latest discovery
  bool few_descriptors = false;    // that limit is what the open files limit leaves
  uint64_t dropped_sockets = 0;    // beyond kMaxOwnedSockets, at the latest pass
  uint64_t dropped_addresses = 0;  // beyond kMaxLocalAddresses, in this snapshot
  std::vector<LeftOut> left_out;   // whose processes and sockets those are
  double discovery_seconds = 0;    // the latest one
  double socket_pass_seconds = 0;  // the latest one, all processes and namespaces
  bool discovery_ok = false;
  bool socket_pass_ok = false;
};

struct ProcessState {
  std::vector<WatchedProcess> processes;  // ascending by pid
  ScanReport report;
};

}  // namespace kitty::collector
