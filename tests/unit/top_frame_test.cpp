#include "cli/top_frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/live_jobs.h"
#include "tests/unit/verdict_scenario.h"

namespace kitty::cli {
namespace {

using verdict::Part;
using verdict::Scenario;
using verdict::Sent;

// The lines of a frame as a terminal shows them; escapes are checked and taken out.
std::vector<std::string> lines_of(const std::string& frame) {
  EXPECT_TRUE(frame.starts_with("\x1b[H")) << frame;
  std::vector<std::string> lines(1);
  for (size_t i = 0; i < frame.size(); ++i) {
    if (frame[i] == '\r') continue;
    if (frame[i] == '\n') {
      lines.emplace_back();
    } else if (frame[i] == '\x1b') {
      const size_t end = frame.find_first_of("HJKm", i);
      EXPECT_EQ(frame[i + 1], '[');
      if (end == std::string::npos) break;
      i = end;
    } else {
      EXPECT_FALSE(static_cast<unsigned char>(frame[i]) < 0x20 || frame[i] == 0x7f) << frame;
      lines.back() += frame[i];
    }
  }
  return lines;
}

size_t columns_of(const std::string& line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return columns;
}

size_t line_with(const std::vector<std::string>& lines, const std::string& text) {
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find(text) != std::string::npos) return i;
  }
  return lines.size();
}

LiveUnit unit(const std::string& ranks, double rtt_s, double times_median = 1, Part part = Part::none) {
  LiveUnit one;
  one.figures.ranks = ranks;
  one.figures.node = "n" + ranks;
  one.figures.best_rtt_s = rtt_s;
  one.figures.min_rtt_s = rtt_s / 2;
  one.figures.times_median = times_median;
  one.figures.active_links = 2;
  one.figures.part = part;
  one.mark = part == Part::culprit ? "culprit" : part == Part::victim ? "victim of 2" : "";
  one.rtts_s.fill(rtt_s);
  return one;
}

// `ranks` of which 2 is slow and 3 its victim.
LiveJob slow_job(size_t ranks, const std::string& name = "gpt2-ddp") {
  LiveJob job;
  for (size_t i = 0; i < ranks; ++i) {
    const Part part = i == 2 ? Part::culprit : i == 3 ? Part::victim : Part::none;
    job.units.push_back(unit(std::to_string(i), i == 2 ? 0.054 : 0.0003, i == 2 ? 180 : 1, part));
    job.report.verdict.units.push_back(job.units.back().figures);
  }
  verdict::JobVerdict& verdict = job.report.verdict;
  verdict.job = name;
  verdict.ranks = ranks;
  verdict.kind = verdict::Kind::latency;
  verdict.culprits = {2};
  verdict.why =
      "all 2 active links of rank 2 are slow (54 ms or more; least 52 ms); the median rank's best link 0.30 "
      "ms";
  job.report.since_s = 1000;
  job.blind_spots = {"node n1: 1 processes could not be read"};
  return job;
}

LiveJob healthy_job(const std::string& name) {
  LiveJob job;
  job.units = {unit("0", 0.0003), unit("1", 0.0004), unit("2", 0.0003)};
  job.report.verdict.job = name;
  job.report.verdict.ranks = 3;
  job.report.verdict.kind = verdict::Kind::healthy;
  job.report.verdict.why = "no rank differs";
  return job;
}

TopState state_of(const std::vector<LiveJob>& jobs) {
  TopState state{.time_s = 1060, .targets = 4, .problems = {}, .jobs = {}, .jobs_left_out = 0};
  for (const LiveJob& job : jobs) state.jobs.push_back(&job);
  return state;
}

TEST(TopFrame, OneSlowRankOn80By24) {
  const std::vector<LiveJob> jobs = {slow_job(4)};
  const std::vector<std::string> lines =
      lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 24, .utf8 = true, .colour = true}));
  EXPECT_EQ(lines[0], "00:17:40Z  4 of 4 targets answer, 1 job" + std::string(34, ' ') + "q quits");
  EXPECT_EQ(lines[1], "");
  EXPECT_EQ(lines[2], "job gpt2-ddp  4 ranks  VERDICT: LATENCY at rank 2 (node n2)  since 00:16:40Z");
  EXPECT_EQ(lines[3], "why: all 2 active links of rank 2 are slow (54 ms or more; least 52 ms); the");
  EXPECT_EQ(lines[4], "  median rank's best link 0.30 ms");
  EXPECT_EQ(lines[5], "RANK  NODE     RTT   xMED   LEAST RETR% TXQ BUSY LINKS TREND");
  EXPECT_EQ(lines[6],
            "   2* n2   54.00ms 180.0x 27.00ms  0.00  0K   0%   0/2 "
            "\u2587\u2587\u2587\u2587\u2587\u2587\u2587\u2587\u2587"
            "\u2587\u2587\u2587\u2587 culprit");
  EXPECT_EQ(lines[7].substr(0, 12), "   3v n3    ");
  EXPECT_TRUE(lines[7].ends_with("\u2582 victim of 2")) << lines[7];
  EXPECT_EQ(lines[8].substr(0, 12), "   0  n0    ");
  EXPECT_EQ(lines[9].substr(0, 12), "   1  n1    ");
  EXPECT_EQ(lines[10], "not seen: node n1: 1 processes could not be read");
}

TEST(TopFrame, AsciiAndNoColourWhereNotAskedFor) {
  const std::vector<LiveJob> jobs = {slow_job(4, "caf\xc3\xa9")};
  const std::string frame =
      top_frame(state_of(jobs), {.columns = 80, .rows = 24, .utf8 = false, .colour = false});
  for (const char c : frame) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
  EXPECT_EQ(frame.find("\x1b[1;31m"), std::string::npos);
  EXPECT_NE(frame.find("#####"), std::string::npos) << frame;
  EXPECT_NE(frame.find(":::::"), std::string::npos) << frame;
  EXPECT_NE(frame.find("job caf?  4 ranks"), std::string::npos) << frame;
  const std::string wide =
      top_frame(state_of(jobs), {.columns = 80, .rows = 24, .utf8 = true, .colour = true});
  EXPECT_NE(wide.find("job caf\xc3\xa9  4 ranks"), std::string::npos) << wide;
  EXPECT_NE(wide.find("\x1b[1;31m"), std::string::npos);
}

// Whatever is shown, nothing is wider or longer than the screen, and where there is room the verdict is
// there.
TEST(TopFrame, FitsEverySize) {
  const size_t sizes[][2] = {{1, 1},   {2, 2},  {5, 3},   {10, 4},   {20, 5},
                             {40, 10}, {79, 7}, {80, 24}, {200, 60}, {500, 3}};
  std::vector<std::vector<LiveJob>> cases = {{},
                                             {healthy_job("a")},
                                             {slow_job(4)},
                                             {slow_job(1000)},
                                             {slow_job(4), healthy_job("b"), healthy_job("c")}};
  cases.emplace_back();
  for (int i = 0; i < 100; ++i)
    cases.back().push_back(slow_job(9, std::string(300, 'j') + std::to_string(i)));
  cases.push_back({slow_job(5,
                            "\x1b[2J\n\t\x7f\xff\xc2\x9b"
                            "31m\xe2\x80\xae\xf0\x9f\x98\xbb")});
  cases.back()[0].units[2].figures.node = std::string(400, '\xc3') + "\x1b]0;x\x07";
  cases.back()[0].units[3].mark = "victim of \x1b[31m";
  cases.back()[0].blind_spots.assign(50, std::string("\x1b[H") + std::string(500, 'x'));
  cases.back()[0].now = "\r\n\x1b[K";
  cases.back()[0].report.verdict.why = std::string(2000, '\x1b');
  for (const auto& size : sizes) {
    for (const std::vector<LiveJob>& jobs : cases) {
      for (const bool utf8 : {false, true}) {
        TopState state = state_of(jobs);
        state.targets = 40;
        for (int i = 0; i < 20; ++i)
          state.problems.push_back({"n\x1b[31m" + std::to_string(i), std::string(300, 'p')});
        const std::string frame =
            top_frame(state, {.columns = size[0], .rows = size[1], .utf8 = utf8, .colour = true});
        const std::vector<std::string> lines = lines_of(frame);
        // A newline behind the last line only erases what is below it.
        const size_t count = lines.back().empty() ? lines.size() - 1 : lines.size();
        EXPECT_LE(count, size[1]) << size[0] << 'x' << size[1] << '\n' << frame;
        EXPECT_LE(lines.size(), std::max<size_t>(size[1], 2));
        for (const std::string& line : lines)
          EXPECT_LE(columns_of(line), size[0]) << size[0] << 'x' << size[1] << ": " << line;
        const bool has_room = size[0] >= 40 && size[1] >= 5;
        if (has_room && !jobs.empty() && jobs[0].report.verdict.is_straggler()) {
          EXPECT_LT(line_with(lines, "LATENCY at rank 2"), lines.size()) << frame;
        }
      }
    }
  }
}

TEST(TopFrame, TheMostSuspiciousAreShownAndTheRestCounted) {
  std::vector<LiveJob> jobs = {slow_job(64)};
  jobs[0].units[40].figures.retransmit_share = 0.02;
  jobs[0].units[50].rtts_s.fill(0.02);
  std::vector<std::string> lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 16}));
  const size_t header = line_with(lines, "RANK");
  ASSERT_LT(header, lines.size());
  EXPECT_EQ(lines[header + 1].substr(0, 5), "   2*");
  EXPECT_EQ(lines[header + 2].substr(0, 5), "   3v");
  EXPECT_EQ(lines[header + 3].substr(0, 5), "  40 ");  // 20 times what is notable
  EXPECT_EQ(lines[header + 4].substr(0, 5), "  50 ");  // 20 times, too: by rank
  EXPECT_EQ(lines[header + 5].substr(0, 5), "   0 ");
  EXPECT_LT(line_with(lines, "more ranks, none suspicious"), lines.size());

  lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 9}));
  EXPECT_LT(line_with(lines, "more ranks, "), lines.size());
  EXPECT_EQ(line_with(lines, "none suspicious"), lines.size());

  jobs[0].units[7].figures.ranks = "56-63";
  lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 16}));
  EXPECT_LT(line_with(lines, "more rows, none suspicious"), lines.size());
}

TEST(TopFrame, NoiseMovesNoRow) {
  std::vector<LiveJob> jobs = {healthy_job("a")};
  const auto order = [&jobs] {
    const std::vector<std::string> lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 24}));
    const size_t header = line_with(lines, "RANK");
    return lines[header + 1].substr(0, 5) + lines[header + 2].substr(0, 5) + lines[header + 3].substr(0, 5);
  };
  EXPECT_EQ(order(), "   0    1    2 ");
  jobs[0].units[2].rtts_s.back() = 0.0009;  // three times the others'
  EXPECT_EQ(order(), "   0    1    2 ");
  jobs[0].units[2].rtts_s.fill(0.009);
  EXPECT_EQ(order(), "   2    0    1 ");
}

TEST(TopFrame, TheWorstJobHasMostRoomAndAllAreSaid) {
  const std::vector<LiveJob> jobs = {slow_job(16, "bad"), healthy_job("fine"), healthy_job("good")};
  std::vector<std::string> lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 40}));
  EXPECT_LT(line_with(lines, "job bad "), line_with(lines, "job fine "));
  EXPECT_LT(line_with(lines, "job good "), lines.size());
  lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 8}));
  for (const char* job : {"job bad ", "job fine ", "job good "})
    EXPECT_LT(line_with(lines, job), lines.size());
  lines = lines_of(top_frame(state_of(jobs), {.columns = 80, .rows = 4}));
  EXPECT_LT(line_with(lines, "job bad "), lines.size());
  EXPECT_LT(line_with(lines, "2 more jobs, the worst: HEALTHY"), lines.size());
}

TEST(TopFrame, NarrowScreensKeepWhatMattersMost) {
  const std::vector<LiveJob> jobs = {slow_job(4)};
  const std::vector<std::string> lines = lines_of(top_frame(state_of(jobs), {.columns = 40, .rows = 10}));
  const std::string& header = lines[line_with(lines, "RANK")];
  for (const char* kept : {"NODE", "RTT", "RETR%"}) EXPECT_NE(header.find(kept), std::string::npos) << header;
  for (const char* gone : {"LEAST", "TXQ"}) EXPECT_EQ(header.find(gone), std::string::npos) << header;
}

TEST(TopFrame, TargetsThatDoNotAnswer) {
  TopState state = state_of({});
  state.problems = {{"n3:9100", "connect 'n3:9100': Connection refused"}};
  std::vector<std::string> lines = lines_of(top_frame(state, {.columns = 80, .rows = 24}));
  EXPECT_TRUE(lines[0].starts_with("00:17:40Z  3 of 4 targets answer, 0 jobs")) << lines[0];
  EXPECT_LT(line_with(lines, "no watched rank seen"), lines.size());
  EXPECT_LT(line_with(lines, "not judged: n3:9100: connect 'n3:9100': Connection refused"), lines.size());
  state.problems.assign(9, {"n3:9100", "gone"});
  lines = lines_of(top_frame(state, {.columns = 80, .rows = 10}));
  EXPECT_LT(line_with(lines, "not judged: 8 more targets"), lines.size());
}

TEST(TopFrame, PlainLines) {
  LiveJob job = slow_job(4);
  EXPECT_EQ(plain_line(job, false), "job gpt2-ddp 4 ranks LATENCY at rank 2 (node n2)");
  EXPECT_EQ(plain_line(job, true).substr(0, 80),
            "job gpt2-ddp 4 ranks LATENCY at rank 2 (node n2): all 2 active links of rank 2 a");
  job.settled = false;
  EXPECT_EQ(plain_line(job, false), "job gpt2-ddp 4 ranks WATCHING");
  job.report.verdict.job = "a\n\x1b[2J" + std::string(5000, '\xc3');
  const std::string line = plain_line(job, true);
  EXPECT_LE(line.size(), kMaxPlainBytes);
  EXPECT_TRUE(line.starts_with("job a??[2J")) << line;
}

void slow(Sent& flow) {
  flow.rtt_ms = 54;
  flow.min_rtt_ms = 52;
}

// The scrapes of `scenario` that lie between two times after its begin, as targets would give them.
std::vector<verdict::Scrape> part_of(const Scenario& scenario, double from_s, double to_s) {
  std::vector<verdict::Scrape> part;
  for (verdict::Scrape& one : scenario.scrapes()) {
    if (one.time_s - 1000 > from_s - 0.5 && one.time_s - 1000 <= to_s + 0.5) part.push_back(std::move(one));
  }
  return part;
}

// Feeds a second at a time, as top does.
void watch(LiveJobs& jobs, const Scenario& scenario, int from_s, int to_s, const std::string& without = {}) {
  for (int t = from_s; t <= to_s; ++t) {
    std::vector<verdict::Scrape> second = part_of(scenario, t, t);
    std::erase_if(second, [&](const verdict::Scrape& one) { return one.target == without; });
    jobs.add(std::move(second));
    jobs.judge(1000 + t, without.empty());
  }
}

TEST(LiveJobs, NamedAfterTwoWindowsClearedAfterTwo) {
  Scenario bad = Scenario::ring(4);
  bad.window_s = 60;
  Scenario good = bad;
  bad.both_ways(2, slow);
  LiveJobs jobs{VerdictFlags{}};
  watch(jobs, bad, 0, 3);
  ASSERT_EQ(jobs.jobs().size(), 1u);
  EXPECT_FALSE(jobs.jobs()[0]->settled);
  EXPECT_NE(jobs.jobs()[0]->report.verdict.why.find("so far: rank 2 (node n2)"), std::string::npos);
  watch(jobs, bad, 4, 4);
  const LiveJob* job = jobs.jobs()[0];
  EXPECT_TRUE(job->settled);
  EXPECT_EQ(headline(job->report.verdict), "LATENCY at rank 2 (node n2)");
  EXPECT_NEAR(job->report.since_s.value_or(0), 1000, 0.01);
  EXPECT_EQ(job->units[2].mark, "culprit");
  EXPECT_EQ(job->units[1].mark, "victim of 2");
  EXPECT_EQ(job->now, "");

  // The same counters seen healthy: two windows of them alone clear it.
  LiveJobs same = jobs;
  for (int t = 5; t <= 12; ++t) {
    same.add(part_of(good, t, t));
    same.judge(1000 + t, true);
  }
  EXPECT_EQ(headline(same.jobs()[0]->report.verdict), "HEALTHY");
}

TEST(LiveJobs, ANamedRankThatIsGoneStaysNamedForAMinute) {
  Scenario bad = Scenario::ring(4);
  bad.window_s = 90;
  bad.both_ways(2, slow);
  LiveJobs jobs{VerdictFlags{}};
  watch(jobs, bad, 0, 6);
  watch(jobs, bad, 7, 40, "n2");
  const LiveJob* job = jobs.jobs()[0];
  EXPECT_EQ(headline(job->report.verdict), "LATENCY at rank 2 (node n2)");
  EXPECT_EQ(job->units.back().mark, "culprit, gone");
  EXPECT_NE(job->now, "");
  watch(jobs, bad, 41, 90, "n2");
  EXPECT_EQ(headline(jobs.jobs()[0]->report.verdict), "HEALTHY, as far as seen");
}

TEST(LiveJobs, AJobThatIsGoneIsForgottenAndScrapesAreBounded) {
  Scenario scenario = Scenario::ring(4);
  scenario.window_s = 20;
  LiveJobs jobs{VerdictFlags{}};
  watch(jobs, scenario, 0, 20);
  EXPECT_LE(jobs.scrapes(), 4u * 5u);
  for (int t = 21; t <= 50; ++t) jobs.judge(1000 + t, false);
  EXPECT_EQ(jobs.scrapes(), 0u);
  ASSERT_EQ(jobs.jobs().size(), 1u);
  EXPECT_EQ(jobs.jobs()[0]->now, "not seen for 27 s");
  for (int t = 51; t <= 90; ++t) jobs.judge(1000 + t, false);
  EXPECT_TRUE(jobs.jobs().empty());
}

TEST(LiveJobs, TheWorstFirstAndNoMoreThanKept) {
  LiveJobs jobs{VerdictFlags{}};
  std::vector<Scenario> scenarios;
  for (size_t i = 0; i < kMaxJobs + 4; ++i) {
    Scenario& scenario = scenarios.emplace_back(Scenario::ring(3));
    scenario.window_s = 6;
    scenario.job = "job-" + std::to_string(1000 + i);
    for (verdict::ScenarioRank& rank : scenario.ranks) rank.node += "-" + std::to_string(i);
    if (i == 100) scenario.both_ways(1, slow);
  }
  for (int t = 0; t <= 6; ++t) {
    for (const Scenario& scenario : scenarios) jobs.add(part_of(scenario, t, t));
    jobs.judge(1000 + t, true);
  }
  const std::vector<const LiveJob*> list = jobs.jobs();
  ASSERT_EQ(list.size(), kMaxJobs);
  EXPECT_EQ(jobs.left_out(), 4u);
  EXPECT_EQ(list[0]->report.verdict.job, "job-1100");
  EXPECT_EQ(list[1]->report.verdict.job, "job-1000");

  VerdictFlags one_only;
  one_only.job = "job-1003";
  LiveJobs filtered{one_only};
  for (const Scenario& scenario : scenarios) filtered.add(scenario.scrapes());
  filtered.judge(1006, true);
  ASSERT_EQ(filtered.jobs().size(), 1u);
  EXPECT_EQ(filtered.jobs()[0]->report.verdict.job, "job-1003");
}

// Two names of one agent: the unit has one name, whichever target answers first.
TEST(LiveJobs, TwoNamesOfOneAgent) {
  Scenario bad = Scenario::ring(4);
  bad.window_s = 12;
  bad.both_ways(2, slow);
  LiveJobs jobs{VerdictFlags{}};
  for (int t = 0; t <= 8; ++t) {
    std::vector<verdict::Scrape> second = part_of(bad, t, t);
    const size_t count = second.size();
    for (size_t i = 0; i < count; ++i) {
      if (second[i].target != "n2") continue;
      second.push_back(second[i]);
      second.back().target = "n2-alias";
      second.back().time_s += t % 2 == 0 ? 0.01 : -0.01;
    }
    jobs.add(std::move(second));
    jobs.judge(1000 + t, true);
  }
  EXPECT_EQ(headline(jobs.jobs()[0]->report.verdict), "LATENCY at rank 2 (node n2)");
}

}  // namespace
}  // namespace kitty::cli
