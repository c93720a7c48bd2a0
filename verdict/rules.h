// The rules that find whose network slows a job, in the order in which judge() asks them: what an earlier one
// finds, a later one would take for something else. Each compares the units of a job with each other; the
// limits and their reasons are in verdict/thresholds.h. Pure.
//
// True where the rule applies; kind, why and whom it names are then set in `verdict`. Else that is untouched.
#pragma once

#include "verdict/job.h"
#include "verdict/judge.h"

namespace kitty::verdict {

// 1. Bytes queued, not one ACK, and nobody gets on.
[[nodiscard]] bool judge_stall(const Job& job, JobVerdict& verdict);
// 2. A unit none of whose links has a healthy RTT.
[[nodiscard]] bool judge_rtt_of_units(const Job& job, JobVerdict& verdict);
// 3. Slow links whose ends both have healthy ones.
[[nodiscard]] bool judge_rtt_of_links(const Job& job, JobVerdict& verdict);
// 4. Data segments sent again.
[[nodiscard]] bool judge_loss(const Job& job, JobVerdict& verdict);
// 5. A unit that is busy far more than the others for the same work.
[[nodiscard]] bool judge_busy(const Job& job, JobVerdict& verdict);
// 6. Every link as slow as no healthy network's are.
[[nodiscard]] bool judge_job_wide(const Job& job, JobVerdict& verdict);

// Where no rule applies: kind and why, with the figures that show it.
void set_healthy(const Job& job, JobVerdict& verdict);

}  // namespace kitty::verdict
