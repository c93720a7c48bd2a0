// Finds the watched processes and what they own. Remembers what it learned from scan to scan: an environment
// that a process overwrote later (setproctitle), which processes are not worth reading again soon, and which
// hang whoever reads of them. It reads nothing itself: what may never come back is done by threads that may
// be left behind (expendable.h). One thread uses it; snapshots may be handed to any.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "collector/cgroups.h"
#include "collector/condition.h"
#include "collector/exec_log.h"
#include "collector/expendable.h"
#include "collector/hang.h"
#include "collector/label_scan.h"
#include "collector/process_reader.h"
#include "collector/process_state.h"
#include "collector/roles.h"
#include "collector/shares.h"
#include "collector/socket_owners.h"

namespace kitty::collector {

// Most programs are executed by a process that has just been forked: what a discovery between two full ones
// looks at.
inline constexpr std::chrono::seconds kYoung{60};
// A worker among them is looked at for so long: a forked child that executes a program does so at once.
inline constexpr std::chrono::seconds kYoungWorker{10};
// An environment that has been read is read again when another program is executed (Program). A process may
// pretend that as often as it likes (prctl(PR_SET_MM)): from so many readings on each costs a pause, the
// first of kFirstRereadPause, then twice as long each time. One that was too long counts as kTooLongReadings.
inline constexpr unsigned kFreeReadings = 12;
inline constexpr unsigned kTooLongReadings = 4;
inline constexpr std::chrono::seconds kFirstRereadPause{5};
inline constexpr std::chrono::seconds kLastRereadPause{320};
// Of processes that begin to hang, named in the log at one discovery; the rest are counted there.
inline constexpr size_t kMaxStuckLogged = 8;

class Scanner {
 public:
  enum class Depth { all, new_and_young };

  // `procfs_root`: an open directory, which is duplicated. `rows` (SocketOwners), owned by the caller, may be
  // null. Watches `max_processes` at most: each costs a descriptor. Users have fair shares of them (Places);
  // what a user gives up is a worker, else a process that never had a socket, else the one that started last.
  Scanner(int procfs_root, SocketRows* rows, size_t max_processes = kMaxWatchedProcesses);

  // Processes, their labels and their sockets' inodes.
  void discover(Depth depth);
  // A program was executed, and with which environment. That holds for its process whatever becomes of the
  // one under /proc, until another program is executed.
  void executed(const ExecutedProgram& program);
  // Looks at those of these processes that are, or are to be, watched. True if anything has changed. The rest
  // wait for the next discovery.
  bool look_at_executed();
  // Looks at the watched processes alone, and drops those that have ended, so that what they shared goes to
  // those that still hold it. True if anything has changed.
  bool drop_dead();
  // What the watched processes but workers were found to do when they were last looked at, and what their
  // cgroups say now.
  [[nodiscard]] std::shared_ptr<const Conditions> conditions();
  // What the sockets are connected to and have queued (SocketOwners::pass).
  void pass_sockets();
  // Who is a rank is told anew (Roles).
  [[nodiscard]] std::shared_ptr<const ProcessState> snapshot();
  // Of these a thread of ours still waits in the kernel.
  [[nodiscard]] std::vector<StuckProcess> waited_for() const;
  // Ends what another thread does here within milliseconds; nothing more is read afterwards. Thread-safe.
  void cancel() { reads_->cancel(); }

 private:
  struct Known {
    Program program;           // whose environment was read
    bool young = true;         // at the latest look
    bool read = false;         // the environment was read, or will not be any better
    bool dropped = false;      // to be watched, but beyond the limit
    bool overwritten = false;  // its environment, so that nobody knows whether it is to be watched
    uid_t uid = kUnknownUid;   // of one that is dropped, as is
    bool inherits = false;
    bool waiting = false;            // refused its first look
    unsigned readings = 0;           // of its environment
    uint64_t reread_ns = 0;          // not before
    procfs::ReadResult environment;  // of the latest reading
    procfs::ReadResult result;       // of the latest look
    std::optional<uid_t> owner;      // of its directory: whom hung reads count against
    uint64_t inode = 0;              // of its directory
    uint64_t seen = 0;               // the generation_ that last listed it
    uint64_t tried = 0;              // the generation_ that last read of it
    std::unique_ptr<Hang> hang;      // of those that ever hung
    std::string comm;                // of those that hang
  };
  struct Watched {
    WatchedProcess process;  // without its sockets
    pid_t parent = 0;        // when it was first seen
    Program program;         // whose environment its labels come from
    bool inherits = false;   // its labels are a watched ancestor's
    bool member = false;     // has had a socket of its own
    Condition condition;     // without its cgroup's; empty where it could not be read
    CgroupPaths cgroup;      // at the latest discovery
    uint64_t owner_ns = 0;   // when it was first listed with a socket that no elder is known to hold
    std::optional<uid_t> owner;
    uint64_t inode = 0;
    unsigned readings = 0;
    uint64_t reread_ns = 0;
    Hang hang;
  };
  using Processes = ReadBatch<ProcessReader>;

  procfs::ReadResult list();
  // Which of the watched: a worker costs next to nothing between full discoveries, but may yet execute a
  // rank.
  enum class Which { all, but_workers, young_workers };
  bool look_at_watched(Which which);
  bool look_at_watched(const std::vector<pid_t>& pids, bool with_uid);
  [[nodiscard]] bool is_wanted(const Watched& watched, Which which) const;
  bool look_at_others(const std::vector<pid_t>& pids);
  [[nodiscard]] std::vector<pid_t> due(Depth depth) const;
  bool take(pid_t pid, ProcessReader::Answer& answer);
  bool take_watched(Watched& watched, ProcessReader::Answer& answer);
  void start_watching(pid_t pid, const Known& known, ProcessReader::Answer& answer);
  void name_the_stuck(const std::vector<pid_t>& pids);
  void say_refused(size_t refused);
  [[nodiscard]] bool has_room_for(const Known& known) const;
  bool make_room_for(const Known& known);
  void give_up_one(uid_t uid);
  void count_places();
  [[nodiscard]] std::shared_ptr<const GivenEnvironment> given_to(pid_t pid) const;
  void forget_given(pid_t pid, const ProcessReader::Request& request, const ProcessReader::Answer& answer);
  [[nodiscard]] bool take_after_parent(const Program& program, ProcessReader::Details& details) const;
  [[nodiscard]] bool inherits(const RankLabels& labels, pid_t parent, uint64_t start_time_ticks) const;
  [[nodiscard]] bool owns(Watched& watched) const;
  void tell_workers();
  void forget_the_unlisted();
  [[nodiscard]] std::vector<SocketOwners::Holder> holders() const;
  [[nodiscard]] static bool is_young(uint64_t start_time_ticks, std::chrono::seconds limit);

  const Root root_;
  const size_t max_processes_;
  const uint64_t agent_start_ticks_;
  std::unique_ptr<Expendable> reads_;
  SocketOwners owners_;
  Cgroups cgroups_;
  Roles roles_;
  std::unordered_map<pid_t, Known> known_;
  std::unordered_map<pid_t, Watched> watched_;
  std::vector<ListingReader::Entry> listing_;  // of the latest discovery
  std::unique_ptr<LabelScan> given_scan_;
  // Not used yet. As many come as the kernel keeps of one look, and go at the next full discovery at the
  // latest.
  std::unordered_map<pid_t, std::shared_ptr<const GivenEnvironment>> given_;
  std::vector<pid_t> executed_;  // since the latest look at these
  Hang listing_hang_;
  Expendable::Outcome outcome_;
  Places places_;
  uint64_t generation_ = 0;
  size_t refused_ = 0;  // of the latest look
  bool refused_before_ = false;
  ScanReport report_;
};

}  // namespace kitty::collector
