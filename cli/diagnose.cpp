#include "cli/diagnose.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "cli/ending.h"
#include "cli/gather.h"
#include "verdict/judge.h"
#include "verdict/watch.h"
#include "verdict/window.h"

namespace kitty::cli {

namespace {

using verdict::Scrape;

}  // namespace

Report report_on(std::span<const Scrape> scrapes, std::vector<TargetProblem> problems,
                 const VerdictFlags& flags) {
  Report report{.jobs = {}, .problems = std::move(problems)};
  const std::vector<verdict::NodeScrapes> nodes = verdict::group_by_node(scrapes);

  // The whole, for saved scrapes and short windows.
  const verdict::Window whole = verdict::make_window(nodes, flags.thresholds.stall_s);
  for (const verdict::NodeWindow& node : whole.nodes) {
    report.window_s = std::max(report.window_s, node.end_s - node.begin_s);
    if (!node.problem.empty()) report.problems.push_back({node.name, node.problem});
  }

  double first_s = 0, last_s = 0;
  bool live = false;
  for (const Scrape& scrape : scrapes) {
    if (!scrape.live) continue;
    first_s = live ? std::min(first_s, scrape.time_s) : scrape.time_s;
    last_s = live ? std::max(last_s, scrape.time_s) : scrape.time_s;
    live = true;
  }
  verdict::Watch watch;
  for (double begin_s = first_s; live && begin_s + verdict::kWindowS <= last_s + kFetchJitterS;
       begin_s += verdict::kSlideS) {
    const auto part =
        verdict::between(nodes, begin_s - kFetchJitterS, begin_s + verdict::kWindowS + kFetchJitterS);
    watch.add(begin_s,
              verdict::judge(verdict::make_window(part, flags.thresholds.stall_s), flags.thresholds));
  }

  for (verdict::JobVerdict& verdict : verdict::judge(whole, flags.thresholds)) {
    if (!flags.job.empty() && verdict.job != flags.job) continue;
    if (!flags.uid.empty() && verdict.uid != flags.uid) continue;
    JobReport job{.verdict = std::move(verdict), .since_s = std::nullopt};
    const auto found = watch.jobs().find(job.verdict.key());
    if (found != watch.jobs().end() && found->second.judged >= verdict::kInARow) {
      const verdict::Watch::Standing& standing = found->second;
      if (standing.verdict) {
        const bool incomplete = job.verdict.incomplete;
        const bool name_shared = job.verdict.name_shared;
        job.verdict = *standing.verdict;
        job.verdict.name_shared = name_shared;
        job.verdict.incomplete = job.verdict.incomplete || incomplete;
        job.since_s = standing.since_s;
      } else {
        job.verdict.kind = verdict::Kind::no_data;
        job.verdict.culprits.clear();
        job.verdict.links.clear();
        for (verdict::UnitEvidence& unit : job.verdict.units) unit.part = verdict::Part::none;
        job.verdict.why = "no two windows of 3 s in a row agree (" + standing.seen + "): watch longer";
      }
    }
    report.jobs.push_back(std::move(job));
  }
  return report;
}

int diagnose(std::span<const std::string_view> arguments) {
  const Result<VerdictFlags> flags = parse_verdict_flags(VerdictCommand::diagnose, arguments);
  if (!flags) return refuse(kWrongUsage, flags.error());
  if (flags->show_help) {
    std::fputs(verdict_help_text(VerdictCommand::diagnose).c_str(), stdout);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  const Result<std::vector<Target>> targets = read_targets(flags->targets, SavedScrapes::taken);
  if (!targets) return refuse(kWrongUsage, targets.error());
  std::vector<Gathered> gathered = Gathering(*targets, flags->window, flags->interval).finish();
  std::vector<Scrape> scrapes;
  std::vector<TargetProblem> problems;
  for (size_t i = 0; i < gathered.size(); ++i) {
    Gathered& one = gathered[i];
    if (!one.problem.empty()) problems.push_back({(*targets)[i].name, std::move(one.problem)});
    std::ranges::move(one.scrapes, std::back_inserter(scrapes));
  }
  const Report report = report_on(scrapes, std::move(problems), *flags);
  const std::string text = flags->json ? json_report(report) : text_report(report);
  return print_report(text, static_cast<int>(outcome(report)), static_cast<int>(Outcome::unknown));
}

}  // namespace kitty::cli
