// Verdicts as people and as scripts read them. Pure. Whatever other processes may have put into a job's name
// or a file's cannot break a line or steer a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

// For each job the sentence, why, the table of evidence, and what could not be seen.
[[nodiscard]] std::string text_report(const Report& report);
[[nodiscard]] std::string json_report(const Report& report);

}  // namespace kitty::cli
