// Verdicts as people and as scripts read them. Pure. Whatever other processes may have put into a job's name
// or a file's cannot break a line or steer a terminal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/text.h"
#include "verdict/judge.h"

namespace kitty::cli {

struct JobReport {
  verdict::JobVerdict verdict;
  std::optional<double> since_s;  // since the epoch; none where one window was judged
};

// A target, or a node made of saved files, of which nothing can be said.
struct TargetProblem {
  std::string target;
  std::string problem;
};

struct Report {
  std::vector<JobReport> jobs;
  std::vector<TargetProblem> problems;
  double window_s = 0;  // the longest window of a node
};

enum class Outcome { healthy = 0, straggler = 1, unknown = 2 };

// A named straggler in any job, else unknown where any job or target could not be judged, else healthy.
[[nodiscard]] Outcome outcome(const Report& report);

// "job gpt2-ddp", printable.
[[nodiscard]] std::string job_title(const verdict::JobVerdict& verdict);
// "4 ranks".
[[nodiscard]] std::string counted(size_t count, std::string_view noun);
// "LATENCY at rank 2 (node n2)", "LINK rank 2 (..) - rank 3 (..): LOSS", printable.
[[nodiscard]] std::string headline(const verdict::JobVerdict& verdict);
// "2026-11-30T10:00:41Z", of seconds since the epoch.
[[nodiscard]] std::string clock_time(double seconds);
// "culprit", "victim of 2", or nothing. As its rank wrote it: not for a terminal.
[[nodiscard]] std::string part(const verdict::JobVerdict& verdict, const verdict::UnitEvidence& unit);

// A unit's row of the table, printable: its ranks, node, RTT, that over the median, the least RTT,
// retransmits in percent, queue, busy time, slow links of the active ones.
enum EvidenceColumn { kRank, kNode, kRtt, kTimesMedian, kLeast, kRetransmits, kQueue, kBusy, kLinks };
[[nodiscard]] std::vector<std::string> evidence_cells(const verdict::UnitEvidence& unit);

// For each job the sentence, why, the table of evidence, and what could not be seen.
[[nodiscard]] std::string text_report(const Report& report);
[[nodiscard]] std::string json_report(const Report& report);

}  // namespace kitty::cli
