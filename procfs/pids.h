// The processes listed in /proc. Nothing is allocated; thread-safe as long as buffers are not shared.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string_view>

#include "procfs/function_ref.h"
#include "procfs/read_status.h"

namespace kitty::procfs {

// The name of a process's directory: a positive decimal without leading zeros that fits into a pid.
[[nodiscard]] std::optional<pid_t> parse_pid(std::string_view name);

// Calls back with every pid under `root`, the directory from open_root; `buffer` is kDirectoryBufferBytes.
// `inode` is of the process's directory: another number may be another process; the same, while the directory
// is held open anywhere, is the same process. Processes may come and go meanwhile; those that hidepid= hides
// are not listed. Several threads may walk the same root.
[[nodiscard]] ReadResult walk_pids(int root, std::span<char> buffer,
                                   FunctionRef<void(pid_t pid, uint64_t inode)> on_pid);

}  // namespace kitty::procfs
