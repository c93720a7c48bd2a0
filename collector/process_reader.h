// What is read of one process, as functions of a request that give an answer: no shared state, buffers of
// their own, so that a thread that hangs in one may be left behind (expendable.h). What follows from the
// answers is the scanner's and the socket owners' business.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "collector/condition.h"
#include "collector/expendable.h"
#include "collector/label_scan.h"
#include "collector/process_state.h"
#include "procfs/directory.h"
#include "procfs/process.h"

namespace kitty::collector {

// Hung reads that one user's processes may cost, and as many more for those of his that are watched.
inline constexpr size_t kMaxHungReadsOfUser = 32;

// Which program a process runs, as far as its stat tells. execve(2) changes neither pid nor start time, but
// where arguments, environment, code and stack lie; without address space randomisation it may change the
// name only.
struct Program {
  uint64_t start_time_ticks = 0;
  uint64_t mark = 0;    // of name and places
  uint64_t layout = 0;  // of the places alone, which a fork keeps
  friend bool operator==(const Program&, const Program&) = default;
};
[[nodiscard]] Program program_of(const procfs::ProcessStat& stat);

// The environment that a process's program was given when it was executed (exec_log.h).
struct GivenEnvironment {
  uint64_t start_time_ticks = 0;  // of the process
  bool whole = false;             // else more of it is not known
  bool watched = false;
  RankLabels labels;  // of one that is to be watched
};

using Root = std::shared_ptr<const Fd>;  // the directory from procfs::open_root
using Handle = std::shared_ptr<const procfs::ProcessHandle>;

// The processes listed under the root.
class ListingReader {
 public:
  using Request = Root;
  struct Entry {
    pid_t pid = 0;
    uint64_t inode = 0;  // procfs::walk_pids
  };
  struct Answer {
    procfs::ReadResult result;
    std::vector<Entry> entries;
  };
  Answer read(const Request& root, Turns& turns);

 private:
  std::array<char, procfs::kDirectoryBufferBytes> buffer_;
};

// Who a process is, and its environment where it runs another program than the one that is known.
class ProcessReader {
 public:
  struct Request {
    Root root;
    pid_t pid = 0;
    Handle held;                                    // of a watched process; else it is looked up
    std::optional<Program> known;                   // whose environment need not be read again
    std::optional<uid_t> owner;                     // where it is known
    bool environment_allowed = true;                // to be read at all this time
    std::shared_ptr<const GivenEnvironment> given;  // of the program it runs; goes before what is read
    bool is_worker = false;                         // of a held one nothing else is wanted
    bool with_uid = false;                          // of a held one, and its cgroup
  };
  // Of a watched process, one that is to be watched, and one whose environment does not tell.
  struct Details {
    Handle handle;       // of a watched one only where another one than the request's serves now
    uint64_t inode = 0;  // of its directory
    uid_t uid = kUnknownUid;
    std::string comm;
    pid_t parent = 0;
    RankLabels labels;                  // with an environment that was read
    std::optional<CgroupPaths> cgroup;  // where it was read
    std::string container_id;
    std::string pod_uid;
    uint32_t netns = 0;  // 0: could not be read
  };
  struct Answer {
    procfs::ReadResult result;  // of stat: gone also for a dead process whose directory is held
    Program program;
    Condition condition;  // of a held one that is no worker: what its stat tells
    uid_t owner = 0;
    bool environment_read = false;  // it was tried, and `environment` says how that ended
    bool as_given = false;          // `given` told
    bool wanted = false;            // it says KITTY_WATCH=1
    bool empty = false;             // or yet to be laid out
    bool overwritten = false;       // and says nothing, or less than it did
    procfs::ReadResult environment;
    std::unique_ptr<Details> details;
  };

  Answer read(const Request& request, Turns& turns);

 private:
  Answer read_held(const Request& request, Turns& turns);
  Answer read_listed(const Request& request, Turns& turns);
  Handle find_again(int root, const procfs::ProcessId& id);
  Condition condition_of(int root, const procfs::ProcessHandle& held, const procfs::ProcessStat& stat);
  RankLabels read_environment(const Request& request, int directory, Answer& answer);

  LabelScan environment_;
  std::array<char, procfs::kDirectoryBufferBytes> buffer_;
};

// The name of a process, from the one file that nothing but the end of the process makes wait.
class NameReader {
 public:
  struct Request {
    Root root;
    pid_t pid = 0;
  };
  using Answer = std::string;
  Answer read(const Request& request, Turns& turns);
};

}  // namespace kitty::collector
