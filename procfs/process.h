// One process, held by its directory under /proc. The directory belongs to the process and not to its number:
// once the process is gone every read through it says so, even if the pid has been given to another (measured
// on 6.18). It costs one descriptor, and pins neither the process, its memory nor its namespaces. Owns the
// descriptor; move-only. Any number of threads may read through one handle, each with its own buffer.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "procfs/cgroup.h"
#include "procfs/environ.h"
#include "procfs/fd_links.h"
#include "procfs/net_namespace.h"
#include "procfs/read_status.h"
#include "procfs/snmp.h"
#include "procfs/stat.h"
#include "procfs/status.h"
#include "procfs/tcp_table.h"

namespace kitty::procfs {

// The directory of a thread that has not ended, of the process behind `pid_dirfd`; gone where there is none.
// `buffer`: kDirectoryBufferBytes. Its files say of the process what the process's own say, which are empty
// once the main thread has ended.
[[nodiscard]] ReadExpected<Fd> open_living_thread(int pid_dirfd, std::span<char> buffer);

// Tells a process from all others of this boot; execve(2) does not change it.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time_ticks = 0;

  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

class ProcessHandle {
 public:
  // Opens the directory of `pid` under `root` (from open_root) and learns the start time. A zombie opens too.
  [[nodiscard]] static ReadExpected<ProcessHandle> open(int root, pid_t pid);

  // Of a directory that is open already, and a stat that was read through it.
  [[nodiscard]] static ProcessHandle hold(Fd directory, ProcessId id) { return {std::move(directory), id}; }

  // Of a directory from open_living_thread(), of the process `id`. `thread`: its own number and start time.
  [[nodiscard]] static ProcessHandle hold_thread(Fd directory, ProcessId id, ProcessId thread) {
    ProcessHandle handle(std::move(directory), id);
    handle.shown_ = thread;
    return handle;
  }

  [[nodiscard]] const ProcessId& id() const { return id_; }
  [[nodiscard]] bool is_of_thread() const { return shown_ != id_; }
  // Whether that stat, read through the held directory, is of whom it was opened for, and alive.
  [[nodiscard]] bool is_shown_alive(const ProcessStat& stat) const {
    return !stat.is_dead() && ProcessId{stat.pid, stat.start_time_ticks} == shown_;
  }
  [[nodiscard]] int dirfd() const { return directory_.get(); }

  // ok while the process lives, or the thread that it is held by; gone once that is a zombie or no more, or
  // should the directory show another than the one that was opened.
  [[nodiscard]] ReadResult check() const;
  // Unless it is known to be gone: a read that failed for want of descriptors does not end a process.
  [[nodiscard]] bool alive() const { return check().status != ReadStatus::gone; }

  // As the functions of the same names, for this process.
  [[nodiscard]] ReadExpected<ProcessStat> read_stat(std::span<char> buffer) const;
  [[nodiscard]] ReadExpected<uid_t> read_real_uid(std::span<char> buffer) const;
  [[nodiscard]] ReadResult read_environ(std::span<char> buffer, EnvironScan& scan) const;
  [[nodiscard]] ReadResult read_snmp(std::span<char> buffer, SnmpTcp& tcp) const;
  [[nodiscard]] TcpTableRead read_tcp_table(TcpTable table, std::span<char> buffer,
                                            TcpTableParser::OnRow on_row) const;
  [[nodiscard]] FdWalk walk_socket_fds(std::span<char> buffer,
                                       FunctionRef<void(uint64_t inode, const char* fd)> on_socket) const;
  [[nodiscard]] std::optional<std::string_view> read_socket_protocol(const char* fd,
                                                                     std::span<char> buffer) const;
  [[nodiscard]] std::optional<uint64_t> fd_count() const;
  [[nodiscard]] ReadExpected<uint64_t> read_net_namespace() const;
  [[nodiscard]] ReadExpected<uint64_t> read_net_files_inode() const;
  [[nodiscard]] ReadExpected<Cgroup> read_cgroup(std::span<char> buffer) const;

 private:
  ProcessHandle(Fd directory, ProcessId id) : directory_(std::move(directory)), id_(id), shown_(id) {}

  Fd directory_;
  ProcessId id_;
  ProcessId shown_;  // who the directory is of: the process, or a thread of it
};

}  // namespace kitty::procfs
