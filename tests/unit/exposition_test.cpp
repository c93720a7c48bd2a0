#include "http/exposition.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

#include "http/exposition_reader.h"
#include "tests/exposition_check.h"

namespace kitty::http {
namespace {

constexpr char kGolden[] = "tests/golden/exposition.txt";

struct ValueCase {
  const char* name;
  Value value;
  const char* text;
};

void PrintTo(const ValueCase& c, std::ostream* out) { *out << c.name; }

class ValueText : public testing::TestWithParam<ValueCase> {};

TEST_P(ValueText, Formats) { EXPECT_EQ(GetParam().value.text(), GetParam().text); }

INSTANTIATE_TEST_SUITE_P(
    Cases, ValueText,
    testing::Values(
        ValueCase{"zero", 0, "0"}, ValueCase{"negative", -7, "-7"},
        ValueCase{"largest_u64", std::numeric_limits<uint64_t>::max(), "18446744073709551615"},
        ValueCase{"smallest_i64", std::numeric_limits<int64_t>::min(), "-9223372036854775808"},
        ValueCase{"whole_double", 51.0, "51"}, ValueCase{"tenth", 0.1, "0.1"},
        ValueCase{"shortest", 0.000512, "0.000512"}, ValueCase{"third", 1.0 / 3, "0.3333333333333333"},
        ValueCase{"first_bound", 0.0001, "0.0001"}, ValueCase{"million", 1e6, "1000000"},
        ValueCase{"minus_zero", -0.0, "-0"}, ValueCase{"small", 1e-5, "0.00001"},
        ValueCase{"nanosecond", 1e-9, "0.000000001"}, ValueCase{"below_a_nanosecond", 1.5e-10, "1.5e-10"},
        ValueCase{"microseconds_since_the_epoch", 1700000000.123456, "1700000000.123456"},
        ValueCase{"negative_decimal", -0.25, "-0.25"},
        ValueCase{"sixteen_digits", 0.1 + 0.7, "0.7999999999999999"},
        ValueCase{"seventeen_digits", 0.1 + 0.2, "0.30000000000000004"},
        ValueCase{"largest", std::numeric_limits<double>::max(), "1.7976931348623157e+308"},
        ValueCase{"denormal", 5e-324, "4.94065645841247e-324"}, ValueCase{"large", 1e300, "1e+300"},
        ValueCase{"longest", -2.2250738585072014e-308, "-2.2250738585072014e-308"},
        ValueCase{"infinity", std::numeric_limits<double>::infinity(), "+Inf"},
        ValueCase{"minus_infinity", -std::numeric_limits<double>::infinity(), "-Inf"},
        ValueCase{"nan", std::numeric_limits<double>::quiet_NaN(), "NaN"},
        ValueCase{"minus_nan", -std::numeric_limits<double>::quiet_NaN(), "NaN"}),
    [](const auto& c) { return std::string(c.param.name); });

// Whatever way a double is written, it reads back as itself.
TEST(ValueText, EveryDoubleReadsBack) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    double value = std::bit_cast<double>(random());
    if (i % 4 == 1) value = static_cast<double>(random() % 100'000'000'000) / 1e6;  // sums of microseconds
    if (i % 4 == 2)
      value = static_cast<double>(random() % 1'000'000) / static_cast<double>(1 + random() % 1000);  // means
    if (i % 4 == 3) value = static_cast<double>(random() % 1'000'000) * 1e-9;
    if (!std::isfinite(value)) continue;
    const std::string text(Value(value).text());
    ASSERT_EQ(strtod(text.c_str(), nullptr), value) << text;
  }
}

struct LabelCase {
  const char* name;
  std::string value;
  std::string written;
};

void PrintTo(const LabelCase& c, std::ostream* out) { *out << c.name; }

class LabelValue : public testing::TestWithParam<LabelCase> {};

TEST_P(LabelValue, IsSanitised) {
  std::string out;
  append_label_value(out, GetParam().value);
  EXPECT_EQ(out, GetParam().written);
  EXPECT_LE(out.size(), kMaxEscapedBytes);
}

const std::string kBad = "\xef\xbf\xbd";

std::string repeat(std::string_view piece, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LabelValue,
    testing::Values(
        LabelCase{"empty", "", ""}, LabelCase{"plain", "resnet-50", "resnet-50"},
        LabelCase{"backslash", "a\\b", "a\\\\b"}, LabelCase{"quote", "a\"b", "a\\\"b"},
        LabelCase{"newline", "a\nb", "a\\nb"},
        LabelCase{"closes_the_label", "x\"} 1\nup 0\n", "x\\\"} 1\\nup 0\\n"},
        LabelCase{"utf8", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xb1", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\xb1"},
        LabelCase{"lone_continuation", "a\x80z", "a" + kBad + "z"},
        LabelCase{"overlong_slash", "\xc0\xaf", kBad + kBad},
        LabelCase{"surrogate", "\xed\xa0\x80", kBad + kBad + kBad},
        LabelCase{"above_the_last_code_point", "\xf4\x90\x80\x80", kBad + kBad + kBad + kBad},
        LabelCase{"cut_in_the_middle_of_a_code_point", "a\xe2\x82", "a" + kBad + kBad},
        LabelCase{"exactly_the_bound", std::string(128, 'x'), std::string(128, 'x')},
        LabelCase{"over_the_bound", std::string(129, 'x'), std::string(128, 'x')},
        LabelCase{"cut_before_a_code_point", std::string(127, 'x') + "\xc3\xa4", std::string(127, 'x')},
        LabelCase{"cut_before_a_replacement", std::string(126, 'x') + "\xff", std::string(126, 'x')},
        LabelCase{"escapes_do_not_count", std::string(128, '"'), repeat("\\\"", 128)},
        LabelCase{"nul", std::string("a\0b", 3), "a" + kBad + "b"},
        LabelCase{"steers_a_terminal", "\x1b[2J\x7f\t\xc2\x9b", kBad + "[2J" + repeat(kBad, 3)},
        LabelCase{"turns_the_direction", "a\u202eb\u2066\u061c", "a" + kBad + "b" + kBad + kBad},
        LabelCase{"without_width", "a\xe2\x80\x8b\xef\xbb\xbf", "a" + kBad + kBad}),
    [](const auto& c) { return std::string(c.param.name); });

// One of each kind, with a hostile label.
void write_all(ExpositionWriter& writer) {
  constexpr std::array<double, 3> kBounds = {0.0001, 0.001, 0.05};
  const HistogramBounds bounds(kBounds);
  const std::string hostile =
      format_labels({{"pid", "4242"}, {"rank", "3"}, {"job", "bad\"} 1\n\\\xff\x1b[2J\xe2\x80\xae"}});
  const std::string plain = format_labels({{"pid", "7"}, {"rank", ""}, {"job", ""}});
  writer.begin();
  writer.family("net_tcp_out_segs_total", "Segments sent.", MetricType::counter);
  writer.sample(hostile, uint64_t{18446744073709551615U});
  writer.sample(plain, 0);
  writer.family("kitty_empty", "Never seen.", MetricType::gauge);
  writer.family("kitty_peer_rtt_min_seconds", "Backslash \\ and\nnewline.", MetricType::gauge);
  writer.sample(plain, {{"peer", "10.0.0.1"}}, 0.000123);
  writer.sample(plain, {{"peer", "fd00::1"}}, std::numeric_limits<double>::quiet_NaN());
  writer.family("kitty_tcp_rtt_seconds", "Samples.", MetricType::histogram);
  writer.histogram(plain, {}, bounds, std::array<uint64_t, 4>{1, 1, 5, 6}, 0.25);
  writer.histogram({}, {}, bounds, std::array<uint64_t, 4>{0, 0, 0, 0}, 0);
  writer.family("kitty_peer_rtt_seconds", "By peer.", MetricType::summary);
  writer.summary(plain, {{"peer", "10.0.0.1"}}, 1.5, 30);
  writer.family("kitty_build_info", "Always 1.", MetricType::gauge);
  writer.sample({}, {{"version", "0.1.0"}}, 1);
  writer.family("kitty_unreadable_processes", "No labels.", MetricType::gauge);
  writer.sample({}, -1);
}

std::string read_file(const char* path) {
  std::string out;
  if (FILE* file = fopen(path, "rb")) {
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) out.append(buffer, n);
    fclose(file);
  }
  return out;
}

TEST(ExpositionWriter, MatchesTheGoldenFile) {
  ExpositionWriter writer;
  write_all(writer);
  EXPECT_EQ(writer.text(), read_file(kGolden));
  EXPECT_EQ(writer.series_dropped(), 0U);
}

TEST(ExpositionWriter, PassesTheChecker) {
  ExpositionWriter writer;
  write_all(writer);
  EXPECT_EQ(check_exposition(writer.text()), std::vector<std::string>());
}

TEST(ExpositionWriter, PassesPromtool) {
  if (system("command -v promtool > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool not found";
  const std::string command = std::string("promtool check metrics < ") + kGolden + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) said.append(buffer, n);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << said;
}

TEST(ExpositionWriter, HostileLabelsComeBackAsWritten) {
  ExpositionWriter writer;
  write_all(writer);
  ExpositionReader reader(writer.text());
  for (;;) {
    const auto item = reader.next();
    ASSERT_TRUE(item) << item.error().message();
    ASSERT_NE(item->kind, ItemKind::end) << "series not found";
    if (item->label("pid") != "4242") continue;
    EXPECT_EQ(item->label("job"), "bad\"} 1\n\\" + kBad + kBad + "[2J" + kBad);
    break;
  }
}

TEST(ExpositionWriter, AllocatesOnlyWhileItGrows) {
  ExpositionWriter writer;
  write_all(writer);
  const char* const data = writer.text().data();
  const size_t capacity = writer.text().capacity();
  for (int i = 0; i < 10; ++i) write_all(writer);
  EXPECT_EQ(writer.text().data(), data);
  EXPECT_EQ(writer.text().capacity(), capacity);
}

TEST(ExpositionWriter, DropsWholeSeriesAtEveryCap) {
  ExpositionWriter full;
  write_all(full);
  uint64_t dropped_before = std::numeric_limits<uint64_t>::max();
  for (size_t cap = 0; cap <= full.text().size() + 2 * kMaxEscapedBytes + 4096; ++cap) {
    ExpositionWriter writer(cap);
    write_all(writer);
    ASSERT_LE(writer.text().size(), cap);
    ASSERT_EQ(check_exposition(writer.text()), std::vector<std::string>()) << "cap " << cap;
    if (cap == 0) {
      EXPECT_EQ(writer.series_dropped(), 9U);
    }
    dropped_before = writer.series_dropped();
  }
  EXPECT_EQ(dropped_before, 0U);
}

TEST(ExpositionWriter, CountsDropsPerText) {
  ExpositionWriter writer(10);
  write_all(writer);
  EXPECT_EQ(writer.series_dropped(), 9U);
  writer.begin();
  EXPECT_EQ(writer.series_dropped(), 0U);
}

TEST(ExpositionWriter, DropsAHistogramOfTheWrongLength) {
  ExpositionWriter writer;
  writer.begin();
  writer.family("h", "H.", MetricType::histogram);
  writer.histogram({}, {}, HistogramBounds(std::array<double, 2>{1, 2}), std::array<uint64_t, 2>{1, 2}, 0);
  EXPECT_EQ(writer.text(), "");
  EXPECT_EQ(writer.series_dropped(), 1U);
}

}  // namespace
}  // namespace kitty::http
