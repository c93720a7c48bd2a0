// The raw system calls of the loader, bpf(2) and perf_event_open(2), and nothing above them: the only file of
// kitty that makes either. Errors are bare errno values; callers know the object and add the words.
// Ownership: a returned Fd is the caller's, close-on-exec, and never 0, 1 or 2, so that a closed standard
// stream cannot turn a map into somebody's stdout. Thread-safe: no state. Layouts: include/uapi/linux/bpf.h
// and perf_event.h. Attributes are zeroed structs of our own, because the headers of the oldest build host
// lack later fields; a kernel accepts a longer attribute than it knows as long as the rest is zero.
#pragma once

#include <linux/bpf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace kitty::loader::sys {

// The error is an errno value, never 0. The kernel's internal 524 (ENOTSUPP) occurs.
template <class T>
using Outcome = std::expected<T, int>;

// bpf(BPF_PROG_LOAD) says EAGAIN when a signal interrupts the verifier (kernel/bpf/verifier.c, do_check).
inline constexpr int kMaxAttempts = 5;

// A kernel object's name as BPF_OBJ_NAME_LEN allows it: 15 characters and a NUL. Leading dots go; whatever is
// not a letter, digit or underscore becomes an underscore (dots are refused before Linux 5.2).
using ObjectName = std::array<char, BPF_OBJ_NAME_LEN>;
[[nodiscard]] ObjectName object_name(std::string_view name);

struct MapCreation {
  uint32_t type = 0;  // BPF_MAP_TYPE_*
  uint32_t key_size = 0;
  uint32_t value_size = 0;
  uint32_t max_entries = 0;
  uint32_t flags = 0;
  std::string_view name;
};
[[nodiscard]] Outcome<Fd> create_map(const MapCreation& map);

// Element access. Each returns 0 or an errno value; `key` and `value` must be as large as the map's.
[[nodiscard]] int lookup_element(int map_fd, const void* key, void* value);
[[nodiscard]] int update_element(int map_fd, const void* key, const void* value, uint64_t flags);
[[nodiscard]] int delete_element(int map_fd, const void* key);
// `previous` null: the first key. ENOENT after the last.
[[nodiscard]] int next_key(int map_fd, const void* previous, void* next);
[[nodiscard]] int freeze_map(int map_fd);

struct ProgramLoad {
  uint32_t type = 0;                  // BPF_PROG_TYPE_*
  uint32_t expected_attach_type = 0;  // BPF_TRACE_*, or 0
  uint32_t attach_btf_id = 0;         // type id in the running kernel's BTF, or 0
  std::span<const bpf_insn> insns;
  const char* license = nullptr;
  std::string_view name;
};
// With an empty `log` the verifier writes none; else at log level 1, NUL-terminated. `log_true_size` receives
// what the whole log needs in bytes, or 0 on kernels that do not say (before 6.4); ENOSPC means that `log`
// was too small.
[[nodiscard]] Outcome<Fd> load_program(const ProgramLoad& program, std::span<char> log,
                                       uint32_t& log_true_size);

struct LinkCreation {
  int program_fd = -1;
  int target_fd = 0;         // a perf event for BPF_PERF_EVENT, else 0
  uint32_t attach_type = 0;  // BPF_PERF_EVENT, BPF_TRACE_*
  // BPF_TRACE_ITER: the one process to visit, by its number in the caller's pid namespace; else 0.
  uint32_t iterated_pid = 0;
};
[[nodiscard]] Outcome<Fd> create_link(const LinkCreation& link);
// The process that the kernel understood an iterator's link to be for; 0: every one.
[[nodiscard]] Outcome<uint32_t> iterated_pid(int link_fd);
// One run of an iterator, to be read to its end.
[[nodiscard]] Outcome<Fd> create_iterator(int link_fd);
// The next bytes of it; 0 at the end.
[[nodiscard]] Outcome<size_t> read_iterator(int iterator_fd, std::span<std::byte> buffer);

// `name` null for programs that know their target from load time (fentry, tp_btf).
[[nodiscard]] Outcome<Fd> open_raw_tracepoint(const char* name, int program_fd);

// Counting of run_cnt and run_time_ns of all programs lasts as long as the Fd (Linux 5.8).
[[nodiscard]] Outcome<Fd> enable_run_stats();

// What the running kernel does not know stays zero; `known_bytes` says how much of the struct it filled.
struct ProgramInfo {
  bpf_prog_info info;
  size_t known_bytes = 0;
};
[[nodiscard]] Outcome<ProgramInfo> program_info(int program_fd);

struct KprobeEvent {
  uint32_t pmu_type = 0;           // read from /sys/bus/event_source/devices/kprobe/type, never assumed
  const char* function = nullptr;  // exact symbol
};
// A perf event on the entry of a kernel function, for every process and CPU (a BPF program on it is not bound
// to the CPU that the event names).
[[nodiscard]] Outcome<Fd> open_kprobe(const KprobeEvent& event);
// 0 or an errno value.
[[nodiscard]] int set_event_program(int perf_fd, int program_fd);
[[nodiscard]] int enable_event(int perf_fd);

// Raises RLIMIT_MEMLOCK as far as this process may; never lowers it, never fails (kernels since 5.11 charge
// maps to the memory cgroup and do not care).
void raise_memlock();

// A whole small file. EFBIG when it is larger than `limit_bytes`. For procfs and sysfs, whose sizes stat(2)
// does not know.
[[nodiscard]] Outcome<std::string> read_file(const char* path, size_t limit_bytes);

}  // namespace kitty::loader::sys
