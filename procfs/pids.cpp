#include "procfs/pids.h"

#include <fcntl.h>

#include <limits>

#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {

std::optional<pid_t> parse_pid(std::string_view name) {
  if (name.starts_with('0')) return std::nullopt;
  const auto number = parse_decimal(name);
  if (!number || *number > static_cast<uint64_t>(std::numeric_limits<pid_t>::max())) return std::nullopt;
  return static_cast<pid_t>(*number);
}

ReadResult walk_pids(int root, std::span<char> buffer, FunctionRef<void(pid_t pid, uint64_t inode)> on_pid) {
  // Opened anew each time: the position belongs to the open file, and starts at the beginning.
  const auto directory = open_at(root, ".", O_DIRECTORY);
  if (!directory) return directory.error();
  return walk_directory(directory->get(), buffer, [&](const char* name, uint64_t inode) {
    if (const auto pid = parse_pid(name)) on_pid(*pid, inode);
  });
}

}  // namespace kitty::procfs
