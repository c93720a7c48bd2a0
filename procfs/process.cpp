#include "procfs/process.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/pids.h"

namespace kitty::procfs {

ReadExpected<Fd> open_living_thread(int pid_dirfd, std::span<char> buffer) {
  const auto threads = open_at(pid_dirfd, "task", O_DIRECTORY);
  if (!threads) return std::unexpected(threads.error());
  Fd living;
  const ReadResult walk = walk_directory(threads->get(), buffer, [&](const char* name, uint64_t) {
    if (living || !parse_pid(name)) return;
    auto thread = open_at(threads->get(), name, O_DIRECTORY);
    if (!thread) return;
    std::array<char, kStatBufferBytes> text;
    const auto stat = procfs::read_stat(thread->get(), text);
    if (stat && !stat->is_dead()) living = std::move(*thread);
  });
  if (living) return living;
  return std::unexpected(walk.ok() ? ReadResult{ReadStatus::gone, 0} : walk);
}

ReadExpected<ProcessHandle> ProcessHandle::open(int root, pid_t pid) {
  std::array<char, 16> name{};
  if (pid <= 0) return std::unexpected(read_failure(ESRCH));
  std::to_chars(name.data(), name.data() + name.size() - 1, pid);
  auto directory = open_at(root, name.data(), O_DIRECTORY);
  if (!directory) return std::unexpected(directory.error());
  std::array<char, kStatBufferBytes> buffer;
  const auto stat = procfs::read_stat(directory->get(), buffer);
  if (!stat) return std::unexpected(stat.error());
  if (stat->pid != pid) return std::unexpected(ReadResult{ReadStatus::malformed, 0});
  return ProcessHandle(std::move(*directory), {pid, stat->start_time_ticks});
}

ReadResult ProcessHandle::check() const {
  std::array<char, kStatBufferBytes> buffer;
  const auto stat = read_stat(buffer);
  if (!stat) return stat.error();
  return {is_shown_alive(*stat) ? ReadStatus::ok : ReadStatus::gone, 0};
}

ReadExpected<ProcessStat> ProcessHandle::read_stat(std::span<char> buffer) const {
  return procfs::read_stat(dirfd(), buffer);
}

ReadExpected<uid_t> ProcessHandle::read_real_uid(std::span<char> buffer) const {
  return procfs::read_real_uid(dirfd(), buffer);
}

ReadResult ProcessHandle::read_environ(std::span<char> buffer, EnvironScan& scan) const {
  return procfs::read_environ(dirfd(), buffer, scan);
}

ReadResult ProcessHandle::read_snmp(std::span<char> buffer, SnmpTcp& tcp) const {
  return procfs::read_snmp(dirfd(), buffer, tcp);
}

TcpTableRead ProcessHandle::read_tcp_table(TcpTable table, std::span<char> buffer,
                                           TcpTableParser::OnRow on_row) const {
  return procfs::read_tcp_table(dirfd(), table, buffer, on_row);
}

FdWalk ProcessHandle::walk_socket_fds(std::span<char> buffer,
                                      FunctionRef<void(uint64_t inode, const char* fd)> on_socket) const {
  return procfs::walk_socket_fds(dirfd(), buffer, on_socket);
}

std::optional<std::string_view> ProcessHandle::read_socket_protocol(const char* fd,
                                                                    std::span<char> buffer) const {
  return procfs::read_socket_protocol(dirfd(), fd, buffer);
}

std::optional<uint64_t> ProcessHandle::fd_count() const { return procfs::fd_count(dirfd()); }

ReadExpected<uint64_t> ProcessHandle::read_net_namespace() const {
  return procfs::read_net_namespace(dirfd());
}

ReadExpected<uint64_t> ProcessHandle::read_net_files_inode() const {
  return procfs::read_net_files_inode(dirfd());
}

ReadExpected<Cgroup> ProcessHandle::read_cgroup(std::span<char> buffer) const {
  return procfs::read_cgroup(dirfd(), buffer);
}

}  // namespace kitty::procfs
