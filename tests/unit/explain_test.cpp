#include "loader/explain.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <vector>

#include "loader/map.h"
#include "loader/program.h"
#include "tests/unit/kernel_tests.h"

namespace kitty::loader {
namespace {

constexpr uint64_t kSysAdmin = uint64_t{1} << 21;
constexpr uint64_t kPerfmon = uint64_t{1} << 38;
constexpr uint64_t kBpf = uint64_t{1} << 39;

// A current kernel and a process with every capability and no restriction.
HostFacts root() {
  HostFacts host;
  host.effective_capabilities = 0x1ffffffffff;
  host.last_capability = 40;
  host.initial_user_namespace = true;
  host.seccomp_mode = 0;
  host.lockdown = Lockdown::none;
  host.unprivileged_bpf_disabled = 2;
  host.perf_event_paranoid = 2;
  host.kernel_major = 6;
  host.kernel_minor = 12;
  return host;
}

HostFacts with_capabilities(uint64_t capabilities) {
  HostFacts host = root();
  host.effective_capabilities = capabilities;
  return host;
}

HostFacts with(void (*change)(HostFacts&)) {
  HostFacts host = root();
  change(host);
  return host;
}

Refusal refused(Step step, int err, std::string_view log = {}) {
  Refusal refusal;
  refusal.step = step;
  refusal.err = err;
  refusal.target = "tcp_x";
  refusal.log = log;
  return refusal;
}

TEST(Explain, NamesTheReason) {
  constexpr std::string_view kGrant = ": run as root, or grant it with setcap, --cap-add or securityContext";
  constexpr std::string_view kProbeReadLog =
      "0: R1=ctx() R10=fp0\n; probe\n3: (85) call bpf_probe_read#4\n"
      "program of this type cannot use helper bpf_probe_read#4\nprocessed 4 insns (limit 1000000)\n";
  constexpr std::string_view kOldProbeReadLog =
      "3: (85) call bpf_probe_read_kernel#113\nunknown func bpf_probe_read_kernel#113\n";
  Refusal raw_tp = refused(Step::attach, ENOENT);
  raw_tp.kind = HookKind::raw_tp;
  Refusal fentry = refused(Step::attach, ENOENT);
  fentry.kind = HookKind::fentry;

  struct Case {
    const char* name;
    Refusal refusal;
    HostFacts host;
    std::string want;
  };
  const std::vector<Case> cases = {
      // Capabilities.
      {"map without CAP_BPF", refused(Step::create_map, EPERM), with_capabilities(kPerfmon),
       "missing CAP_BPF (kernel.unprivileged_bpf_disabled is 2)" + std::string(kGrant)},
      {"map without CAP_BPF, free for all", refused(Step::create_map, EPERM), with([](HostFacts& host) {
         host.effective_capabilities = 0;
         host.unprivileged_bpf_disabled = 0;
       }),
       "missing CAP_BPF" + std::string(kGrant)},
      {"program without both", refused(Step::load_program, EPERM), with_capabilities(0),
       "missing CAP_BPF and CAP_PERFMON" + std::string(kGrant)},
      {"program with CAP_BPF alone", refused(Step::load_program, EPERM), with_capabilities(kBpf),
       "missing CAP_PERFMON" + std::string(kGrant)},
      {"program with CAP_PERFMON alone", refused(Step::load_program, EPERM), with_capabilities(kPerfmon),
       "missing CAP_BPF" + std::string(kGrant)},
      {"perf event without CAP_PERFMON", refused(Step::open_kprobe, EACCES), with_capabilities(kBpf),
       "missing CAP_PERFMON" + std::string(kGrant)},
      {"statistics want more", refused(Step::enable_stats, EPERM), with_capabilities(kBpf | kPerfmon),
       "missing CAP_SYS_ADMIN" + std::string(kGrant)},
      {"kernel before CAP_BPF", refused(Step::load_program, EPERM), with([](HostFacts& host) {
         host.effective_capabilities = 0;
         host.last_capability = 37;
       }),
       "missing CAP_SYS_ADMIN" + std::string(kGrant)},
      // What capabilities cannot help.
      {"user namespace", refused(Step::create_map, EPERM),
       with([](HostFacts& host) { host.initial_user_namespace = false; }),
       "inside a user namespace (a rootless container?) capabilities do not count for BPF: run in the "
       "host's"},
      {"memlock", refused(Step::create_map, EPERM), with([](HostFacts& host) {
         host.kernel_major = 5;
         host.kernel_minor = 10;
         host.memlock_limit_bytes = 65536;
       }),
       "RLIMIT_MEMLOCK is 64 KiB, and kernel 5.10 charges maps and programs to it: raise it with ulimit -l "
       "unlimited"},
      {"memlock no longer counts", refused(Step::create_map, EPERM), with([](HostFacts& host) {
         host.kernel_major = 5;
         host.kernel_minor = 11;
         host.memlock_limit_bytes = 65536;
       }),
       "no capability is missing: a policy of this host refuses it"},
      {"lockdown forbids kprobes", refused(Step::open_kprobe, EPERM),
       with([](HostFacts& host) { host.lockdown = Lockdown::confidentiality; }),
       "kernel lockdown is 'confidentiality', which forbids kprobes and reading kernel memory"},
      {"lockdown 'integrity' forbids nothing here", refused(Step::open_kprobe, EPERM),
       with([](HostFacts& host) { host.lockdown = Lockdown::integrity; }),
       "no capability is missing: a policy of this host refuses it"},
      {"Debian's perf_event_paranoid", refused(Step::open_kprobe, EACCES), with([](HostFacts& host) {
         host.effective_capabilities = kBpf | kPerfmon;
         host.perf_event_paranoid = 3;
       }),
       "kernel.perf_event_paranoid is 3; distributions that know values above 2 then want CAP_SYS_ADMIN: "
       "grant that, or "
       "set it to 2"},
      {"perf_event_paranoid does not bind an administrator", refused(Step::open_kprobe, EACCES),
       with([](HostFacts& host) {
         host.effective_capabilities = kSysAdmin;
         host.perf_event_paranoid = 4;
       }),
       "no capability is missing: a policy of this host refuses it"},
      {"seccomp", refused(Step::create_map, EPERM), with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "no capability is missing, but a seccomp filter is on: allow bpf and perf_event_open in its profile"},
      {"seccomp lets bpf through once there are maps", refused(Step::load_program, EPERM),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "no capability is missing: a policy of this host refuses it"},
      {"seccomp does not hide a missing capability", refused(Step::create_map, EPERM),
       with([](HostFacts& host) {
         host.seccomp_mode = 2;
         host.effective_capabilities = 0;
         host.unprivileged_bpf_disabled.reset();
       }),
       "missing CAP_BPF" + std::string(kGrant)},
      {"seccomp with ENOSYS", refused(Step::create_map, ENOSYS),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "a seccomp filter hides the system call, or the kernel lacks it"},
      {"seccomp with EINVAL", refused(Step::create_map, EINVAL),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "a seccomp filter is on: allow bpf and perf_event_open in its profile; or this kernel does not know "
       "the map's "
       "type or flags, or refuses its sizes"},
      {"seccomp with an errno of its own", refused(Step::open_kprobe, EUCLEAN),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "a seccomp filter is on: allow bpf and perf_event_open in its profile"},
      {"seccomp with EINVAL of a kprobe", refused(Step::open_kprobe, EINVAL),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "a seccomp filter is on: allow bpf and perf_event_open in its profile; or tcp_x exists, but kprobes "
       "may not be "
       "set on it"},
      {"an answer that is the kernel's own, under seccomp", refused(Step::open_kprobe, ENOENT),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "this kernel has no symbol tcp_x: inlined or absent"},
      {"EINVAL of what seccomp let through", refused(Step::load_program, EINVAL),
       with([](HostFacts& host) { host.seccomp_mode = 2; }),
       "this kernel does not know this kind of program, and its verifier says nothing"},
      {"no bpf(2)", refused(Step::create_map, ENOSYS), root(),
       "the kernel was built without this system call"},
      {"policy", refused(Step::load_program, EPERM),
       with([](HostFacts& host) { host.security_modules = "lockdown,capability,bpf"; }),
       "no capability is missing: a policy of this host refuses it (security modules: "
       "lockdown,capability,bpf)"},
      {"nothing known, nothing claimed", refused(Step::load_program, EPERM), HostFacts{}, ""},
      // The verifier.
      {"verifier",
       refused(Step::load_program, EACCES, "0: (95) exit\nR0 !read_ok\nprocessed 1 insns (limit 1000000)\n"),
       root(), "the verifier says: 0: (95) exit; R0 !read_ok"},
      {"verifier and a missing capability", refused(Step::load_program, EACCES, "R1 leaks addr into map\n"),
       with_capabilities(kBpf), "missing CAP_PERFMON; the verifier says: R1 leaks addr into map"},
      {"a plain bug is not blamed on capabilities",
       refused(Step::load_program, EINVAL, "invalid bpf_context access\n"), with_capabilities(0),
       "the verifier says: invalid bpf_context access"},
      {"lockdown forbids reading", refused(Step::load_program, EINVAL, kProbeReadLog),
       with([](HostFacts& host) { host.lockdown = Lockdown::confidentiality; }),
       "kernel lockdown is 'confidentiality', which forbids reading kernel memory (bpf_probe_read)"},
      {"lockdown forbids reading, older words", refused(Step::load_program, EINVAL, kOldProbeReadLog),
       with([](HostFacts& host) { host.lockdown = Lockdown::confidentiality; }),
       "kernel lockdown is 'confidentiality', which forbids reading kernel memory (bpf_probe_read_kernel)"},
      {"helper refused for want of CAP_PERFMON", refused(Step::load_program, EINVAL, kOldProbeReadLog),
       with_capabilities(kBpf),
       "missing CAP_PERFMON; the verifier says: 3: (85) call bpf_probe_read_kernel#113; unknown func "
       "bpf_probe_read_kernel#113"},
      {"helper not offered", refused(Step::load_program, EINVAL, kProbeReadLog), root(),
       "this kernel does not offer bpf_probe_read to such a program"},
      // What the errno stands for.
      {"unknown map type", refused(Step::create_map, EINVAL), root(),
       "this kernel does not know the map's type or flags, or refuses its sizes"},
      {"map too large", refused(Step::create_map, E2BIG), root(), "larger than this kernel allows"},
      {"map, no memory", refused(Step::create_map, ENOMEM), root(),
       "the memory cgroup's limit, or the machine's, is reached"},
      {"unknown program type", refused(Step::load_program, EINVAL), root(),
       "this kernel does not know this kind of program, and its verifier says nothing"},
      {"no JIT", refused(Step::load_program, 524), root(),
       "the BPF JIT is off or cannot translate it (net.core.bpf_jit_enable)"},
      {"inlined", refused(Step::open_kprobe, ENOENT), root(),
       "this kernel has no symbol tcp_x: inlined or absent"},
      {"duplicate", refused(Step::open_kprobe, EADDRNOTAVAIL), root(),
       "this kernel has several functions called tcp_x"},
      {"not to be probed", refused(Step::open_kprobe, EINVAL), root(),
       "tcp_x exists, but kprobes may not be set on it"},
      {"no tracepoint", raw_tp, root(), "this kernel has no tracepoint tcp_x"},
      {"function gone", fentry, root(), "this kernel has no symbol tcp_x: inlined or absent"},
      {"attached a second time before 5.13", fentry, with([](HostFacts& host) {
         host.kernel_major = 5;
         host.kernel_minor = 10;
       }),
       "was it attached before? Kernel 5.10 attaches a program to tcp_x once"},
      {"no trampolines", refused(Step::attach, 524), root(),
       "this kernel cannot attach to functions on this architecture (arm64 can since 6.4)"},
      {"held", refused(Step::attach, EBUSY), root(), "tcp_x is held by another tracer or a live patch"},
      {"crowded", refused(Step::attach, E2BIG), root(),
       "as many programs as the kernel allows are already attached to tcp_x"},
      {"statistics before 5.8", refused(Step::enable_stats, EINVAL), root(),
       "kernels before 5.8 cannot count"},
      {"no BTF", refused(Step::read_kernel_btf, ENOENT), root(),
       "the kernel was built without CONFIG_DEBUG_INFO_BTF, or /sys is not mounted; --btf FILE can stand in"},
      {"errno that says it all", refused(Step::create_map, EMFILE), root(), ""},
  };
  for (const Case& c : cases) EXPECT_EQ(explain(c.refusal, c.host), c.want) << c.name;
}

TEST(LogExcerpt, IsTheEndInOnePrintableLine) {
  struct Case {
    const char* name;
    std::string log;
    std::string want;
  };
  const Case cases[] = {
      {"one line", "R0 !read_ok\n", "R0 !read_ok"},
      {"no newline", "R0 !read_ok", "R0 !read_ok"},
      {"two of three", "a\nb\nc\n", "b; c"},
      {"statistics dropped",
       "a\nb\nverification time 43 usec\nstack depth 0\nprocessed 1 insns (limit 1000000) "
       "max_states_per_insn 0\n",
       "a; b"},
      {"Linux 7.3's report",
       "9: (95) exit\nR0 !read_ok\n\nVerification failed: Register Type Safety\n\nReason:\n  R0\n",
       "9: (95) exit; R0 !read_ok"},
      {"empty lines", "a\n\n\nb\n\n", "a; b"},
      {"tabs and control characters", "a\tb\x1b[31m\xff\n", "a b [31m "},
      {"only statistics", "processed 1 insns\n", ""},
      {"empty", "", ""},
  };
  for (const Case& c : cases) EXPECT_EQ(log_excerpt(c.log), c.want) << c.name;
  const std::string cut = log_excerpt(std::string(100'000, 'x') + "the end");
  EXPECT_EQ(cut.size(), kMaxExcerptBytes);
  EXPECT_TRUE(cut.starts_with("...xx"));
  EXPECT_TRUE(cut.ends_with("xthe end"));
}

TEST(ParseLockdown, ReadsTheChosenWord) {
  EXPECT_EQ(parse_lockdown("[none] integrity confidentiality\n"), Lockdown::none);
  EXPECT_EQ(parse_lockdown("none [integrity] confidentiality\n"), Lockdown::integrity);
  EXPECT_EQ(parse_lockdown("none integrity [confidentiality]\n"), Lockdown::confidentiality);
  EXPECT_EQ(parse_lockdown("none integrity confidentiality\n"), Lockdown::unknown);
  EXPECT_EQ(parse_lockdown(""), Lockdown::unknown);
}

TEST(StatusField, IsFoundByItsWholeName) {
  constexpr std::string_view kStatus =
      "Name:\tx\nSeccomp_filters:\t3\nCapEff:\t000001fffeffffff\nSeccomp:\t2\nLast:\t  7";
  struct Case {
    const char* name;
    std::string_view want;
  };
  const Case cases[] = {{"CapEff", "000001fffeffffff"},
                        {"Seccomp", "2"},
                        {"Seccomp_filters", "3"},
                        {"Last", "7"},
                        {"Cap", ""},
                        {"Absent", ""}};
  for (const Case& c : cases) EXPECT_EQ(status_field(kStatus, c.name), c.want) << c.name;
  EXPECT_EQ(status_field("", "CapEff"), "");
}

TEST(ParseRelease, TakesTheFirstTwoNumbers) {
  struct Case {
    const char* name;
    std::string_view release;
    uint32_t major;
    uint32_t minor;
  };
  const Case cases[] = {
      {"Debian", "6.1.0-13-amd64", 6, 1},
      {"plain", "5.10", 5, 10},
      {"candidate", "7.3-rc1", 7, 3},
      {"one number", "6", 0, 0},
      {"no minor", "6.x", 0, 0},
      {"words", "linux", 0, 0},
      {"empty", "", 0, 0},
      {"too large", "6.99999999999", 0, 0},
  };
  for (const Case& c : cases) {
    HostFacts host;
    parse_release(c.release, host);
    EXPECT_EQ(host.kernel_major, c.major) << c.name;
    EXPECT_EQ(host.kernel_minor, c.minor) << c.name;
  }
}

TEST(MapsEveryId, OnlyInTheInitialNamespace) {
  EXPECT_TRUE(maps_every_id("         0          0 4294967295\n"));
  EXPECT_FALSE(maps_every_id("         0     100000      65536\n"));
  EXPECT_FALSE(maps_every_id("         0       1000          1\n         1     100000      65536\n"));
  EXPECT_FALSE(maps_every_id(""));
}

TEST(ReadHostFacts, ReadsThisHost) {
  const HostFacts host = read_host_facts();
  EXPECT_LT(host.effective_capabilities.value_or(UINT64_MAX),
            uint64_t{1} << 48);  // 40 is the last one in 7.3
  EXPECT_GE(host.last_capability.value_or(0), 37U);
  EXPECT_TRUE(host.seccomp_mode);
  EXPECT_TRUE(host.initial_user_namespace);
  EXPECT_TRUE(host.perf_event_paranoid);
  EXPECT_GT(host.kernel_major, 0U);
}

// Real refusals, provoked in a child process: `provoke` takes something away from it, then `attempt` fails.
std::string refusal_in_child(bool (*provoke)(), std::string (*attempt)()) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return "pipe2 failed";
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = provoke() ? attempt() : "cannot provoke";
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t count = read(ends[0], text.data(), text.size());
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

bool keep_only(uint64_t capabilities) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> data{};
  data[0].effective = data[0].permitted = static_cast<uint32_t>(capabilities);
  data[1].effective = data[1].permitted = static_cast<uint32_t>(capabilities >> 32);
  return syscall(SYS_capset, &header, data.data()) == 0;
}

// Refuses bpf(2) with EPERM, as container runtimes do, and allows the rest (seccomp(2)).
bool filter_bpf() {
  std::array<sock_filter, 4> filter = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_bpf},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

std::string load_a_program() {
  LinkedProgram program;
  program.name = "tiny";
  program.section = "raw_tp/sys_enter";
  program.insns = testing::return_zero();
  const auto loaded = Program::load(program, {});
  return loaded ? "loaded" : loaded.error().message();
}

std::string create_a_map() {
  const auto map = Map::create(testing::counter_map());
  return map ? "created" : map.error().message();
}

std::string enable_statistics() {
  const auto stats = enable_run_stats();
  return stats ? "enabled" : stats.error().message();
}

TEST(Refusals, OfThisKernelAreExplained) {
  KITTY_NEEDS_KERNEL();
  struct Case {
    const char* name;
    bool (*provoke)();
    std::string (*attempt)();
    std::string_view want;
  };
  const Case cases[] = {
      {"CAP_BPF alone", [] { return keep_only(kBpf); }, load_a_program,
       "load program 'tiny': Operation not permitted: missing CAP_PERFMON:"},
      {"CAP_PERFMON alone", [] { return keep_only(kPerfmon); }, load_a_program,
       "load program 'tiny': Operation not permitted: missing CAP_BPF:"},
      {"none", [] { return keep_only(0); }, load_a_program,
       "load program 'tiny': Operation not permitted: missing CAP_BPF and CAP_PERFMON:"},
      {"both suffice", [] { return keep_only(kBpf | kPerfmon); }, load_a_program, "loaded"},
      {"statistics", [] { return keep_only(kBpf | kPerfmon); }, enable_statistics,
       "enable program statistics: Operation not permitted: missing CAP_SYS_ADMIN:"},
      {"seccomp", filter_bpf, create_a_map,
       "create map '.bss': Operation not permitted: no capability is missing, but a seccomp filter is on"},
      {"user namespace", [] { return unshare(CLONE_NEWUSER) == 0; }, load_a_program,
       "load program 'tiny': Operation not permitted: inside a user namespace"},
  };
  for (const Case& c : cases) {
    const std::string got = refusal_in_child(c.provoke, c.attempt);
    if (got == "cannot provoke") GTEST_SKIP() << c.name << ": this process cannot bring that about";
    EXPECT_TRUE(got.starts_with(c.want)) << c.name << ": " << got;
  }
}

}  // namespace
}  // namespace kitty::loader
