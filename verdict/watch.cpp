#include "verdict/watch.h"

#include <algorithm>
#include <utility>

namespace kitty::verdict {

namespace {

// Of what windows said before two agreed: a watch may last for days.
constexpr size_t kMaxSeenBytes = 1024;

// What two windows must have in common to agree; empty where a window says nothing. Not the reason: a queue
// that fills may read latency first.
std::string said(const JobVerdict& verdict) {
  switch (verdict.kind) {
    case Kind::healthy:
      return "healthy";
    case Kind::too_few_ranks:
    case Kind::no_data:
      return {};
    default:
      return verdict.is_straggler() ? verdict.named() : kind_name(verdict.kind);
  }
}

// A stall's segments come at ever longer intervals: windows without one cannot tell its ends apart, and do
// not unsay what an earlier one could.
bool is_vaguer(const JobVerdict& verdict, const JobVerdict& standing) {
  if (verdict.kind != Kind::stalled || standing.kind != Kind::stalled || standing.culprits.size() != 1)
    return false;
  const size_t culprit = standing.culprits.front();
  return verdict.culprits.empty() && !verdict.links.empty() &&
         verdict.units.size() == standing.units.size() &&
         std::ranges::all_of(verdict.links, [culprit](const std::pair<size_t, size_t>& link) {
           return link.first == culprit || link.second == culprit;
         });
}

}  // namespace

void Watch::add(double begin_s, const std::vector<JobVerdict>& verdicts) {
  for (const JobVerdict& verdict : verdicts) {
    Standing& standing = jobs_[verdict.key()];
    std::string now = said(verdict);
    if (now.empty()) continue;
    ++standing.judged;
    if (standing.verdict && is_vaguer(verdict, *standing.verdict)) continue;
    Run& run = runs_[verdict.key()];
    if (run.said != now) {
      if (!standing.verdict && standing.seen.size() < kMaxSeenBytes)
        standing.seen += (standing.seen.empty() ? "" : ", then ") + now;
      run = {.said = std::move(now), .length = 0, .begin_s = begin_s};
    }
    ++run.length;
    if (run.length < kInARow) continue;
    // One odd window in between does not make it begin anew.
    if (!standing.verdict || said(*standing.verdict) != run.said) standing.since_s = run.begin_s;
    standing.verdict = verdict;
  }
}

}  // namespace kitty::verdict
