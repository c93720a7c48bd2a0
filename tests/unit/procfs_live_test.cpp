// The readers against the kernel's own /proc: this process, and children in every state of life.
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/pids.h"
#include "procfs/process.h"
#include "tests/allocation_count.h"

namespace kitty::procfs {
namespace {

Fd proc_root() {
  auto root = open_root("/proc");
  EXPECT_TRUE(root);
  return std::move(*root);
}

// A child that runs `body`, which is to end when it reads the end of the pipe it waits on. Killed and
// reaped at the latest by the destructor.
class Child {
 public:
  // `body` gets the descriptor to wait on; what it writes to the other one, ready() waits for.
  using Body = std::function<void(int wait_fd, int ready_fd)>;

  explicit Child(const Body& body) {
    std::array<int, 2> wait{};
    std::array<int, 2> ready{};
    if (::pipe2(wait.data(), O_CLOEXEC) != 0 || ::pipe2(ready.data(), O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(wait[1]);
      ::close(ready[0]);
      body(wait[0], ready[1]);
      ::_exit(0);
    }
    wait_write_ = Fd(wait[1]);
    ready_read_ = Fd(ready[0]);
    ::close(wait[0]);
    ::close(ready[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    reap();
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Waits for a byte or, where the child execs, for the pipe's end; true on a byte.
  bool ready() {
    char byte = 0;
    return ::read(ready_read_.get(), &byte, 1) == 1;
  }
  // One byte lets the child go one step further.
  void step() { ASSERT_EQ(::write(wait_write_.get(), "x", 1), 1); }
  void become_zombie() {
    wait_write_.reset();
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  // The status as waitpid(2) gives it.
  int reap() {
    int status = 0;
    wait_write_.reset();
    if (pid_ > 0) {
      EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  Fd wait_write_;
  Fd ready_read_;
};

void wait_for_end(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) == 1) {
  }
}

void sleeping_body(int wait_fd, int ready_fd) {
  if (::write(ready_fd, "r", 1) == 1) wait_for_end(wait_fd);
}

// Runs cat on the pipe, with `environment`: a program that lives until the pipe's end.
void exec_cat(int wait_fd, const std::vector<std::string>& environment) {
  ::dup2(wait_fd, 0);
  std::vector<char*> pointers;
  for (const std::string& entry : environment) pointers.push_back(const_cast<char*>(entry.c_str()));
  pointers.push_back(nullptr);
  std::string name = "/bin/cat";
  std::array<char*, 2> arguments{name.data(), nullptr};
  ::execve(name.c_str(), arguments.data(), pointers.data());
}

struct Buffers {
  std::array<char, kDirectoryBufferBytes> directory;
  std::array<char, kEnvironBufferBytes> environ;
  std::array<char, kTcpTableBufferBytes> table;
  std::array<char, kSnmpBufferBytes> snmp;
  std::array<char, kStatBufferBytes> stat;
  std::array<char, kCgroupBufferBytes> cgroup;
};

class LiveTest : public testing::Test {
 protected:
  // Every way of reading a process, and how it ended.
  struct Ends {
    ReadStatus check, stat, environ, fd, snmp, tcp, tcp6, net_namespace, net_files, cgroup;

    friend bool operator==(const Ends&, const Ends&) = default;
    friend void PrintTo(const Ends& ends, std::ostream* out) {
      const std::pair<const char*, ReadStatus> named[] = {
          {"check", ends.check},         {"stat", ends.stat},
          {"environ", ends.environ},     {"fd", ends.fd},
          {"snmp", ends.snmp},           {"tcp", ends.tcp},
          {"tcp6", ends.tcp6},           {"net_namespace", ends.net_namespace},
          {"net_files", ends.net_files}, {"cgroup", ends.cgroup}};
      for (const auto& [name, status] : named) *out << name << ' ' << status_name(status) << ' ';
    }
  };

  Ends read_all(const ProcessHandle& process) {
    EnvironScan scan({});
    const auto status = [](const auto& expected) {
      return expected ? ReadStatus::ok : expected.error().status;
    };
    const auto ignore_row = [](const TcpRow&) {};
    SnmpTcp tcp;
    return {process.check().status,
            status(process.read_stat(buffers_.stat)),
            process.read_environ(buffers_.environ, scan).status,
            process.walk_socket_fds(buffers_.directory, [](uint64_t, const char*) {}).result.status,
            process.read_snmp(buffers_.snmp, tcp).status,
            process.read_tcp_table(TcpTable::tcp, buffers_.table, ignore_row).result.status,
            process.read_tcp_table(TcpTable::tcp6, buffers_.table, ignore_row).result.status,
            status(process.read_net_namespace()),
            status(process.read_net_files_inode()),
            status(process.read_cgroup(buffers_.cgroup))};
  }

  ReadExpected<ProcessHandle> open(pid_t pid) { return ProcessHandle::open(root_.get(), pid); }

  Fd root_ = proc_root();
  Buffers buffers_;
};

TEST(Root, NotThere) {
  const auto root = open_root("/proc/no-such-directory");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().message(),
            "open procfs '/proc/no-such-directory': No such file or directory: see --path.procfs");
}

TEST(Root, NotADirectory) {
  const auto root = open_root("/proc/stat");
  ASSERT_FALSE(root);
  EXPECT_EQ(root.error().err, ENOTDIR);
}

TEST(Status, Names) {
  EXPECT_EQ(read_failure(ENOENT).status, ReadStatus::gone);
  EXPECT_EQ(read_failure(ESRCH).status, ReadStatus::gone);
  EXPECT_EQ(read_failure(EACCES).status, ReadStatus::denied);
  EXPECT_EQ(read_failure(EPERM).status, ReadStatus::denied);
  EXPECT_EQ(read_failure(EMFILE), (ReadResult{ReadStatus::failed, EMFILE}));
  EXPECT_EQ(status_name(ReadStatus::ok), "ok");
  EXPECT_EQ(status_name(ReadStatus::gone), "gone");
  EXPECT_EQ(status_name(ReadStatus::denied), "denied");
  EXPECT_EQ(status_name(ReadStatus::malformed), "malformed");
  EXPECT_EQ(status_name(ReadStatus::too_long), "too_long");
  EXPECT_EQ(status_name(ReadStatus::failed), "failed");
  EXPECT_EQ(status_name(ReadStatus::stuck), "stuck");
}

TEST_F(LiveTest, Self) {
  const auto self = open(::getpid());
  ASSERT_TRUE(self);
  EXPECT_TRUE(self->alive());
  EXPECT_EQ(self->id().pid, ::getpid());
  const auto stat = self->read_stat(buffers_.stat);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->ppid, ::getppid());
  EXPECT_EQ(stat->start_time_ticks, self->id().start_time_ticks);
  EXPECT_GT(stat->rss_pages, 0u);
  std::array<char, 16> comm{};
  ::prctl(PR_GET_NAME, comm.data());
  EXPECT_EQ(stat->comm, comm.data());

  struct stat ns{};
  ASSERT_EQ(::stat("/proc/self/ns/net", &ns), 0);
  EXPECT_EQ(self->read_net_namespace(), ns.st_ino);

  SnmpTcp tcp;
  EXPECT_TRUE(self->read_snmp(buffers_.snmp, tcp).ok());
  EXPECT_TRUE(tcp.out_segs);
  EXPECT_TRUE(tcp.retrans_segs);
}

TEST_F(LiveTest, BufferTooSmall) {
  const auto self = open(::getpid());
  ASSERT_TRUE(self);
  SnmpTcp tcp;
  EXPECT_EQ(self->read_snmp(std::span(buffers_.snmp).first(64), tcp).status, ReadStatus::too_long);
  EXPECT_EQ(tcp, SnmpTcp{});
  EXPECT_EQ(self->read_stat(std::span(buffers_.stat).first(16)).error().status, ReadStatus::too_long);
  EXPECT_EQ(
      self->walk_socket_fds(std::span(buffers_.directory).first(8), [](uint64_t, const char*) {}).result,
      (ReadResult{ReadStatus::failed, EINVAL}));
}

TEST_F(LiveTest, PidsListed) {
  Child child(sleeping_body);
  ASSERT_TRUE(child.ready());
  for (int round = 0; round < 2; ++round) {
    std::vector<pid_t> pids;
    // A buffer of a few entries, so that several calls are needed.
    ASSERT_TRUE(walk_pids(root_.get(), std::span(buffers_.directory).first(128), [&](pid_t pid, uint64_t) {
                  pids.push_back(pid);
                }).ok());
    EXPECT_EQ(std::count(pids.begin(), pids.end(), ::getpid()), 1);
    EXPECT_EQ(std::count(pids.begin(), pids.end(), child.pid()), 1);
    EXPECT_TRUE(std::is_sorted(pids.begin(), pids.end()));
  }
}

TEST_F(LiveTest, NoSuchPid) {
  for (const pid_t pid : {0, -1, 2147483647}) {
    const auto process = open(pid);
    ASSERT_FALSE(process) << pid;
    EXPECT_EQ(process.error().status, ReadStatus::gone) << pid;
  }
}

TEST_F(LiveTest, NameLikeAStatLine) {
  Child child([](int wait_fd, int ready_fd) {
    ::prctl(PR_SET_NAME, "a) R 1\n(b)");
    sleeping_body(wait_fd, ready_fd);
  });
  ASSERT_TRUE(child.ready());
  const auto process = open(child.pid());
  ASSERT_TRUE(process);
  const auto stat = process->read_stat(buffers_.stat);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->comm, "a) R 1\n(b)");
  EXPECT_EQ(stat->pid, child.pid());
  EXPECT_EQ(stat->ppid, ::getpid());
  EXPECT_FALSE(stat->is_dead());
}

TEST_F(LiveTest, LifeAndDeath) {
  using enum ReadStatus;
  Child child(sleeping_body);
  ASSERT_TRUE(child.ready());
  const pid_t pid = child.pid();
  const auto process = open(pid);
  ASSERT_TRUE(process);
  EXPECT_EQ(read_all(*process), (Ends{ok, ok, ok, ok, ok, ok, ok, ok, ok, ok}));

  child.become_zombie();
  EXPECT_EQ(process->check().status, gone);
  EXPECT_FALSE(process->alive());
  const auto stat = process->read_stat(buffers_.stat);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->state, 'Z');
  EXPECT_EQ(process->walk_socket_fds(buffers_.directory, [](uint64_t, const char*) { FAIL(); }).fds, 0u);
  const Ends zombie = read_all(*process);
  EXPECT_EQ(zombie.environ, gone);
  EXPECT_EQ(zombie.fd, ok);
  EXPECT_EQ(zombie.snmp, gone);
  EXPECT_EQ(zombie.tcp, gone);
  EXPECT_EQ(zombie.tcp6, gone) << "not to be taken for a kernel without IPv6";
  EXPECT_EQ(zombie.net_files, gone);
  EXPECT_TRUE(open(pid)) << "a zombie still has its directory";

  child.reap();
  EXPECT_EQ(read_all(*process), (Ends{gone, gone, gone, gone, gone, gone, gone, gone, gone, gone}));
  EXPECT_FALSE(process->alive());
  EXPECT_FALSE(process->fd_count());
}

TEST_F(LiveTest, ReusedPidIsAnotherProcess) {
  Child child(sleeping_body);
  ASSERT_TRUE(child.ready());
  const pid_t pid = child.pid();
  const auto old_one = open(pid);
  ASSERT_TRUE(old_one);
  child.reap();

  // clone3(2) with set_tid gives the same number again.
  std::array<pid_t, 1> wanted{pid};
  std::array<int, 2> wait{};
  ASSERT_EQ(::pipe2(wait.data(), O_CLOEXEC), 0);
  Fd wait_read(wait[0]);
  Fd wait_write(wait[1]);
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<uint64_t>(wanted.data());
  arguments.set_tid_size = 1;
  const long result = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (result == 0) {
    wait_write.reset();
    wait_for_end(wait_read.get());
    ::_exit(0);
  }
  if (result < 0)
    GTEST_SKIP() << "clone3 with set_tid: " << std::strerror(errno) << " (CAP_CHECKPOINT_RESTORE)";
  EXPECT_EQ(result, pid);
  using enum ReadStatus;
  EXPECT_EQ(read_all(*old_one), (Ends{gone, gone, gone, gone, gone, gone, gone, gone, gone, gone}));
  const auto new_one = open(pid);
  ASSERT_TRUE(new_one);
  EXPECT_TRUE(new_one->alive());
  wait_write.reset();
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST_F(LiveTest, LargeEnvironment) {
  constexpr size_t kStrings = 15;
  constexpr size_t kStringBytes = 100'000;
  Child child([](int wait_fd, int) {
    std::vector<std::string> environment;
    for (size_t i = 0; i < kStrings; ++i) environment.push_back("PAD" + std::string(kStringBytes, 'p'));
    environment.push_back("JOB_NAME=" + std::string(kStringBytes, 'j'));
    environment.push_back("KITTY_WATCH=1");
    environment.push_back("RANK=7");
    exec_cat(wait_fd, environment);
    ::_exit(1);
  });
  EXPECT_FALSE(child.ready());
  const auto process = open(child.pid());
  ASSERT_TRUE(process);
  std::array<EnvironVariable, 3> variables{{{"RANK"}, {"JOB_NAME"}, {"ABSENT"}}};
  EnvironScan scan(variables);
  for (const size_t buffer_bytes : {buffers_.environ.size(), size_t{1000}}) {
    ASSERT_TRUE(process->read_environ(std::span(buffers_.environ).first(buffer_bytes), scan).ok());
    EXPECT_GT(scan.bytes(), (kStrings + 1) * kStringBytes);
    EXPECT_TRUE(scan.watched());
    EXPECT_EQ(variables[0].value.text(), "7");
    EXPECT_EQ(variables[1].value.text(), std::string(kMaxEnvironValueBytes, 'j'));
    EXPECT_TRUE(variables[1].value.truncated);
    EXPECT_FALSE(variables[2].value.present);
  }
}

TEST_F(LiveTest, ExecChangesTheEnvironmentAndNotTheIdentity) {
  Child child([](int wait_fd, int) {
    char byte = 0;
    if (::read(wait_fd, &byte, 1) != 1) ::_exit(1);
    exec_cat(wait_fd, {"KITTY_WATCH=1", "RANK=3"});
    ::_exit(1);
  });
  std::array<EnvironVariable, 1> variables{{{"RANK"}}};
  EnvironScan scan(variables);
  const auto process = open(child.pid());
  ASSERT_TRUE(process);
  ASSERT_TRUE(process->read_environ(buffers_.environ, scan).ok());
  const bool watched_before = scan.watched();
  const auto old_environ = open_at(process->dirfd(), "environ");
  ASSERT_TRUE(old_environ);

  child.step();
  EXPECT_FALSE(child.ready());
  EXPECT_EQ(read_some(old_environ->get(), buffers_.environ), 0u)
      << "a kept descriptor shows the old program's memory";
  ASSERT_TRUE(process->read_environ(buffers_.environ, scan).ok());
  EXPECT_FALSE(watched_before);
  EXPECT_TRUE(scan.watched());
  EXPECT_EQ(variables[0].value.text(), "3");
  EXPECT_TRUE(process->alive());
  const auto again = open(child.pid());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->id(), process->id());
}

// Reads the kernel's /proc as a user who may not trace the child; the answers come back through the exit
// status.
TEST_F(LiveTest, DeniedWithoutPrivilege) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const pid_t target = ::getpid();
  Child child([&](int, int) {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(65534, 65534, 65534) != 0 ||
        ::setresuid(65534, 65534, 65534) != 0) {
      ::_exit(2);
    }
    using enum ReadStatus;
    const auto process = ProcessHandle::open(root_.get(), target);
    if (!process) ::_exit(3);
    const Ends expected{ok, ok, denied, denied, ok, ok, ok, denied, ok, ok};
    if (read_all(*process) != expected) ::_exit(4);
    const FdWalk walk = process->walk_socket_fds(buffers_.directory, [](uint64_t, const char*) {});
    if (walk.result.err != EACCES || walk.fds != 0) ::_exit(5);
    ::_exit(0);
  });
  const int status = child.reap();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LiveTest, AnotherNetworkNamespace) {
  Child same(sleeping_body);
  ASSERT_TRUE(same.ready());
  Child other([](int wait_fd, int ready_fd) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(1);
    sleeping_body(wait_fd, ready_fd);
  });
  if (!other.ready()) GTEST_SKIP() << "needs CAP_SYS_ADMIN for a network namespace";
  const auto self = open(::getpid());
  const auto near = open(same.pid());
  const auto far = open(other.pid());
  ASSERT_TRUE(self && near && far);
  EXPECT_EQ(self->read_net_namespace(), near->read_net_namespace());
  EXPECT_EQ(self->read_net_files_inode(), near->read_net_files_inode());
  ASSERT_TRUE(far->read_net_namespace());
  ASSERT_TRUE(far->read_net_files_inode());
  EXPECT_NE(self->read_net_namespace(), far->read_net_namespace());
  EXPECT_NE(self->read_net_files_inode(), far->read_net_files_inode());
  const TcpTableRead empty =
      far->read_tcp_table(TcpTable::tcp, buffers_.table, [](const TcpRow&) { FAIL(); });
  EXPECT_TRUE(empty.result.ok());
  EXPECT_EQ(empty.rows + empty.errors, 0u);
}

sockaddr_storage loopback(int family, bool mapped, uint16_t port_be) {
  sockaddr_storage storage{};
  if (family == AF_INET) {
    auto* address = reinterpret_cast<sockaddr_in*>(&storage);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address->sin_port = port_be;
  } else {
    auto* address = reinterpret_cast<sockaddr_in6*>(&storage);
    address->sin6_family = AF_INET6;
    ::inet_pton(AF_INET6, mapped ? "::ffff:127.0.0.1" : "::1", &address->sin6_addr);
    address->sin6_port = port_be;
  }
  return storage;
}

uint64_t inode_of(const Fd& fd) {
  struct stat status{};
  EXPECT_EQ(::fstat(fd.get(), &status), 0);
  return status.st_ino;
}

// A listener and a connection to it on the loopback interface.
struct Connection {
  Fd listener;
  Fd client;
  Fd server;
  uint16_t port = 0;

  // False where the family is not there.
  bool open(int family, bool mapped = false) {
    listener = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    client = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener || !client) return false;
    sockaddr_storage address = loopback(family, mapped, 0);
    socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), generic, size) != 0 || ::listen(listener.get(), 8) != 0) return false;
    if (::getsockname(listener.get(), generic, &size) != 0) return false;
    port = ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in*>(generic)->sin_port
                                   : reinterpret_cast<sockaddr_in6*>(generic)->sin6_port);
    return ::connect(client.get(), generic, size) == 0;
  }
  bool accept() {
    server = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return static_cast<bool>(server);
  }
};

std::vector<TcpRow> rows_of(const ProcessHandle& process, TcpTable table, std::span<char> buffer) {
  std::vector<TcpRow> rows;
  const TcpTableRead read =
      process.read_tcp_table(table, buffer, [&](const TcpRow& row) { rows.push_back(row); });
  EXPECT_TRUE(read.result.ok());
  EXPECT_EQ(read.rows, rows.size());
  EXPECT_EQ(read.errors, 0u);
  return rows;
}

std::optional<TcpRow> find_row(const std::vector<TcpRow>& rows, uint64_t inode) {
  const auto it =
      std::find_if(rows.begin(), rows.end(), [&](const TcpRow& row) { return row.inode == inode; });
  if (it == rows.end()) return std::nullopt;
  return *it;
}

// The kernel may leave out a row, or give it twice, where other sockets come and go between two reads of the
// table, and data moves on its own: what must hold is what comes to hold.
bool eventually(FunctionRef<bool()> holds) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (holds()) return true;
    ::usleep(20'000);
  }
  return false;
}

struct Family {
  const char* name;
  int family;
  bool mapped;
  const char* address;
};

class LiveSocketTest : public LiveTest, public testing::WithParamInterface<Family> {};

TEST_P(LiveSocketTest, OwnedByInode) {
  Connection connection;
  if (!connection.open(GetParam().family, GetParam().mapped)) GTEST_SKIP() << "no such address family here";
  const auto self = open(::getpid());
  ASSERT_TRUE(self);
  const TcpTable table = GetParam().family == AF_INET ? TcpTable::tcp : TcpTable::tcp6;

  // Not accepted yet: the kernel has the connection, no file has it.
  const auto unattributed = [&](const TcpRow& row) {
    return row.inode == 0 && row.local_port == connection.port && row.is(TcpState::established);
  };
  std::vector<TcpRow> rows;
  std::optional<TcpRow> listener;
  ASSERT_TRUE(eventually([&] {
    rows = rows_of(*self, table, buffers_.table);
    listener = find_row(rows, inode_of(connection.listener));
    return listener && std::count_if(rows.begin(), rows.end(), unattributed) == 1;
  }));
  EXPECT_TRUE(listener->is(TcpState::listen));
  EXPECT_EQ(listener->rx_queue_bytes, 1u) << "the accept queue's length";
  EXPECT_EQ(queued_tx_bytes(*listener), 0u);

  // Filled until nothing moves: the receiver does not read.
  ASSERT_TRUE(connection.accept());
  ASSERT_EQ(::fcntl(connection.client.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string data(65536, 'd');
  uint64_t sent = 0;
  for (;;) {
    const ssize_t count = ::send(connection.client.get(), data.data(), data.size(), MSG_NOSIGNAL);
    if (count < 0) break;
    sent += static_cast<uint64_t>(count);
  }
  // What was sent is either still queued here or waiting there.
  std::optional<TcpRow> client;
  std::optional<TcpRow> server;
  ASSERT_TRUE(eventually([&] {
    rows = rows_of(*self, table, buffers_.table);
    client = find_row(rows, inode_of(connection.client));
    server = find_row(rows, inode_of(connection.server));
    return client && server && queued_tx_bytes(*client) + server->rx_queue_bytes == sent;
  }));
  EXPECT_GT(client->tx_queue_bytes, 0u);
  EXPECT_TRUE(client->is(TcpState::established));
  EXPECT_EQ(client->remote_port, connection.port);
  EXPECT_EQ(client->ipv6, GetParam().family == AF_INET6);
  EXPECT_EQ(client->uid, ::geteuid());
  std::array<char, kMaxAddressBytes> text;
  EXPECT_EQ(format_address(client->remote, text), GetParam().address);
  EXPECT_EQ(client->local, client->remote);
  EXPECT_GT(server->rx_queue_bytes, 0u);
  EXPECT_EQ(server->local_port, connection.port);

  std::vector<uint64_t> inodes;
  const FdWalk walk = self->walk_socket_fds(buffers_.directory,
                                            [&](uint64_t inode, const char*) { inodes.push_back(inode); });
  EXPECT_TRUE(walk.result.ok());
  EXPECT_EQ(walk.sockets, inodes.size());
  EXPECT_EQ(walk.unreadable, 0u);
  EXPECT_GT(walk.fds, walk.sockets);
  for (const Fd* fd : {&connection.listener, &connection.client, &connection.server}) {
    EXPECT_EQ(std::count(inodes.begin(), inodes.end(), inode_of(*fd)), 1);
  }

  // FIN_WAIT1: the data is stuck, and the FIN behind it, which counts one in the table, is not among the
  // bytes.
  connection.client.reset();
  const auto is_orphan = [&](const TcpRow& row) {
    return row.inode == 0 && row.remote_port == connection.port && row.is(TcpState::fin_wait1);
  };
  EXPECT_TRUE(eventually([&] {
    rows = rows_of(*self, table, buffers_.table);
    const auto orphan = std::find_if(rows.begin(), rows.end(), is_orphan);
    server = find_row(rows, inode_of(connection.server));
    return server && orphan != rows.end() && orphan->tx_queue_bytes == queued_tx_bytes(*orphan) + 1 &&
           queued_tx_bytes(*orphan) + server->rx_queue_bytes == sent;
  }));
}

INSTANTIATE_TEST_SUITE_P(Live, LiveSocketTest,
                         testing::Values(Family{"Ipv4", AF_INET, false, "127.0.0.1"},
                                         Family{"Ipv6", AF_INET6, false, "::1"},
                                         Family{"Ipv4OverIpv6", AF_INET6, true, "127.0.0.1"}),
                         [](const auto& each) { return each.param.name; });

// More rows than one page and one buffer hold.
TEST_F(LiveTest, ManySockets) {
  constexpr size_t kSockets = 400;
  std::vector<Fd> listeners;
  for (size_t i = 0; i < kSockets; ++i) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address = loopback(AF_INET, false, 0);
    ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)), 0);
    ASSERT_EQ(::listen(fd.get(), 1), 0);
    listeners.push_back(std::move(fd));
  }
  const auto self = open(::getpid());
  ASSERT_TRUE(self);
  for (const size_t buffer_bytes : {buffers_.table.size(), size_t{4096}, size_t{1000}, size_t{97}}) {
    EXPECT_TRUE(eventually([&] {
      const auto rows = rows_of(*self, TcpTable::tcp, std::span(buffers_.table).first(buffer_bytes));
      return std::all_of(listeners.begin(), listeners.end(),
                         [&](const Fd& fd) { return find_row(rows, inode_of(fd)).has_value(); });
    })) << buffer_bytes;
  }
  std::vector<uint64_t> inodes;
  const auto walk = self->walk_socket_fds(std::span(buffers_.directory).first(256),
                                          [&](uint64_t inode, const char*) { inodes.push_back(inode); });
  EXPECT_TRUE(walk.result.ok());
  for (const Fd& fd : listeners) ASSERT_EQ(std::count(inodes.begin(), inodes.end(), inode_of(fd)), 1);
  if (const auto count = self->fd_count()) {
    EXPECT_GT(*count, kSockets);
    // The walk itself has the directory open.
    EXPECT_EQ(walk.fds, *count + 1);
  }
}

TEST_F(LiveTest, ASocketsProtocolIsToldByItsDescriptor) {
  const Fd tcp(socket(AF_INET, SOCK_STREAM, 0)), unconnected(socket(AF_UNIX, SOCK_STREAM, 0));
  const Fd file(::open("/dev/null", O_RDONLY));
  const auto self = open(getpid());
  ASSERT_TRUE(self);
  const auto protocol_of = [&self](const Fd& fd) {
    std::array<char, kSocketProtocolBytes> buffer;
    const auto name = self->read_socket_protocol(std::to_string(fd.get()).c_str(), buffer);
    return name ? std::string(*name) : "none";
  };
  EXPECT_EQ(protocol_of(tcp), "TCP");
  EXPECT_EQ(protocol_of(unconnected).substr(0, 4), "UNIX");
  EXPECT_EQ(protocol_of(file), "none");
  std::array<char, kSocketProtocolBytes> buffer;
  EXPECT_FALSE(self->read_socket_protocol("999999", buffer));
  EXPECT_FALSE(self->read_socket_protocol(std::string(100, '1').c_str(), buffer));
}

TEST_F(LiveTest, NoTcp6IsAbsenceAndNoError) {
  // A directory that looks like that of a process on a kernel booted with ipv6.disable=1.
  std::array<char, 32> path{"/tmp/kitty-procfs-XXXXXX"};
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  const Fd directory(::open(path.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::mkdirat(directory.get(), "net", 0700), 0);
  const auto ignore_row = [](const TcpRow&) {};
  const auto read = [&] {
    return read_tcp_table(directory.get(), TcpTable::tcp6, buffers_.table, ignore_row);
  };
  EXPECT_EQ(read().result.status, ReadStatus::gone);
  EXPECT_FALSE(read().absent);
  Fd(::openat(directory.get(), "net/tcp", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).reset();
  EXPECT_TRUE(read().result.ok());
  EXPECT_TRUE(read().absent);
  EXPECT_EQ(read_tcp_table(directory.get(), TcpTable::tcp, buffers_.table, ignore_row).absent, false);
  ::unlinkat(directory.get(), "net/tcp", 0);
  ::unlinkat(directory.get(), "net", AT_REMOVEDIR);
  ::rmdir(path.data());
}

// What the tests below rest on.
TEST(AllocationCountTest, SeesAllocations) {
  const AllocationCount allocations;
  int* volatile one = new int(1);  // volatile: or the compiler may leave the pair out
  delete one;
  EXPECT_EQ(allocations.count(), 1u);
  std::vector<int> numbers(1000);
  EXPECT_EQ(numbers.size(), 1000u);
  EXPECT_EQ(allocations.count(), 2u);
}

TEST_F(LiveTest, ReadingAllocatesNothing) {
  Connection connection;
  ASSERT_TRUE(connection.open(AF_INET));
  ASSERT_TRUE(connection.accept());
  std::array<EnvironVariable, 2> variables{{{"PATH"}, {"RANK"}}};

  const AllocationCount allocations;
  uint64_t pids = 0;
  uint64_t sockets = 0;
  uint64_t rows = 0;
  bool good = true;
  for (int round = 0; round < 3; ++round) {
    good = walk_pids(root_.get(), buffers_.directory, [&](pid_t, uint64_t) { ++pids; }).ok() && good;
    const auto self = ProcessHandle::open(root_.get(), ::getpid());
    EnvironScan scan(variables);
    SnmpTcp tcp;
    const auto on_row = [&](const TcpRow& row) {
      std::array<char, kMaxAddressBytes> text;
      if (!format_address(row.remote, text).empty()) ++rows;
    };
    good = self && self->check().ok() && good;
    good = self->read_environ(buffers_.environ, scan).ok() && good;
    good = self->read_snmp(buffers_.snmp, tcp).ok() && good;
    good = self->read_cgroup(buffers_.cgroup).has_value() && good;
    good = self->read_net_namespace().has_value() && good;
    good = self->read_net_files_inode().has_value() && good;
    good = self->read_tcp_table(TcpTable::tcp, buffers_.table, on_row).result.ok() && good;
    good = self->read_tcp_table(TcpTable::tcp6, buffers_.table, on_row).result.ok() && good;
    good = self->walk_socket_fds(buffers_.directory, [&](uint64_t, const char*) { ++sockets; }).result.ok() &&
           good;
    good = self->fd_count().value_or(1) > 0 && good;
    good = !ProcessHandle::open(root_.get(), 2147483647) && good;
  }
  EXPECT_EQ(allocations.count(), 0u);
  EXPECT_TRUE(good);
  EXPECT_GE(pids, 3u);
  EXPECT_GE(sockets, 9u);
  EXPECT_GE(rows, 9u);
}

TEST(Parsers, AllocateNothing) {
  const std::string long_value(200'000, 'v');
  const std::string environment = "JOB_NAME=" + long_value + std::string("\0KITTY_WATCH=1\0", 15);
  const std::string table =
      "  sl  local_address\n"
      "   0: 0100007F:1389 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 316847 4\n"
      "1234567: 0100007F:9942 0100007F:1E61 01 FFFFFFFF:7FFFFFFF 01:100000000 00000003 4294967294      255 "
      "4294967295\n"
      "bad\n";
  std::array<EnvironVariable, 1> variables{{{"JOB_NAME"}}};

  const AllocationCount allocations;
  SnmpTcp tcp;
  const SnmpError snmp_good = parse_snmp("Tcp: OutSegs\nTcp: 4\n", tcp);
  const SnmpError snmp_bad = parse_snmp("Tcp: OutSegs\nTcp: x\n", tcp);
  const auto stat =
      parse_stat("42 (x) R 9 9 (y) S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5");
  const auto bad_stat = parse_stat("42 (x");
  const auto link = parse_socket_link("socket:[1]");
  const auto net = parse_net_link("net:[1]");
  const auto pid = parse_pid("12");
  const Cgroup cgroup = parse_cgroup("0::/kubepods/pod6f1d2c3b-4a59-4e6d-8c7b-90a1b2c3d4e5/x\n");
  EnvironScan scan(variables);
  TcpTableParser parser;
  const auto on_row = [](const TcpRow&) {};
  for (size_t at = 0; at < table.size(); at += 7) parser.feed(std::string_view(table).substr(at, 7), on_row);
  parser.finish(on_row);
  for (size_t at = 0; at < environment.size(); at += 4096) {
    scan.feed(std::string_view(environment).substr(at, 4096));
  }
  scan.finish();
  EXPECT_EQ(allocations.count(), 0u);

  EXPECT_EQ(snmp_good, SnmpError::none);
  EXPECT_EQ(snmp_bad, SnmpError::bad_number);
  EXPECT_TRUE(stat && !bad_stat && link && net && pid);
  EXPECT_EQ(cgroup.pod_uid().size(), kPodUidBytes);
  EXPECT_TRUE(scan.watched());
  EXPECT_TRUE(variables[0].value.truncated);
  EXPECT_EQ(parser.rows(), 2u);
  EXPECT_EQ(parser.errors(), 1u);
  EXPECT_EQ(parser.irregular_rows(), 1u);
}

}  // namespace
}  // namespace kitty::procfs
