#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>

#include "privileges/capabilities.h"
#include "privileges/confine.h"
#include "privileges/syscall_filter.h"

namespace kitty::privileges {
namespace {

// What cannot be undone is done in a child. `body` returns 0 when all is as it should be, else the line.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

#define MUST(condition) \
  if (!(condition)) return __LINE__ % 256

std::string status_field(const std::string& field) {
  const int file = open("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
  std::string text(8192, '\0');
  const ssize_t n = read(file, text.data(), text.size());
  close(file);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  const size_t at = text.find('\n' + field + ":\t");
  if (at == std::string::npos) return {};
  const size_t begin = at + field.size() + 3;
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string hex(CapabilitySet set) {
  char text[17];
  (void)snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(set.bits()));
  return text;
}

int try_to_execute() {
  char path[] = "/bin/true";
  char* const argv[] = {path, nullptr};
  return execv(path, argv);
}

TEST(Capabilities, Names) {
  EXPECT_EQ((CapabilitySet{Capability::sys_ptrace, Capability::bpf}.names()), "CAP_BPF, CAP_SYS_PTRACE");
  EXPECT_EQ(CapabilitySet().names(), "none");
  for (const Capability one : all_used()) EXPECT_TRUE(name(one).starts_with("CAP_"));
}

TEST(Capabilities, WhatIsPermittedIsWhatTheKernelSays) {
  const auto set = permitted();
  ASSERT_TRUE(set);
  EXPECT_EQ(hex(*set), status_field("CapPrm"));
}

TEST(Capabilities, OnlyWhatIsKeptIsLeft) {
  if (!is_root()) GTEST_SKIP() << "root is missing";
  EXPECT_EQ(in_child([] {
              const std::string all = status_field("CapPrm");
              MUST(use_only({Capability::sys_ptrace}));
              MUST(status_field("CapEff") == hex({Capability::sys_ptrace}));
              MUST(status_field("CapPrm") == all);
              MUST(keep_only(kForProcfs));
              for (const char* field : {"CapEff", "CapPrm"}) MUST(status_field(field) == hex(kForProcfs));
              for (const char* field : {"CapInh", "CapAmb"}) MUST(status_field(field) == hex({}));
              MUST(status_field("CapBnd") == hex(kForProcfs));
              // For good.
              const Status again = use_only({Capability::bpf});
              MUST(!again && again.error().err == EPERM);
              return 0;
            }),
            0);
}

TEST(Capabilities, WhatIsNotPermittedCannotBeKept) {
  EXPECT_EQ(in_child([] {
              MUST(keep_only({}));
              const Status kept = keep_only({Capability::bpf});
              MUST(!kept && kept.error().message() == "set capabilities: Operation not permitted");
              return 0;
            }),
            0);
}

TEST(SyscallFilter, RefusesWhatServingDoesNotNeed) {
  EXPECT_EQ(in_child([] {
              MUST(install_syscall_filter());
              MUST(status_field("Seccomp") == "2");
              MUST(status_field("NoNewPrivs") == "1");
              MUST(try_to_execute() == -1 && errno == EPERM);
              MUST(fork() == -1 && errno == EPERM);
              for (const long number : {SYS_ptrace, SYS_mount, SYS_perf_event_open, SYS_kexec_load, SYS_setns,
                                        SYS_process_vm_writev, SYS_init_module, SYS_unlinkat, SYS_kill}) {
                MUST(syscall(number, 0, 0, 0, 0, 0) == -1 && errno == EPERM);
              }
              return 0;
            }),
            0);
}

TEST(SyscallFilter, OfBpfOnlyAccessToWhatIsThere) {
  constexpr int kMapCreate = 0, kMapLookup = 1, kProgLoad = 5, kMapGetFdById = 14, kBtfLoad = 18;
  EXPECT_EQ(in_child([] {
              const bool root = is_root();
              MUST(install_syscall_filter());
              std::array<uint64_t, 16> attr{};
              attr[0] = ~uint64_t{0};  // a descriptor that is none
              for (const int command : {kMapCreate, kProgLoad, kMapGetFdById, kBtfLoad}) {
                MUST(syscall(SYS_bpf, command, attr.data(), sizeof attr) == -1 && errno == EPERM);
              }
              // Let through: the kernel's own answer is another.
              MUST(syscall(SYS_bpf, kMapLookup, attr.data(), sizeof attr) == -1 && (!root || errno != EPERM));
              return 0;
            }),
            0);
}

// Not by std::thread: UBSan looks through a pipe, which the filter refuses, at whether its objects are what
// they should be.
struct Attempts {
  std::atomic<bool> installed = false;
  std::atomic<int> refused = 0;
};
void* try_once_installed(void* argument) {
  auto& attempts = *static_cast<Attempts*>(argument);
  while (!attempts.installed) sched_yield();
  if (try_to_execute() == -1 && errno == EPERM) ++attempts.refused;
  return nullptr;
}

TEST(SyscallFilter, HoldsForThreadsThatAreThereAndThoseToCome) {
  EXPECT_EQ(in_child([] {
              Attempts attempts;
              pthread_t before{}, after{};
              MUST(pthread_create(&before, nullptr, try_once_installed, &attempts) == 0);
              MUST(install_syscall_filter());
              attempts.installed = true;
              MUST(pthread_create(&after, nullptr, try_once_installed, &attempts) == 0);
              MUST(pthread_join(before, nullptr) == 0 && pthread_join(after, nullptr) == 0);
              MUST(attempts.refused == 2);
              return 0;
            }),
            0);
}

TEST(Confine, KeepsOfTheBpfCapabilitiesWhatTheMapsNeed) {
  if (!is_root()) GTEST_SKIP() << "root is missing";
  const auto kept_with = [](CapabilitySet needed, CapabilitySet expected) {
    return in_child([=] {
      const Confinement done = confine([needed] {
        for (const Capability one : all_used()) {
          if (needed.has(one) && status_field("CapEff") == hex(kForProcfs)) return false;
          if (needed.has(one) &&
              (std::stoull(status_field("CapEff"), nullptr, 16) & CapabilitySet{one}.bits()) == 0)
            return false;
        }
        return true;
      });
      MUST(done.problem.empty());
      MUST(done.kept == expected);
      MUST(status_field("CapPrm") == hex(expected));
      MUST(status_field("Seccomp") == "2");
      return 0;
    });
  };
  CapabilitySet with_bpf = kForProcfs, with_admin = kForProcfs;
  with_bpf.add(Capability::bpf);
  with_admin.add(Capability::sys_admin);
  EXPECT_EQ(kept_with({}, kForProcfs), 0);
  EXPECT_EQ(kept_with({Capability::bpf}, with_bpf), 0);
  EXPECT_EQ(kept_with({Capability::sys_admin}, with_admin), 0);
  EXPECT_EQ(kept_with({Capability::net_bind_service}, kForProcfs), 0) << "what does not help is not kept";
}

TEST(Confine, WithoutMapsAndWithoutCapabilities) {
  EXPECT_EQ(in_child([] {
              MUST(keep_only({}));
              const bool root = is_root();
              const Confinement done = confine({});
              MUST(done.problem.empty() == !root);  // without any it cannot become another
              MUST(done.kept == CapabilitySet());
              MUST(status_field("Seccomp") == "2");
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace kitty::privileges
