// What a program's section asks to be attached to: "kprobe/tcp_rtt_estimator" is a kind and a target. Pure;
// no state. Prefixes as libbpf names them (kernel Documentation/bpf/libbpf/program_types.rst); others are
// refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace kitty::loader {

enum class HookKind { kprobe, fentry, tp_btf, raw_tp, iter };

// The section's prefix: "kprobe".
[[nodiscard]] std::string_view hook_kind_name(HookKind kind);

struct Hook {
  HookKind kind = HookKind::raw_tp;
  std::string target;  // a function, a tracepoint without its group, an iterator; not empty, holds no NUL

  bool operator==(const Hook&) const = default;
};

// Longest target accepted: KSYM_NAME_LEN of the kernel (512 since 6.1) less its NUL.
inline constexpr size_t kMaxTargetBytes = 511;

// "kprobe/tcp_rtt_estimator", "fentry/...", "tp_btf/tcp_probe", "raw_tp/sys_enter", "iter/task_file". Errors
// name the section.
[[nodiscard]] Result<Hook> parse_section(std::string_view section);

// How the kernel is told of a kind: BPF_PROG_TYPE_* and, where one is expected at load time, BPF_TRACE_*
// (else 0).
struct ProgramType {
  uint32_t type = 0;
  uint32_t expected_attach_type = 0;
};
[[nodiscard]] ProgramType program_type(HookKind kind);

}  // namespace kitty::loader
