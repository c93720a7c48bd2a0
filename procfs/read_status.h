// How reading something under /proc ended, as a value that costs nothing: processes vanish and refuse all the
// time, and the callers count these ends rather than print them. Values only; thread-safe.
#pragma once

#include <cstdint>
#include <expected>
#include <string_view>

namespace kitty::procfs {

enum class ReadStatus : uint8_t {
  ok,
  gone,       // the process or the file is not there (any more): ENOENT, ESRCH
  denied,     // EACCES, EPERM: another user's process without CAP_SYS_PTRACE, hidepid=, a seccomp or LSM rule
  malformed,  // it was read and is not what the kernel writes
  too_long,   // it did not fit into the caller's buffer
  failed,     // any other errno
  stuck,      // it has not come back: never given by the functions here, but by those who leave them behind
};

struct ReadResult {
  ReadStatus status = ReadStatus::ok;
  int err = 0;  // the errno behind gone, denied and failed, else 0

  [[nodiscard]] bool ok() const { return status == ReadStatus::ok; }
  friend bool operator==(const ReadResult&, const ReadResult&) = default;
};

template <class T>
using ReadExpected = std::expected<T, ReadResult>;

// Sorts an errno value into gone, denied or failed.
[[nodiscard]] ReadResult read_failure(int err);

// "ok", "gone", "denied", "malformed", "too_long", "failed", "stuck": as a log field or a label.
[[nodiscard]] std::string_view status_name(ReadStatus status);

}  // namespace kitty::procfs
