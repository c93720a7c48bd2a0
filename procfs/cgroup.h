// /proc/PID/cgroup (cgroups(7)): which control groups a process is in, and in which container and pod it
// runs, as far as the paths tell. The parser owns and allocates nothing; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// Some 13 lines (version 1 hierarchies) with a container's path each.
inline constexpr size_t kCgroupBufferBytes = size_t{16} * 1024;

inline constexpr size_t kContainerIdBytes = 64;
inline constexpr size_t kPodUidBytes = 36;        // 8-4-4-4-12
inline constexpr size_t kStaticPodUidBytes = 32;  // pods from a node's manifest files: no dashes

struct Cgroup {
  // 64 lower-case hexadecimal digits, or empty; points into the text.
  std::string_view container_id;
  // The pod's uid as Kubernetes writes it, or empty. A copy, because systemd's unit names have "_" in place
  // of "-".
  std::array<char, kPodUidBytes> pod_uid_bytes{};
  uint8_t pod_uid_size = 0;
  // Where it is in the version 2 hierarchy, and in the version 1 hierarchy of the cpu controller; empty where
  // it is in none. Each begins with "/" and is seen from the reader's cgroup namespace: what lies outside
  // begins with "/.." (cgroup_namespaces(7)). They point into the text.
  std::string_view unified_path;
  std::string_view cpu_path;

  [[nodiscard]] std::string_view pod_uid() const { return {pod_uid_bytes.data(), pod_uid_size}; }
};

// Container and pod are the innermost on the first line that has one: `.../kubepods/burstable/podUID/ID`
// (cgroupfs driver),
// `.../kubepods-burstable-podUID.slice/cri-containerd-ID.scope` (systemd driver), `/docker/ID`,
// `libpod-ID.scope` and the like. Lines that are no cgroup lines are passed over.
[[nodiscard]] Cgroup parse_cgroup(std::string_view text);

// Reads cgroup of the process behind `pid_dirfd`; the result points into `buffer`.
[[nodiscard]] ReadExpected<Cgroup> read_cgroup(int pid_dirfd, std::span<char> buffer);

}  // namespace kitty::procfs
