#include "collector/cgroup_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "procfs/file.h"

namespace kitty::collector {

namespace {

constexpr std::array<const char*, kResources> kPressureFiles = {"cpu.pressure", "io.pressure",
                                                                "memory.pressure"};

// A directory of the hierarchy itself: not a link, and nothing that is mounted over it.
procfs::ReadExpected<Fd> open_group(const CgroupTree& tree, const std::string& path, ino_t* inode) {
  auto group =
      procfs::open_at(tree.directory.get(), path.empty() ? "." : path.c_str(), O_DIRECTORY | O_NOFOLLOW);
  if (!group) return group;
  struct stat status;
  if (::fstat(group->get(), &status) != 0) return std::unexpected(procfs::read_failure(errno));
  if (status.st_dev != tree.device)
    return std::unexpected(procfs::ReadResult{procfs::ReadStatus::malformed, 0});
  *inode = status.st_ino;
  return group;
}

}  // namespace

std::optional<std::string> CgroupTree::below(std::string_view path) const {
  const auto found = procfs::path_below(root, namespace_path, path);
  if (!found) return std::nullopt;
  std::string relative(found->above);
  if (!found->above.empty() && !found->rest.empty()) relative += '/';
  relative += found->rest;
  return relative;
}

// `most`: which begins highest, the latest where several do. `own`: which begins where the cgroup namespace
// does. What is mounted over one later hides it.
void CgroupTreesReader::note(const procfs::Mount& mount, bool is_kind, std::optional<Found>& most,
                             std::optional<Found>& own) {
  const auto point = procfs::unescape(mount.point, unescaped_);
  if (!point) return;
  Found found{.device = mount.device, .root = {}, .point = std::string(*point)};
  if (most && most->point == found.point) most.reset();
  if (own && own->point == found.point) own.reset();
  if (!is_kind) return;
  const auto root = procfs::unescape(mount.root, unescaped_);
  if (!root) return;
  found.root = *root;
  const auto levels = procfs::levels_above(found.root);
  if (levels == 0) own = found;
  const auto most_levels = most ? procfs::levels_above(most->root) : std::nullopt;
  // One that begins below the namespace's root, or beside it, is better than none.
  if (!most || (levels && (!most_levels || *levels >= *most_levels))) most = std::move(found);
}

std::shared_ptr<CgroupTree> CgroupTreesReader::open(const std::optional<Found>& found) {
  if (!found) return nullptr;
  auto directory = procfs::open_at(AT_FDCWD, found->point.c_str(), O_DIRECTORY);
  struct stat status;
  // Another device: something hides it after all.
  if (!directory || ::fstat(directory->get(), &status) != 0 || status.st_dev != found->device) return nullptr;
  return std::make_shared<CgroupTree>(CgroupTree{.directory = std::move(*directory),
                                                 .device = found->device,
                                                 .root = found->root,
                                                 .namespace_path = {}});
}

// Depth first, no deeper than `levels`. The directories of cgroupfs are listed with the inode numbers that
// stat(2) tells of them.
bool CgroupTreesReader::search(int directory, ino_t inode, size_t levels, std::string& path, Turns& turns) {
  if (++searched_ > kMaxCgroupsSearched) return false;
  if (searched_ % 64 == 0) turns.goes_on();
  std::vector<std::string> names;
  std::string found;
  (void)procfs::walk_directories(directory, buffer_, [&](const char* name, uint64_t number) {
    if (levels > 1) {
      names.emplace_back(name);
    } else if (number == inode) {
      found = name;
    }
  });
  const size_t size = path.size();
  const auto descend = [&](const std::string& name) {
    path.resize(size);
    if (size != 0) path += '/';
    path += name;
  };
  if (!found.empty()) {
    descend(found);
    return true;
  }
  for (const std::string& name : names) {
    const auto below = procfs::open_at(directory, name.c_str(), O_DIRECTORY | O_NOFOLLOW);
    if (!below) continue;
    descend(name);
    if (search(below->get(), inode, levels - 1, path, turns)) return true;
  }
  path.resize(size);
  return false;
}

// The names above this program's own cgroup namespace are told by nothing: that its root is the directory
// which the mount of the namespace begins with is.
void CgroupTreesReader::find_namespace(CgroupTree& tree, const std::optional<Found>& own, Turns& turns) {
  const auto levels = procfs::levels_above(tree.root);
  if (!levels || *levels == 0 || *levels > procfs::kMaxCgroupDepth || !own || own->device != tree.device)
    return;
  const auto directory = open(own);
  struct stat status;
  if (!directory || ::fstat(directory->directory.get(), &status) != 0) return;
  std::string path;
  if (search(tree.directory.get(), status.st_ino, *levels, path, turns)) tree.namespace_path = path;
}

CgroupTreesReader::Answer CgroupTreesReader::read(const Request& root, Turns& turns) {
  Answer answer;
  if (!turns.may_hang({.owner = 0}, kMaxHungReadsOfUser)) return answer;
  std::optional<Found> unified, own, cpu, own_cpu;
  (void)procfs::walk_mounts(root->get(), buffer_, [&](const procfs::Mount& mount) {
    note(mount, mount.is_unified, unified, own);
    note(mount, mount.is_cpu, cpu, own_cpu);
  });
  if (const auto tree = open(unified)) {
    find_namespace(*tree, own, turns);
    answer.unified = tree;
  }
  if (const auto tree = open(cpu)) {
    find_namespace(*tree, own_cpu, turns);
    answer.cpu = tree;
  }
  return answer;
}

CgroupReader::Answer CgroupReader::read(const Request& request, Turns& turns) {
  Answer answer;
  if (!turns.may_hang({.owner = request.uid}, kMaxHungReadsOfUser)) return answer;
  ino_t inode = 0;
  const auto group = open_group(*request.tree, request.path, &inode);
  if (!group) {
    answer.result = group.error();
    return answer;
  }
  answer.inode = inode;
  if (request.throttled) {
    const auto throttled_us = procfs::read_throttled_us(group->get(), buffer_);
    // Before Linux 5.8 the root of version 2 has no such file, nor ever a quota.
    if (throttled_us) {
      answer.throttled_us = *throttled_us;
    } else if (throttled_us.error().status != procfs::ReadStatus::gone) {
      answer.result = throttled_us.error();
    }
  }
  for (size_t i = 0; request.pressure && i < kResources; ++i) {
    const auto total_us = procfs::read_pressure_us(group->get(), kPressureFiles[i], buffer_);
    if (total_us) answer.pressure_us[i] = *total_us;
  }
  return answer;
}

}  // namespace kitty::collector
