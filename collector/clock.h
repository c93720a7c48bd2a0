// The clocks that kitty compares with: BPF's bpf_ktime_get_ns(), CLOCK_MONOTONIC, nanoseconds since boot
// without time asleep; and that of start times in /proc, CLOCK_BOOTTIME in hundredths of a second; and the
// wall's.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace kitty::collector {

[[nodiscard]] inline uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// As the kernel counts a process's start time, which it cuts to whole ticks, too (kernel/time/time.c,
// nsec_to_clock_t): `ticks_per_second` divides a second evenly.
[[nodiscard]] constexpr uint64_t to_ticks(const timespec& time, uint64_t ticks_per_second) {
  return static_cast<uint64_t>(time.tv_sec) * ticks_per_second +
         static_cast<uint64_t>(time.tv_nsec) / (1'000'000'000 / ticks_per_second);
}

// Now, on the clock of ProcessStat::start_time_ticks.
[[nodiscard]] inline uint64_t boot_ticks() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return to_ticks(now, static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
}

// What one of the kernel's jiffies lasts, 1/HZ s: the resolution of the coarse clocks
// (kernel/time/posix-timers.c, posix_get_coarse_res).
[[nodiscard]] inline uint64_t jiffy_ns() {
  timespec resolution{};
  clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
  return static_cast<uint64_t>(resolution.tv_nsec);
}

// Seconds since the epoch, to the millisecond: two agents started one after the other are told apart by it.
[[nodiscard]] inline double unix_seconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const long milliseconds = now.tv_nsec / 1'000'000;
  return static_cast<double>(now.tv_sec) + static_cast<double>(milliseconds) / 1e3;
}

[[nodiscard]] inline double seconds_since(uint64_t start_ns) {
  return static_cast<double>(monotonic_ns() - start_ns) / 1e9;
}

}  // namespace kitty::collector
