// Finds the watched processes and what they own. Remembers what it learned from scan to scan: an environment
// that a process overwrote later (setproctitle), and which processes are not worth reading again soon. One
// thread uses it; snapshots may be handed to any.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "collector/process_state.h"
#include "collector/shares.h"
#include "collector/socket_owners.h"
#include "procfs/environ.h"
#include "procfs/process.h"

namespace kitty::collector {

// Most programs are executed by a process that has just been forked: what a discovery between two full ones
// looks at.
inline constexpr std::chrono::seconds kYoung{60};
// A worker among them is looked at for so long: a forked child that executes a program does so at once.
inline constexpr std::chrono::seconds kYoungWorker{10};
// execve(2) changes the environment but not the start time. It shows in where arguments and environment lie
// (stat); should it not, a process found unwatched is read again once in so many discoveries, once a minute.
inline constexpr unsigned kRecheckDiscoveries = 12;

class Scanner {
 public:
  enum class Depth { all, new_and_young };

  // `procfs_root`: an open directory, owned by the caller, as is `rows` (SocketOwners), which may be null.
  // Watches `max_processes` at most: each costs a descriptor. Users have fair shares of them (Places); what a
  // user gives up is a worker, else a process that never had a socket, else the one that started last.
  Scanner(int procfs_root, SocketRows* rows, size_t max_processes = kMaxWatchedProcesses);

  // Processes, their labels and their sockets' inodes.
  void discover(Depth depth);
  // Drops the watched processes that have ended, so that what they shared goes to those that still hold it.
  // True if there were any.
  bool drop_dead();
  // What the sockets are connected to and have queued (SocketOwners::pass).
  void pass_sockets();
  [[nodiscard]] std::shared_ptr<const ProcessState> snapshot() const;

 private:
  // Where a program's arguments and environment lie: other places mean another program (execve).
  struct Layout {
    uint64_t arg_start = 0;
    uint64_t env_start = 0;
    friend bool operator==(const Layout&, const Layout&) = default;
  };
  struct Known {
    uint64_t start_time_ticks = 0;
    Layout layout;            // of the environment that was read
    bool young = true;        // at the latest look
    bool read = false;        // the environment was read, or refused
    bool dropped = false;     // to be watched, but beyond the limit
    uid_t uid = kUnknownUid;  // of one that is dropped, as is
    bool inherits = false;
    procfs::ReadResult result;  // of that
    uint64_t seen = 0;          // the generation_ that last listed it
  };
  struct Watched {
    WatchedProcess process;  // without its sockets
    pid_t parent = 0;        // when it was first seen
    Layout layout;           // of the environment that its labels come from
    bool inherits = false;   // its labels are a watched ancestor's
    bool member = false;     // has had a socket of its own
    uint64_t owner_ns = 0;   // when it was first listed with a socket that no elder is known to hold
    bool executed = false;   // another program since the latest refresh
    uint64_t confirmed = 0;  // the generation_ in which it was last seen to live and to be the same program
  };

  static Layout layout_of(const procfs::ProcessStat& stat);
  bool look_at(pid_t pid, Depth depth);
  void start_watching(procfs::ProcessHandle handle, const Known& known);
  [[nodiscard]] bool has_room_for(const Known& known) const;
  bool make_room_for(const Known& known);
  void give_up_one(uid_t uid);
  void count_places();
  [[nodiscard]] bool inherits(const RankLabels& labels, pid_t parent, uint64_t start_time_ticks) const;
  [[nodiscard]] bool owns(Watched& watched) const;
  void tell_workers();
  bool refresh(Watched& watched);
  [[nodiscard]] bool rests(const Watched& watched, Depth depth) const;
  bool erase_dead(Depth depth);
  void read_namespaces();
  void forget_the_unlisted();
  [[nodiscard]] std::vector<SocketOwners::Holder> holders() const;
  [[nodiscard]] static bool is_young(uint64_t start_time_ticks, std::chrono::seconds limit);

  const int root_;
  const size_t max_processes_;
  const uint64_t agent_start_ticks_;
  SocketOwners owners_;
  std::unordered_map<pid_t, Known> known_;
  std::unordered_map<pid_t, Watched> watched_;
  Places places_;
  uint64_t generation_ = 0;
  ScanReport report_;
  std::vector<procfs::EnvironVariable> variables_;
  procfs::EnvironScan environ_;
  std::vector<char> pid_buffer_;   // for the listing of /proc, which goes on while processes are looked at
  std::vector<char> read_buffer_;  // for everything else, one thing at a time
};

}  // namespace kitty::collector
