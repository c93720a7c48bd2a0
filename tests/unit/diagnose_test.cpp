#include "cli/diagnose.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/verdict_scenario.h"

namespace kitty::cli {
namespace {

using verdict::PeerScrape;
using verdict::ProcessScrape;
using verdict::Scenario;
using verdict::Scrape;
using verdict::Sent;

void slow(Sent& flow) {
  flow.rtt_ms = 54;
  flow.min_rtt_ms = 52;
}

// As the agent would have written it.
std::string exposition(const Scrape& scrape) {
  std::string text =
      "kitty_build_info{version=\"1\"} 1\nkitty_rtt_hook_info{hook=\"" + scrape.hook + "\"} 1\n";
  text += "kitty_watched_processes " + std::to_string(scrape.processes.size()) + '\n';
  for (const ProcessScrape& process : scrape.processes) {
    const std::string labels =
        "{pid=\"" + process.pid + "\",rank=\"" + process.rank + "\",job=\"" + process.job + '"';
    for (const PeerScrape& peer : process.peers) {
      const auto line = [&](const char* name, const std::optional<double>& value) {
        if (value) text += name + labels + ",peer=\"" + peer.address + "\"} " + std::to_string(*value) + '\n';
      };
      line("kitty_peer_rtt_seconds_sum", peer.rtt_sum_s);
      line("kitty_peer_rtt_seconds_count", peer.rtt_count);
      line("kitty_peer_rtt_min_seconds", peer.rtt_min_s);
      line("kitty_peer_retransmits_total", peer.retransmits);
      line("kitty_peer_data_segments_sent_total", peer.data_segments);
      line("kitty_peer_busy_seconds_total", peer.busy_s);
      line("kitty_peer_tx_queue_bytes", peer.queue_bytes);
    }
    text += "kitty_process_info" + labels + ",world_size=\"" + process.world_size + "\",netns=\"" +
            process.netns + "\",role=\"" + process.role + "\",start_time_ticks=\"" + process.start_time +
            "\"} 1\n";
    for (const std::string& address : process.addresses) {
      text += "kitty_process_address_info" + labels + ",address=\"" + address + "\"} 1\n";
    }
  }
  return text;
}

// A folder of saved scrapes that goes with the test.
class DiagnoseFiles : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/kitty-diagnose-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string save(const std::string& name, const std::string& text, double modified_s) {
    std::string path = folder_ + '/' + name;
    std::ofstream(path, std::ios::binary) << text;
    const timespec time{.tv_sec = static_cast<time_t>(modified_s), .tv_nsec = 0};
    const timespec times[2] = {time, time};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }

  // Two scrapes of each node, 10 s apart.
  std::vector<std::string> save(Scenario scenario) {
    scenario.window_s = scenario.interval_s = 10;
    std::vector<std::string> paths;
    for (const Scrape& scrape : scenario.scrapes()) {
      const int number = scrape.time_s > 1005 ? 2 : 1;
      paths.push_back(
          save(scrape.target + '-' + std::to_string(number) + ".txt", exposition(scrape), scrape.time_s));
    }
    return paths;
  }

  // Exit status; standard output is in output_.
  int run(const std::vector<std::string>& arguments) {
    std::vector<std::string_view> views(arguments.begin(), arguments.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = diagnose(views);
    output_ = testing::internal::GetCapturedStdout();
    errors_ = testing::internal::GetCapturedStderr();
    return status;
  }

  std::string folder_, output_, errors_;
};

#define EXPECT_OUTPUT(text) EXPECT_NE(output_.find(text), std::string::npos) << output_

TEST_F(DiagnoseFiles, NamesTheCulprit) {
  Scenario scenario = Scenario::ring(4);
  scenario.both_ways(2, slow);
  EXPECT_EQ(run(save(scenario)), 1) << output_;
  EXPECT_OUTPUT("job gpt2-ddp  4 ranks  VERDICT: LATENCY at rank 2 (node n2)\n");
  EXPECT_OUTPUT(
      "why: all 2 active links of rank 2 are slow (54 ms or more; least 52 ms); the median rank's best link "
      "0.30 ms\n");
  EXPECT_OUTPUT("  2*  n2    54.00ms  180.0x  52.00ms  0.00   0K   4%    2/2         culprit\n");
  EXPECT_OUTPUT("victim of 2");
}

TEST_F(DiagnoseFiles, HealthyAndWithThresholdsAndJobs) {
  Scenario scenario = Scenario::ring(4);
  std::vector<std::string> arguments = save(scenario);
  EXPECT_EQ(run(arguments), 0) << output_;
  EXPECT_OUTPUT("VERDICT: HEALTHY\n");
  arguments.emplace_back("--job=gpt2-ddp");
  EXPECT_EQ(run(arguments), 0) << output_;
  arguments.back() = "--job=other";
  EXPECT_EQ(run(arguments), 2) << output_;
  arguments.back() = "--uid=1001";
  EXPECT_EQ(run(arguments), 2) << output_;
  arguments.back() = "--uid=somebody";
  EXPECT_EQ(run(arguments), 3);
  arguments.back() = "--threshold=active_segments_per_s=1e9";
  EXPECT_EQ(run(arguments), 2) << output_;
  EXPECT_OUTPUT("NO DATA");
}

TEST_F(DiagnoseFiles, BadFilesAreSaidAndTheRestIsJudged) {
  Scenario scenario = Scenario::ring(4);
  scenario.both_ways(2, slow);
  std::vector<std::string> arguments = save(scenario);
  const std::string whole = exposition(scenario.scrapes()[0]);
  arguments.push_back(save("garbage", std::string("\0\xff{{{", 5), 1000));
  arguments.push_back(save("empty", "", 1000));
  arguments.push_back(save("cut", whole.substr(0, whole.size() - 20), 1000));
  arguments.push_back(save("foreign", "node_load1 1\n", 1000));
  arguments.push_back(save("big", std::string(5 << 20, '\n'), 1000));
  arguments.push_back(folder_);
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  arguments.push_back(fifo);
  EXPECT_EQ(run(arguments), 1) << output_;
  EXPECT_OUTPUT("LATENCY at rank 2");
  EXPECT_OUTPUT("/garbage: read exposition 'line 1'");
  EXPECT_OUTPUT("/empty: read scrape: it is empty");
  EXPECT_OUTPUT("/cut: read exposition 'line");
  EXPECT_OUTPUT("/foreign: read scrape: no kitty_build_info in it: not a scrape of kitty");
  EXPECT_OUTPUT("/big: read file: more than 4 MiB");
  EXPECT_OUTPUT(folder_ + ": read file: not a regular file");
  EXPECT_OUTPUT("/fifo: read file: not a regular file");
}

TEST_F(DiagnoseFiles, ABadFileOfAHealthyJobIsNotHealthy) {
  std::vector<std::string> arguments = save(Scenario::ring(4));
  arguments.push_back(save("n4-1.txt", "half a li", 1000));
  EXPECT_EQ(run(arguments), 2) << output_;
  EXPECT_OUTPUT("VERDICT: HEALTHY");
  EXPECT_OUTPUT("not judged: ");
}

TEST_F(DiagnoseFiles, OneScrapeOfANodeIsNoWindow) {
  Scenario scenario = Scenario::ring(4);
  std::vector<std::string> arguments = save(scenario);
  arguments.erase(arguments.begin());
  EXPECT_EQ(run(arguments), 2) << output_;
  EXPECT_OUTPUT("HEALTHY, as far as seen");
  EXPECT_OUTPUT("not seen: node n0-2: one scrape only");
  EXPECT_EQ(run({arguments[0]}), 2);
  EXPECT_OUTPUT("VERDICT: NO DATA");
}

TEST_F(DiagnoseFiles, ClocksOfNodesMayDiffer) {
  Scenario scenario = Scenario::ring(4);
  scenario.both_ways(2, slow);
  scenario.window_s = scenario.interval_s = 10;
  std::vector<std::string> arguments;
  for (const Scrape& scrape : scenario.scrapes()) {
    const bool later = scrape.time_s > 1005;
    const double skew_s = scrape.target == "n1" ? 86400 : 0;
    arguments.push_back(
        save(scrape.target + (later ? "-2" : "-1"), exposition(scrape), scrape.time_s + skew_s));
  }
  EXPECT_EQ(run(arguments), 1) << output_;
  EXPECT_OUTPUT("LATENCY at rank 2 (node n2)");
  EXPECT_OUTPUT("s apart: stale, or clocks differ");
}

TEST_F(DiagnoseFiles, JsonForScripts) {
  Scenario scenario = Scenario::ring(4);
  scenario.job = "a\\\"b\\n\x1b[2J\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\x81";
  scenario.both_ways(2, slow);
  std::vector<std::string> arguments = save(scenario);
  arguments.emplace_back("--json");
  EXPECT_EQ(run(arguments), 1);
  EXPECT_OUTPUT(
      "{\"outcome\":1,\"window_seconds\":10.000,\"jobs\":[{\"job\":\"a\\\"b\\u000a\\u001b["
      "2J\\u009b\\u202e\\udb40\\udc41\",\"uid\":\"\",\"ranks\":4,"
      "\"verdict\":\"latency\",\"cause\":\"\",\"culprits\":[\"2\"],\"links\":[],\"named\":\"rank 2 (node "
      "n2)\"");
  EXPECT_OUTPUT("\"complete\":true");
  EXPECT_OUTPUT("],\"not_judged\":[]}\n");
  arguments.pop_back();
  EXPECT_EQ(run(arguments), 1);
  EXPECT_OUTPUT("job a\"b??[2J???  4 ranks");
}

TEST_F(DiagnoseFiles, WrongUsage) {
  struct Case {
    std::vector<std::string> arguments;
    const char* says;
  };
  const Case cases[] = {
      {{"--nope"}, "'--nope': unknown; see kitty diagnose --help"},
      {{"--window"}, "'--window': it needs a value"},
      {{"--window=0"}, "seconds"},
      {{"--window=1e9"}, "seconds"},
      {{"--interval=0.1"}, "from 500 ms"},
      {{"--window=2", "--interval=3"}, "longer than the window"},
      {{"--threshold=rtt"}, "NAME=VALUE"},
      {{"--threshold=rtt_ratio=x"}, "a number from 0 on"},
      {{"--threshold=rtt_ratio=nan"}, "a number from 0 on"},
      {{"no-such-file"}, "no such file, and no port"},
      {{"./no/such/file"}, "no such file, and a path needs http://"},
      {{"host:0"}, "no number from 1 to 65535"},
      {{"https://host:1/"}, "no TLS"},
      {{"::1:9100"}, "needs brackets"},
      {{""}, "it is empty"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(run(c.arguments), 3) << c.says;
    EXPECT_NE(errors_.find(c.says), std::string::npos) << errors_;
  }
}

TEST_F(DiagnoseFiles, Help) {
  EXPECT_EQ(run({"--help"}), 0);
  for (const char* text :
       {"--window", "--interval", "--job", "--json", "--threshold", "rtt_ratio=3\n", "exit status"}) {
    EXPECT_OUTPUT(text);
  }
}

std::vector<Scrape> appended(std::vector<Scrape> first, const std::vector<Scrape>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A fault that begins within the watch is named with its time, and one odd window is not.
TEST(Report, SlidingWindowsOfLiveTargets) {
  const auto watched = [](double slow_from_s) {
    Scenario scenario = Scenario::ring(4);
    scenario.window_s = 10;
    std::vector<Scrape> scrapes = scenario.scrapes();
    for (Scrape& scrape : scrapes) {
      for (ProcessScrape& process : scrape.processes) {
        for (PeerScrape& peer : process.peers) {
          const double slow_s = std::max(0.0, scrape.time_s - 1000 - slow_from_s);
          if (process.rank != "2" && peer.address != "10.77.0.12") continue;
          *peer.rtt_sum_s += slow_s * 4000 / 3 * 0.05;
          if (slow_s > 0) peer.rtt_min_s = 0.05;
        }
      }
    }
    return report_on(scrapes, {}, {});
  };
  const Report named = watched(4);
  ASSERT_EQ(named.jobs.size(), 1u);
  EXPECT_EQ(outcome(named), Outcome::straggler);
  EXPECT_NEAR(named.jobs[0].since_s.value_or(0), 1004, 0.01);
  EXPECT_NE(text_report(named).find("rank 2 (node n2)  since 1970-01-01T00:16:44Z"), std::string::npos);

  const Report odd = watched(9.5);
  EXPECT_EQ(outcome(odd), Outcome::healthy) << text_report(odd);
}

TEST(Report, NothingAtAll) {
  const Report report = report_on({}, {{"n0:9100", "connect 'n0:9100': Connection refused"}}, {});
  EXPECT_EQ(outcome(report), Outcome::unknown);
  EXPECT_EQ(
      text_report(report),
      "VERDICT: NO DATA\nwhy: no watched rank seen: ranks are processes with KITTY_WATCH=1 and RANK in their "
      "environment\nnot judged: n0:9100: connect 'n0:9100': Connection refused\n");
}

TEST(Report, AStragglerOutweighsAJobThatCannotBeJudged) {
  Scenario bad = Scenario::ring(4);
  bad.both_ways(2, slow);
  Scenario small = Scenario::ring(2);
  small.job = "small";
  for (auto& rank : small.ranks) rank.node += "x";
  EXPECT_EQ(outcome(report_on(appended(bad.scrapes(), small.scrapes()), {}, {})), Outcome::straggler);
  EXPECT_EQ(outcome(report_on(appended(Scenario::ring(4).scrapes(), small.scrapes()), {}, {})),
            Outcome::unknown);
}

}  // namespace
}  // namespace kitty::cli
