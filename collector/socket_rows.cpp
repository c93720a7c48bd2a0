#include "collector/socket_rows.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/fd.h"
#include "collector/loopback_pair.h"
#include "loader/iterator.h"
#include "procfs/file.h"
#include "procfs/stat.h"

namespace kitty::collector {

namespace {

constexpr std::string_view kSelfTest = "socket list self-test";
constexpr size_t kRowsPerRead = 128;  // 16 KiB; the kernel collects up to 32 KiB before it hands any over

// No padding: rows come from the kernel as they lie there.
static_assert(sizeof(kitty_socket_row) == 80 + sizeof(kitty_counters));

std::unexpected<Error> failed(std::string_view step) { return fail(kSelfTest, step, errno); }

// One end of the test's connection, and what its row must say.
struct End {
  Fd fd;
  uint64_t inode = 0;
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  bool seen = false;

  [[nodiscard]] bool is(const kitty_socket_row& row) const {
    const uint32_t loopback[4] = {0, 0, htonl(0xffff), htonl(INADDR_LOOPBACK)};
    return row.inode == inode && row.state == TCP_ESTABLISHED && row.local_port == local_port &&
           row.remote_port == remote_port && std::ranges::equal(row.local, loopback) &&
           std::ranges::equal(row.remote, loopback);
  }
};

// Learns from the socket calls what the iterator must show.
Status describe(End& end) {
  struct stat status{};
  if (fstat(end.fd.get(), &status) != 0) return failed("fstat");
  end.inode = status.st_ino;
  sockaddr_in address{};
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(end.fd.get(), generic, &size) != 0) return failed("getsockname");
  end.local_port = ntohs(address.sin_port);
  if (getpeername(end.fd.get(), generic, &size) != 0) return failed("getpeername");
  end.remote_port = ntohs(address.sin_port);
  return {};
}

Result<std::array<End, 2>> connect_ends() {
  Result<LoopbackPair> pair = connect_loopback_pair(kSelfTest);
  if (!pair) return std::unexpected(pair.error());
  std::array<End, 2> ends;
  ends[0].fd = std::move(pair->client);
  ends[1].fd = std::move(pair->server);
  for (End& end : ends) {
    if (Status status = describe(end); !status) return std::unexpected(status.error());
  }
  return ends;
}

// The number this process has where it runs, and the start time that /proc shows for it.
Result<procfs::ProcessId> this_process() {
  const auto self = procfs::open_at(AT_FDCWD, "/proc/self", O_DIRECTORY);
  if (!self) return fail(kSelfTest, "/proc/self", self.error().err);
  std::array<char, procfs::kStatBufferBytes> buffer;
  const auto stat = procfs::read_stat(self->get(), buffer);
  if (!stat) return fail(kSelfTest, "/proc/self/stat", stat.error().err);
  return procfs::ProcessId{getpid(), stat->start_time_ticks};
}

}  // namespace

SocketRows::SocketRows(loader::Program program)
    : program_(std::move(program)),
      // The kernel's USER_HZ divides a second evenly everywhere (kernel/time/time.c, nsec_to_clock_t).
      ns_per_tick_(1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK))),
      buffer_(kRowsPerRead) {}

Result<SocketRows> SocketRows::open(const loader::Object& object, const loader::Btf& kernel) {
  Result<SocketRows> rows = open_program(object, kernel, "list_sockets");
  if (!rows) {
    if (Result<SocketRows> plain = open_program(object, kernel, "list_tcp_sockets")) rows = std::move(plain);
  }
  return rows;
}

Result<SocketRows> SocketRows::open_program(const loader::Object& object, const loader::Btf& kernel,
                                            std::string_view name) {
  const Result<loader::LinkedProgram> linked = object.link(name, &kernel);
  if (!linked) return std::unexpected(linked.error());
  Result<loader::Program> program =
      loader::Program::load(*linked, {.maps = {}, .license = object.license(), .kernel_btf = &kernel});
  if (!program) return std::unexpected(program.error());
  SocketRows rows(std::move(*program));
  if (Status works = rows.test_on_this_process(); !works) return std::unexpected(works.error());
  return rows;
}

Status SocketRows::test_on_this_process() {
  Result<std::array<End, 2>> ends = connect_ends();
  if (!ends) return std::unexpected(ends.error());
  const Result<procfs::ProcessId> self = this_process();
  if (!self) return std::unexpected(self.error());
  // First once as an error with all its words: list() keeps but the errno.
  if (auto run = loader::Iterator::start(program_, static_cast<uint32_t>(self->pid)); !run)
    return std::unexpected(run.error());
  const procfs::ReadResult listed = list(*self, [&](const kitty_socket_row& row) {
    for (End& end : *ends) end.seen = end.seen || end.is(row);
  });
  if (listed.status == procfs::ReadStatus::gone) {
    return fail(kSelfTest, {}, 0, "this very process is not found: its start time differs from /proc's");
  }
  if (!listed.ok()) return fail(kSelfTest, {}, listed.err);
  if (!std::ranges::all_of(*ends, &End::seen)) {
    return fail(kSelfTest, {}, 0, "it does not show both ends of a loopback connection of this process");
  }
  return {};
}

procfs::ReadResult SocketRows::list(const procfs::ProcessId& process, OnRow on_row) {
  auto run = loader::Iterator::start(program_, static_cast<uint32_t>(process.pid));
  if (!run) return procfs::read_failure(run.error().err);
  bool found = false;
  for (;;) {
    const auto bytes = run->read(std::as_writable_bytes(std::span(buffer_)));
    if (!bytes) return procfs::read_failure(bytes.error().err);
    if (*bytes == 0) break;
    if (*bytes % sizeof(kitty_socket_row) != 0) return {procfs::ReadStatus::malformed, 0};
    for (const kitty_socket_row& row : std::span(buffer_).first(*bytes / sizeof(kitty_socket_row))) {
      // The start time as do_task_stat of fs/proc/array.c prints it.
      const procfs::ProcessId visited{static_cast<pid_t>(row.tgid), row.start_boottime_ns / ns_per_tick_};
      if (visited != process) return {procfs::ReadStatus::gone, 0};
      found = true;
      if (row.inode != 0) on_row(row);
    }
  }
  return found ? procfs::ReadResult{} : procfs::ReadResult{procfs::ReadStatus::gone, 0};
}

}  // namespace kitty::collector
