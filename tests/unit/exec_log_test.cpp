// Programs executed on the running kernel, as its exec tracepoint shows them.
#include "collector/exec_log.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>

#include "collector/embedded_object.h"
#include "collector/rtt_hook.h"
#include "kernel_tests.h"
#include "procfs/file.h"
#include "procfs/pid_namespace.h"
#include "watched_child.h"

namespace kitty::collector {
namespace {

// With its NULs, as in memory.
std::string joined(const std::vector<std::string>& environment) {
  std::string text;
  for (const std::string& entry : environment) text += entry + '\0';
  return text;
}

class ExecLogTest : public ::testing::Test {
 protected:
  struct Seen {
    procfs::ProcessId id;
    std::string environment;
    bool whole = false;
  };

  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    source_ = open_rtt_source(embedded_object(), "", kHookAuto);
    if (!source_.maps) GTEST_SKIP() << "no hook: " << source_.hook.refusals.back().reason;
    root_ = procfs::open_root("/proc").value();
    const auto pids = procfs::read_pid_namespace(root_.get());
    ASSERT_TRUE(pids.has_value());
    log_.emplace(source_.maps.get(), *pids);
  }

  std::map<pid_t, Seen> take(uint64_t& lost) {
    std::map<pid_t, Seen> seen;
    lost = log_->take([&](const ExecutedProgram& program) {
      seen[program.id.pid] = {program.id, std::string(program.environment), program.whole};
    });
    return seen;
  }

  RttSource source_;
  Fd root_;
  std::optional<ExecLog> log_;
};

TEST_F(ExecLogTest, ShowsTheEnvironmentThatAProgramWasGiven) {
  const std::vector<std::string> environment = {"KITTY_WATCH=1", "RANK=3", "EMPTY="};
  const auto child = testing::WatchedChild({"sleep", "60"}, environment);
  uint64_t lost = 0;
  const auto seen = take(lost);
  ASSERT_TRUE(seen.contains(child.pid()));
  const Seen& program = seen.at(child.pid());
  EXPECT_EQ(program.environment, joined(environment));
  EXPECT_TRUE(program.whole);
  const auto handle = procfs::ProcessHandle::open(root_.get(), child.pid());
  ASSERT_TRUE(handle.has_value());
  EXPECT_EQ(program.id, handle->id());
  EXPECT_EQ(lost, 0U);
  EXPECT_TRUE(take(lost).empty() || !take(lost).contains(child.pid())) << "each comes once";
}

TEST_F(ExecLogTest, KeepsTheBeginningOfALongEnvironmentAndSaysThatItIsCut) {
  const std::vector<std::string> environment = {"RANK=3",
                                                "LONG=" + std::string(3 * KITTY_EXEC_ENVIRON_BYTES, 'x')};
  const auto child = testing::WatchedChild({"sleep", "60"}, environment);
  uint64_t lost = 0;
  const auto seen = take(lost);
  ASSERT_TRUE(seen.contains(child.pid()));
  EXPECT_EQ(seen.at(child.pid()).environment, joined(environment).substr(0, KITTY_EXEC_ENVIRON_BYTES));
  EXPECT_FALSE(seen.at(child.pid()).whole);
}

TEST_F(ExecLogTest, CountsWhatWasExecutedBeyondWhatTheKernelKeeps) {
  constexpr int kBeyond = 10;
  for (int i = 0; i < KITTY_EXEC_SLOTS + kBeyond; ++i) {
    pid_t pid = 0;
    char name[] = "true";
    char* const argv[] = {name, nullptr};
    ASSERT_EQ(posix_spawnp(&pid, name, nullptr, nullptr, argv, environ), 0);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  }
  const auto last = testing::sleeper({"RANK=9"});
  uint64_t lost = 0;
  const auto seen = take(lost);
  EXPECT_GE(lost, static_cast<uint64_t>(kBeyond));
  EXPECT_TRUE(seen.contains(last.pid())) << "the latest are kept";
}

TEST(ExecLogWithoutMaps, SeesNothing) {
  ExecLog log(nullptr, 0);
  EXPECT_EQ(log.take([](const ExecutedProgram&) { ADD_FAILURE(); }), 0U);
}

TEST(PidNamespace, OfTheProcfsIsThisProcessesOwn) {
  const auto root = procfs::open_root("/proc");
  ASSERT_TRUE(root);
  std::array<char, 64> text;
  const auto link = procfs::read_link_at(root->get(), "self/ns/pid", text);
  ASSERT_TRUE(link);
  EXPECT_EQ(procfs::read_pid_namespace(root->get()).value(), procfs::parse_pid_link(*link));
  EXPECT_EQ(procfs::parse_pid_link("pid:[4026531836]"), 4026531836U);
  EXPECT_EQ(procfs::parse_pid_link("net:[4026531836]"), std::nullopt);
}

}  // namespace
}  // namespace kitty::collector
