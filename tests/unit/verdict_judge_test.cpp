#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/verdict_scenario.h"
#include "verdict/judge.h"

namespace kitty::verdict {
namespace {

std::string named_ranks(const JobVerdict& verdict) {
  std::string text;
  for (const size_t unit : verdict.culprits) text += (text.empty() ? "" : " ") + verdict.units[unit].ranks;
  for (const auto& [a, b] : verdict.links) {
    text += (text.empty() ? "" : " ") + verdict.units[a].ranks + "-" + verdict.units[b].ranks;
  }
  return text;
}

bool says(const std::vector<std::string>& blind_spots, std::string_view text) {
  for (const std::string& one : blind_spots) {
    if (one.find(text) != std::string::npos) return true;
  }
  return false;
}

// Recorded runs of four ranks; culprit 2. Per rank: retransmit %, queue kB, busiest socket %, least RTT of
// its active peers in ms.
struct Recorded {
  const char* name;
  std::array<double, 4> segments, retransmit_percent, queue_kb, busy_percent, rtt_ms;
  double min_share;  // of a slow link's mean, what the ticks' minimum was
  Kind kind;
  const char* ranks;
};

void PrintTo(const Recorded& run, std::ostream* out) { *out << run.name; }

// A link of the culprit is as slow as its best; the rest as their ends' better one.
Scenario replay(const Recorded& run) {
  Scenario scenario = Scenario::ring(4);
  for (auto& [pair, flow] : scenario.sent) {
    const auto [from, to] = pair;
    const bool at_culprit = from == 2 || to == 2;
    flow.data_segments = run.segments[from] / 2;
    flow.retransmit_percent = run.retransmit_percent[from];
    flow.queue_kb = run.queue_kb[from] / 2;
    // The busiest socket is the one towards the culprit.
    flow.busy_percent =
        at_culprit ? run.busy_percent[from] : std::min(run.busy_percent[from], run.busy_percent[0]);
    flow.rtt_ms = at_culprit ? std::max(run.rtt_ms[from], run.rtt_ms[to]) : run.rtt_ms[from];
    flow.min_rtt_ms = flow.rtt_ms * (at_culprit ? run.min_share : 0.5);
  }
  return scenario;
}

class RecordedRuns : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedRuns, NameTheCulpritAndNobodyElse) {
  const Recorded& run = GetParam();
  const Scenario scenario = replay(run);
  for (const bool one_node : {false, true}) {
    Scenario placed = scenario;
    if (one_node) placed.on_one_node();
    const JobVerdict verdict = placed.judged();
    EXPECT_STREQ(kind_name(verdict.kind), kind_name(run.kind)) << verdict.why;
    EXPECT_EQ(named_ranks(verdict), run.ranks) << verdict.why;
  }
}

INSTANTIATE_TEST_SUITE_P(, RecordedRuns,
                         testing::Values(Recorded{"quiet",
                                                  {13400, 13400, 13400, 13400},
                                                  {0, .02, 0, .01},
                                                  {},
                                                  {2, 4, 3, 2},
                                                  {.1, .4, .2, .3},
                                                  .5,
                                                  Kind::healthy,
                                                  ""},
                                         Recorded{"tbf egress 20 Mbit",
                                                  {1529, 2198, 1512, 1472},
                                                  {},
                                                  {0, 0, 568, 95},
                                                  {3, 37, 94, 41},
                                                  {.57, .27, 50, 6.7},
                                                  .4,
                                                  Kind::throttle,
                                                  "2"},
                                         Recorded{"tbf ingress 20 Mbit",
                                                  {1660, 1646, 2386, 1636},
                                                  {},
                                                  {0, 0, 709, 694},
                                                  {2, 90, 95, 98},
                                                  {.41, .18, 239, .25},
                                                  .4,
                                                  Kind::throttle,
                                                  "2"},
                                         Recorded{"tbf egress 100 Mbit",
                                                  {6743, 9695, 6680, 6835},
                                                  {},
                                                  {0, 0, 397, 209},
                                                  {29, 29, 83, 43},
                                                  {.23, .20, 9.5, 3.3},
                                                  .4,
                                                  Kind::throttle,
                                                  "2"},
                                         Recorded{"20 Mbit under BBR",
                                                  {1633, 2410, 1628, 1710},
                                                  {},
                                                  {0, 0, 696, 13},
                                                  {3, 9, 98, 13},
                                                  {.14, .30, 10.4, 3.4},
                                                  .4,
                                                  Kind::throttle,
                                                  "2"},
                                         Recorded{"5 % loss",
                                                  {8059, 8297, 7590, 7455},
                                                  {.01, .01, 5.38, .01},
                                                  {38, 0, 95, 0},
                                                  {5, 6, 27, 3},
                                                  {.2, .3, .3, .2},
                                                  .5,
                                                  Kind::loss,
                                                  "2"},
                                         Recorded{"50 ms delay",
                                                  {5200, 5200, 5200, 5200},
                                                  {},
                                                  {0, 0, 395, 482},
                                                  {10, 63, 67, 70},
                                                  {1.1, .4, 53.9, .45},
                                                  .95,
                                                  Kind::latency,
                                                  "2"},
                                         Recorded{"compute straggler",
                                                  {5000, 5000, 5000, 5000},
                                                  {},
                                                  {},
                                                  {2, 4, 3, 2},
                                                  {.1, .4, .2, .3},
                                                  .5,
                                                  Kind::healthy,
                                                  ""},
                                         Recorded{"MPI, tbf 100 Mbit",
                                                  {6800, 6800, 6800, 6800},
                                                  {},
                                                  {109, 109, 505, 98},
                                                  {21, 44, 88, 19},
                                                  {2, 3, 4, 3},
                                                  .5,
                                                  Kind::throttle,
                                                  "2"}));

void stall_after_a_second(Scenario& scenario) {
  scenario.all([](Sent& f) {
    f.stalled = true;
    f.stalled_after_s = 1;
  });
}

struct Case {
  const char* name;
  std::function<void(Scenario&)> fault;
  Kind kind;
  const char* ranks;
  const char* why;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class FourRanks : public testing::TestWithParam<Case> {};

TEST_P(FourRanks, Verdict) {
  const Case& one = GetParam();
  Scenario scenario = Scenario::ring(4);
  one.fault(scenario);
  const JobVerdict verdict = scenario.judged();
  EXPECT_STREQ(kind_name(verdict.kind), kind_name(one.kind)) << verdict.why;
  EXPECT_EQ(named_ranks(verdict), one.ranks) << verdict.why;
  EXPECT_NE(verdict.why.find(one.why), std::string::npos) << verdict.why;
}

void slow(Sent& flow, double rtt_ms = 54) {
  flow.rtt_ms = rtt_ms;
  flow.min_rtt_ms = rtt_ms * .95;
}

INSTANTIATE_TEST_SUITE_P(
    , FourRanks,
    testing::Values(
        Case{"one slow link", [](Scenario& s) { s.link(1, 2, [](Sent& f) { slow(f); }); }, Kind::link, "1-2",
             "rank 1 and rank 2 are slow to each other"},
        Case{"two slow links without a rank in common",
             [](Scenario& s) {
               s.link(0, 1, [](Sent& f) { slow(f); });
               s.link(2, 3, [](Sent& f) { slow(f); });
             },
             Kind::link, "0-1 2-3", "and each has a healthy link to another"},
        Case{"three slow links without a rank in common",
             [](Scenario& s) {
               s = Scenario::ring(8);
               for (const size_t i : {size_t{0}, size_t{2}, size_t{5}})
                 s.link(i, i + 1, [](Sent& f) { slow(f); });
             },
             Kind::job_wide, "", "3 of 8 active links are slow"},
        Case{"two slow ranks that share no link",
             [](Scenario& s) {
               s = Scenario::ring(8);
               s.both_ways(1, [](Sent& f) { slow(f); });
               s.both_ways(5, [](Sent& f) { slow(f, 60); });
             },
             Kind::latency, "1 5", "all 2 active links of rank 1, rank 5"},
        Case{"everything slow", [](Scenario& s) { s.all([](Sent& f) { slow(f); }); }, Kind::job_wide, "",
             "every active link is slow"},
        Case{"everything slow, but single segments with delayed ACKs",
             [](Scenario& s) {
               s.all([](Sent& f) {
                 slow(f, 40);
                 f.data_segments = 40;
                 f.segments_per_sample = 1;
               });
             },
             Kind::healthy, "", "no rank differs"},
        Case{"below the floor", [](Scenario& s) { s.both_ways(2, [](Sent& f) { slow(f, 5.2); }); },
             Kind::healthy, "", ""},
        Case{"above the floor", [](Scenario& s) { s.both_ways(2, [](Sent& f) { slow(f, 5.4); }); },
             Kind::latency, "2", ""},
        Case{"far, but below the ratio",
             [](Scenario& s) {
               s.all([](Sent& f) { slow(f, 10); });
               s.both_ways(2, [](Sent& f) { slow(f, 29); });
             },
             Kind::healthy, "", ""},
        Case{"above the ratio",
             [](Scenario& s) {
               s.all([](Sent& f) { slow(f, 10); });
               s.both_ways(2, [](Sent& f) { slow(f, 31); });
             },
             Kind::latency, "2", ""},
        // Small replies make their sender see delayed ACKs and the other's thinking time; the data's sender
        // does not.
        Case{"only one end sees it slow", [](Scenario& s) { s.outward(2, [](Sent& f) { slow(f); }); },
             Kind::healthy, "", ""},
        Case{"a throttle whose tail drops",
             [](Scenario& s) {
               s.both_ways(2, [](Sent& f) {
                 f.rtt_ms = 50;
                 f.min_rtt_ms = 15;
               });
               s.outward(2, [](Sent& f) {
                 f.queue_kb = 300;
                 f.busy_percent = 94;
                 f.retransmit_percent = 2;
               });
             },
             Kind::throttle, "2", "busy 94 % of the time, 600 kB queued"},
        Case{"a victim's queue is the longest",
             [](Scenario& s) {
               s.both_ways(2, [](Sent& f) { slow(f); });
               s.outward(3, [](Sent& f) {
                 f.queue_kb = 900;
                 f.busy_percent = 99;
               });
             },
             Kind::latency, "2", "least 51.3 ms"},
        // Bursts of one size that meet the same queue each time: each minimum is as its mean, as on a longer path.
        Case{"flows that find different parts of one queue",
             [](Scenario& s) {
               s.link(2, 1, [](Sent& f) { slow(f, 35); });
               s.link(2, 3, [](Sent& f) { slow(f, 55); });
             },
             Kind::throttle, "2", "all 2 active links of rank 2 are slow"},
        Case{"a longer path to near and far peers",
             [](Scenario& s) {
               s.link(2, 1, [](Sent& f) { slow(f, 10.2); });
               s.link(2, 3, [](Sent& f) { slow(f, 11.1); });
             },
             Kind::latency, "2", ""},
        // The queue in front of the culprit: only its links' RTT shows it.
        Case{"an inbound throttle",
             [](Scenario& s) {
               s.both_ways(2, [](Sent& f) {
                 f.rtt_ms = 239;
                 f.min_rtt_ms = 60;
                 f.busy_percent = 75;
               });
             },
             Kind::throttle, "2", "least 60 ms"},
        // A victim that waits for its throttled neighbour delays its ACKs to the one behind it.
        Case{"a slow mean without a risen minimum or a busy sender",
             [](Scenario& s) {
               s.link(0, 1, [](Sent& f) {
                 f.rtt_ms = 11;
                 f.min_rtt_ms = 0.5;
                 f.busy_percent = 39;
               });
             },
             Kind::healthy, "", ""},
        Case{"all of a rank's means slow, without either",
             [](Scenario& s) {
               s.both_ways(1, [](Sent& f) {
                 f.rtt_ms = 11;
                 f.min_rtt_ms = 0.5;
                 f.busy_percent = 45;
               });
             },
             Kind::healthy, "", ""},
        Case{"a slow link with a busy sender whose other link is healthy",
             [](Scenario& s) {
               s.link(1, 2, [](Sent& f) {
                 f.rtt_ms = 50;
                 f.min_rtt_ms = 40;
               });
               s.sent[{2, 1}].busy_percent = 96;
               s.sent[{2, 1}].queue_kb = 620;
             },
             Kind::link, "1-2", "slow to each other"},
        Case{"a slow link with a busy sender",
             [](Scenario& s) {
               s.link(0, 1, [](Sent& f) {
                 f.rtt_ms = 50;
                 f.min_rtt_ms = 2;
                 f.busy_percent = 60;
               });
             },
             Kind::link, "0-1", ""},
        Case{"as busy, but no slower than delayed ACKs",
             [](Scenario& s) {
               s.link(0, 1, [](Sent& f) {
                 f.rtt_ms = 40;
                 f.min_rtt_ms = 2;
                 f.busy_percent = 60;
               });
             },
             Kind::healthy, "", ""},
        // Every message of the ring waits for its slowest round; only the replies show that the path is fast.
        Case{"ACKs all delayed, replies fast",
             [](Scenario& s) {
               for (size_t i = 0; i < 4; ++i) {
                 s.sent[{(i + 1) % 4, i}] = {.data_segments = 25, .segments_per_sample = 1};
               }
               s.sent[{0, 1}] = s.sent[{3, 0}] = {.rtt_ms = 25,
                                                  .min_rtt_ms = 23,
                                                  .data_segments = 1036,
                                                  .busy_percent = 62,
                                                  .segments_per_sample = 42};
               s.sent[{2, 3}].busy_percent = 61;
             },
             Kind::healthy, "", ""},
        Case{"replies of one segment look slow and busy",
             [](Scenario& s) {
               for (size_t i = 0; i < 4; ++i) {
                 s.sent[{(i + 1) % 4, i}] = {.rtt_ms = 7,
                                             .min_rtt_ms = 0.1,
                                             .data_segments = 56,
                                             .busy_percent = 43,
                                             .segments_per_sample = 1};
               }
               s.sent[{2, 1}].rtt_ms = 40;
               s.sent[{2, 1}].min_rtt_ms = 39;
               s.sent[{2, 1}].busy_percent = 95;
             },
             Kind::healthy, "", ""},
        Case{"long path, many bytes in flight",
             [](Scenario& s) {
               s.both_ways(2, [](Sent& f) { slow(f, 100); });
               s.outward(2, [](Sent& f) {
                 f.queue_kb = 800;
                 f.busy_percent = 95;
               });
             },
             Kind::latency, "2", ""},
        Case{"loss, one way", [](Scenario& s) { s.sent[{2, 3}].retransmit_percent = 5; }, Kind::link, "2-3",
             "what they exchange with others is not lost"},
        Case{"loss, the only way",
             [](Scenario& s) {
               s.sent[{2, 3}].retransmit_percent = 5;
               s.sent[{2, 1}].data_segments = 30;  // too few to show it
             },
             Kind::loss, "2", "rank 2, sending to rank 3: 5 % of the segments sent again"},
        Case{"loss, and the other way out lost a few",
             [](Scenario& s) {
               s.sent[{2, 3}].retransmit_percent = 5;
               s.sent[{2, 1}].data_segments = s.sent[{0, 3}].data_segments = 30;
               s.sent[{2, 1}].retransmit_percent = 4;
             },
             Kind::loss, "2", "its outbound path"},
        Case{"loss, and the other way in lost a few",
             [](Scenario& s) {
               s.sent[{1, 2}].retransmit_percent = 5;
               s.sent[{3, 2}].data_segments = s.sent[{1, 0}].data_segments = 30;
               s.sent[{3, 2}].retransmit_percent = 4;
             },
             Kind::loss, "2", "rank 2, receiving from rank 1"},
        Case{"loss, and nothing tells the ends apart",
             [](Scenario& s) {
               s.sent[{2, 3}].retransmit_percent = 5;
               s.sent[{2, 1}].data_segments = s.sent[{0, 3}].data_segments = 30;
             },
             Kind::loss, "2", "its outbound path, or the other's inbound one"},
        Case{"loss, everything one sends",
             [](Scenario& s) { s.outward(2, [](Sent& f) { f.retransmit_percent = 5; }); }, Kind::loss, "2",
             "all 2 lossy flows begin or end at rank 2"},
        Case{"loss, everything one gets",
             [](Scenario& s) { s.sent[{1, 2}].retransmit_percent = s.sent[{3, 2}].retransmit_percent = 5; },
             Kind::loss, "2", "all 2 lossy flows begin or end at rank 2"},
        Case{"loss both ways of a link",
             [](Scenario& s) { s.link(1, 2, [](Sent& f) { f.retransmit_percent = 3; }); }, Kind::link, "1-2",
             ""},
        Case{"loss everywhere", [](Scenario& s) { s.all([](Sent& f) { f.retransmit_percent = 3; }); },
             Kind::job_wide, "", "8 of 8 active flows lose segments"},
        Case{"loss of two that share nothing",
             [](Scenario& s) { s.sent[{0, 1}].retransmit_percent = s.sent[{2, 3}].retransmit_percent = 3; },
             Kind::job_wide, "", "no rank has a part in all"},
        Case{"as many retransmits as are usual",
             [](Scenario& s) { s.outward(2, [](Sent& f) { f.retransmit_percent = 0.4; }); }, Kind::healthy,
             "", ""},
        // Every flow of answers lost one segment of 160, which is chance.
        Case{"loss, and single segments of small flows",
             [](Scenario& s) {
               for (size_t i = 0; i < 4; ++i) {
                 s.sent[{i, (i + 3) % 4}].data_segments = 54;
                 s.sent[{i, (i + 3) % 4}].retransmit_percent = 0.6;
               }
               s.sent[{2, 3}].retransmit_percent = 5;
             },
             Kind::loss, "2", "the median flow 0 %"},
        Case{"two lost segments of few",
             [](Scenario& s) {
               s.outward(2, [](Sent& f) {
                 f.data_segments = 20;
                 f.retransmit_percent = 4;
               });
             },
             Kind::healthy, "", ""},
        Case{"busy alone, with its peers in turn",
             [](Scenario& s) {
               s.outward(2, [](Sent& f) {
                 f.busy_percent = 44;
                 f.queue_kb = 200;
               });
             },
             Kind::throttle, "2", "rank 2 had data in flight or queued 88 % of the time, the next 8 %"},
        Case{"busy for half the time, the others hardly: processors are short",
             [](Scenario& s) {
               s.outward(2, [](Sent& f) {
                 f.busy_percent = 25;
                 f.queue_kb = 200;
               });
             },
             Kind::throttle, "2", "rank 2 had data in flight or queued 50 % of the time, the next 8 %"},
        Case{"busy for half the time, and the next for a third of that",
             [](Scenario& s) {
               s.outward(2, [](Sent& f) {
                 f.busy_percent = 25;
                 f.queue_kb = 200;
               });
               s.outward(0, [](Sent& f) { f.busy_percent = 9; });
             },
             Kind::healthy, "", ""},
        Case{"busy with nothing queued at the moment, and slower than the others",
             [](Scenario& s) {
               s.outward(2, [](Sent& f) { f.busy_percent = 25; });
               s.both_ways(2, [](Sent& f) { f.rtt_ms = 0.8; });
             },
             Kind::throttle, "2", "rank 2 had data in flight or queued 50 % of the time, the next 8 %"},
        Case{"busy with nothing queued: its peers think before they answer",
             [](Scenario& s) { s.outward(2, [](Sent& f) { f.busy_percent = 88; }); }, Kind::healthy, "", ""},
        Case{"busy, and so is the next",
             [](Scenario& s) {
               s.outward(2, [](Sent& f) { f.busy_percent = 88; });
               s.outward(0, [](Sent& f) { f.busy_percent = 60; });
             },
             Kind::healthy, "", ""},
        Case{"busy, because it sends more: a broadcast",
             [](Scenario& s) {
               s.outward(0, [](Sent& f) {
                 f.busy_percent = 98;
                 f.data_segments = 20000;
               });
             },
             Kind::healthy, "", ""},
        Case{"busy with a checkpoint to storage",
             [](Scenario& s) {
               s.sent_elsewhere[{1, "10.9.9.9"}] = {.rtt_ms = 80,
                                                    .min_rtt_ms = 20,
                                                    .data_segments = 9000,
                                                    .retransmit_percent = 6,
                                                    .busy_percent = 99,
                                                    .queue_kb = 4000};
             },
             Kind::healthy, "", ""},
        Case{"nobody sends", [](Scenario& s) { s.all([](Sent& f) { f.data_segments = 0; }); }, Kind::no_data,
             "", "no TCP data between ranks seen: RDMA, or idle"},
        Case{"keepalives only", [](Scenario& s) { s.all([](Sent& f) { f.data_segments = 9; }); },
             Kind::no_data, "", "no TCP data between ranks seen"},
        Case{"addresses unknown",
             [](Scenario& s) {
               s.sent.clear();
               s.sent_elsewhere[{1, "10.9.9.9"}] = {};
             },
             Kind::no_data, "", "data goes to 10.9.9.9, which is no rank's address"},
        Case{"stalled, sent again to one",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 3}].queue_kb = 500;
               s.sent[{2, 3}].stalled_retransmits = 3;
             },
             Kind::stalled, "2", "rank 2, sending to rank 3 in vain: 500 kB queued and not one ACK for 3 s"},
        Case{"stalled, refused by its own interface",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 3}].queue_kb = 150;
               s.sent[{2, 3}].stalled_tries = 6;
             },
             Kind::stalled, "2", "rank 2, sending to rank 3: 150 kB"},
        // The other's data arrives, but its ACKs cannot.
        Case{"stalled, refused by its own interface, and the answer queues too",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 1}].queue_kb = 925;
               s.sent[{2, 1}].stalled_tries = 186;
               s.sent[{1, 2}].queue_kb = 5;
               s.sent[{1, 2}].stalled_retransmits = 3;
             },
             Kind::stalled, "2", "its own interface refuses"},
        Case{"stalled, to and from one",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 3}].queue_kb = s.sent[{1, 2}].queue_kb = 500;
             },
             Kind::stalled, "2", "all 2 stalled flows begin or end at rank 2"},
        Case{"stalled, never sent again: the receiver may not read",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 3}].queue_kb = 500;
             },
             Kind::stalled, "2-3", "or the receiver does not read"},
        Case{"queues back around the ring",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 3}].queue_kb = s.sent[{1, 2}].queue_kb = s.sent[{0, 1}].queue_kb = 500;
             },
             Kind::stalled, "", "no rank in common"},
        Case{"queues back around the ring from what is sent again",
             [](Scenario& s) {
               s.all([](Sent& f) { f.stalled = true; });
               s.sent[{2, 3}].queue_kb = s.sent[{1, 2}].queue_kb = s.sent[{0, 1}].queue_kb = 500;
               s.sent[{2, 3}].stalled_retransmits = 2;
             },
             Kind::stalled, "2", "rank 2, sending to rank 3 in vain"},
        Case{"stalled for the last 2 s, sent again",
             [](Scenario& s) {
               stall_after_a_second(s);
               s.sent[{2, 3}].queue_kb = 500;
               s.sent[{2, 3}].stalled_retransmits = 2;
             },
             Kind::stalled, "2", "in vain: 375 kB queued and not one ACK for 2 s"},
        Case{"nothing read for the last 2 s may be a pause",
             [](Scenario& s) {
               stall_after_a_second(s);
               s.sent[{2, 3}].queue_kb = 500;
             },
             Kind::healthy, "", ""},
        Case{"one flow stuck for the last 2 s while the others get on",
             [](Scenario& s) {
               stall_after_a_second(s);
               s.sent[{2, 3}].queue_kb = 500;
               s.sent[{2, 3}].stalled_retransmits = 2;
               s.sent[{0, 1}].stalled = false;
             },
             Kind::healthy, "", ""},
        Case{"idle with empty queues is no stall",
             [](Scenario& s) { s.all([](Sent& f) { f.stalled = true; }); }, Kind::no_data, "", ""},
        Case{"one stuck flow while the others get on",
             [](Scenario& s) {
               s.sent[{2, 3}].stalled = true;
               s.sent[{2, 3}].queue_kb = 500;
             },
             Kind::healthy, "", ""}),
    [](const testing::TestParamInfo<Case>& param) {
      std::string name;
      for (const char c : std::string_view(param.param.name)) name += isalnum(c) != 0 ? c : '_';
      return name;
    });

TEST(Judge, AnEndOfAChainIsItsNeighboursVictim) {
  Scenario chain = Scenario::ring(4);
  chain.sent.erase({3, 0});
  chain.sent.erase({0, 3});
  Scenario middle = chain;
  middle.link(0, 1, [](Sent& f) { slow(f, 60); }).link(1, 2, [](Sent& f) { slow(f, 50); });
  EXPECT_EQ(named_ranks(middle.judged()), "1");
  Scenario end = chain;
  end.link(0, 1, [](Sent& f) { slow(f); });
  EXPECT_EQ(named_ranks(end.judged()), "0");
  EXPECT_NE(end.judged().why.find("the only active link of rank 0, to rank 1"), std::string::npos);
}

TEST(Judge, APairApartFromTheOthersIsALink) {
  Scenario pairs = Scenario::ring(4);
  pairs.ranks.push_back({"4", "n4", "40265324", "10.77.0.24"});
  pairs.ranks.push_back({"5", "n5", "40265325", "10.77.0.25"});
  pairs.link(4, 5, [](Sent& f) { slow(f); });
  const JobVerdict verdict = pairs.judged();
  EXPECT_EQ(verdict.kind, Kind::link) << verdict.why;
  EXPECT_EQ(named_ranks(verdict), "4-5");
}

TEST(Judge, OneDirectionalRing) {
  Scenario ring = Scenario::ring(4);
  for (size_t i = 0; i < 4; ++i) ring.sent.erase({(i + 1) % 4, i});
  EXPECT_EQ(ring.judged().kind, Kind::healthy);
  slow(ring.sent[{1, 2}]);
  slow(ring.sent[{2, 3}]);
  EXPECT_EQ(named_ranks(ring.judged()), "2");
}

TEST(Judge, ThreeRanksAreEnoughAndTwoAreNot) {
  Scenario three = Scenario::ring(3);
  three.both_ways(1, [](Sent& f) { slow(f); });
  EXPECT_EQ(three.judged().kind, Kind::latency);
  EXPECT_EQ(named_ranks(three.judged()), "1");

  Scenario two = Scenario::ring(2);
  two.all([](Sent& f) { slow(f); });
  const JobVerdict verdict = two.judged();
  EXPECT_EQ(verdict.kind, Kind::too_few_ranks);
  EXPECT_FALSE(verdict.is_straggler());
  ASSERT_EQ(verdict.units.size(), 2u);
  EXPECT_NEAR(verdict.units[0].best_rtt_s.value_or(0), 0.054, 1e-6);
}

TEST(Judge, RanksOfANodeAreOneUnitAndNearPeersDoNotCount) {
  Scenario scenario = Scenario::ring(8);
  for (size_t i = 0; i < 8; ++i) {
    scenario.ranks[i].node = "n" + std::to_string(i / 2);
    scenario.ranks[i].netns = "1";
    scenario.ranks[i].address = "10.77.0.1" + std::to_string(i / 2);
  }
  scenario.both_ways(4, [](Sent& f) { slow(f); });
  scenario.both_ways(5, [](Sent& f) { slow(f); });
  slow(scenario.sent[{4, 5}], 0.1);
  const JobVerdict verdict = scenario.judged();
  EXPECT_EQ(verdict.kind, Kind::latency) << verdict.why;
  EXPECT_EQ(verdict.named(), "ranks 4,5 (node n2)");
  EXPECT_EQ(verdict.units.size(), 4u);
  EXPECT_TRUE(says(verdict.blind_spots, "judged as one"));
}

TEST(Judge, AllRanksInOneNamespaceCannotBeToldApart) {
  Scenario scenario = Scenario::ring(4).on_one_node();
  for (ScenarioRank& rank : scenario.ranks) rank.netns = "1";
  EXPECT_EQ(scenario.judged().kind, Kind::too_few_ranks);
}

TEST(Judge, AddressesThatSeveralUnitsClaimAreNotUsed) {
  Scenario scenario = Scenario::ring(4);
  scenario.ranks[3].address = scenario.ranks[2].address;
  const JobVerdict verdict = scenario.judged();
  EXPECT_TRUE(says(verdict.blind_spots, "10.77.0.12 is of several ranks"));
  EXPECT_FALSE(verdict.is_straggler());
}

TEST(Judge, BlindSpotsAreSaid) {
  Scenario scenario = Scenario::ring(4);
  scenario.world_size = "8";
  scenario.hook = "tp_btf/tcp_probe";
  scenario.offset_s["n3"] = -3600;
  JobVerdict verdict = scenario.judged();
  EXPECT_EQ(verdict.kind, Kind::healthy) << verdict.why;
  EXPECT_TRUE(verdict.incomplete);
  EXPECT_TRUE(says(verdict.blind_spots, "4 of 8 ranks seen (0-3)"));
  EXPECT_TRUE(says(verdict.blind_spots, "node n0: degraded RTT hook"));
  EXPECT_TRUE(says(verdict.blind_spots, "s apart: stale, or clocks differ"));

  scenario = Scenario::ring(4);
  scenario.hook = "none";
  verdict = scenario.judged();
  EXPECT_EQ(verdict.kind, Kind::no_data);
  EXPECT_TRUE(says(verdict.blind_spots, "no RTT hook"));

  scenario = Scenario::ring(4);
  verdict = scenario.judged();
  EXPECT_TRUE(verdict.blind_spots.empty()) << verdict.blind_spots.front();
  EXPECT_FALSE(verdict.incomplete);
}

TEST(Judge, ANodeWithoutAWindowIsJudgedByWhatOthersSendIt) {
  Scenario scenario = Scenario::ring(4);
  scenario.both_ways(2, [](Sent& f) { slow(f); });
  std::vector<Scrape> scrapes = scenario.scrapes();
  bool first = true;
  std::erase_if(scrapes, [&first](const Scrape& scrape) {
    return scrape.target == "n2" && !std::exchange(first, false);
  });
  const auto verdicts = judge(make_window(group_by_node(scrapes)));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(named_ranks(verdicts[0]), "2") << verdicts[0].why;
  EXPECT_TRUE(verdicts[0].incomplete);
  EXPECT_TRUE(says(verdicts[0].blind_spots, "node n2: one scrape only"));
}

TEST(Judge, JobsAreJudgedApart) {
  Scenario one = Scenario::ring(4);
  Scenario other = Scenario::ring(4);
  other.job = "other";
  other.both_ways(1, [](Sent& f) { slow(f); });
  std::vector<Scrape> scrapes = one.scrapes();
  const std::vector<Scrape> more = other.scrapes();
  for (size_t i = 0; i < scrapes.size(); ++i) {
    for (ProcessScrape process : more[i].processes) {
      process.pid += "0";
      scrapes[i].processes.push_back(process);
    }
  }
  const auto verdicts = judge(make_window(group_by_node(scrapes)));
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0].job, "gpt2-ddp");
  EXPECT_EQ(verdicts[0].kind, Kind::healthy);
  EXPECT_EQ(named_ranks(verdicts[1]), "1");
}

TEST(Judge, LaunchersAreNoRanks) {
  Scenario scenario = Scenario::ring(4);
  std::vector<Scrape> scrapes = scenario.scrapes();
  for (Scrape& scrape : scrapes) {
    ProcessScrape launcher = scrape.processes.front();
    launcher.pid = "1";
    launcher.rank = "";
    launcher.role = "launcher";
    for (PeerScrape& peer : launcher.peers) peer.rtt_sum_s = *peer.rtt_count * 0.2;
    scrape.processes.push_back(launcher);
  }
  const auto verdicts = judge(make_window(group_by_node(scrapes)));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].ranks, 4u);
  EXPECT_EQ(verdicts[0].kind, Kind::healthy);
}

// Each agent numbers what has no rank by itself: equal numbers of two nodes are two ranks.
TEST(Judge, MadeUpRanksOfTwoNodesAreDifferent) {
  Scenario scenario = Scenario::ring(4);
  for (ScenarioRank& rank : scenario.ranks) rank.rank = "?0";
  scenario.both_ways(2, [](Sent& f) { slow(f); });
  JobVerdict verdict = scenario.judged();
  EXPECT_EQ(verdict.ranks, 4u);
  EXPECT_FALSE(verdict.incomplete);
  EXPECT_EQ(verdict.named(), "rank ?0 (node n2)");
  EXPECT_TRUE(says(verdict.blind_spots, "4 processes have no rank in their environment"));
  EXPECT_TRUE(says(verdict.blind_spots, "set RANK, or LOCAL_RANK, NODE_RANK and LOCAL_WORLD_SIZE"));

  scenario.world_size = "8";
  verdict = scenario.judged();
  EXPECT_TRUE(verdict.incomplete);
  EXPECT_TRUE(says(verdict.blind_spots, "4 of 8 ranks seen (4 without a rank)"));
}

TEST(Judge, ThresholdsAreSettable) {
  Scenario scenario = Scenario::ring(4);
  scenario.both_ways(2, [](Sent& f) { slow(f, 2); });
  EXPECT_EQ(scenario.judged().kind, Kind::healthy);
  Thresholds thresholds;
  thresholds.rtt_floor_s = 0.001;
  EXPECT_EQ(named_ranks(scenario.judged(thresholds)), "2");
}

TEST(Judge, VictimsAreMarked) {
  Scenario scenario = Scenario::ring(5);
  scenario.both_ways(2, [](Sent& f) { slow(f); });
  const JobVerdict verdict = scenario.judged();
  EXPECT_EQ(verdict.units[2].part, Part::culprit);
  EXPECT_EQ(verdict.units[1].part, Part::victim);
  EXPECT_EQ(verdict.units[3].part, Part::victim);
  EXPECT_EQ(verdict.units[3].victim_of, 2u);
  EXPECT_EQ(verdict.units[0].part, Part::none);
  EXPECT_EQ(verdict.units[2].slow_links, 2u);
  EXPECT_EQ(verdict.units[1].slow_links, 1u);
}

TEST(Judge, RanksAreListedByNumber) {
  Scenario scenario = Scenario::ring(4);
  const char* ranks[] = {"10", "9", "2", "x"};
  for (size_t i = 0; i < 4; ++i) scenario.ranks[i].rank = ranks[i];
  const JobVerdict verdict = scenario.judged();
  ASSERT_EQ(verdict.units.size(), 4u);
  EXPECT_EQ(verdict.units[0].ranks + verdict.units[1].ranks + verdict.units[2].ranks + verdict.units[3].ranks,
            "2910x");
}

}  // namespace
}  // namespace kitty::verdict
