#include "loader/hook.h"

#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <string>

namespace kitty::loader {
namespace {

TEST(ParseSection, SplitsKindAndTarget) {
  struct Case {
    const char* name;
    std::string section;
    HookKind kind;
    std::string target;
  };
  const Case cases[] = {
      {"kprobe", "kprobe/tcp_rtt_estimator", HookKind::kprobe, "tcp_rtt_estimator"},
      {"fentry", "fentry/tcp_ack_update_rtt", HookKind::fentry, "tcp_ack_update_rtt"},
      {"tp_btf", "tp_btf/tcp_probe", HookKind::tp_btf, "tcp_probe"},
      {"raw_tp", "raw_tp/sys_enter", HookKind::raw_tp, "sys_enter"},
      {"iter", "iter/task_file", HookKind::iter, "task_file"},
      {"longest", "raw_tp/" + std::string(kMaxTargetBytes, 'x'), HookKind::raw_tp,
       std::string(kMaxTargetBytes, 'x')},
  };
  for (const Case& c : cases) {
    const auto hook = parse_section(c.section);
    ASSERT_TRUE(hook) << c.name << ": " << hook.error().message();
    EXPECT_EQ(hook->kind, c.kind) << c.name;
    EXPECT_EQ(hook->target, c.target) << c.name;
    EXPECT_EQ(std::string(hook_kind_name(hook->kind)) + "/" + hook->target, c.section) << c.name;
  }
}

TEST(ParseSection, RefusesWithTheSectionsName) {
  struct Case {
    const char* name;
    std::string section;
    std::string_view want;
  };
  const Case cases[] = {
      {"empty", "", "unknown kind"},
      {"no slash", "kprobe", "no target"},
      {"no target", "fentry/", "no target"},
      {"other kind", "xdp/eth0", "unknown kind"},
      {"return probe", "kretprobe/tcp_sendmsg", "unknown kind"},
      {"iterator without its name", "iter", "no target"},
      {"iterator of another program type", "iter.s/task_file", "unknown kind"},
      {"prefix of a kind", "k/tcp_sendmsg", "unknown kind"},
      {"upper case", "KPROBE/tcp_sendmsg", "unknown kind"},
      {"too long", "raw_tp/" + std::string(kMaxTargetBytes + 1, 'x'), "too long"},
      {"NUL", std::string("raw_tp/a\0b", 10), "NUL"},
  };
  for (const Case& c : cases) {
    const auto hook = parse_section(c.section);
    ASSERT_FALSE(hook) << c.name;
    EXPECT_EQ(hook.error().object, c.section) << c.name;
    EXPECT_NE(hook.error().detail.find(c.want), std::string::npos) << c.name << ": " << hook.error().detail;
  }
}

TEST(ProgramTypeOf, EveryKindAsTheKernelKnowsIt) {
  struct Case {
    HookKind kind;
    uint32_t type;
    uint32_t attach_type;
  };
  const Case cases[] = {
      {HookKind::kprobe, BPF_PROG_TYPE_KPROBE, 0},
      {HookKind::fentry, BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY},
      {HookKind::tp_btf, BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP},
      {HookKind::raw_tp, BPF_PROG_TYPE_RAW_TRACEPOINT, 0},
      {HookKind::iter, BPF_PROG_TYPE_TRACING, BPF_TRACE_ITER},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(program_type(c.kind).type, c.type) << hook_kind_name(c.kind);
    EXPECT_EQ(program_type(c.kind).expected_attach_type, c.attach_type) << hook_kind_name(c.kind);
  }
}

}  // namespace
}  // namespace kitty::loader
