// What a control group tells of the time its processes were kept from running: cpu.stat and the *.pressure
// files (cgroup-v2 in the kernel's Documentation/admin-guide, and accounting/psi.rst). The parsers own and
// allocate nothing; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// Some twenty lines of a name and a number; a pressure file has two short ones.
inline constexpr size_t kCgroupStatBufferBytes = 4096;

// Microseconds for which the group's own CPU quota held its processes back, added up over the CPUs it was
// held back on (throttled_time of kernel/sched/fair.c): `throttled_usec` in version 2, `throttled_time`, in
// nanoseconds, in version 1. Nothing where the file does not say: the cpu controller is not in use there.
[[nodiscard]] std::optional<uint64_t> parse_throttled_us(std::string_view text);

// Microseconds in which some process of the group waited for the resource: total= of the line "some".
[[nodiscard]] std::optional<uint64_t> parse_pressure_us(std::string_view text);

// Reads cpu.stat of the group behind `dirfd`.
[[nodiscard]] ReadExpected<std::optional<uint64_t>> read_throttled_us(int dirfd, std::span<char> buffer);

// Reads the pressure file `name`, as in "cpu.pressure". It fails where pressure is not accounted: the file is
// not there, or its reading is refused with EOPNOTSUPP (psi=0).
[[nodiscard]] ReadExpected<uint64_t> read_pressure_us(int dirfd, const char* name, std::span<char> buffer);

}  // namespace kitty::procfs
