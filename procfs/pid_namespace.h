// Which pid namespace a procfs numbers processes in. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// `pid:[N]` as a whole (namespaces(7)).
[[nodiscard]] std::optional<uint64_t> parse_pid_link(std::string_view link);

// The inode number of the pid namespace that the procfs at `root` (from open_root) was mounted in: this
// process's own where that procfs gives it the number it has for itself, else that of the procfs's process 1,
// which takes CAP_SYS_PTRACE where it is another user's.
[[nodiscard]] ReadExpected<uint64_t> read_pid_namespace(int root);

}  // namespace kitty::procfs
