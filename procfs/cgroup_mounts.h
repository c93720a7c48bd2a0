// Where control groups are mounted, by /proc/self/mountinfo (proc_pid_mountinfo(5)), and which directory
// there is the one that /proc/PID/cgroup names. Nothing is allocated; thread-safe as long as buffers are not
// shared.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string_view>

#include "procfs/function_ref.h"
#include "procfs/read_status.h"

namespace kitty::procfs {

// The longest line that is understood: two paths of at most PATH_MAX, each byte of which may be escaped as
// four, are longer, and are no cgroup's.
inline constexpr size_t kMountinfoBufferBytes = size_t{16} * 1024;

// Groups are looked for no deeper, and under no longer paths. A pod's container is four deep under systemd;
// one that runs containers itself has twice that.
inline constexpr size_t kMaxCgroupDepth = 16;
inline constexpr size_t kMaxCgroupPathBytes = 1024;

struct Mount {
  dev_t device = 0;  // as st_dev of all that lies on it
  // Which directory of the hierarchy is mounted, seen from the reader's cgroup namespace as the paths of
  // /proc/PID/cgroup are (cgroup_show_path of kernel/cgroup/cgroup.c); and where. Both escaped; they point
  // into the text.
  std::string_view root;
  std::string_view point;
  bool is_unified = false;  // version 2
  bool is_cpu = false;      // version 1 with the cpu controller
};

// Nothing if it is not a line of mountinfo. `line`: without its newline.
[[nodiscard]] std::optional<Mount> parse_mount(std::string_view line);

// Undoes the escapes of such a field: \ooo of three octal digits. Nothing where one is cut, or where `buffer`
// is too small for the result and a NUL, which follows it.
[[nodiscard]] std::optional<std::string_view> unescape(std::string_view field, std::span<char> buffer);

// A directory below a mount: "ABOVE/REST", without the slash where either is empty.
struct BelowMount {
  std::string_view above;
  std::string_view rest;
};

// Which directory below the mount of `mount_root` is the group `path` of /proc/PID/cgroup. Both begin with
// "/" and are seen from one cgroup namespace; either may lead out of it ("/.."). `namespace_path`: where
// below that mount the namespace's root lies, as in "kubepods/pod1", or empty where that is not known;
// `above` is of it, `rest` of `path`. Nothing where the group does not lie there, or where that cannot be
// told; nor beyond the bounds above. Neither has a component ".." or "." or an empty one.
[[nodiscard]] std::optional<BelowMount> path_below(std::string_view mount_root,
                                                   std::string_view namespace_path, std::string_view path);

// How many levels above the cgroup namespace's root the mount begins: 2 of "/../..". Nothing where it begins
// anywhere else.
[[nodiscard]] std::optional<size_t> levels_above(std::string_view mount_root);

// Calls back for each mount of the reader's mount namespace, in the order of mounting; lines that are no
// mount's, or too long for `buffer`, are passed over. `root`: from open_root().
ReadResult walk_mounts(int root, std::span<char> buffer, FunctionRef<void(const Mount&)> on_mount);

}  // namespace kitty::procfs
