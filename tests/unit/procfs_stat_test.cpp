#include <gtest/gtest.h>

#include <string>

#include "procfs/stat.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

using namespace std::string_literals;

constexpr std::string_view kNested =
    "42 (x) R 9 9 (y) S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5";

std::string line(std::string_view comm, std::string_view rest) {
  return "42 (" + std::string(comm) + ") " + std::string(rest);
}

constexpr std::string_view kRest =
    "S 7 42 42 0 -1 4194304 57 0 0 0 31 32 0 0 20 0 1 0 987654 8192 5 18446744073709551615 1\n";

struct Case {
  const char* name;
  std::string text;
  bool good;
  std::string comm;
};

const Case kCases[] = {
    {"Plain", line("bash", kRest), true, "bash"},
    {"NameLikeAStatLine", std::string(kNested), true, "x) R 9 9 (y"},
    {"NameWithNewline", line("a) S 1\n(b", kRest), true, "a) S 1\n(b"},
    {"NameWithSpaces", line("  ", kRest), true, "  "},
    {"EmptyName", line("", kRest), true, ""},
    {"NameOfBrackets", line(")(", kRest), true, ")("},
    {"AnyBytes", line("\xff\x01", kRest), true, "\xff\x01"},
    {"LongName", line("kworker/u16:3-events_unbound_with_a_name_of_sixty_three_bytes__", kRest), true,
     "kworker/u16:3-events_unbound_with_a_name_of_sixty_three_bytes__"},
    {"Empty", "", false, ""},
    {"NoName", "42 S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n", false, ""},
    {"NameNotClosed", "42 (bash S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n", false, ""},
    {"ClosedBeforeOpened", "42) (bash S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n",
     false, ""},
    {"NoPid", "x (bash) S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n", false, ""},
    {"PidTooLarge", "4294967296 (bash) S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n",
     false, ""},
    {"StateOfTwoLetters", line("bash", "SS 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n"),
     false, ""},
    {"ParentNotANumber", line("bash", "S x 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 987654 8192 5\n"),
     false, ""},
    {"ThreadsNotANumber", line("bash", "S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 - 0 987654 8192 5\n"),
     false, ""},
    {"StartNotANumber", line("bash", "S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 98x 8192 5\n"), false,
     ""},
    {"StartTooLarge",
     line("bash", "S 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 1 0 18446744073709551616 8192 5\n"), false,
     ""},
    {"NothingBehindName", "42 (bash)", false, ""},
};

class StatTest : public testing::TestWithParam<Case> {};

TEST_P(StatTest, Parses) {
  const GuardPage page(GetParam().text);
  const auto stat = parse_stat(page.text());
  ASSERT_EQ(stat.has_value(), GetParam().good);
  if (!stat) return;
  EXPECT_EQ(stat->pid, 42);
  EXPECT_EQ(stat->comm, GetParam().comm);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->ppid, 7);
  EXPECT_EQ(stat->threads, 1u);
  EXPECT_EQ(stat->start_time_ticks, 987654u);
  EXPECT_EQ(stat->vsize_bytes, 8192u);
  EXPECT_FALSE(stat->is_dead());
}

TEST(Stat, AProcessGoesOnWithoutItsMainThreadAndAZombieDoesNot) {
  const auto lives = [](char state, int threads) {
    return parse_stat("42 (a) "s + state + " 7 42 42 0 -1 4194304 57 0 0 0 0 0 0 0 20 0 " +
                      std::to_string(threads) + " 0 987654 0 0\n")
        ->lives_by_other_threads();
  };
  EXPECT_TRUE(lives('Z', 2));
  EXPECT_FALSE(lives('Z', 1));
  EXPECT_FALSE(lives('X', 0));
  EXPECT_FALSE(lives('S', 2));
}

INSTANTIATE_TEST_SUITE_P(Stat, StatTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(ParseStat, WhereArgumentsAndEnvironmentLie) {
  std::string text = "7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 8192 5";  // up to rss, field 24
  for (int field = 25; field <= 52; ++field) text += " " + std::to_string(field * 1000);
  const auto stat = parse_stat(text + "\n");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->start_time_ticks, 100U);
  EXPECT_EQ(stat->arg_start, 48000U);
  EXPECT_EQ(stat->env_start, 50000U);
  const auto short_one = parse_stat("7 (x) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 8192 5\n");
  ASSERT_TRUE(short_one);
  EXPECT_EQ(short_one->env_start, std::nullopt);
}

TEST(Stat, Times) {
  const std::string text = line("bash", kRest);
  const auto stat = parse_stat(text);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->utime_ticks, 31u);
  EXPECT_EQ(stat->stime_ticks, 32u);
  EXPECT_EQ(stat->rss_pages, 5u);
}

TEST(Stat, CutAtEveryByteNeverGivesAnotherStartTime) {
  const std::string text = line("bash", kRest);
  const size_t start_end = text.find("987654") + 6;
  const size_t vsize_end = text.find("8192") + 4;
  for (size_t size = 0; size <= text.size(); ++size) {
    const GuardPage page(std::string_view(text).substr(0, size));
    const auto stat = parse_stat(page.text());
    ASSERT_EQ(stat.has_value(), size > start_end) << size;
    if (!stat) continue;
    EXPECT_EQ(stat->start_time_ticks, 987654u) << size;
    EXPECT_EQ(stat->vsize_bytes.has_value(), size > vsize_end) << size;
    if (stat->vsize_bytes) {
      EXPECT_EQ(stat->vsize_bytes, 8192u) << size;
    }
  }
}

TEST(Stat, DeadStates) {
  for (const char state : {'R', 'S', 'D', 'Z', 'T', 't', 'X', 'x', 'I'}) {
    const std::string text = line("bash", std::string(1, state) + std::string(kRest.substr(1)));
    const auto stat = parse_stat(text);
    ASSERT_TRUE(stat) << state;
    EXPECT_EQ(stat->state, state);
    EXPECT_EQ(stat->is_dead(), state == 'Z' || state == 'X' || state == 'x') << state;
  }
}

}  // namespace
}  // namespace kitty::procfs
