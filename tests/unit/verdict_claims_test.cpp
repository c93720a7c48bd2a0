// Who may say he is a rank: another user's claims touch nobody's verdict, and what one user claims twice is
// not judged.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.h"
#include "tests/unit/verdict_scenario.h"
#include "verdict/judge.h"

namespace kitty::verdict {
namespace {

bool says(const JobVerdict& verdict, std::string_view text) {
  return std::ranges::any_of(verdict.blind_spots,
                             [text](const std::string& one) { return one.find(text) != std::string::npos; });
}

// One process on node n2, in a network namespace of its own, with the address of the real rank 2 on its lo,
// whose traffic to the addresses of ranks 1 and 3 is as slow as it likes.
Scenario forger(const std::string& rank, const std::string& uid) {
  Scenario scenario;
  scenario.uid = uid;
  scenario.ranks.push_back({rank, "n2", "99", "10.77.0.12"});
  for (const char* to : {"10.77.0.11", "10.77.0.13"}) {
    scenario.sent_elsewhere[{0, to}] = {
        .rtt_ms = 54, .min_rtt_ms = 2, .data_segments = 900, .busy_percent = 97, .queue_kb = 700};
  }
  return scenario;
}

std::vector<JobVerdict> judge_with(const Scenario& job, const Scenario& other) {
  std::vector<Scrape> scrapes = job.scrapes();
  for (const Scrape& more : other.scrapes()) {
    for (Scrape& scrape : scrapes) {
      if (scrape.target != more.target || scrape.time_s != more.time_s) continue;
      for (ProcessScrape one : more.processes) {
        one.pid = "9" + one.pid;
        scrape.processes.push_back(std::move(one));
      }
    }
  }
  return judge(make_window(group_by_node(scrapes)));
}

TEST(Claims, AForgedRankOfAnotherUserDoesNotChangeTheVerdict) {
  for (const bool one_node : {false, true}) {
    Scenario job = Scenario::ring(4);
    Scenario other = forger("2", "1001");
    if (one_node) job.on_one_node(), other.on_one_node();
    const std::vector<JobVerdict> verdicts = judge_with(job, other);
    ASSERT_EQ(verdicts.size(), 2U);
    EXPECT_EQ(verdicts[0].uid, "1000");
    EXPECT_EQ(verdicts[0].kind, Kind::healthy) << verdicts[0].why;
    EXPECT_FALSE(verdicts[0].incomplete);
    EXPECT_EQ(verdicts[0].ranks, 4U);
    EXPECT_EQ(verdicts[1].uid, "1001");
    EXPECT_FALSE(verdicts[1].is_straggler());
  }
}

TEST(Claims, TwoUsersJobsOfOneNameAreShownWithTheUser) {
  const std::vector<JobVerdict> verdicts = judge_with(Scenario::ring(4), forger("2", "1001"));
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(cli::job_title(verdicts[0]), "job gpt2-ddp (uid 1000)");
  EXPECT_EQ(cli::job_title(verdicts[1]), "job gpt2-ddp (uid 1001)");
  EXPECT_NE(verdicts[0].key(), verdicts[1].key());
  EXPECT_EQ(cli::job_title(Scenario::ring(4).judged()), "job gpt2-ddp");
}

TEST(Claims, ARankClaimedTwiceIsABlindSpotAndNeverNamed) {
  for (const bool one_node : {false, true}) {
    Scenario job = Scenario::ring(4);
    Scenario other = forger("2", "1000");
    if (one_node) job.on_one_node(), other.on_one_node();
    const std::vector<JobVerdict> verdicts = judge_with(job, other);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_FALSE(verdicts[0].is_straggler()) << verdicts[0].why;
    EXPECT_TRUE(verdicts[0].incomplete);
    EXPECT_TRUE(says(verdicts[0], "rank 2 is claimed by 2 processes: pid 102 on "))
        << verdicts[0].blind_spots[0];
    EXPECT_TRUE(says(verdicts[0], "pid 9100 on ")) << verdicts[0].blind_spots[0];
    EXPECT_TRUE(says(verdicts[0], "neither is judged"));
  }
}

TEST(Claims, WhatComesFromAnAddressClaimedTwiceIsNotJudged) {
  for (const bool one_node : {false, true}) {
    Scenario job = Scenario::ring(4);
    Scenario other = forger("7", "1000");
    if (one_node) job.on_one_node(), other.on_one_node();
    const std::vector<JobVerdict> verdicts = judge_with(job, other);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_FALSE(verdicts[0].is_straggler()) << verdicts[0].why;
    EXPECT_TRUE(verdicts[0].incomplete);
    EXPECT_TRUE(says(verdicts[0], "10.77.0.12 is of several ranks"));
    EXPECT_TRUE(says(verdicts[0], "ranks 2,7 have no address that is theirs alone"));
  }
}

TEST(Claims, AShellThatHasTheRankOfWhatItStartedClaimsNothing) {
  Scenario shell;
  shell.ranks.push_back({"2", "n2", "99", "127.0.0.1"});
  std::vector<Scrape> scrapes = Scenario::ring(4).scrapes();
  for (Scrape& scrape : scrapes) {
    if (scrape.target != "n2") continue;
    ProcessScrape one = scrape.processes.front();
    one.pid = "7";
    one.netns = "99";
    one.addresses.clear();
    one.peers.clear();
    scrape.processes.push_back(one);
  }
  const std::vector<JobVerdict> verdicts = judge(make_window(group_by_node(scrapes)));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].kind, Kind::healthy);
  EXPECT_FALSE(verdicts[0].incomplete);
}

TEST(Claims, AnAgentThatDoesNotSayWhoseARankIsBelongsToTheOnlyUser) {
  std::vector<Scrape> scrapes = Scenario::ring(4).scrapes();
  for (Scrape& scrape : scrapes) {
    if (scrape.target == "n3") scrape.processes.front().uid.clear();
  }
  const std::vector<JobVerdict> verdicts = judge(make_window(group_by_node(scrapes)));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].ranks, 4U);
  EXPECT_EQ(verdicts[0].kind, Kind::healthy);
  Scenario old = Scenario::ring(4);
  old.uid.clear();
  EXPECT_EQ(old.judged().kind, Kind::healthy);
}

TEST(Claims, WorkersAreNobody) {
  std::vector<Scrape> scrapes = Scenario::ring(4).scrapes();
  for (Scrape& scrape : scrapes) {
    ProcessScrape worker = scrape.processes.front();
    worker.pid = "8";
    worker.role = "worker";
    worker.rank = "9";
    scrape.processes.push_back(worker);
  }
  const std::vector<JobVerdict> verdicts = judge(make_window(group_by_node(scrapes)));
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].ranks, 4U);
}

TEST(LeftOut, IsSaidWithWhoseDoingItIs) {
  struct Case {
    const char* uid;
    bool incomplete;
  };
  for (const Case& one : {Case{"65533", false}, Case{"1000", true}, Case{"other", true}}) {
    std::vector<Scrape> scrapes = Scenario::ring(4).scrapes();
    for (Scrape& scrape : scrapes) {
      if (scrape.target == "n1") scrape.left_out = {{one.uid, "sockets", 608}, {one.uid, "series", 21}};
    }
    const std::vector<JobVerdict> verdicts = judge(make_window(group_by_node(scrapes)));
    ASSERT_EQ(verdicts.size(), 1U);
    const std::string whose =
        std::string_view(one.uid) == "other" ? "other users" : std::string("uid ") + one.uid;
    EXPECT_TRUE(
        says(verdicts[0], "node n1: no room for 608 sockets of " + whose + ", 21 series of " + whose));
    EXPECT_EQ(verdicts[0].incomplete, one.incomplete) << one.uid;
  }
}

}  // namespace
}  // namespace kitty::verdict
