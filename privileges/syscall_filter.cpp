#include "privileges/syscall_filter.h"

#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace kitty::privileges {

namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "seccomp: which AUDIT_ARCH_ is this?"
#endif
constexpr uint32_t kX32Bit = 0x40000000;  // __X32_SYSCALL_BIT; elsewhere no system call is numbered so high

// What glibc, libstdc++ and kitty do between start and end of serving. Both names where architectures differ.
constexpr auto kAllowed = std::to_array<uint32_t>({
    // Files: procfs, and standard error.
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_write,
    SYS_writev,
    SYS_openat,
    SYS_close,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_getxattr,
    SYS_faccessat,
    SYS_fcntl,
    SYS_dup3,
    // Sockets.
    SYS_socket,
    SYS_bind,
    SYS_listen,
    SYS_accept4,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_shutdown,
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_ppoll,
    SYS_eventfd2,
    // Threads, memory, time, signals to itself, the end.
    SYS_set_robust_list,
    SYS_rseq,
    SYS_futex,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_membarrier,
    SYS_clock_gettime,
    SYS_clock_nanosleep,
    SYS_clock_getres,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigtimedwait,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_getpid,
    SYS_gettid,
    SYS_getrusage,
    SYS_prlimit64,
    SYS_uname,
    SYS_getrandom,
    SYS_sysinfo,
#if defined(__x86_64__)
    SYS_epoll_wait,
    SYS_poll,
    SYS_readlink,
#endif
});

// Of bpf(2): elements of maps that are there, and iterators of programs that are loaded.
constexpr auto kAllowedBpf =
    std::to_array<uint32_t>({BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM,
                             BPF_MAP_GET_NEXT_KEY, BPF_LINK_CREATE, BPF_ITER_CREATE, BPF_OBJ_GET_INFO_BY_FD});

constexpr sock_filter load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
constexpr sock_filter give(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
// Skips `otherwise` instructions where the loaded word is not `value`.
constexpr sock_filter unless_equal(uint32_t value, uint8_t otherwise) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise);
}

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

constexpr auto make_filter() {
  constexpr size_t kHead = 7, kClone = 7, kBpf = 2 + 2 * kAllowedBpf.size() + 1;
  std::array<sock_filter, kHead + 2 * kAllowed.size() + kClone + kBpf + 1> filter{};
  size_t n = 0;
  filter[n++] = load(offsetof(seccomp_data, arch));
  filter[n++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  filter[n++] = give(SECCOMP_RET_KILL_PROCESS);
  filter[n++] = load(offsetof(seccomp_data, nr));
  filter[n++] = BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 0, 1);
  filter[n++] = give(kRefuse);
  filter[n++] = load(offsetof(seccomp_data, nr));
  for (const uint32_t number : kAllowed) {
    filter[n++] = unless_equal(number, 1);
    filter[n++] = give(SECCOMP_RET_ALLOW);
  }
  // Its flags are in memory, where a filter cannot look; the C library then uses clone().
  filter[n++] = unless_equal(SYS_clone3, 1);
  filter[n++] = give(SECCOMP_RET_ERRNO | ENOSYS);
  filter[n++] = unless_equal(SYS_clone, 4);
  filter[n++] = load(offsetof(seccomp_data, args));
  filter[n++] = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
  filter[n++] = give(SECCOMP_RET_ALLOW);
  filter[n++] = give(kRefuse);
  filter[n++] = unless_equal(SYS_bpf, static_cast<uint8_t>(kBpf - 1));
  filter[n++] = load(offsetof(seccomp_data, args));  // the low half; its command is an int
  for (const uint32_t command : kAllowedBpf) {
    filter[n++] = unless_equal(command, 1);
    filter[n++] = give(SECCOMP_RET_ALLOW);
  }
  filter[n++] = give(kRefuse);
  filter[n++] = give(kRefuse);
  return filter;
}

}  // namespace

Status install_syscall_filter() {
  static constexpr auto kFilter = make_filter();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail("set no_new_privs", {}, errno);
  sock_fprog program{.len = static_cast<unsigned short>(kFilter.size()),
                     .filter = const_cast<sock_filter*>(kFilter.data())};  // the kernel only reads it
  const long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (result == 0) return {};
  const int err = result > 0 ? EBUSY : errno;  // a thread that has another filter
  return fail("install seccomp filter", {}, err,
              err == ENOSYS || err == EINVAL ? "this kernel was built without CONFIG_SECCOMP_FILTER" : "");
}

}  // namespace kitty::privileges
