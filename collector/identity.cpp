#include "collector/identity.h"

#include <array>
#include <string_view>

#include "base/utf8.h"

namespace kitty::collector {

namespace {

struct Variable {
  procfs::EnvironName name;
  std::string RankLabels::* label;
  std::string_view means_absent = {};  // a value that a launcher sets to say nothing
};

constexpr std::array kVariables = {
    Variable{"RANK", &RankLabels::rank},
    Variable{"OMPI_COMM_WORLD_RANK", &RankLabels::rank},
    Variable{"PMIX_RANK", &RankLabels::rank},
    Variable{"PMI_RANK", &RankLabels::rank},
    Variable{"SLURM_PROCID", &RankLabels::rank},
    Variable{"JOB_NAME", &RankLabels::job},
    Variable{"TORCHELASTIC_RUN_ID", &RankLabels::job, "none"},
    Variable{"SLURM_JOB_ID", &RankLabels::job},
    Variable{"PMIX_NAMESPACE", &RankLabels::job},
    Variable{"LOCAL_RANK", &RankLabels::local_rank},
    Variable{"OMPI_COMM_WORLD_LOCAL_RANK", &RankLabels::local_rank},
    Variable{"MPI_LOCALRANKID", &RankLabels::local_rank},
    Variable{"SLURM_LOCALID", &RankLabels::local_rank},
    Variable{"WORLD_SIZE", &RankLabels::world_size},
    Variable{"OMPI_COMM_WORLD_SIZE", &RankLabels::world_size},
    Variable{"PMI_SIZE", &RankLabels::world_size},
    Variable{"SLURM_NTASKS", &RankLabels::world_size},
};

}  // namespace

std::vector<procfs::EnvironVariable> identity_variables() {
  std::vector<procfs::EnvironVariable> variables;
  variables.reserve(kVariables.size());
  for (const Variable& variable : kVariables) variables.push_back({variable.name});
  return variables;
}

RankLabels rank_labels(std::span<const procfs::EnvironVariable> variables) {
  RankLabels labels;
  // Backwards, so that the first variable present has the last word.
  for (size_t i = std::min(variables.size(), kVariables.size()); i-- > 0;) {
    const Variable& variable = kVariables[i];
    const procfs::EnvironValue& value = variables[i].value;
    if (!value.present) continue;
    if (!variable.means_absent.empty() && value.text() == variable.means_absent) continue;
    labels.*variable.label = printable_text(value.text());
  }
  return labels;
}

}  // namespace kitty::collector
