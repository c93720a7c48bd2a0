#include "privileges/syscall_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

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

// What glibc, libstdc++ and kitty do between start and end of serving, whatever the arguments. Both names
// where architectures differ. No sockets are made, bound or connected: the listener is there. What a later
// feature needs of them (one family and protocol of socket(2), say) goes into add_checked() below, by its
// arguments.
constexpr auto kAllowed = std::to_array<uint32_t>({
    // Files: procfs, and standard error.
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_write,
    SYS_writev,
    SYS_close,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_getdents64,
    SYS_readlinkat,
    SYS_getxattr,
    SYS_faccessat,
    // Connections.
    SYS_accept4,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_recvfrom,
    SYS_recvmsg,
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
    SYS_munmap,
    SYS_mremap,
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
    SYS_getpid,
    SYS_gettid,
    SYS_getrusage,
    SYS_uname,
    SYS_getrandom,
    SYS_sysinfo,
#if defined(__x86_64__)
    SYS_epoll_wait,
    SYS_poll,
    SYS_readlink,
#endif
});

// Of openat(2): for reading, and nothing that makes or changes a file. O_TMPFILE holds O_DIRECTORY's bit and
// one of its own, which is not here.
constexpr uint32_t kReadingFlags =
    O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_PATH | O_NOCTTY | O_LARGEFILE;

// Of clone(2): what glibc's pthread_create() asks for (sysdeps/unix/sysv/linux, create_thread), and no
// namespaces.
constexpr uint32_t kThreadFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SIGHAND |
                                  CLONE_THREAD | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;

// Of sendto(2) and sendmsg(2). Not MSG_FASTOPEN, which connects: a listener that was shut down would do.
constexpr uint32_t kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;

// Of bpf(2): elements of maps that are there, and iterators of programs that are loaded.
constexpr std::initializer_list<uint32_t> kBpfCommands = {
    BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM,   BPF_MAP_GET_NEXT_KEY,
    BPF_LINK_CREATE,     BPF_ITER_CREATE,     BPF_OBJ_GET_INFO_BY_FD};

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;

// The filter as it is put together. Of an argument the low half is looked at, where ints lie, unless said
// otherwise; both architectures are little-endian.
class Filter {
 public:
  // For the kernel, which only reads it, while this object lives.
  [[nodiscard]] sock_fprog program() {
    return {.len = static_cast<unsigned short>(size_), .filter = code_.data()};
  }
  [[nodiscard]] constexpr size_t size() const { return size_; }

  constexpr void load(size_t offset) {
    add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  }
  constexpr void give(uint32_t action) { add(BPF_STMT(BPF_RET | BPF_K, action)); }
  // The next instruction is for the loaded words that compare so (BPF_JEQ, BPF_JGE; BPF_JSET: have one of
  // these bits), or for all others.
  constexpr void next_if(uint32_t comparison, uint32_t value) {
    add(BPF_JUMP(BPF_JMP | comparison | BPF_K, value, 0, 1));
  }
  constexpr void next_unless(uint32_t comparison, uint32_t value) {
    add(BPF_JUMP(BPF_JMP | comparison | BPF_K, value, 1, 0));
  }

  // With the number loaded: `body` decides about this system call; what it says nothing of is refused.
  template <class Body>
  constexpr void on(uint32_t number, const Body& body) {
    const size_t test = size_;
    add({});
    body();
    give(kRefuse);
    code_[test] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, static_cast<uint8_t>(size_ - test - 1));
  }
  constexpr void allow() { give(SECCOMP_RET_ALLOW); }
  constexpr void refuse_with_bits(unsigned argument, uint32_t bits) {
    load_argument(argument);
    next_if(BPF_JSET, bits);
    give(kRefuse);
  }
  constexpr void refuse_without_bits(unsigned argument, uint32_t bits) {
    load_argument(argument);
    next_unless(BPF_JSET, bits);
    give(kRefuse);
  }
  constexpr void refuse_unless(unsigned argument, uint32_t value) {
    load_argument(argument);
    next_unless(BPF_JEQ, value);
    give(kRefuse);
  }
  constexpr void refuse_unless_null(unsigned argument) {  // both halves
    refuse_unless(argument, 0);
    load_argument(argument, 1);
    next_unless(BPF_JEQ, 0);
    give(kRefuse);
  }
  constexpr void allow_one_of(unsigned argument, std::initializer_list<uint32_t> values) {
    load_argument(argument);
    for (const uint32_t value : values) {
      next_if(BPF_JEQ, value);
      allow();
    }
  }

 private:
  constexpr void load_argument(unsigned number, unsigned half = 0) {
    load(offsetof(seccomp_data, args) + number * sizeof(uint64_t) + half * sizeof(uint32_t));
  }
  constexpr void add(sock_filter one) { code_[size_++] = one; }

  std::array<sock_filter, 256> code_{};  // of BPF_MAXINSNS, 4096; that all fits is asserted below
  size_t size_ = 0;
};

// System calls that depend on their arguments. They come first: what depends on the number alone the kernel
// remembers (since 5.11) and asks no filter.
constexpr void add_checked(Filter& filter, uint32_t own_pid) {
  filter.on(SYS_openat, [&] {
    filter.refuse_with_bits(2, ~kReadingFlags);
    filter.allow();
  });
  filter.on(SYS_bpf, [&] { filter.allow_one_of(0, kBpfCommands); });
  filter.on(SYS_sendmsg, [&] {
    filter.refuse_with_bits(2, ~kSendFlags);
    filter.allow();
  });
  filter.on(SYS_sendto, [&] {
    filter.refuse_with_bits(3, ~kSendFlags);
    filter.refuse_unless_null(4);  // to whom it is connected, and nobody else
    filter.allow();
  });
  for (const uint32_t number : std::to_array<uint32_t>({SYS_mmap, SYS_mprotect})) {
    filter.on(number, [&] {
      filter.refuse_with_bits(2, PROT_EXEC);
      filter.allow();
    });
  }
  filter.on(SYS_fcntl, [&] { filter.allow_one_of(1, {F_DUPFD_CLOEXEC, F_GETFD, F_GETFL}); });
  filter.on(SYS_clone, [&] {
    filter.refuse_with_bits(0, ~kThreadFlags);
    filter.refuse_without_bits(0, CLONE_THREAD);
    filter.allow();
  });
  // Its flags are in memory, where a filter cannot look; the C library then uses clone().
  filter.on(SYS_clone3, [&] { filter.give(SECCOMP_RET_ERRNO | ENOSYS); });
  // A thread names itself.
  filter.on(SYS_prctl, [&] { filter.allow_one_of(0, {PR_SET_NAME}); });
  // abort(3), pthread_kill(3): to its own threads.
  filter.on(SYS_tgkill, [&] {
    filter.refuse_unless(0, own_pid);
    filter.allow();
  });
  // getrlimit(3): its own limits, which nothing sets any more.
  filter.on(SYS_prlimit64, [&] {
    filter.refuse_unless(0, 0);
    filter.refuse_unless_null(2);
    filter.allow();
  });
}

constexpr Filter make_filter(uint32_t own_pid) {
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.next_unless(BPF_JEQ, kArchitecture);
  filter.give(SECCOMP_RET_KILL_PROCESS);
  filter.load(offsetof(seccomp_data, nr));
  filter.next_if(BPF_JGE, kX32Bit);
  filter.give(kRefuse);
  add_checked(filter, own_pid);
  for (const uint32_t number : kAllowed) {
    filter.next_if(BPF_JEQ, number);
    filter.allow();
  }
  filter.give(kRefuse);
  return filter;
}
static_assert(make_filter(1).size() > 0);  // beyond its array this would not compile

}  // namespace

Status install_syscall_filter() {
  Filter filter = make_filter(static_cast<uint32_t>(getpid()));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail("set no_new_privs", {}, errno);
  const sock_fprog program = filter.program();
  const long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (result == 0) return {};
  const int err = result > 0 ? EBUSY : errno;  // a thread that has another filter
  return fail("install seccomp filter", {}, err,
              err == ENOSYS || err == EINVAL ? "this kernel was built without CONFIG_SECCOMP_FILTER" : "");
}

}  // namespace kitty::privileges
