#include "http/exposition_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/guard_page.h"

namespace kitty::http {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct SampleCase {
  const char* name;
  std::string_view text;
  std::string_view sample;
  std::vector<std::pair<std::string, std::string>> labels;
  double value;
  std::optional<int64_t> timestamp_ms = std::nullopt;
};

void PrintTo(const SampleCase& c, std::ostream* out) { *out << c.name; }

class ReaderSample : public testing::TestWithParam<SampleCase> {};

TEST_P(ReaderSample, Reads) {
  const SampleCase& want = GetParam();
  const GuardPage page(want.text);
  ExpositionReader reader(page.text());
  const auto item = reader.next();
  ASSERT_TRUE(item) << item.error().message();
  EXPECT_EQ(item->kind, ItemKind::sample);
  EXPECT_EQ(item->name, want.sample);
  std::vector<std::pair<std::string, std::string>> labels;
  for (const Label& label : item->labels) labels.emplace_back(label.name, label.value);
  EXPECT_EQ(labels, want.labels);
  if (std::isnan(want.value)) {
    EXPECT_TRUE(std::isnan(item->value));
  } else {
    EXPECT_EQ(item->value, want.value);
  }
  EXPECT_EQ(item->timestamp_ms, want.timestamp_ms);
  const auto end = reader.next();
  ASSERT_TRUE(end);
  EXPECT_EQ(end->kind, ItemKind::end);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ReaderSample,
    testing::Values(
        SampleCase{"bare", "up 1\n", "up", {}, 1}, SampleCase{"no_newline", "up 1", "up", {}, 1},
        SampleCase{"empty_braces", "up{} 1\n", "up", {}, 1},
        SampleCase{"labels", "up{a=\"1\",b=\"2\"} 3\n", "up", {{"a", "1"}, {"b", "2"}}, 3},
        SampleCase{"comma_at_the_end", "up{a=\"1\",} 3\n", "up", {{"a", "1"}}, 3},
        SampleCase{"blanks", " \tup { a = \"1\" , b=\"2\" }\t3 \n", "up", {{"a", "1"}, {"b", "2"}}, 3},
        SampleCase{"empty_value", "up{a=\"\"} 3\n", "up", {{"a", ""}}, 3},
        SampleCase{"escapes",
                   R"(up{a="\\",b="\"q\"",c="x\ny",d="plain"} 3)",
                   "up",
                   {{"a", "\\"}, {"b", "\"q\""}, {"c", "x\ny"}, {"d", "plain"}},
                   3},
        SampleCase{"structure_inside_a_value", "up{a=\"}, b=1 #\"} 3\n", "up", {{"a", "}, b=1 #"}}, 3},
        SampleCase{"colon_in_name", "job:up:sum 3\n", "job:up:sum", {}, 3},
        SampleCase{"infinity", "up +Inf\n", "up", {}, kInfinity},
        SampleCase{"minus_infinity", "up -Inf\n", "up", {}, -kInfinity},
        SampleCase{"nan", "up NaN\n", "up", {}, std::nan("")},
        SampleCase{"exponent", "up 1.5e+06\n", "up", {}, 1.5e6}, SampleCase{"plus", "up +2\n", "up", {}, 2},
        SampleCase{"timestamp", "up 1 1700000000123\n", "up", {}, 1, 1700000000123},
        SampleCase{"negative_timestamp", "up 1 -5\n", "up", {}, 1, -5},
        SampleCase{"after_comments", "\n# anything\n#HELPless\n  \nup 1\n", "up", {}, 1}),
    [](const auto& c) { return std::string(c.param.name); });

struct ErrorCase {
  const char* name;
  std::string text;
  std::string message;
};

void PrintTo(const ErrorCase& c, std::ostream* out) { *out << c.name; }

class ReaderError : public testing::TestWithParam<ErrorCase> {};

TEST_P(ReaderError, NamesTheLineAndGoesOn) {
  const std::string text = "# comment\n" + GetParam().text + "\nup 1\n";
  const GuardPage page(text);
  ExpositionReader reader(page.text());
  const auto item = reader.next();
  ASSERT_FALSE(item);
  EXPECT_EQ(item.error().message(), "read exposition 'line 2': " + GetParam().message);
  const auto after = reader.next();
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_EQ(after->kind, ItemKind::sample);
  EXPECT_EQ(after->line, 3U);
}

std::string many_labels(size_t count) {
  std::string text = "up{";
  for (size_t i = 0; i < count; ++i) text += "a" + std::to_string(i) + "=\"\",";
  return text + "} 1";
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ReaderError,
    testing::Values(
        ErrorCase{"digit_first", "1up 1", "no valid metric name"},
        ErrorCase{"not_ascii", "\xc3\xa4 1", "no valid metric name"},
        ErrorCase{"no_value", "up", "value is not a number"},
        ErrorCase{"no_value_after_labels", "up{a=\"1\"}", "value is not a number"},
        ErrorCase{"value_is_a_word", "up one", "value is not a number"},
        ErrorCase{"value_has_a_tail", "up 1x", "value is not a number"},
        ErrorCase{"two_signs", "up +-1", "value is not a number"},
        ErrorCase{"value_out_of_range", "up 1e999", "value is not a number"},
        ErrorCase{"hexadecimal", "up 0x10", "value is not a number"},
        ErrorCase{"nan_with_a_payload", "up nan(1)", "value is not a number"},
        ErrorCase{"longer_than_any_number", "up " + std::string(65, '1'), "value is not a number"},
        ErrorCase{"nul_in_a_value",
                  std::string("up 1\0"
                              "2",
                              6),
                  "value is not a number"},
        ErrorCase{"not_a_timestamp", "up 1 soon", "timestamp is not a number"},
        ErrorCase{"too_much", "up 1 2 3", "more than a value and a timestamp"},
        ErrorCase{"label_name", "up{1a=\"1\"} 1", "no valid label name"},
        ErrorCase{"colon_in_label_name", "up{a:b=\"1\"} 1", "no valid label name"},
        ErrorCase{"no_equals", "up{a\"1\"} 1", "no '=' after a label name"},
        ErrorCase{"not_quoted", "up{a=1} 1", "label value is not quoted"},
        ErrorCase{"not_closed", "up{a=\"1} 1", "label value is not closed"},
        ErrorCase{"escaped_end", "up{a=\"1\\", "label value is not closed"},
        ErrorCase{"unknown_escape", "up{a=\"\\t\"} 1", "unknown escape in a label value"},
        ErrorCase{"no_comma", "up{a=\"1\" b=\"2\"} 1", "neither ',' nor '}' after a label"},
        ErrorCase{"braces_not_closed", "up{a=\"1\",", "no valid label name"},
        ErrorCase{"only_an_open_brace", "up{", "no valid label name"},
        ErrorCase{"too_many_labels", many_labels(kMaxSampleLabels + 1), "too many labels"},
        ErrorCase{"unknown_type", "# TYPE up info", "unknown metric type"},
        ErrorCase{"help_without_name", "# HELP", "no valid metric name after HELP or TYPE"},
        ErrorCase{"bad_name_in_type", "# TYPE 1 gauge", "no valid metric name after HELP or TYPE"}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(ExpositionReader, ReadsHelpAndType) {
  ExpositionReader reader("# HELP up Whether it is up.\\nReally.\n# TYPE up gauge\nup 1\n");
  auto item = reader.next();
  ASSERT_TRUE(item);
  EXPECT_EQ(item->kind, ItemKind::help);
  EXPECT_EQ(item->name, "up");
  EXPECT_EQ(item->text, "Whether it is up.\\nReally.");
  item = reader.next();
  ASSERT_TRUE(item);
  EXPECT_EQ(item->kind, ItemKind::type);
  EXPECT_EQ(item->text, "gauge");
  EXPECT_EQ(item->line, 2U);
}

TEST(ExpositionReader, AcceptsAsManyLabelsAsItsBound) {
  const std::string text = many_labels(kMaxSampleLabels);
  ExpositionReader reader(text);
  const auto item = reader.next();
  ASSERT_TRUE(item) << item.error().message();
  EXPECT_EQ(item->labels.size(), kMaxSampleLabels);
}

TEST(ExpositionReader, AbsentLabelIsEmpty) {
  ExpositionReader reader("up{a=\"1\"} 1\n");
  const auto item = reader.next();
  ASSERT_TRUE(item);
  EXPECT_EQ(item->label("a"), "1");
  EXPECT_EQ(item->label("b"), "");
}

}  // namespace
}  // namespace kitty::http
