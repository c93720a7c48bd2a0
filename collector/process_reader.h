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
#include "collector/expendable.h"
#include "collector/process_state.h"
#include "procfs/directory.h"
#include "procfs/environ.h"
#include "procfs/process.h"

namespace kitty::collector {

// Hung reads that one user's processes may cost, and as many more for those of his that are watched.
inline constexpr size_t kMaxHungReadsOfUser = 32;

// Which program a process runs, as far as its stat tells. execve(2) changes neither pid nor start time, but
// where arguments, environment, code and stack lie; without address space randomisation it may change the
// name only.
struct Program {
  uint64_t start_time_ticks = 0;
  uint64_t mark = 0;  // of name and places
  friend bool operator==(const Program&, const Program&) = default;
};
[[nodiscard]] Program program_of(const procfs::ProcessStat& stat);

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
    Handle held;                      // of a watched process; else it is looked up
    std::optional<Program> known;     // whose environment need not be read again
    std::optional<uid_t> owner;       // where it is known
    bool environment_allowed = true;  // to be read at all this time
    bool is_worker = false;           // of a held one nothing else is wanted
    bool with_uid = false;            // of a held one
  };
  // Of a process that is to be watched, and of a watched one.
  struct Details {
    Handle handle;
    uint64_t inode = 0;  // of its directory
    uid_t uid = kUnknownUid;
    std::string comm;
    pid_t parent = 0;
    RankLabels labels;  // with an environment that was read
    std::string container_id;
    std::string pod_uid;
    uint32_t netns = 0;  // 0: could not be read
  };
  struct Answer {
    procfs::ReadResult result;  // of stat: gone also for a dead process whose directory is held
    Program program;
    uid_t owner = 0;
    bool environment_read = false;  // it was tried, and `environment` says how that ended
    bool wanted = false;            // it says KITTY_WATCH=1
    bool empty = false;             // or yet to be laid out
    bool overwritten = false;
    procfs::ReadResult environment;
    std::unique_ptr<Details> details;
  };

  ProcessReader();
  ProcessReader(const ProcessReader&) = delete;
  ProcessReader& operator=(const ProcessReader&) = delete;
  Answer read(const Request& request, Turns& turns);

 private:
  Answer read_held(const Request& request, Turns& turns);
  Answer read_listed(const Request& request, Turns& turns);
  void read_environment(int directory, Answer& answer);

  std::vector<procfs::EnvironVariable> variables_;
  procfs::EnvironScan environ_;
  std::array<char, procfs::kEnvironBufferBytes> buffer_;
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
