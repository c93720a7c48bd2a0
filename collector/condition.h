// Why a watched process may be late, of its own doing or its node's: what CPU time it gets, what it waits in,
// and for how long its control group was kept from CPU, disk and memory. All of it is read by the scanner,
// each second, apart from ProcessState, which is made anew less often. Plain data; what is not known is
// absent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "procfs/process.h"

namespace kitty::collector {

// As /proc/PID/cgroup has them (procfs::Cgroup); empty where it is in none, or that is not known.
struct CgroupPaths {
  std::string unified;
  std::string cpu;
};

// What a cgroup's processes wait for, as the kernel accounts it (accounting/psi.rst).
enum class Resource : uint8_t { cpu, io, memory };
inline constexpr size_t kResources = 3;

struct Condition {
  // Of all its threads, those that have ended included (utime + stime of /proc/PID/stat), in
  // 1/sysconf(_SC_CLK_TCK) s. Does not fall.
  std::optional<uint64_t> cpu_ticks;
  // Of its main thread, or of the one it is read through where that has ended; as proc_pid_stat(5) has it.
  char state = 0;
  // Of its cgroup and of all above it, added up: a quota holds back whatever lies below. Over all CPUs, so it
  // may grow by more than a second a second. Does not fall, also where the process is moved.
  std::optional<uint64_t> throttled_us;
  // Of its cgroup, in which some process waited for the resource. Likewise.
  std::array<std::optional<uint64_t>, kResources> pressure_us;
};

// Of all watched processes but workers, at one moment. Immutable once published.
struct Conditions {
  struct Of {
    procfs::ProcessId id;
    Condition condition;
  };
  uint64_t read_ns = 0;          // CLOCK_MONOTONIC, when they had all been read
  uint64_t cgroups_dropped = 0;  // processes of them whose cgroups there was no room for (kMaxCgroupsRead)
  std::vector<Of> processes;     // ascending by pid
};

}  // namespace kitty::collector
