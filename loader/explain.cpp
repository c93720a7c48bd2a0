#include "loader/explain.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "loader/sys.h"

namespace kitty::loader {

namespace {

constexpr int kEnotsupp = 524;  // include/linux/errno.h, not known to libc
constexpr size_t kMaxStatusBytes = 65536;
constexpr uint32_t kSeccompFilter = 2;  // SECCOMP_MODE_FILTER

struct Capability {
  uint32_t number;  // include/uapi/linux/capability.h
  std::string_view name;
};
constexpr Capability kSysAdmin = {21, "CAP_SYS_ADMIN"};
constexpr Capability kPerfmon = {38, "CAP_PERFMON"};
constexpr Capability kBpf = {39, "CAP_BPF"};

bool holds(uint64_t capabilities, Capability capability) {
  return (capabilities >> capability.number & 1) != 0;
}

// "CAP_BPF and CAP_PERFMON"; empty when nothing is missing or the set is not known.
std::string missing_capabilities(Step step, const HostFacts& host) {
  if (!host.effective_capabilities) return {};
  const uint64_t held = *host.effective_capabilities;
  if (holds(held, kSysAdmin)) return {};
  const bool splits_admin = !host.last_capability || *host.last_capability >= kBpf.number;  // since 5.8
  if (step == Step::enable_stats || !splits_admin) return std::string(kSysAdmin.name);
  const bool wants_bpf = step == Step::create_map || step == Step::load_program;
  const bool wants_perfmon = step != Step::create_map && step != Step::iterate;
  std::string missing;
  if (wants_bpf && !holds(held, kBpf)) missing = kBpf.name;
  if (wants_perfmon && !holds(held, kPerfmon)) {
    if (!missing.empty()) missing += " and ";
    missing += kPerfmon.name;
  }
  return missing;
}

constexpr std::string_view kFilterIsOn =
    "a seccomp filter is on: allow bpf and perf_event_open in its profile";

// A filter sees the system call, not what is loaded or attached by it: with maps there, bpf is let through.
// It answers with whatever errno its profile says.
bool may_be_filtered(const Refusal& refusal, const HostFacts& host) {
  const bool is_first_of_its_call = refusal.step == Step::create_map || refusal.step == Step::open_kprobe;
  return host.seccomp_mode == kSeccompFilter && is_first_of_its_call;
}

bool is_before(const HostFacts& host, uint32_t major, uint32_t minor) {
  if (host.kernel_major == 0) return false;
  return host.kernel_major < major || (host.kernel_major == major && host.kernel_minor < minor);
}

std::string kernel_version(const HostFacts& host) {
  return std::to_string(host.kernel_major) + "." + std::to_string(host.kernel_minor);
}

// EPERM or EACCES that no verifier log explains, from the surest reason to the vaguest.
std::string explain_denial(const Refusal& refusal, const HostFacts& host) {
  if (host.initial_user_namespace == false) {
    return "inside a user namespace (a rootless container?) capabilities do not count for BPF: run in the "
           "host's";
  }
  if (const std::string missing = missing_capabilities(refusal.step, host); !missing.empty()) {
    std::string text = "missing " + missing;
    const int64_t restricted = host.unprivileged_bpf_disabled.value_or(0);
    if (refusal.step == Step::create_map && restricted != 0) {
      text += " (kernel.unprivileged_bpf_disabled is " + std::to_string(restricted) + ")";
    }
    return text + ": run as root, or grant it with setcap, --cap-add or securityContext";
  }
  const bool charges_memlock = refusal.step == Step::create_map || refusal.step == Step::load_program;
  if (charges_memlock && is_before(host, 5, 11) && host.memlock_limit_bytes) {
    return "RLIMIT_MEMLOCK is " + std::to_string(*host.memlock_limit_bytes / 1024) + " KiB, and kernel " +
           kernel_version(host) + " charges maps and programs to it: raise it with ulimit -l unlimited";
  }
  if (host.lockdown == Lockdown::confidentiality && refusal.step != Step::create_map) {
    return "kernel lockdown is 'confidentiality', which forbids kprobes and reading kernel memory";
  }
  const bool is_admin = holds(host.effective_capabilities.value_or(0), kSysAdmin);
  const int64_t paranoid = host.perf_event_paranoid.value_or(0);
  if (refusal.step == Step::open_kprobe && !is_admin && paranoid > 2) {
    return "kernel.perf_event_paranoid is " + std::to_string(paranoid) +
           "; distributions that know values above 2 then want CAP_SYS_ADMIN: grant that, or set it to 2";
  }
  if (may_be_filtered(refusal, host)) return "no capability is missing, but " + std::string(kFilterIsOn);
  if (!host.effective_capabilities) return {};
  std::string text = "no capability is missing: a policy of this host refuses it";
  if (!host.security_modules.empty()) text += " (security modules: " + host.security_modules + ")";
  return text;
}

// The helper in "program of this type cannot use helper bpf_probe_read#4" or, before 6.2, "unknown func
// bpf_probe_read#4" (kernel/bpf/verifier.c, check_helper_call); empty when the log holds neither.
std::string_view refused_helper(std::string_view log) {
  for (const std::string_view phrase : {"cannot use helper ", "unknown func "}) {
    const size_t at = log.find(phrase);
    if (at == log.npos) continue;
    const std::string_view rest = log.substr(at + phrase.size());
    return rest.substr(0, rest.find_first_of("# \n"));
  }
  return {};
}

// The number in "invalid func unknown#162": a helper added after this kernel; empty when the log has none.
std::string_view unknown_helper(std::string_view log) {
  constexpr std::string_view kPhrase = "invalid func unknown#";  // kernel/bpf/verifier.c, check_helper_call
  const size_t at = log.find(kPhrase);
  if (at == log.npos) return {};
  const std::string_view rest = log.substr(at + kPhrase.size());
  return rest.substr(0, rest.find_first_not_of("0123456789"));
}

std::string explain_log(const Refusal& refusal, const HostFacts& host) {
  const std::string_view helper = refused_helper(refusal.log);
  if (helper.starts_with("bpf_probe_read") && host.lockdown == Lockdown::confidentiality) {
    return "kernel lockdown is 'confidentiality', which forbids reading kernel memory (" +
           std::string(helper) + ")";
  }
  const bool is_denial = refusal.err == EPERM || refusal.err == EACCES;
  if (const std::string missing = missing_capabilities(refusal.step, host);
      !missing.empty() && (is_denial || !helper.empty())) {
    return "missing " + missing + "; the verifier says: " + log_excerpt(refusal.log);
  }
  if (!helper.empty()) {
    return "this kernel does not offer " + std::string(helper) + " to such a program";
  }
  if (const std::string_view number = unknown_helper(refusal.log); !number.empty()) {
    return "this kernel is older than helper function " + std::string(number) +
           " (include/uapi/linux/bpf.h), which the program calls";
  }
  return "the verifier says: " + log_excerpt(refusal.log);
}

std::string explain_create_map(const Refusal& refusal) {
  switch (refusal.err) {
    case EINVAL:
      return "this kernel does not know the map's type or flags, or refuses its sizes";
    case E2BIG:
      return "larger than this kernel allows";
    case ENOMEM:
      return "the memory cgroup's limit, or the machine's, is reached";
    default:
      return {};
  }
}

std::string explain_load(const Refusal& refusal) {
  switch (refusal.err) {
    case EINVAL:
      return "this kernel does not know this kind of program, and its verifier says nothing";
    case kEnotsupp:
      return "the BPF JIT is off or cannot translate it (net.core.bpf_jit_enable)";
    case ENOMEM:
      return "the memory cgroup's limit, or the machine's, is reached";
    default:
      return {};
  }
}

std::string explain_open_kprobe(const Refusal& refusal) {
  const std::string target(refusal.target);
  switch (refusal.err) {
    case ENOENT:
      return "this kernel has no symbol " + target + ": inlined or absent";
    case EADDRNOTAVAIL:
      return "this kernel has several functions called " + target;
    case EINVAL:
      return target + " exists, but kprobes may not be set on it";
    default:
      return {};
  }
}

std::string explain_attach(const Refusal& refusal, const HostFacts& host) {
  const std::string target(refusal.target);
  switch (refusal.err) {
    case ENOENT:
      if (refusal.kind == HookKind::raw_tp) return "this kernel has no tracepoint " + target;
      // f3a95075549e of 5.13: until then a tracing program forgets its target when it is first attached.
      if (is_before(host, 5, 13)) {
        return "was it attached before? Kernel " + kernel_version(host) + " attaches a program to " + target +
               " once";
      }
      return "this kernel has no symbol " + target + ": inlined or absent";
    case kEnotsupp:
      // 2aa6ac03516d of 6.4, ftrace's direct calls: from 6.0 on the program loads, and is refused here.
      return "this kernel cannot attach to functions on this architecture (arm64 can since 6.4)";
    case EBUSY:
      return target + " is held by another tracer or a live patch";
    case E2BIG:
      return "as many programs as the kernel allows are already attached to " + target;
    default:
      return {};
  }
}

std::string explain_iterate(const Refusal& refusal) {
  switch (refusal.err) {
    // What asks for one process is a field that the kernel does not know, or whose value it does not.
    case EINVAL:
    case E2BIG:
      return "this kernel cannot visit the " + std::string(refusal.target) +
             " of one process alone (Linux 6.1 can)";
    case ENOMEM:
      return "the memory cgroup's limit, or the machine's, is reached";
    default:
      return {};
  }
}

// By the errno alone.
std::string explain_errno(const Refusal& refusal, const HostFacts& host) {
  switch (refusal.step) {
    case Step::create_map:
      return explain_create_map(refusal);
    case Step::load_program:
      return explain_load(refusal);
    case Step::open_kprobe:
      return explain_open_kprobe(refusal);
    case Step::attach:
      return explain_attach(refusal, host);
    case Step::iterate:
      return explain_iterate(refusal);
    case Step::enable_stats:
      return refusal.err == EINVAL ? "kernels before 5.8 cannot count" : "";
    case Step::read_kernel_btf:
      break;
  }
  return {};
}

// Answers that no profile gives: they tell of a symbol, or of what has run out.
bool is_the_kernels_own(const Refusal& refusal) {
  return refusal.err == ENOENT || refusal.err == EADDRNOTAVAIL || refusal.err == ENOMEM ||
         refusal.err == EMFILE || refusal.err == ENFILE || refusal.err == E2BIG;
}

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

std::string_view without(std::string_view text, std::string_view front) {
  text.remove_prefix(std::min(text.find_first_not_of(front), text.size()));
  return text;
}

template <class Number>
std::optional<Number> to_number(std::string_view text, int base = 10) {
  while (!text.empty() && !is_printable(text.back())) text.remove_suffix(1);
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string small_file(const char* path) {
  return sys::read_file(path, kMaxStatusBytes).value_or(std::string());
}

}  // namespace

std::string explain(const Refusal& refusal, const HostFacts& host) {
  if (!refusal.log.empty()) return explain_log(refusal, host);
  if (refusal.err == ENOSYS) {
    return host.seccomp_mode == kSeccompFilter
               ? "a seccomp filter hides the system call, or the kernel lacks it"
               : "the kernel was built without this system call";
  }
  if (refusal.step == Step::read_kernel_btf) {
    if (refusal.err == ENOENT) {
      return "the kernel was built without CONFIG_DEBUG_INFO_BTF, or /sys is not mounted; --btf FILE can "
             "stand in";
    }
    return {};
  }
  if (refusal.err == EPERM || refusal.err == EACCES) return explain_denial(refusal, host);
  std::string text = explain_errno(refusal, host);
  if (!may_be_filtered(refusal, host) || is_the_kernels_own(refusal)) return text;
  return std::string(kFilterIsOn) + (text.empty() ? "" : "; or " + text);
}

Lockdown parse_lockdown(std::string_view text) {
  if (text.find("[none]") != text.npos) return Lockdown::none;
  if (text.find("[integrity]") != text.npos) return Lockdown::integrity;
  if (text.find("[confidentiality]") != text.npos) return Lockdown::confidentiality;
  return Lockdown::unknown;
}

std::string_view status_field(std::string_view status, std::string_view name) {
  while (!status.empty()) {
    const std::string_view line = status.substr(0, status.find('\n'));
    status.remove_prefix(std::min(line.size() + 1, status.size()));
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      return without(line.substr(name.size() + 1), " \t");
    }
  }
  return {};
}

void parse_release(std::string_view release, HostFacts& host) {
  const size_t dot = release.find('.');
  if (dot == release.npos) return;
  const std::string_view rest = release.substr(dot + 1);
  const auto major = to_number<uint32_t>(release.substr(0, dot));
  const auto minor = to_number<uint32_t>(rest.substr(0, rest.find_first_not_of("0123456789")));
  if (!major || !minor) return;
  host.kernel_major = *major;
  host.kernel_minor = *minor;
}

bool maps_every_id(std::string_view uid_map) {
  // user_namespaces(7): the initial namespace maps 2^32 - 1 ids to themselves.
  std::array<std::string_view, 3> columns;
  for (std::string_view& column : columns) {
    uid_map = without(uid_map, " ");
    column = uid_map.substr(0, uid_map.find_first_of(" \n"));
    uid_map.remove_prefix(column.size());
  }
  return columns[0] == "0" && columns[1] == "0" && columns[2] == "4294967295";
}

std::string log_excerpt(std::string_view log) {
  constexpr size_t kLines = 2;
  // The statistics of kernel/bpf/verifier.c, print_verification_stats().
  constexpr std::string_view kStatistics[] = {"processed ", "verification time ", "stack depth "};
  // What 7.3 appends explains the same once more, at length.
  log = log.substr(0, log.find("\nVerification failed: "));
  std::string text;
  size_t lines = 0;
  while (!log.empty() && lines < kLines) {
    const size_t newline = log.rfind('\n');
    const std::string_view line = newline == log.npos ? log : log.substr(newline + 1);
    log = newline == log.npos ? std::string_view{} : log.substr(0, newline);
    if (line.empty() || std::ranges::any_of(kStatistics, [&](auto s) { return line.starts_with(s); }))
      continue;
    text.insert(0, std::string(line) + (lines > 0 ? "; " : ""));
    ++lines;
  }
  if (text.size() > kMaxExcerptBytes) text = "..." + text.substr(text.size() - kMaxExcerptBytes + 3);
  std::ranges::replace_if(text, [](char c) { return !is_printable(c); }, ' ');
  return text;
}

HostFacts read_host_facts() {
  HostFacts host;
  const std::string status = small_file("/proc/self/status");
  host.effective_capabilities = to_number<uint64_t>(status_field(status, "CapEff"), 16);
  host.seccomp_mode = to_number<uint32_t>(status_field(status, "Seccomp"));
  host.last_capability = to_number<uint32_t>(small_file("/proc/sys/kernel/cap_last_cap"));
  if (const auto uid_map = sys::read_file("/proc/self/uid_map", kMaxStatusBytes)) {
    host.initial_user_namespace = maps_every_id(*uid_map);
  }
  host.lockdown = parse_lockdown(small_file("/sys/kernel/security/lockdown"));
  host.security_modules = small_file("/sys/kernel/security/lsm");
  std::erase_if(host.security_modules, [](char c) { return !is_printable(c); });
  host.unprivileged_bpf_disabled =
      to_number<int64_t>(small_file("/proc/sys/kernel/unprivileged_bpf_disabled"));
  host.perf_event_paranoid = to_number<int64_t>(small_file("/proc/sys/kernel/perf_event_paranoid"));
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    host.memlock_limit_bytes = limit.rlim_cur;
  }
  utsname name{};
  if (uname(&name) == 0) parse_release(name.release, host);
  return host;
}

}  // namespace kitty::loader
