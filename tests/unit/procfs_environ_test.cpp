#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "procfs/environ.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

using namespace std::literals;

// One byte above what is kept.
const std::string kLongValue(kMaxEnvironValueBytes + 1, 'v');
const std::string kFullValue(kMaxEnvironValueBytes, 'v');

struct Case {
  const char* name;
  std::string text;
  bool watched;
  std::optional<std::string> rank;
  std::optional<std::string> job;
  bool job_truncated = false;
};

const Case kCases[] = {
    {"Empty", "", false, {}, {}},
    {"Watched", "KITTY_WATCH=1\0"s, true, {}, {}},
    {"FirstSaysNo", "NOEQ\0\0KITTY_WATCH=0\0KITTY_WATCH=1\0RANK=\0XKITTY_WATCH=1\0RANK=7\0"s, false, "", {}},
    {"FirstSaysYes", "NOEQ\0\0KITTY_WATCH=1\0RANK=\0XKITTY_WATCH=1\0RANK=7\0KITTY_WATCH=0\0"s, true, "", {}},
    {"BehindOneOfMaximalLength", "X=" + std::string(131069, 'y') + "\0KITTY_WATCH=1\0"s, true, {}, {}},
    {"AnotherValue", "KITTY_WATCH=10\0"s, false, {}, {}},
    {"EmptyValue", "KITTY_WATCH=\0"s, false, {}, {}},
    {"NameAlone", "KITTY_WATCH\0"s, false, {}, {}},
    {"NameAloneIsNoOccurrence", "KITTY_WATCH\0KITTY_WATCH=1\0RANK\0RANK=3\0"s, true, "3", {}},
    {"NotAtTheStart", "XKITTY_WATCH=1\0A=KITTY_WATCH=1\0"s, false, {}, {}},
    {"LowerCase", "kitty_watch=1\0"s, false, {}, {}},
    {"WithoutNulAtTheEnd", "RANK=1\0KITTY_WATCH=1"s, true, "1", {}},
    {"ValueWithEquals", "RANK=1=2\0JOB_NAME==\0"s, false, "1=2", "="},
    {"LongerName", "RANKS=1\0JOB_NAME2=x\0"s, false, {}, {}},
    {"PrefixOfName", "RAN=1\0JOB=x\0"s, false, {}, {}},
    {"AnyBytes", "JOB_NAME=a\"\\\n\xff\0RANK=0\0"s, false, "0", "a\"\\\n\xff"},
    {"ValueOfLimit", "JOB_NAME=" + kFullValue + "\0RANK=2\0"s, false, "2", kFullValue},
    {"ValueAboveLimit", "JOB_NAME=" + kLongValue + "\0RANK=2\0"s, false, "2", kFullValue, true},
    {"WatchValueAboveLimit", "KITTY_WATCH=1" + std::string(1000, '1') + "\0RANK=2\0"s, false, "2", {}},
    {"LongName", std::string(5000, 'R') + "=1\0RANK=2\0"s, false, "2", {}},
    {"OnlyNuls", std::string(1000, '\0'), false, {}, {}},
    {"TailOfAnEntry", "TTY_WATCH=1\0RANK=5\0"s, false, "5", {}},
};

class EnvironTest : public testing::TestWithParam<Case> {
 protected:
  void expect(const std::vector<std::string_view>& chunks, const std::string& what) {
    scan_.reset();
    uint64_t bytes = 0;
    for (const std::string_view chunk : chunks) {
      const GuardPage page(chunk);
      scan_.feed(page.text());
      bytes += chunk.size();
    }
    scan_.finish();
    ASSERT_EQ(scan_.watched(), GetParam().watched) << what;
    ASSERT_EQ(scan_.bytes(), bytes) << what;
    ASSERT_EQ(value(0), GetParam().rank) << what;
    ASSERT_EQ(value(1), GetParam().job) << what;
    ASSERT_EQ(variables_[1].value.truncated, GetParam().job_truncated) << what;
    ASSERT_FALSE(variables_[0].value.truncated) << what;
  }

 private:
  std::optional<std::string> value(size_t i) const {
    if (!variables_[i].value.present) return std::nullopt;
    return std::string(variables_[i].value.text());
  }

  std::array<EnvironVariable, 2> variables_{{{"RANK"}, {"JOB_NAME"}}};
  EnvironScan scan_{variables_};
};

TEST_P(EnvironTest, Whole) { expect({GetParam().text}, "whole"); }

TEST_P(EnvironTest, CutInTwoAtEveryByte) {
  const std::string_view text = GetParam().text;
  // The longest text differs from others only near its ends.
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if (cut == 1000 && text.size() > 10000) cut = text.size() - 1000;
    expect({text.substr(0, cut), text.substr(cut)}, "cut at " + std::to_string(cut));
    if (HasFatalFailure()) return;
  }
}

TEST_P(EnvironTest, ByteByByte) {
  std::string_view text = GetParam().text;
  std::vector<std::string_view> chunks;
  if (text.size() > 10000) {
    chunks.push_back(text.substr(0, text.size() - 1000));
    text.remove_prefix(text.size() - 1000);
  }
  for (size_t i = 0; i < text.size(); ++i) chunks.push_back(text.substr(i, 1));
  expect(chunks, "byte by byte");
}

INSTANTIATE_TEST_SUITE_P(Environ, EnvironTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(Environ, LastEntryCountsOnlyAtTheEnd) {
  std::array<EnvironVariable, 1> variables{{{"RANK"}}};
  EnvironScan scan(variables);
  scan.feed("KITTY_WATCH=1\0RANK=1"sv);
  EXPECT_TRUE(scan.watched());
  EXPECT_FALSE(variables[0].value.present);
  scan.feed("2");
  scan.finish();
  EXPECT_EQ(variables[0].value.text(), "12");
}

TEST(Environ, TellsWhereATitleWasWrittenOverIt) {
  const auto overwritten = [](std::string_view text, size_t piece) {
    EnvironScan scan({});
    for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) scan.feed(text.substr(0, piece));
    scan.finish();
    return scan.overwritten();
  };
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100000}}) {
    EXPECT_FALSE(overwritten("", piece));
    EXPECT_FALSE(overwritten("PATH=/bin\0KITTY_WATCH=1\0"sv, piece));
    EXPECT_FALSE(overwritten("=\0"sv, piece));
    EXPECT_TRUE(overwritten(std::string(500, '\0'), piece));
    EXPECT_TRUE(overwritten("r::Worker.run\0\0\0\0H=1\0KITTY_WATCH=1\0"sv, piece)) << "only a tail is left";
    EXPECT_TRUE(overwritten("    \0KITTY_WATCH=1\0"sv, piece));
    EXPECT_TRUE(overwritten(std::string(5000, 'R') + "=1\0"s, piece));
  }
}

TEST(Environ, ResetForgetsEverything) {
  std::array<EnvironVariable, 1> variables{{{"RANK"}}};
  EnvironScan scan(variables);
  scan.feed("KITTY_WATCH=1\0RANK=1\0KITTY_WAT"sv);
  scan.reset();
  EXPECT_FALSE(scan.watched());
  EXPECT_EQ(scan.bytes(), 0u);
  EXPECT_FALSE(variables[0].value.present);
  EXPECT_TRUE(variables[0].value.text().empty());
  scan.feed("CH=1\0"sv);
  EXPECT_FALSE(scan.watched());
}

TEST(Environ, WatchedWithoutAnyVariables) {
  EnvironScan scan({});
  scan.feed("KITTY_WATCH=1\0"sv);
  EXPECT_TRUE(scan.watched());
}

}  // namespace
}  // namespace kitty::procfs
