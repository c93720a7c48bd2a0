#include "loader/program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loader/explain.h"
#include "loader/kernel_btf.h"
#include "loader/link.h"
#include "tests/unit/kernel_tests.h"

namespace kitty::loader {
namespace {

using testing::call;
using testing::insn;
using testing::leave;
using testing::set;

constexpr std::string_view kSection = "raw_tp/sys_enter";

LinkedProgram program_of(std::vector<bpf_insn> insns, std::string_view section = kSection) {
  LinkedProgram program;
  program.name = "tiny";
  program.section = section;
  program.insns = std::move(insns);
  return program;
}

ProgramOptions gpl() {
  ProgramOptions options;
  options.license = "GPL";
  return options;
}

TEST(FindPoisonedAccess, ReadsTheVerifiersLog) {
  LinkedProgram program =
      program_of({call(kPoisonCall), set(0, 0), call(kPoisonCall + 1), call(kPoisonCall + 1), leave()});
  program.poisoned = {{.insn = 0, .what = "struct tcp_sock.bytes_sent"},
                      {.insn = 2, .what = "struct sock.gone"},
                      {.insn = 99, .what = "outside"}};
  struct Case {
    const char* name;
    std::string_view log;
    std::string_view want;  // empty: none
  };
  const Case cases[] = {
      {"first", "0: (85) call unknown#195896080\ninvalid func unknown#195896080\n",
       "struct tcp_sock.bytes_sent"},
      {"second", "2: (85) call unknown#195896081\ninvalid func unknown#195896081\n", "struct sock.gone"},
      {"another program's bug", "0: (85) call unknown#4711\ninvalid func unknown#4711\n", ""},
      {"foreign call before it", "unknown#7 unknown#195896081", "struct sock.gone"},
      {"no number", "unknown#", ""},
      {"number too large", "unknown#99999999999999999999", ""},
      {"other refusal", "R0 !read_ok\n", ""},
      {"empty", "", ""},
  };
  for (const Case& c : cases) EXPECT_EQ(find_poisoned_access(program, c.log).value_or(""), c.want) << c.name;
}

TEST(Program, LoadsAndKeepsItsNames) {
  KITTY_NEEDS_KERNEL();
  const auto program = Program::load(program_of(testing::return_zero()), gpl());
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_GT(program->fd(), STDERR_FILENO);
  EXPECT_EQ(program->name(), "tiny");
  EXPECT_EQ(program->section(), kSection);
  EXPECT_EQ(program->hook(), (Hook{HookKind::raw_tp, "sys_enter"}));
  const auto bytes = program->memlock_bytes();
  ASSERT_TRUE(bytes) << bytes.error().message();
  EXPECT_GT(*bytes, 0U);
}

TEST(Program, RefusalCarriesTheVerifiersWords) {
  KITTY_NEEDS_KERNEL();
  ProgramOptions options = gpl();
  std::string log;
  options.verifier_log = &log;
  const auto program = Program::load(program_of({leave()}), options);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().err, EACCES);
  EXPECT_EQ(program.error().object, "tiny");
  EXPECT_NE(program.error().detail.find("R0 !read_ok"), std::string::npos) << program.error().message();
  EXPECT_EQ(program.error().message().find('\n'), std::string::npos);
  EXPECT_NE(log.find("R0 !read_ok"), std::string::npos) << log;
}

// Longer than the first buffer: the loader must ask again, and the end of the log is what matters.
TEST(Program, GrowsTheLogUntilTheReasonFits) {
  KITTY_NEEDS_KERNEL();
  std::vector<bpf_insn> insns(6000, set(1, 7));
  insns.push_back(leave());
  ProgramOptions options = gpl();
  std::string log;
  options.verifier_log = &log;
  const auto program = Program::load(program_of(std::move(insns)), options);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().err, EACCES) << "the refusal's errno, not the log's ENOSPC";
  EXPECT_GT(log.size(), kFirstLogBytes);
  EXPECT_TRUE(log.starts_with("0: ") || log.find("\n0: ") != log.npos) << log.substr(0, 200);
  EXPECT_NE(program.error().detail.find("R0 !read_ok"), std::string::npos) << program.error().message();
  EXPECT_LT(program.error().detail.size(), 2 * kMaxExcerptBytes);
}

TEST(Program, NamesTheFieldBehindAPoisonedAccess) {
  KITTY_NEEDS_KERNEL();
  LinkedProgram program = program_of({set(1, 0), call(kPoisonCall + 3), set(0, 0), leave()});
  program.poisoned = {{.insn = 1, .what = "struct tcp_sock.bytes_sent"}};
  const auto loaded = Program::load(program, gpl());
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message(),
            "load program 'tiny': Invalid argument: needs struct tcp_sock.bytes_sent, which this kernel's "
            "BTF lacks");
}

TEST(Program, LoadsWhenAPoisonedAccessCannotBeReached) {
  KITTY_NEEDS_KERNEL();
  LinkedProgram program =
      program_of({set(0, 0), insn(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1, 0), call(kPoisonCall), leave()});
  program.poisoned = {{.insn = 2, .what = "struct tcp_sock.bytes_sent"}};
  const auto loaded = Program::load(program, gpl());
  EXPECT_TRUE(loaded) << loaded.error().message();
}

TEST(Program, RefusesWhatCannotBeLoadedWithoutAskingTheKernel) {
  struct Case {
    const char* name;
    LinkedProgram program;
    std::string_view want;
  };
  LinkedProgram no_map = testing::counting_program(std::string(kSection));
  LinkedProgram outside = no_map;
  outside.maps = {{.insn = outside.insns.size() - 1, .map = 0}};
  LinkedProgram far_outside = no_map;
  far_outside.maps = {{.insn = SIZE_MAX, .map = 0}};
  LinkedProgram not_a_load = no_map;
  not_a_load.maps = {{.insn = 2, .map = 0}};
  LinkedProgram no_pseudo = no_map;
  no_pseudo.insns[0].src_reg = 0;
  const Case cases[] = {
      {"empty", program_of({}), "0 instructions"},
      {"too long", program_of(std::vector<bpf_insn>(kMaxInstructions + 1, set(0, 0))),
       "1000001 instructions"},
      {"unknown section", program_of(testing::return_zero(), "xdp/eth0"), "unknown kind of program"},
      {"no target", program_of(testing::return_zero(), "kprobe/"), "no target"},
      {"fentry without BTF", program_of(testing::return_zero(), "fentry/tcp_sendmsg"),
       "needs the kernel's BTF"},
      {"tp_btf without BTF", program_of(testing::return_zero(), "tp_btf/tcp_probe"),
       "needs the kernel's BTF"},
      {"reference outside", outside, "outside the program"},
      {"reference far outside", far_outside, "outside the program"},
      {"reference to no load", not_a_load, "not a load of a map's address"},
      {"reference without its mark", no_pseudo, "not a load of a map's address"},
  };
  std::vector<Map> maps;
  KITTY_NEEDS_KERNEL();
  auto map = Map::create(testing::counter_map());
  ASSERT_TRUE(map) << map.error().message();
  maps.push_back(std::move(*map));
  ProgramOptions options = gpl();
  options.maps = maps;
  for (const Case& c : cases) {
    const auto loaded = Program::load(c.program, options);
    ASSERT_FALSE(loaded) << c.name;
    EXPECT_NE(loaded.error().message().find(c.want), std::string::npos)
        << c.name << ": " << loaded.error().message();
  }
  const auto loaded = Program::load(no_map, gpl());
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().detail.find("no such map"), std::string::npos) << loaded.error().message();
}

TEST(Program, ThatTheKernelsBtfDoesNotKnow) {
  KITTY_NEEDS_KERNEL();
  const auto kernel = KernelBtf::of_running_kernel();
  if (!kernel) GTEST_SKIP() << kernel.error().message();
  ProgramOptions options = gpl();
  options.kernel_btf = &kernel->btf();
  const auto function =
      Program::load(program_of(testing::return_zero(), "fentry/kitty_no_such_function"), options);
  ASSERT_FALSE(function);
  EXPECT_EQ(
      function.error().message(),
      "load program 'tiny': function kitty_no_such_function is not in the kernel's BTF: inlined or absent");
  const auto point = Program::load(program_of(testing::return_zero(), "tp_btf/kitty_no_such_point"), options);
  ASSERT_FALSE(point);
  EXPECT_NE(point.error().detail.find("this kernel lacks it"), std::string::npos) << point.error().message();
}

TEST(Program, WritesThroughItsMapReference) {
  KITTY_NEEDS_KERNEL();
  std::vector<Map> maps;
  auto map = Map::create(testing::counter_map());
  ASSERT_TRUE(map) << map.error().message();
  maps.push_back(std::move(*map));
  ProgramOptions options = gpl();
  options.maps = maps;
  const auto program = Program::load(testing::counting_program(std::string(kSection)), options);
  ASSERT_TRUE(program) << program.error().message();
  const auto link = Link::attach(*program);
  ASSERT_TRUE(link) << link.error().message();
  constexpr uint64_t kCalls = 1000;
  for (uint64_t i = 0; i < kCalls; ++i) getppid();
  const uint32_t key = 0;
  std::array<uint64_t, 2> value{};
  ASSERT_EQ(maps[0].lookup(key, value).value_or(false), true);
  EXPECT_EQ(value[0], 0U) << "the program adds to the second word";
  EXPECT_GE(value[1], kCalls);
}

}  // namespace
}  // namespace kitty::loader
