#include "procfs/fd_links.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <array>

#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

// Longer than `socket:[18446744073709551615]`; links to longer paths are none of ours.
constexpr size_t kLinkBytes = 64;

}  // namespace

std::optional<uint64_t> parse_socket_link(std::string_view link) { return parse_bracketed(link, "socket:["); }

FdWalk walk_socket_fds(int pid_dirfd, std::span<char> buffer, FunctionRef<void(uint64_t inode)> on_socket) {
  FdWalk walk;
  const auto directory = open_at(pid_dirfd, "fd", O_DIRECTORY);
  if (!directory) {
    walk.result = directory.error();
    return walk;
  }
  walk.result = walk_directory(directory->get(), buffer, [&](const char* name) {
    ++walk.fds;
    std::array<char, kLinkBytes> text;
    const auto link = read_link_at(directory->get(), name, text);
    if (!link) {
      if (link.error().status == ReadStatus::gone) {
        ++walk.vanished;
      } else if (link.error().status != ReadStatus::too_long) {
        ++walk.unreadable;
      }
      return;
    }
    if (const auto inode = parse_socket_link(*link)) {
      ++walk.sockets;
      on_socket(*inode);
    }
  });
  return walk;
}

std::optional<uint64_t> fd_count(int pid_dirfd) {
  struct stat status;
  if (::fstatat(pid_dirfd, "fd", &status, 0) != 0 || status.st_size <= 0) return std::nullopt;
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace kitty::procfs
