// Errors as values: what was being done, to what, what the kernel said, and why or what to do about it.
// The whole is printed once, in one line.
#pragma once

#include <expected>
#include <string>
#include <string_view>

namespace kitty {

struct Error {
  std::string operation;  // "load program"
  std::string object;     // "rtt_kprobe"; may be empty
  int err = 0;            // an errno value (524, ENOTSUPP, included), or 0 where no syscall failed
  std::string detail;     // cause and remedy in words; may be empty

  // "load program 'rtt_kprobe': Permission denied: missing CAP_PERFMON"
  [[nodiscard]] std::string message() const;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

// `return fail("open", path, errno);`
[[nodiscard]] std::unexpected<Error> fail(std::string_view operation, std::string_view object, int err,
                                          std::string_view detail = {});

// The errno's text; knows ENOTSUPP (524), which the kernel leaks and libc does not name. Thread-safe.
[[nodiscard]] std::string errno_text(int err);

}  // namespace kitty
