// From a window to a verdict per job: whose network slows it, and why. Pure; needs no healthy past.
//
// Units are compared, not ranks: what shares addresses and network interface cannot be told apart. A unit is
// a node where the job spans several, else a network namespace. Two units and the flows between them make a
// link, judged by what either end measured. A healthy link clears both its ends: a unit is named only where
// none of its links is healthy. A wrong name is worse than none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "verdict/thresholds.h"
#include "verdict/window.h"

namespace kitty::verdict {

enum class Kind { healthy, latency, throttle, loss, link, stalled, job_wide, too_few_ranks, no_data };

enum class Part { none, culprit, victim };

// A unit as the evidence table shows it.
struct UnitEvidence {
  std::string ranks;                 // "2" or "4,5"
  std::string node;                  // the node's name; "netns N" where the job is on one node
  std::optional<double> best_rtt_s;  // mean RTT of its best active link
  double times_median = 0;           // that, over the median of the units
  std::optional<double> min_rtt_s;   // of the same link: a longer path raises it, a queue hardly
  double retransmit_share = 0;       // of the data segments sent to the job's peers
  double queue_bytes = 0;            // to the job's peers, mean over the window
  double busy_share = 0;             // of its busiest flow to a peer of the job
  size_t slow_links = 0;
  size_t active_links = 0;
  Part part = Part::none;
  size_t victim_of = 0;  // an index of JobVerdict::units, for Part::victim

  [[nodiscard]] std::string label() const;  // "rank 2 (node n2)"
  [[nodiscard]] std::string who() const;    // "rank 2", "ranks 4,5"
};

struct JobVerdict {
  std::string job;
  std::string uid;           // whose it is; empty: not known
  bool name_shared = false;  // another user has a job of this name
  size_t ranks = 0;          // seen
  Kind kind = Kind::no_data;
  Kind cause = Kind::no_data;                    // of link and job_wide: latency, throttle or loss
  std::vector<size_t> culprits;                  // of `units`
  std::vector<std::pair<size_t, size_t>> links;  // of `units`
  std::string why;                               // one sentence
  std::vector<UnitEvidence> units;               // by rank
  std::vector<std::string> blind_spots;          // what could not be seen, each a sentence
  bool incomplete = false;                       // ranks or nodes are missing: "healthy" is of the rest

  // Equal for verdicts of one job: two users' jobs of one name are two.
  [[nodiscard]] std::string key() const { return uid.empty() ? job : job + '\0' + uid; }
  // Whom it names, empty where nobody; equal for verdicts that agree.
  [[nodiscard]] std::string named() const;
  [[nodiscard]] bool is_straggler() const { return !culprits.empty() || !links.empty(); }
};

[[nodiscard]] const char* kind_name(Kind kind);

// One verdict for each job that has ranks in the window, by name and user.
[[nodiscard]] std::vector<JobVerdict> judge(const Window& window, const Thresholds& thresholds = {});

}  // namespace kitty::verdict
