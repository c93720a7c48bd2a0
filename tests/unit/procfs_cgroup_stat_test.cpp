#include <gtest/gtest.h>

#include <string>

#include "procfs/cgroup_stat.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

using Number = std::optional<uint64_t>;

struct Case {
  const char* name;
  std::string text;
  Number expected;
};

const std::string kVersion2 =
    "usage_usec 900\nuser_usec 800\nsystem_usec 100\nnr_periods 10\nnr_throttled 4\nthrottled_usec 250123\n"
    "nr_bursts 0\nburst_usec 0\n";
const std::string kVersion1 = "nr_periods 10\nnr_throttled 4\nthrottled_time 250123456\n";
const std::string kPressure =
    "some avg10=6.52 avg60=8.48 avg300=15.35 total=174703540\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=77\n";

class ThrottledTest : public testing::TestWithParam<Case> {};

TEST_P(ThrottledTest, Parses) {
  const GuardPage page(GetParam().text);
  EXPECT_EQ(parse_throttled_us(page.text()), GetParam().expected);
}

const Case kThrottled[] = {
    {"Version2", kVersion2, 250'123},
    {"Version1InNanoseconds", kVersion1, 250'123},
    {"WithoutTheController", "usage_usec 900\nuser_usec 800\nsystem_usec 100\n", {}},
    {"Empty", "", {}},
    {"None", "throttled_usec 0\n", 0},
    {"NoNumber", "throttled_usec\n", {}},
    {"NotANumber", "throttled_usec 12x\n", {}},
    {"Negative", "throttled_usec -1\n", {}},
    {"TwoNumbers", "throttled_usec 1 2\n", {}},
    {"TooLarge", "throttled_usec 18446744073709551616\n", {}},
    {"Largest", "throttled_usec 18446744073709551615\n", UINT64_MAX},
    {"AnotherName", "nr_throttled 4\nthrottled_usecs 5\n", {}},
    {"CutInTheNumber", "nr_periods 1\nthrottled_usec 25", {}},
};

INSTANTIATE_TEST_SUITE_P(CgroupStat, ThrottledTest, testing::ValuesIn(kThrottled),
                         [](const auto& each) { return each.param.name; });

class PressureTest : public testing::TestWithParam<Case> {};

TEST_P(PressureTest, Parses) {
  const GuardPage page(GetParam().text);
  EXPECT_EQ(parse_pressure_us(page.text()), GetParam().expected);
}

const Case kPressures[] = {
    {"Some", kPressure, 174'703'540},
    {"FullFirst", "full avg10=0.00 total=77\nsome avg10=0.00 total=78\n", 78},
    {"FullAlone", "full avg10=0.00 avg60=0.00 avg300=0.00 total=77\n", {}},
    {"Empty", "", {}},
    {"NoTotal", "some avg10=0.00 avg60=0.00 avg300=0.00\n", {}},
    {"NotANumber", "some avg10=0.00 total=7.5\n", {}},
    {"CutInTheNumber", "some avg10=6.52 avg60=8.48 avg300=15.35 total=1747", {}},
};

INSTANTIATE_TEST_SUITE_P(CgroupStat, PressureTest, testing::ValuesIn(kPressures),
                         [](const auto& each) { return each.param.name; });

TEST(CgroupStat, CutAtEveryByteNeverGivesAnotherNumber) {
  for (const auto& [text, parse, whole] : {std::tuple(kVersion2, &parse_throttled_us, Number(250'123)),
                                           std::tuple(kVersion1, &parse_throttled_us, Number(250'123)),
                                           std::tuple(kPressure, &parse_pressure_us, Number(174'703'540))}) {
    for (size_t size = 0; size <= text.size(); ++size) {
      const GuardPage page(std::string_view(text).substr(0, size));
      const Number part = parse(page.text());
      EXPECT_TRUE(!part || part == whole) << size;
    }
    EXPECT_EQ(parse(text), whole);
  }
}

}  // namespace
}  // namespace kitty::procfs
