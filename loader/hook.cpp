#include "loader/hook.h"

#include <linux/bpf.h>

#include <array>

namespace kitty::loader {

namespace {
constexpr std::array kKinds = {HookKind::kprobe, HookKind::fentry, HookKind::tp_btf, HookKind::raw_tp,
                               HookKind::iter};
}

std::string_view hook_kind_name(HookKind kind) {
  switch (kind) {
    case HookKind::kprobe:
      return "kprobe";
    case HookKind::fentry:
      return "fentry";
    case HookKind::tp_btf:
      return "tp_btf";
    case HookKind::raw_tp:
      return "raw_tp";
    case HookKind::iter:
      return "iter";
  }
  return {};
}

Result<Hook> parse_section(std::string_view section) {
  const size_t slash = section.find('/');
  const std::string_view prefix = section.substr(0, slash);
  const std::string_view target = slash == section.npos ? std::string_view{} : section.substr(slash + 1);
  for (const HookKind kind : kKinds) {
    if (prefix != hook_kind_name(kind)) continue;
    if (target.empty()) return fail("read section", section, 0, "no target after the slash");
    if (target.size() > kMaxTargetBytes)
      return fail("read section", section, 0, "the target's name is too long");
    if (target.find('\0') != target.npos) return fail("read section", section, 0, "NUL in the target's name");
    return Hook{kind, std::string(target)};
  }
  return fail("read section", section, 0,
              "unknown kind of program; known: kprobe/, fentry/, tp_btf/, raw_tp/, iter/");
}

ProgramType program_type(HookKind kind) {
  switch (kind) {
    case HookKind::kprobe:
      return {BPF_PROG_TYPE_KPROBE, 0};
    case HookKind::fentry:
      return {BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY};
    case HookKind::tp_btf:
      return {BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP};
    case HookKind::raw_tp:
      return {BPF_PROG_TYPE_RAW_TRACEPOINT, 0};
    case HookKind::iter:
      return {BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER};
  }
  return {};
}

}  // namespace kitty::loader
