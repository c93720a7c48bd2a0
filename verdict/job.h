// What the rules look at: a job's units and its links, as verdict/assembly.h fills them in. Plain data.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "verdict/judge.h"
#include "verdict/thresholds.h"

namespace kitty::verdict {

// What one unit sent another.
struct Flow {
  double data_per_s = 0;
  double rtt_sum_s = 0, rtt_count = 0;
  std::optional<double> rtt_min_s;
  double data_segments = 0, retransmits = 0;
  double lasting_retransmits = 0;  // without those of the worst second
  double busy_share = 0;
  double queue_bytes = 0;
  bool active = false;
  bool judged = false;        // active, with messages of several segments: RTT and busy time mean something
  bool stalled = false;       // the whole window
  bool late_stalled = false;  // its end, and what was sent then was sent in vain
  bool late_active = false;

  [[nodiscard]] double retransmit_share() const {
    return data_segments > 0 ? retransmits / data_segments : 0;
  }
};

// Two units, first < second, with the flow each sent.
struct Link {
  size_t first = 0, second = 0;
  Flow out, back;
  // The better of what the active ends measured: a slow path is slow from both ends, while delayed ACKs and
  // thinking time make one end's small messages look slow.
  std::optional<double> rtt_s;
  std::optional<double> rtt_min_s;  // the least of either end, of any message: a slow path has no fast one
  bool both_measured = false;       // it is of both
  bool slow = false;

  [[nodiscard]] bool active() const { return out.active || back.active; }
  [[nodiscard]] bool touches(size_t unit) const { return first == unit || second == unit; }
  // How much of the mean the minimum explains: nearly all of it on a longer path, hardly any in a queue.
  [[nodiscard]] double min_share() const {
    return rtt_s && rtt_min_s && *rtt_s > 0 ? *rtt_min_s / *rtt_s : 0;
  }
  [[nodiscard]] size_t other(size_t unit) const { return first == unit ? second : first; }
};

struct Directed {
  size_t from, to;
  const Flow* flow;
};

// Everything the rules look at, of one job.
struct Job {
  std::vector<UnitEvidence> units;
  std::vector<Link> links;                    // with any traffic between known ranks
  std::vector<std::vector<size_t>> links_of;  // of `links`, those of each unit
  std::optional<double> median_rtt_s;         // of the units' best links
  double window_s = 0;
  const Thresholds& limits;

  [[nodiscard]] std::vector<const Link*> active_links(size_t unit) const {
    std::vector<const Link*> list;
    for (const size_t at : links_of[unit]) {
      if (links[at].active()) list.push_back(&links[at]);
    }
    return list;
  }
  [[nodiscard]] std::vector<Directed> flows() const {
    std::vector<Directed> list;
    for (const Link& link : links) {
      list.push_back({link.first, link.second, &link.out});
      list.push_back({link.second, link.first, &link.back});
    }
    return list;
  }
  [[nodiscard]] bool is_slow(double rtt_s) const {
    return median_rtt_s && rtt_s > limits.rtt_ratio * *median_rtt_s &&
           rtt_s > *median_rtt_s + limits.rtt_floor_s;
  }
};

}  // namespace kitty::verdict
