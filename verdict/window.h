// Two or more scrapes of each node, turned into what happened in between. Counters are compared within one
// process, one agent's life and one node only, so clocks that differ between nodes do not matter. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verdict/scrape.h"
#include "verdict/thresholds.h"

namespace kitty::verdict {

// The scrapes of one agent's node, as pointers into the caller's.
struct NodeScrapes {
  std::string name;
  std::vector<const Scrape*> scrapes;  // ascending by time
};

// Puts scrapes together that show the same process: rank, job, pid and start time together exist on one node
// only, so neither file names nor two names of one agent mislead. A node is called what its target is called;
// saved files by what their names have in common ("n0-1.txt" and "n0-2.txt" are n0).
[[nodiscard]] std::vector<NodeScrapes> group_by_node(std::span<const Scrape> scrapes);

// What of them lies between two times; saved files, whose times may be of other clocks, are taken whole.
[[nodiscard]] std::vector<NodeScrapes> between(std::span<const NodeScrapes> nodes, double begin_s,
                                               double end_s);

// What a process did towards one remote address: growth over its window unless said otherwise.
struct PeerWindow {
  std::string address;
  bool counted = false;  // the agent exports counters, so that no growth means none
  double data_segments = 0, retransmits = 0;
  double burst_retransmits = 0;  // the most between two scrapes; 0 where there are two only
  double rtt_sum_s = 0, rtt_count = 0;
  double busy_s = 0;
  std::optional<double> rtt_min_s = {};  // median of the 500 ms minima that the scrapes show
  double queue_bytes = 0;                // mean of the scrapes
  double least_queue_bytes = 0;
  // Of the window's end only, RankWindow::late_s long: a stall does not wait until all of a window is silent.
  double late_data_segments = 0, late_retransmits = 0, late_rtt_count = 0;
  double late_least_queue_bytes = 0;
};

struct RankWindow {
  size_t node = 0;  // of Window::nodes
  std::string rank = {}, job = {}, netns = {}, world_size = {}, pid = {};
  // Whose job it is; empty where no agent says. One that is not said is the only one that is, where the job's
  // other ranks all have the same.
  std::string uid = {};
  bool present = false;  // in its node's latest scrape
  double duration_s = 0;
  double late_s = 0;
  std::vector<std::string> addresses = {};
  std::vector<PeerWindow> peers = {};
};

struct NodeWindow {
  std::string name;
  std::string problem = {};  // empty, or why nothing can be told of this node
  double begin_s = 0, end_s = 0;
  std::string hook = {};
  double unreadable = 0, dropped = 0;
  std::vector<LeftOut> left_out = {};  // at the latest scrape
  size_t falling_counters = 0;         // that must not fall
};

struct Window {
  std::vector<NodeWindow> nodes;
  std::vector<RankWindow> ranks;  // by job and user, so that a job's are found without going through all
  // Ranks that ended, or began, too late to have a window; by job and user, too.
  std::vector<RankWindow> partial;
};

// `late_s`: how long the end is that the late figures are of; of fewer scrapes than that, up to all of the
// window.
[[nodiscard]] Window make_window(std::span<const NodeScrapes> nodes, double late_s = kStallS);

}  // namespace kitty::verdict
