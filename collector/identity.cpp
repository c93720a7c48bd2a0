#include "collector/identity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/utf8.h"

namespace kitty::collector {

namespace {

// Whose variable it is. What one launcher sets belongs together: its rank is another one's when any of them
// is.
enum class Launcher : uint8_t {
  torch,
  horovod,
  open_mpi,
  mvapich,
  pmix,
  pmi,
  pals,
  jsm,
  flux,
  slurm,
  kubernetes,
  anyone
};

struct Variable {
  procfs::EnvironName name;
  Launcher launcher;
  std::string RankLabels::* label = nullptr;  // null: only tells one setting of the others from another
  std::string_view means_absent = {};         // a value that a launcher sets to say nothing
};

// Where each is described:
//   torchrun      docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables"
//   Lightning     lightning/fabric/strategies/launchers/subprocess_script.py: LOCAL_RANK, NODE_RANK,
//   WORLD_SIZE Horovod       horovod/runner/gloo_run.py, create_slot_env_vars() Open MPI docs.open-mpi.org,
//   "Environment variables set by mpirun" MVAPICH2      its user guide, "MV2_COMM_WORLD_RANK" PMIx, PMI the
//   PMIx standard; MPICH's Hydra; Intel MPI adds MPI_LOCALRANKID and MPI_LOCALNRANKS PALS          HPE's
//   mpiexec(1) jsrun         IBM Job Step Manager Flux          flux-environment(7) Slurm         srun(1),
//   "OUTPUT ENVIRONMENT VARIABLES"; PBS and LSF name the job alone Kubernetes    batch/v1 Job with
//   completionMode Indexed; Kubeflow's PyTorchJob sets RANK to the pod's
constexpr std::array kVariables = {
    Variable{"RANK", Launcher::torch, &RankLabels::rank},
    Variable{"HOROVOD_RANK", Launcher::horovod, &RankLabels::rank},
    Variable{"OMPI_COMM_WORLD_RANK", Launcher::open_mpi, &RankLabels::rank},
    Variable{"MV2_COMM_WORLD_RANK", Launcher::mvapich, &RankLabels::rank},
    Variable{"PMIX_RANK", Launcher::pmix, &RankLabels::rank},
    Variable{"PMI_RANK", Launcher::pmi, &RankLabels::rank},
    Variable{"PALS_RANKID", Launcher::pals, &RankLabels::rank},
    Variable{"JSM_NAMESPACE_RANK", Launcher::jsm, &RankLabels::rank},
    Variable{"FLUX_TASK_RANK", Launcher::flux, &RankLabels::rank},
    Variable{"SLURM_PROCID", Launcher::slurm, &RankLabels::rank},
    Variable{"JOB_COMPLETION_INDEX", Launcher::kubernetes, &RankLabels::rank},
    Variable{"JOB_NAME", Launcher::anyone, &RankLabels::job},
    Variable{"TORCHELASTIC_RUN_ID", Launcher::torch, &RankLabels::job, "none"},
    Variable{"SLURM_JOB_ID", Launcher::slurm, &RankLabels::job},
    Variable{"FLUX_JOB_ID", Launcher::flux, &RankLabels::job},
    Variable{"PBS_JOBID", Launcher::anyone, &RankLabels::job},
    Variable{"LSB_JOBID", Launcher::anyone, &RankLabels::job},
    Variable{"PMIX_NAMESPACE", Launcher::pmix, &RankLabels::job},
    Variable{"LOCAL_RANK", Launcher::torch, &RankLabels::local_rank},
    Variable{"HOROVOD_LOCAL_RANK", Launcher::horovod, &RankLabels::local_rank},
    Variable{"OMPI_COMM_WORLD_LOCAL_RANK", Launcher::open_mpi, &RankLabels::local_rank},
    Variable{"MV2_COMM_WORLD_LOCAL_RANK", Launcher::mvapich, &RankLabels::local_rank},
    Variable{"MPI_LOCALRANKID", Launcher::pmi, &RankLabels::local_rank},
    Variable{"PALS_LOCAL_RANKID", Launcher::pals, &RankLabels::local_rank},
    Variable{"JSM_NAMESPACE_LOCAL_RANK", Launcher::jsm, &RankLabels::local_rank},
    Variable{"FLUX_TASK_LOCAL_ID", Launcher::flux, &RankLabels::local_rank},
    Variable{"SLURM_LOCALID", Launcher::slurm, &RankLabels::local_rank},
    Variable{"WORLD_SIZE", Launcher::torch, &RankLabels::world_size},
    Variable{"HOROVOD_SIZE", Launcher::horovod, &RankLabels::world_size},
    Variable{"OMPI_COMM_WORLD_SIZE", Launcher::open_mpi, &RankLabels::world_size},
    Variable{"MV2_COMM_WORLD_SIZE", Launcher::mvapich, &RankLabels::world_size},
    Variable{"PMI_SIZE", Launcher::pmi, &RankLabels::world_size},
    Variable{"JSM_NAMESPACE_SIZE", Launcher::jsm, &RankLabels::world_size},
    Variable{"FLUX_JOB_SIZE", Launcher::flux, &RankLabels::world_size},
    Variable{"SLURM_NTASKS", Launcher::slurm, &RankLabels::world_size},
    Variable{"NODE_RANK", Launcher::torch, &RankLabels::node_rank},
    Variable{"GROUP_RANK", Launcher::torch, &RankLabels::node_rank},
    Variable{"SLURM_NODEID", Launcher::slurm, &RankLabels::node_rank},
    Variable{"LOCAL_WORLD_SIZE", Launcher::torch, &RankLabels::local_world_size},
    Variable{"SLURM_NTASKS_PER_NODE", Launcher::slurm, &RankLabels::local_world_size},
    Variable{"SLURM_STEP_ID", Launcher::slurm},
};

using Values = std::span<const procfs::EnvironVariable>;

const procfs::EnvironValue* find(Values variables, std::string_view name) {
  const auto found = std::ranges::find(variables, name, [](const auto& one) { return one.name.text(); });
  return found == variables.end() || !found->value.present ? nullptr : &found->value;
}

// Everything else of the same launcher.
std::string stamp(Values variables, const Variable& rank) {
  std::string text;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (kVariables[i].launcher != rank.launcher || kVariables[i].label == &RankLabels::rank) continue;
    if (variables[i].value.present) text += variables[i].value.text();
    text += '\n';
  }
  return text;
}

std::string_view of(Values variables, Launcher launcher, std::string RankLabels::* label) {
  for (size_t i = 0; i < variables.size(); ++i) {
    if (kVariables[i].launcher == launcher && kVariables[i].label == label && variables[i].value.present)
      return variables[i].value.text();
  }
  return {};
}

// sbatch(1) gives the script SLURM_PROCID=0 and no step: that of the script, on the first node, whatever it
// starts.
bool names_a_batch_script(Values variables, const Variable& variable) {
  return variable.launcher == Launcher::slurm && find(variables, "SLURM_STEP_ID") == nullptr;
}

std::vector<RankClaim> claims(Values variables) {
  std::vector<RankClaim> list;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Variable& variable = kVariables[i];
    const procfs::EnvironValue& value = variables[i].value;
    if (variable.label != &RankLabels::rank || !value.present) continue;
    if (value.text().empty() && list.empty()) return {};
    if (value.text().empty() || value.text().front() == kOwnRankMark) continue;
    if (names_a_batch_script(variables, variable)) continue;
    list.push_back({.variable = variable.name.text(),
                    .value = printable_text(value.text()),
                    .local_rank = printable_text(of(variables, variable.launcher, &RankLabels::local_rank)),
                    .world_size = printable_text(of(variables, variable.launcher, &RankLabels::world_size)),
                    .stamp = stamp(variables, variable)});
  }
  return list;
}

// Where LOCAL_RANK is all that is said, or with what makes it a rank.
std::optional<RankClaim> local_claim(Values variables, const RankLabels& labels) {
  const procfs::EnvironValue* local_rank = find(variables, kFromLocalRank);
  if (local_rank == nullptr) return std::nullopt;
  const Variable& variable = kVariables.front();  // RANK's kin
  RankClaim claim{.variable = kFromLocalRank,
                  .value = {},
                  .local_rank = printable_text(local_rank->text()),
                  .world_size = printable_text(of(variables, Launcher::torch, &RankLabels::world_size)),
                  .stamp = std::string(local_rank->text()) + '\n' + stamp(variables, variable)};
  const auto local = rank_number(claim.local_rank), node = rank_number(labels.node_rank),
             size = rank_number(labels.local_world_size);
  // On the first node the number of ranks on a node does not matter.
  if (local && node && (*node == 0 || (size && *local < *size)))
    claim.value = std::to_string(*node * size.value_or(0) + *local);
  return claim;
}

}  // namespace

std::optional<uint64_t> rank_number(std::string_view text) {
  constexpr size_t kMaxDigits = 9;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > kMaxDigits)
    return std::nullopt;
  return number;
}

std::vector<procfs::EnvironVariable> identity_variables() {
  std::vector<procfs::EnvironVariable> variables;
  variables.reserve(kVariables.size());
  for (const Variable& variable : kVariables) variables.push_back({variable.name});
  return variables;
}

RankLabels rank_labels(std::span<const procfs::EnvironVariable> variables) {
  variables = variables.first(std::min(variables.size(), kVariables.size()));
  RankLabels labels;
  // Backwards, so that the first variable present has the last word.
  for (size_t i = variables.size(); i-- > 0;) {
    const Variable& variable = kVariables[i];
    const procfs::EnvironValue& value = variables[i].value;
    if (!value.present || variable.label == nullptr || variable.label == &RankLabels::rank) continue;
    if (!variable.means_absent.empty() && value.text() == variable.means_absent) continue;
    labels.*variable.label = printable_text(value.text());
  }
  labels.claims = claims(variables);
  const bool none_wanted = find(variables, "RANK") != nullptr && find(variables, "RANK")->size == 0;
  if (labels.claims.empty() && !none_wanted) {
    if (auto claim = local_claim(variables, labels)) labels.claims.push_back(std::move(*claim));
  }
  if (!labels.claims.empty() && !labels.claims.front().value.empty()) {
    labels.rank = labels.claims.front().value;
    labels.rank_from = labels.claims.front().variable;
  }
  labels.by_torchrun = find(variables, "TORCHELASTIC_RUN_ID") != nullptr;
  return labels;
}

}  // namespace kitty::collector
