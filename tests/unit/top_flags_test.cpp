#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "cli/gather.h"
#include "cli/top.h"
#include "cli/verdict_flags.h"

namespace kitty::cli {
namespace {

using std::chrono::milliseconds;

Result<VerdictFlags> parse(VerdictCommand command, const std::vector<std::string_view>& arguments) {
  return parse_verdict_flags(command, arguments);
}

TEST(TopFlags, Values) {
  const auto flags = parse(VerdictCommand::top, {"--interval=0.5s", "--job", "gpt2", "n0:1",
                                                 "--threshold=rtt_ratio=4", "--", "--odd:1"});
  ASSERT_TRUE(flags) << flags.error().message();
  EXPECT_EQ(flags->interval, milliseconds(500));
  EXPECT_EQ(flags->job, "gpt2");
  EXPECT_EQ(flags->targets, (std::vector<std::string>{"n0:1", "--odd:1"}));
  EXPECT_EQ(flags->thresholds.rtt_ratio, 4);
  EXPECT_EQ(parse(VerdictCommand::top, {})->interval, milliseconds(1000));
}

TEST(TopFlags, WrongUsageIsSaidAndNothingStarts) {
  struct Case {
    std::vector<std::string_view> arguments;
    const char* says;
  };
  const Case cases[] = {
      {{"--nope"}, "'--nope': unknown; see kitty top --help"},
      {{"--window=3"}, "unknown; see kitty top --help"},
      {{"--json"}, "unknown; see kitty top --help"},
      {{"--interval"}, "it needs a value"},
      {{"--interval=0.1"}, "from 500 ms to 3 s"},
      {{"--interval=4"}, "from 500 ms to 3 s"},
      {{"--threshold=nope=1"}, "NAME=VALUE"},
      {{"/proc/self/stat"}, "a file: kitty diagnose judges saved scrapes"},
      {{"https://n0"}, "no TLS"},
      {{""}, "it is empty"},
  };
  for (const Case& c : cases) {
    testing::internal::CaptureStderr();
    const int status = top(c.arguments);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, 3) << c.says;
    EXPECT_NE(said.find(c.says), std::string::npos) << said;
  }
}

TEST(TopFlags, Help) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(top(std::vector<std::string_view>{"--help"}), 0);
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* word : {"--interval", "--job", "--threshold", "NO_COLOR", "TREND", "exit status"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

TEST(Targets, OneUsableIsEnoughAndTheOthersSayWhy) {
  const std::vector<std::string> names = {"https://n0", "n1:9100", "/proc/self/stat"};
  const auto live = read_targets(names, SavedScrapes::refused);
  ASSERT_TRUE(live);
  EXPECT_NE((*live)[0].problem.find("no TLS"), std::string::npos);
  EXPECT_TRUE((*live)[1].url && (*live)[1].problem.empty());
  EXPECT_NE((*live)[2].problem.find("kitty diagnose judges saved scrapes"), std::string::npos);
  const auto saved = read_targets(names, SavedScrapes::taken);
  ASSERT_TRUE(saved);
  EXPECT_TRUE(!(*saved)[2].url && (*saved)[2].problem.empty());
  EXPECT_FALSE(read_targets(std::vector<std::string>{"https://n0", "x"}, SavedScrapes::taken));
  EXPECT_EQ((*read_targets({}, SavedScrapes::refused))[0].name, "127.0.0.1:9100");
}

// Fetching goes on until the end, which does not wait for the next second.
TEST(Targets, GatheringSaysWhatDoesNotAnswer) {
  const std::vector<std::string> names = {"127.0.0.1:1", "https://n0"};
  const auto targets = read_targets(names, SavedScrapes::refused);
  ASSERT_TRUE(targets);
  Gathering gathering(*targets, std::nullopt, milliseconds(3'000'000));
  std::vector<TargetProblem> problems;
  for (int i = 0; i < 1000 && problems.size() < 2; ++i) {
    problems = gathering.problems(60);
    std::this_thread::sleep_for(milliseconds(10));
  }
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].problem, "connect '127.0.0.1:1': Connection refused");
  EXPECT_NE(problems[1].problem.find("no TLS"), std::string::npos);
  EXPECT_TRUE(gathering.take().empty());
}

}  // namespace
}  // namespace kitty::cli
