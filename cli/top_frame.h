// What `kitty top` writes: the frame of a screen, and the lines for a pipe. Pure. Nothing that another
// process named can steer a terminal or make a line wider than it looks.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cli/live_jobs.h"
#include "cli/report.h"

namespace kitty::cli {

struct TopState {
  double time_s = 0;  // since the epoch
  size_t targets = 0;
  std::vector<TargetProblem> problems;  // one for each target that does not answer
  std::vector<const LiveJob*> jobs;     // the worst first
  size_t jobs_left_out = 0;
};

struct FrameStyle {
  size_t columns = 80, rows = 24;
  bool utf8 = false;    // else ASCII only
  bool colour = false;  // supplements what the text says
};

// The whole screen, for one write: cursor home, at most `rows` lines of at most `columns` columns, each
// erased behind its text, and the rest of the screen erased. No newline behind the last line, so that nothing
// scrolls.
[[nodiscard]] std::string top_frame(const TopState& state, const FrameStyle& style);

// One line without its newline, at most kMaxPlainBytes: "job gpt2-ddp 4 ranks LATENCY at rank 2 (node n2):
// why". Without the sentence, that of two equal lines says the same of the job.
inline constexpr size_t kMaxPlainBytes = 2048;
[[nodiscard]] std::string plain_line(const LiveJob& job, bool with_why);

// "3 of 4 targets answer, 1 job"
[[nodiscard]] std::string plain_summary(const TopState& state);

}  // namespace kitty::cli
