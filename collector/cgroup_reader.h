// What is read of control groups, as functions of a request that give an answer (expendable.h): where they
// are mounted, and the few small files of one. A process's user chooses neither: groups are made by who may
// write to the hierarchy, and what a path leads to counts only where it lies on the mounted hierarchy itself.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "collector/condition.h"
#include "collector/expendable.h"
#include "collector/process_reader.h"
#include "procfs/cgroup_mounts.h"
#include "procfs/cgroup_stat.h"
#include "procfs/directory.h"

namespace kitty::collector {

// Directories looked at for the one that the agent's own cgroup namespace begins with; once.
inline constexpr size_t kMaxCgroupsSearched = 16384;

// A mounted hierarchy.
struct CgroupTree {
  Fd directory;
  dev_t device = 0;            // of everything on it
  std::string root;            // procfs::Mount::root, without escapes
  std::string namespace_path;  // procfs::path_below(); empty where it is not known

  // Relative to `directory`; nothing where the group is not known to lie there.
  [[nodiscard]] std::optional<std::string> below(std::string_view path) const;
};
using Tree = std::shared_ptr<const CgroupTree>;

// The hierarchies that this program can read. Of several mounts of one that which shows most is taken: in a
// container with a cgroup namespace of its own, the host's where that is mounted, too.
class CgroupTreesReader {
 public:
  using Request = Root;
  struct Answer {
    Tree unified;  // version 2; null where none is mounted
    Tree cpu;      // version 1 of the cpu controller; where there is one, version 2 does not have it
  };
  Answer read(const Request& root, Turns& turns);

 private:
  struct Found {
    dev_t device = 0;
    std::string root;
    std::string point;
  };
  void note(const procfs::Mount& mount, bool is_kind, std::optional<Found>& most, std::optional<Found>& own);
  static std::shared_ptr<CgroupTree> open(const std::optional<Found>& found);
  void find_namespace(CgroupTree& tree, const std::optional<Found>& own, Turns& turns);
  bool search(int directory, ino_t inode, size_t levels, std::string& path, Turns& turns);

  size_t searched_ = 0;
  std::array<char, procfs::kMountinfoBufferBytes> buffer_;
  std::array<char, procfs::kMountinfoBufferBytes> unescaped_;
};

// One group's files.
class CgroupReader {
 public:
  struct Request {
    Tree tree;
    std::string path;  // CgroupTree::below()
    uid_t uid = 0;     // of a process in it
    bool throttled = false;
    bool pressure = false;
  };
  struct Answer {
    procfs::ReadResult result;             // of the group, and of cpu.stat where that was asked for
    uint64_t inode = 0;                    // of its directory: another one is another group
    std::optional<uint64_t> throttled_us;  // absent where the cpu controller is not in use here
    std::array<std::optional<uint64_t>, kResources> pressure_us;
  };
  Answer read(const Request& request, Turns& turns);

 private:
  std::array<char, procfs::kCgroupStatBufferBytes> buffer_;
};

}  // namespace kitty::collector
