// A training job as its nodes' scrapes would show it: ranks, and what each sends to each other rank. Tests
// state the figures of a window; the scenario turns them into counters, scrape by scrape.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "verdict/judge.h"
#include "verdict/scrape.h"
#include "verdict/window.h"

namespace kitty::verdict {

// One direction between two ranks, per second where not said otherwise.
struct Sent {
  double rtt_ms = 0.3;
  double min_rtt_ms = 0.1;
  double data_segments = 4000;
  double retransmit_percent = 0;
  double busy_percent = 4;
  double queue_kb = 0;
  double segments_per_sample = 3;
  bool stalled = false;            // no counter moves
  double stalled_after_s = 0;      // from then on, and until then nothing is queued
  double stalled_retransmits = 0;  // but this many segments are sent again until the window ends,
  double stalled_tries = 0;        // and this many are tried anew
};

struct ScenarioRank {
  std::string rank;
  std::string node;
  std::string netns;
  std::string address;
};

struct Scenario {
  std::vector<ScenarioRank> ranks;
  std::map<std::pair<size_t, size_t>, Sent> sent;                 // between indices of ranks
  std::map<std::pair<size_t, std::string>, Sent> sent_elsewhere;  // to addresses that are no rank's
  std::string job = "gpt2-ddp";
  std::string world_size;
  std::string uid = "1000";
  std::string hook = "fentry/tcp_ack_update_rtt";
  std::map<std::string, double> offset_s;  // of a node's clock
  double window_s = 3;
  double interval_s = 1;

  // `count` ranks, one a node (and namespace), each sending to both neighbours of a ring.
  static Scenario ring(size_t count) {
    Scenario scenario;
    for (size_t i = 0; i < count; ++i) {
      const std::string number = std::to_string(i);
      scenario.ranks.push_back({number, "n" + number, "40265320" + number, "10.77.0.1" + number});
    }
    for (size_t i = 0; i < count; ++i) {
      scenario.sent[{i, (i + 1) % count}] = {};
      scenario.sent[{(i + 1) % count, i}] = {};
    }
    return scenario;
  }

  // As one node's agent sees namespaces of the same host.
  Scenario& on_one_node() {
    for (ScenarioRank& rank : ranks) rank.node = "host";
    return *this;
  }

  // Everything `rank` sends and gets sent.
  template <class Change>
  Scenario& both_ways(size_t rank, Change&& change) {
    for (auto& [pair, flow] : sent) {
      if (pair.first == rank || pair.second == rank) change(flow);
    }
    return *this;
  }
  template <class Change>
  Scenario& outward(size_t rank, Change&& change) {
    for (auto& [pair, flow] : sent) {
      if (pair.first == rank) change(flow);
    }
    return *this;
  }
  template <class Change>
  Scenario& link(size_t a, size_t b, Change&& change) {
    change(sent[{a, b}]);
    change(sent[{b, a}]);
    return *this;
  }
  template <class Change>
  Scenario& all(Change&& change) {
    for (auto& [pair, flow] : sent) change(flow);
    return *this;
  }

  [[nodiscard]] std::vector<Scrape> scrapes() const {
    std::map<std::string, std::vector<size_t>> nodes;
    for (size_t i = 0; i < ranks.size(); ++i) nodes[ranks[i].node].push_back(i);
    std::vector<Scrape> list;
    for (const auto& [node, members] : nodes) {
      for (double t = 0; t <= window_s + 1e-9; t += interval_s) {
        Scrape& scrape = list.emplace_back();
        const auto offset = offset_s.find(node);
        scrape.target = node;
        scrape.live = true;
        scrape.time_s = 1000 + t + (offset == offset_s.end() ? 0 : offset->second);
        scrape.fingerprint = list.size();
        scrape.hook = hook;
        for (const size_t i : members) scrape.processes.push_back(process(i, t));
      }
    }
    return list;
  }

  [[nodiscard]] std::vector<JobVerdict> judge_all(const Thresholds& thresholds = {}) const {
    const std::vector<Scrape> list = scrapes();
    return judge(make_window(group_by_node(list)), thresholds);
  }

  // Of the only job.
  [[nodiscard]] JobVerdict judged(const Thresholds& thresholds = {}) const {
    const std::vector<JobVerdict> verdicts = judge_all(thresholds);
    return verdicts.size() == 1 ? verdicts.front() : JobVerdict{};
  }

 private:
  [[nodiscard]] ProcessScrape process(size_t i, double t) const {
    ProcessScrape one;
    one.pid = std::to_string(100 + i);
    one.rank = ranks[i].rank;
    one.job = job;
    one.identified = true;
    one.role = "rank";
    one.start_time = std::to_string(5000 + i);
    one.netns = ranks[i].netns;
    one.world_size = world_size;
    one.uid = uid;
    one.addresses = {ranks[i].address, "127.0.0.1"};
    for (const auto& [pair, flow] : sent) {
      if (pair.first == i) one.peers.push_back(peer(ranks[pair.second].address, flow, t));
    }
    for (const auto& [pair, flow] : sent_elsewhere) {
      if (pair.first == i) one.peers.push_back(peer(pair.second, flow, t));
    }
    return one;
  }

  // Totals begin at a number of their own, as in a long life.
  [[nodiscard]] PeerScrape peer(const std::string& address, const Sent& flow, double t) const {
    constexpr double kSegmentsBefore = 1e6;
    const double moving_s = flow.stalled ? std::min(t, flow.stalled_after_s) : t;
    const double moved = flow.data_segments * moving_s;
    const double stalled_share = (t - moving_s) / (window_s - flow.stalled_after_s);
    const double again =
        flow.stalled ? flow.stalled_retransmits * stalled_share : moved * flow.retransmit_percent / 100;
    PeerScrape one;
    one.address = address;
    one.data_segments =
        kSegmentsBefore + moved + (flow.stalled ? again + flow.stalled_tries * stalled_share : 0);
    one.retransmits = 10 + again;
    one.rtt_count = 1e5 + moved / flow.segments_per_sample;
    one.rtt_sum_s = 50 + moved / flow.segments_per_sample * flow.rtt_ms / 1000;
    one.busy_s = 20 + flow.busy_percent / 100 * t;
    one.queue_bytes = t < flow.stalled_after_s ? 0 : flow.queue_kb * 1000;
    if (!flow.stalled || t < flow.stalled_after_s) one.rtt_min_s = flow.min_rtt_ms / 1000;
    return one;
  }
};

}  // namespace kitty::verdict
