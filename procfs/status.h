// /proc/PID/status (proc_pid_status(5)): whose process it is. The owner of the directory /proc/PID does not
// tell: that is root for a process that may not be dumped. The parser owns and allocates nothing;
// thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// The file's beginning, which holds the ids: ten short lines and a name of at most 64 bytes, escaped. What
// follows may be long: the groups alone are up to 65,536 numbers.
inline constexpr size_t kStatusBufferBytes = 1024;

// The real user id, as the reader's user namespace numbers it: of who started the program, for a set-user-ID
// program runs with what its caller put into the environment. Nothing where the line is not there, or cut.
[[nodiscard]] std::optional<uid_t> parse_real_uid(std::string_view text);

// Reads it of the process behind `pid_dirfd`.
[[nodiscard]] ReadExpected<uid_t> read_real_uid(int pid_dirfd, std::span<char> buffer);

}  // namespace kitty::procfs
