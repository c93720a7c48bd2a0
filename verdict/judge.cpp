#include "verdict/judge.h"

#include <algorithm>
#include <set>

#include "verdict/assembly.h"
#include "verdict/job.h"
#include "verdict/rules.h"

namespace kitty::verdict {

namespace {

// Who suffers: units with a slow link, or a queue, to a culprit.
void mark_parts(const Job& job, JobVerdict& verdict) {
  for (const size_t unit : verdict.culprits) verdict.units[unit].part = Part::culprit;
  for (const size_t culprit : verdict.culprits) {
    for (const Link* link : job.active_links(culprit)) {
      UnitEvidence& other = verdict.units[link->other(culprit)];
      const Flow& towards = link->first == culprit ? link->back : link->out;
      const bool suffers = link->slow || towards.queue_bytes > job.limits.throttle_queue_floor_bytes;
      if (!suffers || other.part != Part::none) continue;
      other.part = Part::victim;
      other.victim_of = culprit;
    }
  }
}

JobVerdict judge_job(const Window& window, const std::string& name, const std::string& uid,
                     const Thresholds& limits) {
  JobVerdict verdict;
  verdict.job = name;
  verdict.uid = uid;
  const Assembly assembly = assemble(window, name, uid, limits);
  const Job& job = assembly.job;
  verdict.ranks = assembly.ranks;
  verdict.units = job.units;
  verdict.blind_spots = assembly.blind_spots;
  verdict.incomplete = assembly.incomplete;
  const auto judged = static_cast<size_t>(
      std::ranges::count_if(job.units, [](const UnitEvidence& unit) { return unit.active_links > 0; }));
  const auto tell = [&](Kind kind, std::string why) {
    verdict.kind = kind;
    verdict.why = std::move(why);
  };
  if (!assembly.has_window) {
    tell(Kind::no_data, assembly.problem);
  } else if (job.units.size() < 2) {
    const std::string seen =
        verdict.ranks < 2 ? "one rank seen" : "all ranks seen share one network namespace";
    tell(Kind::too_few_ranks, seen + ": give the agents of the job's other nodes too");
  } else if (!assembly.any_hook) {
    tell(Kind::no_data, "no agent has an RTT hook");
  } else if (!judge_stall(job, verdict)) {
    if (judged == 0) {
      const std::string& address = assembly.foreign_address;
      tell(Kind::no_data,
           "no TCP data between ranks seen: RDMA, or idle" +
               (address.empty() ? "" : "; data goes to " + address + ", which is no rank's address"));
    } else if (judged < 3) {
      tell(Kind::too_few_ranks, "two ends cannot be told apart: see the figures");
    } else {
      const bool named = judge_rtt_of_units(job, verdict) || judge_rtt_of_links(job, verdict) ||
                         judge_loss(job, verdict) || judge_busy(job, verdict) || judge_job_wide(job, verdict);
      if (!named) set_healthy(job, verdict);
    }
  }
  mark_parts(job, verdict);
  return verdict;
}

}  // namespace

std::string UnitEvidence::who() const {
  return (ranks.find_first_of(",-") == std::string::npos ? "rank " : "ranks ") + ranks;
}

std::string UnitEvidence::label() const {
  return who() + (node.starts_with("netns ") ? " (" : " (node ") + node + ')';
}

std::string JobVerdict::named() const {
  std::string text;
  for (const size_t unit : culprits) text += (text.empty() ? "" : ", ") + units[unit].label();
  for (const auto& [a, b] : links) {
    text += (text.empty() ? "" : ", ") + units[a].label() + " - " + units[b].label();
  }
  return text;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::healthy:
      return "healthy";
    case Kind::latency:
      return "latency";
    case Kind::throttle:
      return "throttle";
    case Kind::loss:
      return "loss";
    case Kind::link:
      return "link";
    case Kind::stalled:
      return "stalled";
    case Kind::job_wide:
      return "job-wide";
    case Kind::too_few_ranks:
      return "too few ranks";
    case Kind::no_data:
      return "no data";
  }
  return "no data";
}

std::vector<JobVerdict> judge(const Window& window, const Thresholds& thresholds) {
  std::set<std::pair<std::string, std::string>> jobs;  // name, user
  for (const auto* list : {&window.ranks, &window.partial}) {
    for (const RankWindow& rank : *list) jobs.emplace(rank.job, rank.uid);
  }
  std::vector<JobVerdict> verdicts;
  verdicts.reserve(jobs.size());
  for (const auto& [job, uid] : jobs) {
    verdicts.push_back(judge_job(window, job, uid, thresholds));
    if (verdicts.size() < 2 || verdicts[verdicts.size() - 2].job != job) continue;
    verdicts.back().name_shared = verdicts[verdicts.size() - 2].name_shared = true;
  }
  return verdicts;
}

}  // namespace kitty::verdict
