// What code that has taken the agent over can do: it is tried from inside, after confine(), and for each
// attempt also without it, so that the kernel's own answer is known to be another.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "collector/agent_usage.h"
#include "loader/map.h"
#include "privileges/confine.h"
#include "privileges/syscall_filter.h"
#include "procfs/directory.h"
#include "procfs/file.h"
#include "tests/unit/kernel_tests.h"
#include "tests/unit/said_in_child.h"

namespace kitty::privileges {
namespace {

using kitty::testing::said_in_child;

constexpr uid_t kSomebody = 61462;  // neither root nor the agent's own

// A process that sleeps, of root's or of another user's; it ends with this object.
class Victim {
 public:
  explicit Victim(uid_t uid) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (uid != 0 &&
          (setgroups(0, nullptr) != 0 || setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0))
        _exit(1);
      prctl(PR_SET_DUMPABLE, 1);  // as any program is that it would execute
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      (void)!write(ends[1], "r", 1);
      for (;;) pause();
    }
    char ready = 0;
    (void)!read(ends[0], &ready, 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Victim() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string path(const std::string& file) const {
    return "/proc/" + std::to_string(pid_) + "/" + file;
  }

 private:
  pid_t pid_ = -1;
};

// A folder of root's with a file and a socket that listens, and descriptors from before the confinement.
class RootsThings {
 public:
  RootsThings() {
    char path[] = "/tmp/kitty-confinement-XXXXXX";
    folder_ = mkdtemp(path);
    file_ = Fd(open(file().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    (void)!write(file_.get(), "x", 1);
    address_.sun_family = AF_UNIX;
    strncpy(address_.sun_path, (folder_ + "/socket").c_str(), sizeof address_.sun_path - 1);
    listener_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    (void)bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
    (void)listen(listener_.get(), 8);
    client_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    tcp_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    udp_ = Fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  }
  ~RootsThings() {
    unlink(address_.sun_path);
    unlink(file().c_str());
    unlink((folder_ + "/made").c_str());
    rmdir(folder_.c_str());
  }
  RootsThings(const RootsThings&) = delete;
  RootsThings& operator=(const RootsThings&) = delete;

  [[nodiscard]] std::string file() const { return folder_ + "/file"; }

  std::string folder_;
  Fd file_, listener_, client_, tcp_, udp_;
  sockaddr_un address_{};
};

struct Attempt {
  const char* name;
  std::function<long()> run;  // -1 and errno where it is refused
};

long open_at(const std::string& path, int flags) {
  return syscall(SYS_openat, AT_FDCWD, path.c_str(), flags, 0600);
}

std::vector<Attempt> on_files(const Victim& root, const RootsThings& things) {
  const std::string mem = root.path("mem"), file = things.file(), folder = things.folder_;
  return {
      {"open root's memory to read and write", [=] { return open_at(mem, O_RDWR); }},
      {"open root's memory to write", [=] { return open_at(mem, O_WRONLY); }},
      {"open a file to write", [=] { return open_at(file, O_WRONLY); }},
      {"open a file with both access bits", [=] { return open_at(file, O_ACCMODE); }},
      {"make a file", [=] { return open_at(folder + "/made", O_WRONLY | O_CREAT); }},
      {"make a file to read", [=] { return open_at(folder + "/made", O_RDONLY | O_CREAT); }},
      {"empty a file", [=] { return open_at(file, O_RDONLY | O_TRUNC); }},
      {"make a nameless file", [=] { return open_at(folder, O_RDWR | O_TMPFILE); }},
      {"be told of changes", [=] { return syscall(SYS_inotify_init1, 0); }},
      {"make a folder", [=] { return syscall(SYS_mkdirat, AT_FDCWD, file.c_str(), 0700); }},
      {"rename", [=] { return syscall(SYS_renameat2, AT_FDCWD, file.c_str(), AT_FDCWD, file.c_str(), 0); }},
      {"link", [=] { return syscall(SYS_linkat, AT_FDCWD, file.c_str(), AT_FDCWD, file.c_str(), 0); }},
      {"unlink", [=] { return syscall(SYS_unlinkat, -1, "x", 0); }},
      {"truncate", [=] { return syscall(SYS_ftruncate, -1, 0); }},
      {"change a mode", [=] { return syscall(SYS_fchmodat, AT_FDCWD, file.c_str(), 0600); }},
      {"change an owner", [=] { return syscall(SYS_fchownat, AT_FDCWD, file.c_str(), 0, 0, 0); }},
      {"open by handle", [=] { return syscall(SYS_open_by_handle_at, -1, nullptr, 0); }},
      {"make memory that is a file", [] { return syscall(SYS_memfd_create, "x", 0); }},
      {"mount", [] { return syscall(SYS_mount, nullptr, nullptr, nullptr, 0, nullptr); }},
      {"ioctl", [] { return syscall(SYS_ioctl, -1, 0, 0); }},
  };
}

std::vector<Attempt> on_descriptors(const Victim& root, const RootsThings& things) {
  const int fd = things.file_.get();
  const pid_t pid = root.pid();
  static constexpr struct flock kWholeFile = {
      .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0};
  return {
      {"F_SETOWN", [=] { return syscall(SYS_fcntl, fd, F_SETOWN, pid); }},
      {"F_SETOWN_EX",
       [=] {
         const f_owner_ex owner = {F_OWNER_PID, pid};
         return syscall(SYS_fcntl, fd, F_SETOWN_EX, &owner);
       }},
      {"F_SETSIG", [=] { return syscall(SYS_fcntl, fd, F_SETSIG, SIGKILL); }},
      {"F_SETFL", [=] { return syscall(SYS_fcntl, fd, F_SETFL, O_ASYNC); }},
      {"F_NOTIFY", [=] { return syscall(SYS_fcntl, fd, F_NOTIFY, 0); }},
      {"F_SETLEASE", [=] { return syscall(SYS_fcntl, fd, F_SETLEASE, F_UNLCK); }},
      {"F_OFD_SETLK", [=] { return syscall(SYS_fcntl, fd, F_OFD_SETLK, &kWholeFile); }},
      {"dup3 over a standard stream", [=] { return syscall(SYS_dup3, fd, fd, 0); }},
  };
}

std::vector<Attempt> on_sockets(const RootsThings& things) {
  const auto* const address = &things.address_;
  const int client = things.client_.get(), tcp = things.tcp_.get(), udp = things.udp_.get();
  static constexpr auto kLoopback = [] {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = 0x0900;  // discard, in network order
    to.sin_addr.s_addr = 0x0100007f;
    return to;
  }();
  return {
      {"a TCP socket", [] { return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0); }},
      {"a unix socket", [] { return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0); }},
      {"a netlink socket", [] { return syscall(SYS_socket, AF_NETLINK, SOCK_RAW, 0); }},
      {"a pair of sockets",
       [] {
         int ends[2];
         return syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
       }},
      {"connect to root's socket", [=] { return syscall(SYS_connect, client, address, sizeof *address); }},
      {"bind", [=] { return syscall(SYS_bind, -1, address, sizeof *address); }},
      {"listen", [=] { return syscall(SYS_listen, -1, 1); }},
      {"connect by sending (sendto)",
       [=] { return syscall(SYS_sendto, tcp, "x", 1, MSG_FASTOPEN, &kLoopback, sizeof kLoopback); }},
      {"connect by sending (sendmsg)", [=] { return syscall(SYS_sendmsg, -1, nullptr, MSG_FASTOPEN); }},
      {"send to an address",
       [=] { return syscall(SYS_sendto, udp, "x", 1, 0, &kLoopback, sizeof kLoopback); }},
      {"send many", [=] { return syscall(SYS_sendmmsg, -1, nullptr, 0, 0); }},
  };
}

std::vector<Attempt> on_processes(const Victim& root) {
  const pid_t pid = root.pid();
  return {
      {"kill", [=] { return syscall(SYS_kill, pid, 0); }},
      {"tkill", [=] { return syscall(SYS_tkill, pid, 0); }},
      {"tgkill", [=] { return syscall(SYS_tgkill, pid, pid, 0); }},
      {"rt_sigqueueinfo",
       [=] {
         siginfo_t info{};
         info.si_code = SI_QUEUE;
         return syscall(SYS_rt_sigqueueinfo, pid, 0, &info);
       }},
      {"pidfd_open", [=] { return syscall(SYS_pidfd_open, pid, 0); }},
      {"pidfd_send_signal", [=] { return syscall(SYS_pidfd_send_signal, -1, 0, nullptr, 0); }},
      {"read another's limits",
       [=] {
         rlimit limit{};
         return syscall(SYS_prlimit64, pid, RLIMIT_NOFILE, nullptr, &limit);
       }},
      {"set another's limits",
       [=] {
         rlimit limit{};
         if (getrlimit(RLIMIT_CORE, &limit) != 0) return -1L;
         return syscall(SYS_prlimit64, pid, RLIMIT_CORE, &limit, nullptr);
       }},
      {"set its own limits",
       [] {
         rlimit limit{};
         if (getrlimit(RLIMIT_CORE, &limit) != 0) return -1L;
         return syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, nullptr);
       }},
      {"set another's priority", [=] { return syscall(SYS_setpriority, PRIO_PROCESS, pid, 0); }},
      {"set another's processors",
       [=] {
         cpu_set_t set{};
         if (sched_getaffinity(0, sizeof set, &set) != 0) return -1L;
         return syscall(SYS_sched_setaffinity, pid, sizeof set, &set);
       }},
      {"trace", [=] { return syscall(SYS_ptrace, PTRACE_PEEKDATA, pid, nullptr, nullptr); }},
      {"read by process_vm_readv",
       [=] { return syscall(SYS_process_vm_readv, pid, nullptr, 0, nullptr, 0, 0); }},
      {"write by process_vm_writev",
       [=] { return syscall(SYS_process_vm_writev, pid, nullptr, 0, nullptr, 0, 0); }},
      {"execve", [] { return syscall(SYS_execve, "/nowhere", nullptr, nullptr); }},
      {"execveat", [] { return syscall(SYS_execveat, -1, "", nullptr, nullptr, 0); }},
      {"a thread with a namespace of its own",
       [] { return syscall(SYS_clone, CLONE_THREAD | CLONE_NEWNET, 0, 0, 0, 0); }},
      {"unshare", [] { return syscall(SYS_unshare, -1); }},
      {"setns", [] { return syscall(SYS_setns, -1, 0); }},
      {"become root", [] { return syscall(SYS_setresuid, -1, -1, -1); }},
      {"be dumped", [] { return syscall(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0); }},
      {"another personality", [] { return syscall(SYS_personality, 0xffffffff); }},
      {"load a BPF program",
       [] {
         std::array<uint64_t, 16> attr{};
         return syscall(SYS_bpf, BPF_PROG_LOAD, attr.data(), sizeof attr);
       }},
      {"any map by its number",
       [] {
         std::array<uint64_t, 16> attr{};
         return syscall(SYS_bpf, BPF_MAP_GET_FD_BY_ID, attr.data(), sizeof attr);
       }},
      {"perf_event_open", [] { return syscall(SYS_perf_event_open, nullptr, 0, 0, -1, 0); }},
#if defined(__x86_64__)
      {"a number of x32's", [] { return syscall(0x40000000 | SYS_getpid); }},
#endif
  };
}

std::vector<Attempt> on_memory(const RootsThings& things) {
  constexpr size_t kPage = 4096;
  const int fd = things.file_.get();
  const auto map = [](int protection, int flags, int file) {
    return syscall(SYS_mmap, nullptr, kPage, protection, flags, file, 0);
  };
  const auto protect = [map](long number) {
    const long page = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return page == -1 ? page : syscall(number, page, kPage, PROT_READ | PROT_EXEC, -1);
  };
  return {
      {"memory to write and execute",
       [=] { return map(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1); }},
      {"a file to execute", [=] { return map(PROT_READ | PROT_EXEC, MAP_PRIVATE, fd); }},
      {"execute what was written", [=] { return protect(SYS_mprotect); }},
      {"execute what was written, with a key", [=] { return protect(SYS_pkey_mprotect); }},
  };
}

std::vector<Attempt> all_attempts(const Victim& root, const RootsThings& things) {
  std::vector<Attempt> all = on_files(root, things);
  for (const auto& more :
       {on_descriptors(root, things), on_sockets(things), on_processes(root), on_memory(things)})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// A letter for each: R where it is refused with EPERM.
std::string answers_to(const std::vector<Attempt>& attempts) {
  std::string answers;
  for (const Attempt& attempt : attempts) {
    errno = 0;
    const long result = attempt.run();
    answers += result == -1 && errno == EPERM ? 'R' : '-';
  }
  return answers;
}

class ConfinementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "root is missing";
  }
};

TEST_F(ConfinementTest, ReadingIsAllThatIsLeftToWhoTakesItOver) {
  const Victim root(0);
  const RootsThings things;
  const std::vector<Attempt> attempts = all_attempts(root, things);
  const std::string free = said_in_child([&] { return answers_to(attempts); });
  const std::string confined = said_in_child([&] {
    const Confinement done = confine({});
    return done.problem + answers_to(attempts);
  });
  ASSERT_EQ(free.size(), attempts.size()) << free;
  ASSERT_EQ(confined.size(), attempts.size()) << confined;
  for (size_t i = 0; i < attempts.size(); ++i) {
    EXPECT_EQ(confined[i], 'R') << attempts[i].name << ": let through, or refused by the kernel alone";
    if (free[i] == 'R')
      std::fprintf(stderr, "%s: the kernel itself says EPERM here, so this shows nothing\n",
                   attempts[i].name);
  }
  EXPECT_LT(std::ranges::count(free, 'R'), 10) << "too few rights are left here to show anything";
  struct stat status{};
  EXPECT_EQ(stat((things.folder_ + "/made").c_str(), &status), 0) << "the control has made none";
  EXPECT_EQ(kill(root.pid(), 0), 0) << "the victim has gone";
}

// No new process; what the C library asks for a thread is let through, other kinds of clone(2) are not.
TEST_F(ConfinementTest, MakesThreadsAndNoProcesses) {
  EXPECT_EQ(said_in_child([] -> std::string {
              if (const Confinement done = confine({}); !done.problem.empty()) return done.problem;
              if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != -1 || errno != EPERM) return "a process";
              if (syscall(SYS_clone3, nullptr, 0) != -1 || errno != ENOSYS) return "clone3";
              const auto work = [](void* name) -> void* {
                // A name, memory of its own in another arena, and a write to it.
                if (pthread_setname_np(pthread_self(), static_cast<const char*>(name)) != 0) return nullptr;
                std::vector<std::string> strings;
                for (int i = 0; i < 1000; ++i) strings.emplace_back(1000, 'x');
                return name;
              };
              char name[] = "kitty-test";
              std::array<pthread_t, 8> threads{};
              for (pthread_t& thread : threads) {
                if (pthread_create(&thread, nullptr, work, name) != 0) return "no thread";
              }
              for (const pthread_t thread : threads) {
                void* result = nullptr;
                if (pthread_join(thread, &result) != 0 || result != name) return "a thread that did not work";
              }
              pthread_t left{};
              if (pthread_create(&left, nullptr, work, name) != 0 || pthread_detach(left) != 0)
                return "no detaching";
              return {};
            }),
            "");
}

TEST_F(ConfinementTest, DiesOfAbort) {
  const std::string said = said_in_child([] -> std::string {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    (void)confine({});
    std::abort();
  });
  EXPECT_EQ(said, "killed by signal " + std::to_string(SIGABRT));
}

#if defined(__x86_64__)
std::string getpid_of_i386() {
  long result = 20;  // __NR_getpid, arch/x86/entry/syscalls/syscall_32.tbl
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  return result == getpid() ? "works" : "another answer";
}

TEST_F(ConfinementTest, A32BitSystemCallKills) {
  if (const std::string said = said_in_child(getpid_of_i386); said != "works")
    GTEST_SKIP() << "32-bit system calls are missing: " << said;
  EXPECT_EQ(said_in_child([] {
              (void)confine({});
              return getpid_of_i386();
            }),
            "killed by signal " + std::to_string(SIGSYS));
}
#endif

// What can no longer be read of a process; empty: all can.
std::string unreadable(const Victim& process) {
  std::string problems;
  std::array<char, 65536> buffer;
  const auto text = [&](const char* file) {
    const auto read = procfs::read_text_at(AT_FDCWD, process.path(file).c_str(), buffer);
    if (!read || read->empty()) problems += std::string(file) + '\n';
    return read ? std::string(*read) : std::string();
  };
  (void)text("environ");
  (void)text("cgroup");
  const auto table = procfs::open_at(AT_FDCWD, process.path("net/tcp").c_str(), 0);
  if (!table || !procfs::read_some(table->get(), buffer).value_or(0)) problems += "net/tcp\n";
  if (text("net/snmp").find("\nTcp: ") == std::string::npos) problems += "net/snmp's content\n";
  if (!text("stat").starts_with(std::to_string(process.pid()) + " (")) problems += "stat's content\n";
  const auto netns = procfs::read_link_at(AT_FDCWD, process.path("ns/net").c_str(), buffer);
  if (!netns || !netns->starts_with("net:[")) problems += "ns/net\n";
  const auto fds = procfs::open_at(AT_FDCWD, process.path("fd").c_str(), O_DIRECTORY);
  size_t links = 0;
  if (fds) {
    std::array<char, 4096> names;
    (void)procfs::walk_directory(fds->get(), names, [&](const char* name, uint64_t) {
      std::array<char, 256> link;
      links += procfs::read_link_at(fds->get(), name, link).has_value();
    });
  }
  if (links == 0) problems += "fd\n";
  return problems;
}

TEST_F(ConfinementTest, WhatServingReadsIsStillReadable) {
  const Victim root(0), somebody(kSomebody);
  EXPECT_EQ(said_in_child([&] {
              std::string problems = confine({}).problem;
              for (const Victim* victim : {&root, &somebody}) problems += unreadable(*victim);
              const collector::AgentUsage usage = collector::read_agent_usage();
              if (usage.resident_bytes == 0) problems += "its own memory\n";
              if (usage.open_fds == 0) problems += "its own descriptors\n";
              rlimit limit{};
              if (getrlimit(RLIMIT_NOFILE, &limit) != 0) problems += "its own limits\n";
              return problems;
            }),
            "");
}

TEST_F(ConfinementTest, MapsAreStillReadAndWritten) {
  KITTY_NEEDS_KERNEL();
  auto map = loader::Map::create(loader::testing::counter_map());
  ASSERT_TRUE(map) << map.error().message();
  EXPECT_EQ(said_in_child([&] -> std::string {
              std::array<uint64_t, 2> value{};
              const auto readable = [&] { return map->lookup(uint32_t{0}, value).value_or(false); };
              if (const Confinement done = confine(readable); !done.problem.empty()) return done.problem;
              if (!readable()) return "lookup";
              if (!map->update(uint32_t{0}, std::array<uint64_t, 2>{7, 7})) return "update";
              return readable() && value[1] == 7 ? "" : "what was written";
            }),
            "");
}

// Who it is afterwards

std::string status_of_self() {
  std::array<char, 8192> buffer;
  const auto text = procfs::read_text_at(AT_FDCWD, "/proc/thread-self/status", buffer);
  return text ? std::string(*text) : "no status";
}

std::string field_of(const std::string& status, const std::string& name) {
  const size_t at = status.find('\n' + name + ":\t");
  if (at == std::string::npos) return "none";
  const size_t begin = at + name.size() + 3;
  return status.substr(begin, status.find('\n', begin) - begin);
}

std::string ids_of_self() {
  const std::string status = status_of_self();
  return field_of(status, "Uid") + '|' + field_of(status, "Gid") + '|' + field_of(status, "Groups");
}

std::string four(uint32_t id) {
  const std::string text = std::to_string(id);
  return text + '\t' + text + '\t' + text + '\t' + text;
}

TEST_F(ConfinementTest, BecomesAUserOfItsOwnWithoutGroups) {
  for (const User& user : {kOwnUser, User{.uid = 70000, .gid = 70001}}) {
    EXPECT_EQ(said_in_child([&] -> std::string {
                const std::array<gid_t, 2> groups = {0, 4};
                if (setgroups(groups.size(), groups.data()) != 0) return "no groups";
                if (const Confinement done = confine({}, user); !done.problem.empty()) return done.problem;
                return ids_of_self() + (prctl(PR_GET_DUMPABLE) == -1 ? "" : "|prctl");
              }),
              four(user.uid) + '|' + four(user.gid) + "| ");
  }
}

TEST_F(ConfinementTest, AnotherUserThanRootStaysWhoItIs) {
  EXPECT_EQ(said_in_child([] -> std::string {
              if (setresgid(kSomebody, kSomebody, kSomebody) != 0 ||
                  setresuid(kSomebody, kSomebody, kSomebody) != 0)
                return "no user";
              if (const Confinement done = confine({}); !done.problem.empty()) return done.problem;
              return field_of(status_of_self(), "Uid");
            }),
            four(kSomebody));
}

TEST_F(ConfinementTest, RootThatCannotBecomeAnotherStaysAndSaysWhy) {
  struct Case {
    const char* name;
    CapabilitySet held;
    const char* problem;
  };
  const Case cases[] = {
      {"the four as root", kForProcfs,
       "give up uid 0: missing CAP_SETUID, CAP_SETGID: grant CAP_SETUID and CAP_SETGID, which are given up "
       "then"},
      {"one of two",
       {Capability::setuid, Capability::sys_ptrace, Capability::dac_read_search},
       "give up uid 0: missing CAP_SETGID: grant CAP_SETUID and CAP_SETGID, which are given up then"},
      {"another could read less",
       {Capability::setuid, Capability::setgid, Capability::dac_read_search},
       "give up uid 0: missing CAP_SYS_PTRACE, without which only root may read root's processes"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(said_in_child([&] -> std::string {
                if (!keep_only(c.held)) return "capabilities";
                const Confinement done = confine({});
                // All the same: no more than reading takes, and the filter.
                if (done.kept != (c.held & kForProcfs)) return "kept " + done.kept.names();
                const std::string status = status_of_self();
                return done.problem + '|' + field_of(status, "Uid") + '|' + field_of(status, "Seccomp");
              }),
              std::string(c.problem) + '|' + four(0) + "|2")
        << c.name;
  }
}

TEST_F(ConfinementTest, WhereThereAreNoOtherIdsItSaysSo) {
  const std::string said = said_in_child([] -> std::string {
    if (unshare(CLONE_NEWUSER) != 0) return "no user namespace";
    const auto put = [](const char* path, const std::string& text) {
      const Fd file(open(path, O_WRONLY | O_CLOEXEC));
      return write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    };
    if (!put("/proc/self/setgroups", "deny") || !put("/proc/self/uid_map", "0 0 1") ||
        !put("/proc/self/gid_map", "0 0 1"))
      return "no user namespace";
    const Confinement done = confine({});
    return done.problem + '|' + std::to_string(done.uid) + '|' + done.kept.names();
  });
  if (said == "no user namespace") GTEST_SKIP() << "leave to make user namespaces is missing";
  EXPECT_EQ(said,
            "give up supplementary groups: Operation not permitted|0|CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH");
}

}  // namespace
}  // namespace kitty::privileges
