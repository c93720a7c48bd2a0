#include "procfs/fd_links.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <array>
#include <cstdio>

#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

// Longer than `socket:[18446744073709551615]`; links to longer paths are none of ours.
constexpr size_t kLinkBytes = 64;

}  // namespace

std::optional<uint64_t> parse_socket_link(std::string_view link) { return parse_bracketed(link, "socket:["); }

FdWalk walk_socket_fds(int pid_dirfd, std::span<char> buffer,
                       FunctionRef<void(uint64_t inode, const char* fd)> on_socket) {
  FdWalk walk;
  const auto directory = open_at(pid_dirfd, "fd", O_DIRECTORY);
  if (!directory) {
    walk.result = directory.error();
    return walk;
  }
  walk.result = walk_directory(directory->get(), buffer, [&](const char* name, uint64_t) {
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
      on_socket(*inode, name);
    }
  });
  return walk;
}

// There is no getxattrat(2) before Linux 6.13; the path leads through the held directory all the same.
std::optional<std::string_view> read_socket_protocol(int pid_dirfd, const char* fd, std::span<char> buffer) {
  std::array<char, 64> path;
  const int length = snprintf(path.data(), path.size(), "/proc/self/fd/%d/fd/%s", pid_dirfd, fd);
  if (length < 0 || static_cast<size_t>(length) >= path.size()) return std::nullopt;
  const ssize_t size = ::getxattr(path.data(), "system.sockprotoname", buffer.data(), buffer.size());
  if (size <= 0) return std::nullopt;
  const std::string_view name(buffer.data(), static_cast<size_t>(size));
  return name.substr(0, name.find('\0'));
}

std::optional<uint64_t> fd_count(int pid_dirfd) {
  struct stat status;
  if (::fstatat(pid_dirfd, "fd", &status, 0) != 0 || status.st_size <= 0) return std::nullopt;
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace kitty::procfs
