// Which rank of which job a process is, from the variables that launchers set. Pure; thread-safe.
// The first variable present wins, in this order:
//   rank         RANK (torchrun, and who imitates it), HOROVOD_RANK, OMPI_COMM_WORLD_RANK (Open MPI),
//                MV2_COMM_WORLD_RANK (MVAPICH2), PMIX_RANK, PMI_RANK (MPICH and its kin), PALS_RANKID (HPE
//                Cray), JSM_NAMESPACE_RANK (jsrun), FLUX_TASK_RANK, SLURM_PROCID within a step,
//                JOB_COMPLETION_INDEX (Kubernetes Indexed Job); else LOCAL_RANK with NODE_RANK and the number
//                of ranks on a node
//   job          JOB_NAME, TORCHELASTIC_RUN_ID (unless "none", torchrun's default), SLURM_JOB_ID,
//   FLUX_JOB_ID,
//                PBS_JOBID, LSB_JOBID, PMIX_NAMESPACE
// A launcher under another one leaves both their variables in its ranks' environment, and has the outer one's
// itself: which of the claims is whose is told by collector/roles.h, which knows who started whom.
#pragma once

#include <span>
#include <vector>

#include "collector/process_state.h"
#include "procfs/environ.h"

namespace kitty::collector {

// What the rank is said to be from where no variable has it.
inline constexpr std::string_view kFromLocalRank = "LOCAL_RANK";

// The variables wanted of an environment, to be filled by a procfs::EnvironScan.
[[nodiscard]] std::vector<procfs::EnvironVariable> identity_variables();

// `variables` is what identity_variables() gave, filled. An absent variable is not the same as an empty one:
// an empty RANK is present, and wins. A rank that begins with kOwnRankMark is kitty's own, so none. Whatever
// the values hold, the labels can be shown: see printable_text(), which replaces newlines, too, because
// Prometheus hands a label on to alerts and their mails unescaped.
[[nodiscard]] RankLabels rank_labels(std::span<const procfs::EnvironVariable> variables);

// A number as launchers write it: digits alone, at most nine.
[[nodiscard]] std::optional<uint64_t> rank_number(std::string_view text);

}  // namespace kitty::collector
