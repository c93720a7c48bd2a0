#include "tests/exposition_check.h"

#include <gtest/gtest.h>

namespace kitty::http {
namespace {

struct Case {
  const char* name;
  std::string text;
  std::vector<std::string> problems;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ExpositionCheck : public testing::TestWithParam<Case> {};

TEST_P(ExpositionCheck, FindsExactlyTheProblems) {
  EXPECT_EQ(check_exposition(GetParam().text), GetParam().problems);
}

const std::string kHead = "# HELP a A.\n# TYPE a gauge\n";
const std::string kCounter = "# HELP c_total C.\n# TYPE c_total counter\n";
const std::string kHistogram = "# HELP h H.\n# TYPE h histogram\n";
const std::string kSummary = "# HELP s S.\n# TYPE s summary\n";

INSTANTIATE_TEST_SUITE_P(
    Cases, ExpositionCheck,
    testing::Values(
        Case{"empty", "", {}}, Case{"gauge", kHead + "a 1\n", {}}, Case{"family_without_samples", kHead, {}},
        Case{"labels", kHead + "a{x=\"1\",y=\"2\"} 1\na{x=\"2\",y=\"1\"} 1\n", {}},
        Case{"histogram",
             kHistogram + "h_bucket{le=\"0.1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
             {}},
        Case{"histogram_of_two_series",
             kHistogram + "h_bucket{p=\"1\",le=\"1\"} 5\nh_bucket{p=\"1\",le=\"+Inf\"} 5\nh_sum{p=\"1\"} "
                          "3\nh_count{p=\"1\"} 5\n"
                          "h_bucket{p=\"2\",le=\"1\"} 1\nh_bucket{p=\"2\",le=\"+Inf\"} 2\nh_sum{p=\"2\"} "
                          "3\nh_count{p=\"2\"} 2\n",
             {}},
        Case{"summary", kSummary + "s_sum 1.5\ns_count 3\n", {}}, Case{"nan_gauge", kHead + "a NaN\n", {}},
        Case{"no_final_newline", kHead + "a 1", {"line 3: no newline at the end"}},
        Case{"not_utf8", kHead + "a{x=\"\xff\"} 1\n", {"line 3: not UTF-8"}},
        Case{"surrogate",
             kHead + "a{x=\"\xed\xa0\x80\"} 1\n",
             {"line 3: not UTF-8", "line 3: not UTF-8", "line 3: not UTF-8"}},
        Case{"unreadable_line", kHead + "a{x=\"1} 1\n", {"line 3: label value is not closed"}},
        Case{"series_twice", kHead + "a{x=\"1\"} 1\na{x=\"1\"} 2\n", {"line 4: series written twice: a x=1"}},
        Case{"series_twice_in_other_order",
             kHead + "a{x=\"1\",y=\"2\"} 1\na{y=\"2\",x=\"1\"} 2\n",
             {"line 4: series written twice: a x=1 y=2"}},
        Case{"split_family",
             kHead + "a 1\n" + kCounter + "c_total 1\na{x=\"1\"} 1\n",
             {"line 7: family in two places: a", "line 7: sample without HELP and TYPE before it: a"}},
        Case{"help_twice", "# HELP a A.\n# HELP a A.\n# TYPE a gauge\na 1\n", {"line 2: HELP twice: a"}},
        Case{"type_twice", kHead + "# TYPE a gauge\na 1\n", {"line 3: TYPE twice: a"}},
        Case{"type_before_help",
             "# TYPE a gauge\n# HELP a A.\na 1\n",
             {"line 1: TYPE without HELP before it: a", "line 2: HELP after the family's first line: a"}},
        Case{"no_header", "a 1\n", {"line 1: sample without HELP and TYPE before it: a"}},
        Case{"no_type", "# HELP a A.\na 1\n", {"line 2: sample without TYPE before it: a"}},
        Case{"untyped", "# HELP a A.\n# TYPE a untyped\na 1\n", {"line 2: untyped family: a"}},
        Case{"label_twice", kHead + "a{x=\"1\",x=\"2\"} 1\n", {"line 3: label twice: x"}},
        Case{"reserved_label", kHead + "a{__x=\"1\"} 1\n", {"line 3: reserved label name: __x"}},
        Case{"le_on_a_gauge", kHead + "a{le=\"1\"} 1\n", {"line 3: label has no place here: le"}},
        Case{"long_label",
             kHead + "a{x=\"" + std::string(129, 'y') + "\"} 1\n",
             {"line 3: label value too long: x"}},
        Case{"longest_label", kHead + "a{x=\"" + std::string(128, 'y') + "\"} 1\n", {}},
        Case{"timestamp", kHead + "a 1 1700000000000\n", {"line 3: timestamp: a"}},
        Case{"counter_name",
             "# HELP c C.\n# TYPE c counter\nc 1\n",
             {"line 2: counter's name does not end in _total: c"}},
        Case{"negative_counter",
             kCounter + "c_total -1\n",
             {"line 3: count is negative or not a number: c_total"}},
        Case{"nan_counter",
             kCounter + "c_total NaN\n",
             {"line 3: count is negative or not a number: c_total"}},
        Case{"no_infinity",
             kHistogram + "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
             {"line 3: no bucket le=\"+Inf\": h"}},
        Case{"infinity_is_not_count",
             kHistogram + "h_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 1\n",
             {"line 3: bucket le=\"+Inf\" is not _count: h"}},
        Case{"not_cumulative",
             kHistogram + "h_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
             {"line 4: buckets not cumulative: h_bucket"}},
        Case{"not_ascending",
             kHistogram +
                 "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
             {"line 4: buckets not ascending: h_bucket"}},
        Case{"bound_is_no_number",
             kHistogram + "h_bucket{le=\"one\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
             {"line 3: le is no number: one"}},
        Case{"bucket_without_le",
             kHistogram + "h_bucket 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
             {"line 3: bucket without le: h_bucket"}},
        Case{"no_sum", kHistogram + "h_bucket{le=\"+Inf\"} 1\nh_count 1\n", {"line 3: no _sum: h"}},
        Case{"no_count", kHistogram + "h_bucket{le=\"+Inf\"} 1\nh_sum 1\n", {"line 3: no _count: h"}},
        Case{"histogram_without_suffix",
             kHistogram + "h 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
             {"line 3: histogram or summary without suffix: h"}},
        Case{"summary_without_count", kSummary + "s_sum 1\n", {"line 3: no _count: s"}},
        Case{"too_long", kHead + std::string(kMaxTextBytes, '\n'), {"line 0: longer than the cap"}}),
    [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace kitty::http
