// What is judged of agents that say as much as they may, or more. A limit here is many times what it takes,
// and far below what looking at each rank for each rank took.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "cli/diagnose.h"
#include "cli/live_jobs.h"
#include "cli/read_scrape.h"
#include "collector/ledger.h"
#include "collector/process_state.h"
#include "verdict/judge.h"
#include "verdict/window.h"

namespace kitty::verdict {
namespace {

static_assert(kMaxProcesses >= collector::kMaxWatchedProcesses);
static_assert(kMaxPeers >= collector::kMaxPeers + 1);
static_assert(kMaxAddresses >= collector::kMaxLocalAddresses);

constexpr std::chrono::seconds kLimit{60};

template <class Work>
void expect_an_end(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit);
}

std::string number(size_t n) { return std::to_string(n); }

std::string text_of(size_t processes, size_t peers, size_t addresses) {
  std::string text = "kitty_build_info{version=\"1\"} 1\nkitty_rtt_hook_info{hook=\"none\"} 1\n";
  for (size_t i = 0; i < processes; ++i) {
    const std::string labels = "{pid=\"" + number(i) + "\",rank=\"" + number(i) + "\",job=\"j\"";
    for (size_t p = 0; p < peers; ++p)
      text += "kitty_peer_tx_queue_bytes" + labels + ",peer=\"" + number(p) + "\"} 1\n";
    text += "kitty_process_info" + labels + ",role=\"rank\"} 1\n";
    for (size_t a = 0; a < addresses; ++a)
      text += "kitty_process_address_info" + labels + ",address=\"" + number(a) + "\"} 1\n";
  }
  return text;
}

TEST(Bounds, MoreThanAnAgentKeepsIsNoScrapeOfOne) {
  struct {
    const char* name;
    size_t processes, peers, addresses;
    const char* says;  // null: a scrape
  } const cases[] = {
      {"processes at the bound", 1024, 1, 1, nullptr},
      {"a process more", 1025, 0, 0, "more than 1024 processes: not a scrape of kitty"},
      {"a process more, by its peers", 1025, 1, 0, "more than 1024 processes: not a scrape of kitty"},
      {"45,000 processes", 45'000, 0, 0, "more than 1024 processes: not a scrape of kitty"},
      {"peers at the bound", 2, 65, 0, nullptr},
      {"a peer more", 1, 66, 0, "more than 64 peers of a process"},
      {"50,000 peers", 1, 50'000, 0, "more than 64 peers of a process"},
      {"addresses at the bound", 2, 0, 64, nullptr},
      {"an address more", 1, 0, 65, "more than 64 addresses of a process: not a scrape of kitty"},
  };
  for (const auto& c : cases) {
    const auto scrape = cli::read_scrape(text_of(c.processes, c.peers, c.addresses));
    if (c.says == nullptr) {
      ASSERT_TRUE(scrape) << c.name << ": " << scrape.error().message();
      EXPECT_EQ(scrape->processes.size(), c.processes) << c.name;
      continue;
    }
    ASSERT_FALSE(scrape) << c.name;
    EXPECT_NE(scrape.error().message().find(c.says), std::string::npos)
        << c.name << ": " << scrape.error().message();
  }
  const auto longer = cli::read_scrape(std::string((size_t{4} << 20) + 1, '\n'));
  ASSERT_FALSE(longer);
  EXPECT_NE(longer.error().message().find("more than 4 MiB"), std::string::npos) << longer.error().message();
}

// What agents at their bounds would say; `job_of` and `peer_of` say of which job a rank is and whom it sends
// to.
template <class JobOf, class PeerOf>
std::vector<Scrape> scrapes_of(size_t agents, size_t times, size_t peers, JobOf&& job_of, PeerOf&& peer_of) {
  std::vector<Scrape> scrapes;
  for (size_t t = 0; t < times; ++t) {
    for (size_t n = 0; n < agents; ++n) {
      Scrape& scrape = scrapes.emplace_back();
      scrape.target = "n" + number(n);
      scrape.live = true;
      scrape.time_s = 1000 + static_cast<double>(t);
      scrape.fingerprint = scrapes.size();
      scrape.hook = "fentry/tcp_ack_update_rtt";
      for (size_t i = 0; i < kMaxProcesses; ++i) {
        const size_t rank = n * kMaxProcesses + i;
        ProcessScrape& process = scrape.processes.emplace_back();
        process.pid = number(i);
        process.rank = number(rank);
        process.job = job_of(rank, t);
        process.identified = true;
        process.role = "rank";
        process.netns = number(i);
        process.addresses = {number(rank)};
        for (size_t p = 0; p < peers; ++p) {
          PeerScrape& peer = process.peers.emplace_back();
          peer.address = number(peer_of(rank, p));
          const double total = 1000 * static_cast<double>(t);
          peer.data_segments = total;
          peer.rtt_count = total / 4;
          peer.rtt_sum_s = total / 4 * 0.001 * static_cast<double>(1 + rank % 7);
          peer.rtt_min_s = 0.0001;
          peer.busy_s = static_cast<double>(t) * static_cast<double>(rank % 10) / 10;
          peer.queue_bytes = 1000;
          peer.retransmits = 0;
        }
      }
    }
  }
  return scrapes;
}

// Each rank of 32 agents is a job of its own. Every rank was looked at for every job: a thousand million
// times.
TEST(Bounds, ManyJobsAreJudgedInTime) {
  constexpr size_t kAgents = 32;
  const auto job = [](size_t rank, size_t) { return "job " + number(rank); };
  const std::vector<Scrape> scrapes =
      scrapes_of(kAgents, 2, 1, job, [](size_t rank, size_t) { return rank + 1; });
  expect_an_end([&] {
    const cli::Report report = cli::report_on(scrapes, {}, {});
    EXPECT_EQ(report.jobs.size(), kAgents * kMaxProcesses);
    EXPECT_GT(cli::text_report(report).size(), kAgents * kMaxProcesses);
  });
  expect_an_end([&] {
    cli::LiveJobs jobs({});
    jobs.add(scrapes);
    jobs.judge(1001, true);
    EXPECT_EQ(jobs.jobs().size(), cli::kMaxJobs);
    EXPECT_EQ(jobs.left_out(), kAgents * kMaxProcesses - cli::kMaxJobs);
  });
}

// One job of as many ranks as one agent has room for, each in a namespace of its own and with as many peers.
TEST(Bounds, AJobOfManyUnitsIsJudgedInTime) {
  const auto peer = [](size_t rank, size_t p) { return (rank + p + 1) % kMaxProcesses; };
  const std::vector<Scrape> scrapes =
      scrapes_of(1, 3, 32, [](size_t, size_t) { return std::string("j"); }, peer);
  expect_an_end([&] {
    const auto verdicts = judge(make_window(group_by_node(scrapes)));
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_EQ(verdicts.front().units.size(), kMaxProcesses);
  });
  expect_an_end([&] {
    cli::LiveJobs jobs({});
    jobs.add(scrapes);
    for (const double end_s : {1002.0, 1003.0}) jobs.judge(end_s, true);
    EXPECT_EQ(jobs.jobs().size(), 1U);
  });
}

// An agent all of whose ranks are new in each scrape.
TEST(Bounds, RanksThatComeAndGoAreJudgedInTime) {
  const auto job = [](size_t, size_t t) { return "job " + number(t); };
  const std::vector<Scrape> scrapes = scrapes_of(1, 50, 0, job, [](size_t rank, size_t) { return rank; });
  expect_an_end([&] {
    const Window window = make_window(group_by_node(scrapes));
    EXPECT_TRUE(window.ranks.empty());
    EXPECT_EQ(window.partial.size(), 50 * kMaxProcesses);
  });
}

}  // namespace
}  // namespace kitty::verdict
