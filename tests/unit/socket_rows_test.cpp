// The sockets of real processes of this machine as the kernel's iterator lists them, against what the socket
// calls and net/tcp say of the same.
#include "collector/socket_rows.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collector/embedded_object.h"
#include "collector/rtt_hook.h"
#include "kernel_tests.h"
#include "loader/explain.h"
#include "loader/kernel_btf.h"
#include "procfs/file.h"
#include "tcp_pair.h"
#include "tests/allocation_count.h"
#include "watched_child.h"

namespace kitty::collector {
namespace {

using procfs::ReadStatus;
using testing::inode_of;
using testing::sleeper;
using testing::TcpPair;
using testing::WatchedChild;

procfs::ProcessHandle process_at(pid_t pid) {
  const auto root = procfs::open_root("/proc");
  auto handle = procfs::ProcessHandle::open(root->get(), pid);
  EXPECT_TRUE(handle) << "pid " << pid;
  return std::move(*handle);
}

Result<SocketRows> open_rows() {
  const auto object = loader::Object::parse(embedded_object());
  if (!object) return std::unexpected(object.error());
  const auto kernel = loader::KernelBtf::of_running_kernel();
  if (!kernel) return std::unexpected(kernel.error());
  return SocketRows::open(*object, kernel->btf());
}

// Linux 6.1 and later, with BTF, must list; what else refuses names its reason.
bool must_list() {
  const loader::HostFacts host = loader::read_host_facts();
  const bool has_iterator = host.kernel_major > 6 || (host.kernel_major == 6 && host.kernel_minor >= 1);
  return has_iterator && access(loader::kKernelBtfPath, R_OK) == 0;
}

class SocketRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    auto rows = open_rows();
    if (!rows && !must_list()) GTEST_SKIP() << rows.error().message();
    ASSERT_TRUE(rows) << rows.error().message();
    rows_ = std::move(*rows);
  }

  // By inode; a socket that came before keeps its first row.
  std::map<uint64_t, kitty_socket_row> list(const procfs::ProcessId& process,
                                            ReadStatus wanted = ReadStatus::ok) {
    std::map<uint64_t, kitty_socket_row> found;
    count_ = 0;
    const auto result = rows_->list(process, [&](const kitty_socket_row& row) {
      ++count_;
      found.emplace(row.inode, row);
    });
    EXPECT_EQ(result.status, wanted) << "errno " << result.err;
    return found;
  }
  std::map<uint64_t, kitty_socket_row> list(pid_t pid) { return list(process_at(pid).id()); }

  std::optional<SocketRows> rows_;
  size_t count_ = 0;  // rows of the latest list()
};

TEST(SocketRowsRefusal, IsOneLineAndNothingElseBreaks) {
  KITTY_NEEDS_KERNEL();
  const auto rows = open_rows();
  const RttSource source = open_rtt_source(embedded_object(), "", "tp_btf/tcp_probe");
  EXPECT_EQ(source.rows != nullptr, rows.has_value()) << source.rows_refusal;
  EXPECT_EQ(source.rows_refusal.empty(), rows.has_value());
  EXPECT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
  if (rows) GTEST_SKIP() << "nothing is refused here";
  EXPECT_EQ(rows.error().message(), source.rows_refusal);
  EXPECT_EQ(source.rows_refusal.find('\n'), std::string::npos);
  std::printf("refused: %s\n", source.rows_refusal.c_str());
}

TEST_F(SocketRowsTest, AgreeWithNetTcpOnEveryField) {
  const TcpPair quiet, full, closing;
  full.fill();
  ASSERT_EQ(shutdown(closing.client.get(), SHUT_WR), 0);
  const WatchedChild child = sleeper({}, {quiet.client.get(), full.client.get(), full.listener.get(),
                                          closing.client.get(), closing.server.get()});
  const auto process = process_at(child.pid());
  struct stat netns{};
  ASSERT_EQ(stat("/proc/self/ns/net", &netns), 0);
  // A window probe or an ACK may come between the two looks at a socket; it cannot each time.
  std::string difference = "not compared";
  for (int attempt = 0; !difference.empty() && attempt < 20; ++attempt) {
    std::map<uint64_t, procfs::TcpRow> table;
    std::vector<char> buffer(procfs::kTcpTableBufferBytes);
    const auto read = process.read_tcp_table(
        procfs::TcpTable::tcp, buffer, [&](const procfs::TcpRow& row) { table.emplace(row.inode, row); });
    ASSERT_TRUE(read.result.ok());
    const auto rows = list(process.id());
    difference.clear();
    for (const Fd* fd : {&quiet.client, &full.client, &full.listener, &closing.client, &closing.server}) {
      const uint64_t inode = inode_of(*fd);
      ASSERT_TRUE(rows.contains(inode));
      ASSERT_TRUE(table.contains(inode));
      const kitty_socket_row& row = rows.at(inode);
      const procfs::TcpRow& expected = table.at(inode);
      EXPECT_EQ(row.tgid, static_cast<uint32_t>(child.pid()));
      EXPECT_EQ(row.netns, netns.st_ino);
      EXPECT_EQ(row.local_port, expected.local_port);
      EXPECT_EQ(row.remote_port, expected.remote_port);
      EXPECT_TRUE(
          std::ranges::equal(std::as_bytes(std::span(row.local)), std::as_bytes(std::span(expected.local))));
      EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(row.remote)),
                                     std::as_bytes(std::span(expected.remote))));
      if (row.state != expected.state || row.tx_queue_bytes != expected.tx_queue_bytes) {
        difference += "inode " + std::to_string(inode) + ": state " + std::to_string(row.state) +
                      " against " + std::to_string(expected.state) + ", queue " +
                      std::to_string(row.tx_queue_bytes) + " against " +
                      std::to_string(expected.tx_queue_bytes) + "; ";
      }
    }
    EXPECT_GT(rows.at(inode_of(full.client)).tx_queue_bytes, 0U);
    EXPECT_EQ(rows.at(inode_of(full.listener)).tx_queue_bytes, 0U);
    EXPECT_EQ(rows.at(inode_of(full.listener)).state, static_cast<uint32_t>(procfs::TcpState::listen));
    EXPECT_FALSE(rows.contains(inode_of(full.server))) << "held by this test only";
  }
  EXPECT_EQ(difference, "");
}

TEST_F(SocketRowsTest, CountersAreTheSocketsOwn) {
  const TcpPair pair;
  constexpr uint64_t kSends = 50;
  char byte = 'k';
  for (uint64_t i = 0; i < kSends; ++i) {
    ASSERT_EQ(send(pair.client.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(pair.server.get(), &byte, 1, 0), 1);
  }
  const auto read_info = [&pair] {
    tcp_info info{};
    socklen_t size = sizeof info;
    EXPECT_EQ(getsockopt(pair.client.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info;
  };
  const tcp_info before = read_info();
  const auto rows = list(getpid());
  const tcp_info after = read_info();
  ASSERT_TRUE(rows.contains(inode_of(pair.client)));
  const kitty_counters& counters = rows.at(inode_of(pair.client)).counters;
  EXPECT_EQ(counters.have, uint32_t{KITTY_HAVE_SEGS_OUT | KITTY_HAVE_DATA_SEGS_OUT | KITTY_HAVE_BYTES_SENT |
                                    KITTY_HAVE_BYTES_ACKED | KITTY_HAVE_BYTES_RECEIVED |
                                    KITTY_HAVE_TOTAL_RETRANS | KITTY_HAVE_BUSY});
  struct {
    const char* name;
    uint64_t before, got, after;
  } const compared[] = {
      {"segs_out", before.tcpi_segs_out, counters.segs_out, after.tcpi_segs_out},
      {"data_segs_out", before.tcpi_data_segs_out, counters.data_segs_out, after.tcpi_data_segs_out},
      {"bytes_sent", before.tcpi_bytes_sent, counters.bytes_sent, after.tcpi_bytes_sent},
      {"bytes_acked", before.tcpi_bytes_acked, counters.bytes_acked, after.tcpi_bytes_acked},
      {"total_retrans", before.tcpi_total_retrans, counters.total_retrans, after.tcpi_total_retrans},
  };
  for (const auto& c : compared) {
    EXPECT_LE(c.before, c.got) << c.name;
    EXPECT_GE(c.after, c.got) << c.name;
  }
  EXPECT_GE(counters.bytes_sent, kSends);
  EXPECT_NE(rows.at(inode_of(pair.client)).hash, 0U);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const uint64_t now_us =
      static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
  EXPECT_LE(counters.us, now_us);
  EXPECT_GE(counters.us + 60'000'000, now_us);
}

TEST_F(SocketRowsTest, IPv6AddressesAreWhole) {
  const Fd listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!listener || bind(listener.get(), generic, size) != 0) {
    GTEST_SKIP() << "no IPv6 loopback here: " << errno_text(errno);
  }
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), generic, &size), 0);
  const Fd client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), generic, size), 0);
  const auto rows = list(getpid());
  ASSERT_TRUE(rows.contains(inode_of(client)));
  const kitty_socket_row& row = rows.at(inode_of(client));
  EXPECT_EQ(row.remote_port, ntohs(address.sin6_port));
  EXPECT_EQ(memcmp(row.local, &in6addr_loopback, sizeof row.local), 0);
  EXPECT_EQ(memcmp(row.remote, &in6addr_loopback, sizeof row.remote), 0);
}

// Another family's protocol of the same number, and TCP's number on a socket that is none.
TEST_F(SocketRowsTest, SocketsThatOnlyLookLikeTcpAreNoRows) {
  const Fd xfrm(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP));
  const Fd raw(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP));
  const Fd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Fd local(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!raw) GTEST_SKIP() << "no raw socket: " << errno_text(errno);
  ASSERT_TRUE(udp && local && tcp);
  const auto rows = list(getpid());
  for (const Fd* fd : {&xfrm, &raw, &udp, &local}) {
    if (!*fd) continue;
    EXPECT_FALSE(rows.contains(inode_of(*fd))) << inode_of(*fd);
  }
  EXPECT_TRUE(rows.contains(inode_of(tcp)));
}

// A kernel without MPTCP, and one that was told not to use it.
std::optional<TcpPair> mptcp_pair() {
  TcpPair pair(IPPROTO_MPTCP);
  if (!pair.client) return std::nullopt;
  return pair;
}

TEST_F(SocketRowsTest, AnMptcpSocketsSubflowsAreRowsOfTheirOwn) {
  const auto pair = mptcp_pair();
  if (!pair) GTEST_SKIP() << "no MPTCP sockets here: " << errno_text(errno);
  constexpr uint64_t kSends = 50;
  char byte = 'k';
  for (uint64_t i = 0; i < kSends; ++i) {
    ASSERT_EQ(send(pair->client.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(pair->server.get(), &byte, 1, 0), 1);
  }
  const auto rows = list(getpid());
  for (const Fd* fd : {&pair->client, &pair->server}) {
    const uint64_t inode = inode_of(*fd);
    const auto found = std::ranges::find_if(
        rows, [inode](const auto& row) { return row.first == (inode ^ uint64_t{row.second.hash} << 32); });
    ASSERT_NE(found, rows.end()) << inode;
    const kitty_socket_row& row = found->second;
    EXPECT_EQ(row.state, static_cast<uint32_t>(procfs::TcpState::established));
    EXPECT_EQ(row.flags, 0U);
    EXPECT_GT(row.counters.segs_out, kSends / 2);
    EXPECT_EQ(row.counters.have & KITTY_HAVE_BUSY, uint32_t{KITTY_HAVE_BUSY});
    EXPECT_FALSE(rows.contains(inode)) << "the MPTCP socket itself is none";
  }
}

// By a kernel that refuses to look at subflows, which is said, and nothing else is lost.
TEST_F(SocketRowsTest, AnMptcpSocketWithoutItsSubflowsIsSaidToBeUnseen) {
  const auto pair = mptcp_pair();
  if (!pair) GTEST_SKIP() << "no MPTCP sockets here: " << errno_text(errno);
  std::ifstream file(loader::kKernelBtfPath, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  const size_t at = bytes.find(std::string("\0conn_list\0", 11));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 1] = '-';
  const auto kernel = loader::Btf::parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(kernel) << kernel.error().message();
  auto rows = SocketRows::open(*loader::Object::parse(embedded_object()), *kernel);
  ASSERT_TRUE(rows) << rows.error().message();
  rows_ = std::move(*rows);
  const auto found = list(getpid());
  const uint64_t inode = inode_of(pair->client);
  ASSERT_TRUE(found.contains(inode));
  EXPECT_EQ(found.at(inode).flags, uint32_t{KITTY_ROW_UNSEEN});
  EXPECT_EQ(found.at(inode).counters.have, 0U);
}

// Who opened a socket is in its file: what came by fork or SCM_RIGHTS has another's past.
TEST_F(SocketRowsTest, ASocketThatAnotherProcessOpenedIsHanded) {
  const TcpPair pair;
  const WatchedChild heir = sleeper({}, {pair.client.get()});
  const auto own = list(getpid());
  const auto inherited = list(heir.pid());
  const uint64_t inode = inode_of(pair.client);
  ASSERT_TRUE(own.contains(inode));
  ASSERT_TRUE(inherited.contains(inode));
  EXPECT_EQ(own.at(inode).flags, 0U);
  EXPECT_EQ(own.at(inode_of(pair.server)).flags, 0U) << "accepted";
  EXPECT_EQ(inherited.at(inode).flags, uint32_t{KITTY_ROW_HANDED});
  std::thread([&] {
    const TcpPair of_thread;
    const auto rows = list(getpid());
    ASSERT_TRUE(rows.contains(inode_of(of_thread.client)));
    EXPECT_EQ(rows.at(inode_of(of_thread.client)).flags, 0U) << "opened by another thread of the process";
  }).join();
}

TEST_F(SocketRowsTest, OtherDescriptorsAreLeftOutAndNoSocketIsNotNoProcess) {
  const Fd udp(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Fd local(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const Fd reader(pipes[0]), writer(pipes[1]);
  const WatchedChild child = sleeper({}, {udp.get(), local.get(), reader.get()});
  EXPECT_TRUE(list(child.pid()).empty());
}

TEST_F(SocketRowsTest, ManyComeOnceEach) {
  constexpr size_t kMany = 700;  // the kernel's buffer holds 255 rows, ours 128
  std::vector<Fd> sockets;
  for (size_t i = 0; i < kMany; ++i) sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(sockets.back()) << errno_text(errno);
  const auto rows = list(getpid());
  for (const Fd& fd : sockets) ASSERT_TRUE(rows.contains(inode_of(fd)));
  EXPECT_EQ(count_, rows.size()) << "no row came twice";
  const Fd twin(fcntl(sockets.front().get(), F_DUPFD_CLOEXEC, 0));
  EXPECT_EQ(list(getpid()).size(), rows.size());
  EXPECT_EQ(count_, rows.size() + 1);
}

TEST_F(SocketRowsTest, AnotherProcessOnTheNumberIsRefused) {
  const TcpPair pair;
  WatchedChild child = sleeper({}, {pair.client.get()});
  procfs::ProcessId id = process_at(child.pid()).id();
  EXPECT_EQ(list(id).size(), 1U);
  id.start_time_ticks += 1;
  EXPECT_TRUE(list(id, ReadStatus::gone).empty());
  id.start_time_ticks -= 1;
  child.stop();
  EXPECT_TRUE(list(id, ReadStatus::gone).empty());
}

// In a pid namespace of its own, beside a procfs that shows another's numbers: pid 1 there is not pid 1 here.
TEST_F(SocketRowsTest, InANestedPidNamespaceOwnNumbersCountAndOthersAreRefused) {
  const procfs::ProcessId outer_init = process_at(1).id();
  enum Exit { kPassed, kNoNamespace, kRefusedItself, kTookAnother, kDoesNotOpen };
  const pid_t outer = fork();
  ASSERT_GE(outer, 0);
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(kNoNamespace);
    const pid_t inner = fork();
    if (inner < 0) _exit(kNoNamespace);
    if (inner == 0) {
      std::array<char, procfs::kStatBufferBytes> buffer;
      const auto self = procfs::open_at(AT_FDCWD, "/proc/self", O_DIRECTORY);
      const auto stat = procfs::read_stat(self->get(), buffer);
      size_t rows = 0;
      const auto count = [&rows](const kitty_socket_row&) { ++rows; };
      const Fd mine(socket(AF_INET, SOCK_STREAM, 0));
      if (!rows_->list({getpid(), stat->start_time_ticks}, count).ok() || rows == 0) _exit(kRefusedItself);
      rows = 0;
      if (rows_->list(outer_init, count).status != ReadStatus::gone || rows != 0) _exit(kTookAnother);
      _exit(getpid() == 1 && open_rows() ? kPassed : kDoesNotOpen);
    }
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  }
  int status = 0;
  ASSERT_EQ(waitpid(outer, &status, 0), outer);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNamespace)
    GTEST_SKIP() << "no pid namespace can be made here (CAP_SYS_ADMIN)";
  EXPECT_EQ(WEXITSTATUS(status), kPassed);
}

// The agent may drop what loading took.
TEST_F(SocketRowsTest, AListNeedsNoPrivilege) {
  if (geteuid() != 0) GTEST_SKIP() << "not root, so there is nothing to give up";
  const TcpPair pair;
  const WatchedChild child = sleeper({}, {pair.client.get()});
  const procfs::ProcessId id = process_at(child.pid()).id();
  constexpr uid_t kNobody = 65534;
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (setresgid(kNobody, kNobody, kNobody) != 0 || setresuid(kNobody, kNobody, kNobody) != 0) _exit(99);
    size_t rows = 0;
    const auto result = rows_->list(id, [&rows](const kitty_socket_row&) { ++rows; });
    _exit(result.ok() && rows == 1 ? 0 : 1 + static_cast<int>(result.status));
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SocketRowsTest, AListTakesNothingFromTheHeap) {
  const TcpPair pair;
  const procfs::ProcessId self = process_at(getpid()).id();
  size_t rows = 0;
  const auto count = [&rows](const kitty_socket_row&) { ++rows; };
  ASSERT_TRUE(rows_->list(self, count).ok());
  const AllocationCount allocations;
  for (int i = 0; i < 20; ++i) (void)rows_->list(self, count);
  EXPECT_EQ(allocations.count(), 0U);
  EXPECT_GE(rows, 60U);
}

}  // namespace
}  // namespace kitty::collector
