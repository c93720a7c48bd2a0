#include "cli/live_jobs.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "cli/gather.h"
#include "verdict/window.h"

namespace kitty::cli {

namespace {

using verdict::JobVerdict;
using verdict::Kind;
using verdict::Part;
using verdict::Scrape;
using verdict::UnitEvidence;

// Units of another window, found by whose they are. What is in it outlives this.
template <class Unit>
class UnitIndex {
 public:
  void add(const UnitEvidence& figures, const Unit& unit) { units_.try_emplace(key_of(figures), &unit); }
  [[nodiscard]] const Unit* find(const UnitEvidence& wanted) const {
    const auto found = units_.find(key_of(wanted));
    return found == units_.end() ? nullptr : found->second;
  }

 private:
  using Key = std::pair<std::string_view, std::string_view>;
  static Key key_of(const UnitEvidence& figures) { return {figures.ranks, figures.node}; }
  std::map<Key, const Unit*> units_;
};

UnitIndex<UnitEvidence> index_units(const JobVerdict& verdict) {
  UnitIndex<UnitEvidence> index;
  for (const UnitEvidence& unit : verdict.units) index.add(unit, unit);
  return index;
}

bool shows_named(const UnitIndex<UnitEvidence>& latest, const JobVerdict& standing) {
  const auto shown = [&](size_t unit) { return latest.find(standing.units[unit]) != nullptr; };
  return std::ranges::all_of(standing.culprits, shown) &&
         std::ranges::all_of(standing.links,
                             [&](const auto& link) { return shown(link.first) && shown(link.second); });
}

// The higher the worse.
constexpr int kWorst = 4;
int badness(const LiveJob& job) {
  const JobVerdict& verdict = job.report.verdict;
  if (verdict.is_straggler()) return kWorst;
  if (verdict.kind == Kind::stalled || verdict.kind == Kind::job_wide) return 3;
  if (!job.settled) return 2;
  return verdict.kind == Kind::healthy ? 0 : 1;
}

}  // namespace

void LiveJobs::add(std::vector<Scrape> scrapes) {
  for (const Scrape& scrape : scrapes) first_s_ = std::min(first_s_.value_or(scrape.time_s), scrape.time_s);
  std::ranges::move(scrapes, std::back_inserter(scrapes_));
}

void LiveJobs::update(Entry& entry, double begin_s, double end_s, JobVerdict latest, bool all_answer) const {
  LiveJob& job = entry.job;
  job.seen_s = end_s;
  latest.incomplete = latest.incomplete || !all_answer;
  const auto standing_of = [&]() -> const verdict::Watch::Standing* {
    const auto found = entry.watch.jobs().find(latest.key());
    return found == entry.watch.jobs().end() ? nullptr : &found->second;
  };
  // Others' windows cannot clear a rank that is not seen.
  const verdict::Watch::Standing* standing = standing_of();
  const UnitIndex<UnitEvidence> latest_units = index_units(latest);
  if (!standing || !standing->verdict || shows_named(latest_units, *standing->verdict))
    entry.culprit_seen_s = end_s;
  const bool whole_window = end_s - first_s_.value_or(end_s) >= verdict::kWindowS - kFetchJitterS;
  if (whole_window && (entry.culprit_seen_s >= end_s || end_s - entry.culprit_seen_s > kForgetS)) {
    entry.watch.add(begin_s, std::vector<JobVerdict>(1, latest));
    standing = standing_of();
  }

  const bool speaks = latest.kind != Kind::no_data && latest.kind != Kind::too_few_ranks;
  job.settled = (standing && standing->verdict) || (whole_window && !speaks);
  job.now.clear();
  job.report = {.verdict = latest, .since_s = {}};
  JobVerdict& shown = job.report.verdict;
  if (standing && standing->verdict) {
    shown = *standing->verdict;
    shown.ranks = latest.ranks;
    shown.name_shared = latest.name_shared;
    shown.incomplete = latest.incomplete;
    job.report.since_s = standing->since_s;
    if (headline(shown) != headline(latest)) job.now = headline(latest);
    if (!speaks) job.now += ": " + latest.why;
  } else if (!job.settled) {
    shown.culprits.clear();
    shown.links.clear();
    shown.kind = Kind::no_data;
    shown.why = "a verdict takes two windows of 3 s in a row that agree";
    if (standing && !standing->seen.empty()) shown.why += "; so far: " + standing->seen;
  }

  UnitIndex<LiveUnit> before_units;
  for (const LiveUnit& unit : job.units) before_units.add(unit.figures, unit);
  const UnitIndex<UnitEvidence> shown_units = index_units(shown);
  std::vector<LiveUnit> units(latest.units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    LiveUnit& unit = units[i];
    unit.figures = latest.units[i];
    unit.figures.part = Part::none;
    if (const LiveUnit* before = before_units.find(unit.figures))
      std::ranges::copy(before->rtts_s.begin() + 1, before->rtts_s.end(), unit.rtts_s.begin());
    unit.rtts_s.back() = unit.figures.best_rtt_s.value_or(0);
    const UnitEvidence* marked = job.settled ? shown_units.find(unit.figures) : nullptr;
    if (marked == nullptr) continue;
    unit.figures.part = marked->part;
    unit.mark = part(shown, *marked);
  }
  for (const size_t at : job.settled ? shown.culprits : std::vector<size_t>()) {
    const UnitEvidence& culprit = shown.units[at];
    if (latest_units.find(culprit) != nullptr) continue;
    LiveUnit& gone = units.emplace_back();
    gone.figures.ranks = culprit.ranks;
    gone.figures.node = culprit.node;
    gone.figures.part = Part::culprit;
    gone.mark = "culprit, gone";
  }
  job.units = std::move(units);
  job.blind_spots = std::move(latest.blind_spots);
}

void LiveJobs::judge(double end_s, bool all_answer) {
  const double begin_s = end_s - verdict::kWindowS;
  std::erase_if(scrapes_, [&](const Scrape& one) { return one.time_s < begin_s - kFetchJitterS; });
  std::vector<verdict::NodeScrapes> nodes = verdict::group_by_node(scrapes_);
  for (verdict::NodeScrapes& node : nodes) {
    // Of two names of one agent always the same, whichever answered first.
    node.name = std::ranges::min(node.scrapes, {}, [](const Scrape* one) {
                  return std::string_view(one->target);
                })->target;
  }
  left_out_ = 0;
  std::map<std::string, Entry*> known;
  for (Entry& entry : jobs_) known.try_emplace(entry.job.report.verdict.key(), &entry);
  for (JobVerdict& verdict :
       verdict::judge(verdict::make_window(nodes, flags_.thresholds.stall_s), flags_.thresholds)) {
    if (!flags_.job.empty() && verdict.job != flags_.job) continue;
    if (!flags_.uid.empty() && verdict.uid != flags_.uid) continue;
    const auto [entry, added] = known.try_emplace(verdict.key(), nullptr);
    if (entry->second == nullptr) {
      if (jobs_.size() >= kMaxJobs) {
        ++left_out_;
        continue;
      }
      entry->second = &jobs_.emplace_back();
    }
    update(*entry->second, begin_s, end_s, std::move(verdict), all_answer);
  }
  std::erase_if(jobs_, [end_s](const Entry& one) { return end_s - one.job.seen_s > kForgetS; });
  for (Entry& entry : jobs_) {
    const double missing_s = end_s - entry.job.seen_s;
    if (missing_s <= 0) continue;
    entry.job.now = "not seen for " + std::to_string(static_cast<int>(missing_s)) + " s";
    if (!all_answer) entry.job.report.verdict.incomplete = true;
  }
}

std::vector<const LiveJob*> LiveJobs::jobs() const {
  std::vector<const LiveJob*> list;
  for (int level = kWorst; level >= 0; --level) {
    for (const Entry& entry : jobs_) {
      if (badness(entry.job) == level) list.push_back(&entry.job);
    }
  }
  return list;
}

}  // namespace kitty::cli
