// Finds the watched processes and what they own. Remembers what it learned from scan to scan: an environment
// that a process overwrote later (setproctitle), and which processes are not worth reading again soon. One
// thread uses it; snapshots may be handed to any.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "collector/process_state.h"
#include "procfs/environ.h"
#include "procfs/process.h"

namespace kitty::collector {

// Most programs are executed by a process that has just been forked: what a discovery between two full ones
// looks at.
inline constexpr std::chrono::seconds kYoung{60};
// execve(2) changes the environment but not the start time. It shows in where arguments and environment lie
// (stat); should it not, a process found unwatched is read again once in so many discoveries, once a minute.
inline constexpr unsigned kRecheckDiscoveries = 12;

class Scanner {
 public:
  enum class Depth { all, new_and_young };

  // `procfs_root`: an open directory, owned by the caller.
  explicit Scanner(int procfs_root);

  // Processes, their labels and their sockets' inodes.
  void discover(Depth depth);
  // What the sockets have queued: net/tcp and net/tcp6 once per network namespace. A row of a socket never
  // seen before is a reason to list the watched processes' descriptors at once: a connection made anew must
  // not hide its queue until the next discovery.
  void pass_sockets();
  [[nodiscard]] std::shared_ptr<const ProcessState> snapshot() const;

 private:
  struct Known {
    uint64_t start_time_ticks = 0;
    uint64_t arg_start = 0;  // with env_start, what the environment was read with
    uint64_t env_start = 0;
    bool young = true;  // at the latest look
    bool read = false;  // the environment was read, or refused
    bool denied = false;
    uint64_t seen = 0;  // the generation_ that last listed it
  };
  struct Watched {
    WatchedProcess process;    // without its sockets
    bool walked = false;       // its descriptors were listed at least once
    uint64_t tables_read = 0;  // the pass_ that last read its namespace's tables
  };
  struct Socket {
    procfs::ProcessId owner;
    bool older_than_agent = false;
    uint64_t tx_queue_bytes = 0;
    uint64_t counted = 0;  // the pass_ that last saw its row
    uint64_t claimed = 0;  // the claim_ that last saw a holder
  };

  bool look_at(pid_t pid, Depth depth);
  bool start_watching(procfs::ProcessHandle handle);
  void read_identity(Watched& watched);
  void forget_the_dead();
  void claim_sockets();
  bool read_tables(const Watched& watched);
  void look_for_unknown_rows();
  [[nodiscard]] bool is_young(uint64_t start_time_ticks) const;

  const int root_;
  const uint64_t agent_start_ticks_;
  std::unordered_map<pid_t, Known> known_;
  std::unordered_map<pid_t, Watched> watched_;
  std::unordered_map<uint64_t, Socket> sockets_;  // by inode
  uint64_t generation_ = 0;
  uint64_t claim_ = 0;
  uint64_t pass_ = 0;
  struct Row {
    uint64_t inode = 0;
    uint64_t tx_queue_bytes = 0;
  };
  std::vector<Row> unowned_rows_;    // of the latest pass
  std::vector<uint64_t> foreign_;    // inodes that the pass before found to be nobody's; ascending
  uint64_t unlisted_processes_ = 0;  // watched, but their descriptors could not be listed
  ScanReport report_;
  std::vector<procfs::EnvironVariable> variables_;
  procfs::EnvironScan environ_;
  std::vector<char> pid_buffer_;   // for the listing of /proc, which goes on while processes are looked at
  std::vector<char> read_buffer_;  // for everything else, one thing at a time
};

}  // namespace kitty::collector
