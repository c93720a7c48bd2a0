#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "verdict/watch.h"

namespace kitty::verdict {
namespace {

// h: healthy, digits: latency at that rank, T: throttle at rank 2, j: job-wide, S: stalled at rank 2, l:
// stalled between 2 and 3, m: between 3 and 4, -: no data.
JobVerdict verdict_of(char letter) {
  JobVerdict verdict;
  verdict.units.resize(10);
  for (size_t i = 0; i < verdict.units.size(); ++i) verdict.units[i].ranks = std::to_string(i);
  if (letter == 'h') verdict.kind = Kind::healthy;
  if (letter == 'j') verdict.kind = Kind::job_wide;
  if (letter == 'T') verdict.kind = Kind::throttle;
  if (letter >= '0' && letter <= '9') verdict.kind = Kind::latency;
  if (letter == 'S' || letter == 'l' || letter == 'm') verdict.kind = Kind::stalled;
  if (letter == 'T' || letter == 'S') verdict.culprits = {2};
  if (letter == 'l') verdict.links = {{2, 3}};
  if (letter == 'm') verdict.links = {{3, 4}};
  if (letter >= '0' && letter <= '9') verdict.culprits = {static_cast<size_t>(letter - '0')};
  return verdict;
}

struct Case {
  std::string_view windows;
  char stands;     // '?': nothing
  double since_s;  // windows begin at 0, 1, 2...
};

TEST(Watch, TwoInARow) {
  const Case cases[] = {
      {"", '?', 0},       {"2", '?', 0},     {"22", '2', 0},      {"hh22", '2', 2},  {"hh2h", 'h', 0},
      {"2h2h", '?', 0},   {"22hh", 'h', 2},  {"22h2", '2', 0},    {"22h22", '2', 0}, {"2-2", '2', 0},
      {"--22--", '2', 2}, {"hh---", 'h', 0}, {"2233", '3', 2},    {"23", '?', 0},    {"2T", 'T', 0},
      {"jj", 'j', 0},     {"22hh3", 'h', 2}, {"22hh33h", '3', 4}, {"SSll", 'S', 0},  {"llSS", 'S', 2},
      {"SSmm", 'm', 2},   {"ll", 'l', 0},
  };
  for (const Case& c : cases) {
    Watch watch;
    for (size_t i = 0; i < c.windows.size(); ++i)
      watch.add(static_cast<double>(i), {verdict_of(c.windows[i])});
    const auto found = watch.jobs().find("");
    const bool stands = found != watch.jobs().end() && found->second.verdict;
    EXPECT_EQ(stands, c.stands != '?') << c.windows;
    if (!stands || c.stands == '?') continue;
    const JobVerdict wanted = verdict_of(c.stands);
    EXPECT_EQ(found->second.verdict->kind, wanted.kind) << c.windows;
    EXPECT_EQ(found->second.verdict->culprits, wanted.culprits) << c.windows;
    EXPECT_DOUBLE_EQ(found->second.since_s, c.since_s) << c.windows;
  }
}

TEST(Watch, WhatWasSeenIsKept) {
  Watch watch;
  double t = 0;
  for (const char letter : std::string_view("2h3")) watch.add(t++, {verdict_of(letter)});
  EXPECT_EQ(watch.jobs().at("").seen, "rank 2 (node ), then healthy, then rank 3 (node )");
  EXPECT_EQ(watch.jobs().at("").judged, 3u);
}

}  // namespace
}  // namespace kitty::verdict
