// /proc/PID/fd: which sockets a process holds, by inode. Nothing is allocated; thread-safe as long as buffers
// are not shared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "procfs/function_ref.h"
#include "procfs/read_status.h"

namespace kitty::procfs {

// `socket:[N]` as a whole, N decimal (sockfs_dname in net/socket.c); nothing for any other link.
[[nodiscard]] std::optional<uint64_t> parse_socket_link(std::string_view link);

struct FdWalk {
  ReadResult result;        // of the directory: denied for other users' processes without CAP_SYS_PTRACE
  uint64_t fds = 0;         // entries listed
  uint64_t sockets = 0;     // of these, reported
  uint64_t vanished = 0;    // closed between the listing and the look
  uint64_t unreadable = 0;  // of these links, refused or failed in any other way
};

// Calls back with the inode of every socket among the descriptors of the process behind `pid_dirfd`, and with
// the descriptor's name; a socket held through several descriptors comes several times. `buffer` is for the
// listing, kDirectoryBufferBytes. A zombie has an empty directory. Costs about 3 us a descriptor.
[[nodiscard]] FdWalk walk_socket_fds(int pid_dirfd, std::span<char> buffer,
                                     FunctionRef<void(uint64_t inode, const char* fd)> on_socket);

// Room for the longest of them; the kernel's own names have up to 32 bytes (struct proto of net/sock.h).
inline constexpr size_t kSocketProtocolBytes = 64;
// What the kernel calls the protocol of the socket behind that descriptor: "TCP", "TCPv6", "MPTCP", "UNIX",
// ... (system.sockprotoname, sockfs_xattr_get of net/socket.c). Nothing where it cannot be told, as where no
// procfs is mounted at /proc. `buffer`: kSocketProtocolBytes.
[[nodiscard]] std::optional<std::string_view> read_socket_protocol(int pid_dirfd, const char* fd,
                                                                   std::span<char> buffer);

// How many descriptors the process has open, where the kernel tells it (st_size of the directory, 6.2 and
// later) and there are any: a cheap reason not to walk.
[[nodiscard]] std::optional<uint64_t> fd_count(int pid_dirfd);

}  // namespace kitty::procfs
