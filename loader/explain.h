// Why the kernel refused something, and what to do about it, in one line. explain() is pure: a refusal and
// what is known of the host in, words out. read_host_facts() is the thin reader beside it; it is called after
// a failure only. Thread-safe: no state. Facts: capabilities(7), bpf(2), perf_event_open(2),
// kernel_lockdown(7), kernel/bpf/syscall.c, kernel/trace/trace_kprobe.c.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "loader/hook.h"

namespace kitty::loader {

enum class Step { create_map, load_program, open_kprobe, attach, iterate, enable_stats, read_kernel_btf };

// What was refused.
struct Refusal {
  Step step = Step::load_program;
  int err = 0;                        // an errno value
  std::optional<HookKind> kind = {};  // of the program, where there is one
  std::string_view target = {};       // the function or tracepoint
  std::string_view log = {};          // the verifier's, whole; empty where it said nothing
};

enum class Lockdown { unknown, none, integrity, confidentiality };

// What the host says of itself. An absent value could not be read; it never counts as evidence.
struct HostFacts {
  std::optional<uint64_t> effective_capabilities;  // CapEff of /proc/self/status
  std::optional<uint32_t> last_capability;         // /proc/sys/kernel/cap_last_cap; 40 since 5.9
  std::optional<bool> initial_user_namespace;      // /proc/self/uid_map maps everything to itself
  std::optional<uint32_t> seccomp_mode;            // Seccomp of /proc/self/status; 2: a filter
  Lockdown lockdown = Lockdown::unknown;           // /sys/kernel/security/lockdown
  std::string security_modules;                    // /sys/kernel/security/lsm: "lockdown,capability,apparmor"
  std::optional<int64_t> unprivileged_bpf_disabled;  // /proc/sys/kernel/unprivileged_bpf_disabled
  std::optional<int64_t> perf_event_paranoid;        // /proc/sys/kernel/perf_event_paranoid
  std::optional<uint64_t> memlock_limit_bytes;       // RLIMIT_MEMLOCK; absent: unlimited
  uint32_t kernel_major = 0;                         // uname -r; 0.0: not understood
  uint32_t kernel_minor = 0;
};

// One line, without a full stop; empty when the errno says it all.
[[nodiscard]] std::string explain(const Refusal& refusal, const HostFacts& host);

// Reads a handful of small files; what cannot be read stays absent.
[[nodiscard]] HostFacts read_host_facts();

// The parts of the reader, pure.
[[nodiscard]] Lockdown parse_lockdown(std::string_view text);  // "none [integrity] confidentiality\n"
// The value of a "Name:\tvalue" line of /proc/<pid>/status; empty when absent.
[[nodiscard]] std::string_view status_field(std::string_view status, std::string_view name);
// "6.1.0-13-amd64": sets major and minor, or leaves both 0.
void parse_release(std::string_view release, HostFacts& host);
[[nodiscard]] bool maps_every_id(std::string_view uid_map);  // "         0          0 4294967295\n"

// The end of a verifier log as one printable line: its last lines but for the statistics, at most
// `kMaxExcerptBytes`.
inline constexpr size_t kMaxExcerptBytes = 400;
[[nodiscard]] std::string log_excerpt(std::string_view log);

}  // namespace kitty::loader
