// What `kitty top` knows of jobs: the scrapes of one window, the verdict that stands of each job, and its
// ranks' RTT of the last seconds. Fed with scrapes and asked to judge, again and again; bounded whatever it
// is fed. Pure: time comes in. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "cli/report.h"
#include "cli/verdict_flags.h"
#include "verdict/judge.h"
#include "verdict/scrape.h"
#include "verdict/watch.h"

namespace kitty::cli {

// RTT values kept of a unit, one a judged window.
inline constexpr size_t kRttHistory = 20;
// Jobs beyond are left out, and counted.
inline constexpr size_t kMaxJobs = 256;
// A job that no scrape shows, and a named rank that none does, are remembered for so long: an agent behind a
// bad network may not answer just then.
inline constexpr double kForgetS = 60;

struct LiveUnit {
  verdict::UnitEvidence figures;  // of the latest window
  std::string mark;               // "culprit", "victim of 2", by the verdict that stands; not printable
  std::array<double, kRttHistory> rtts_s{};  // of its best link, the latest last; 0: none then
};

struct LiveJob {
  JobReport report;                      // the verdict that stands
  bool settled = true;                   // false: no verdict stands yet; the report's sentence says why
  std::string now;                       // what the latest window says where that differs; else empty
  double seen_s = 0;                     // the latest window that showed it
  std::vector<LiveUnit> units;           // by rank
  std::vector<std::string> blind_spots;  // of the latest window
};

class LiveJobs {
 public:
  explicit LiveJobs(const VerdictFlags& flags) : flags_(flags) {}

  void add(std::vector<verdict::Scrape> scrapes);

  // Judges the window of verdict::kWindowS that ends then, by the scrapes' clock; to be called with times
  // that ascend by verdict::kSlideS or more. `all_answer`: false where a target is missing, so that healthy
  // is of the rest only.
  void judge(double end_s, bool all_answer);

  // The worst verdict first, then in the order of their appearance.
  [[nodiscard]] std::vector<const LiveJob*> jobs() const;
  [[nodiscard]] size_t left_out() const { return left_out_; }  // jobs of the latest window
  [[nodiscard]] size_t scrapes() const { return scrapes_.size(); }

 private:
  struct Entry {
    LiveJob job;
    verdict::Watch watch;  // of this job alone
    double culprit_seen_s = 0;
  };
  void update(Entry& entry, double begin_s, double end_s, verdict::JobVerdict latest, bool all_answer) const;

  VerdictFlags flags_;
  std::vector<verdict::Scrape> scrapes_;
  std::optional<double> first_s_;  // of all scrapes ever
  std::list<Entry> jobs_;
  size_t left_out_ = 0;
};

}  // namespace kitty::cli
