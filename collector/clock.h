// CLOCK_MONOTONIC as BPF's bpf_ktime_get_ns() counts it: nanoseconds since boot, without time asleep.
#pragma once

#include <cstdint>
#include <ctime>

namespace kitty::collector {

[[nodiscard]] inline uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// What one of the kernel's jiffies lasts, 1/HZ s: the resolution of the coarse clocks
// (kernel/time/posix-timers.c, posix_get_coarse_res).
[[nodiscard]] inline uint64_t jiffy_ns() {
  timespec resolution{};
  clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
  return static_cast<uint64_t>(resolution.tv_nsec);
}

[[nodiscard]] inline double seconds_since(uint64_t start_ns) {
  return static_cast<double>(monotonic_ns() - start_ns) / 1e9;
}

}  // namespace kitty::collector
