// Which rank of which job a process is, from the variables that launchers set. Pure; thread-safe.
// The first variable present wins, in these orders (torchrun, Open MPI, PMIx, MPICH's PMI, Slurm):
//   rank   RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID (last: under srun + torchrun it
//   names the node) job    JOB_NAME, TORCHELASTIC_RUN_ID (unless "none", torchrun's default), SLURM_JOB_ID,
//   PMIX_NAMESPACE
#pragma once

#include <span>
#include <vector>

#include "collector/process_state.h"
#include "procfs/environ.h"

namespace kitty::collector {

// The variables wanted of an environment, to be filled by a procfs::EnvironScan.
[[nodiscard]] std::vector<procfs::EnvironVariable> identity_variables();

// `variables` is what identity_variables() gave, filled. An absent variable is not the same as an empty one:
// an empty RANK is present, and wins. Whatever the values hold, the labels can be shown: see
// printable_text(), which replaces newlines, too, because Prometheus hands a label on to alerts and their
// mails unescaped.
[[nodiscard]] RankLabels rank_labels(std::span<const procfs::EnvironVariable> variables);

}  // namespace kitty::collector
