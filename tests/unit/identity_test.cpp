#include "collector/identity.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/environment.h"

namespace kitty::collector {
namespace {

struct Shown {
  std::string rank, job, local_rank, world_size;
  friend bool operator==(const Shown&, const Shown&) = default;
  friend void PrintTo(const Shown& one, std::ostream* out) {
    *out << one.rank << '|' << one.job << '|' << one.local_rank << '|' << one.world_size;
  }
};

struct Case {
  const char* name;
  std::vector<std::string_view> environ;
  Shown want;
  const char* from = nullptr;  // where the rank is from; null: not of this case
};

TEST(RankLabels, FirstPresentVariableWins) {
  const Case cases[] = {
      {"nothing", {"PATH=/bin"}, {}, ""},
      {"torchrun",
       {"LOCAL_RANK=1", "WORLD_SIZE=8", "RANK=5", "TORCHELASTIC_RUN_ID=run7"},
       {"5", "run7", "1", "8"},
       "RANK"},
      {"rank before all others",
       {"SLURM_STEP_ID=0", "SLURM_PROCID=9", "PMI_RANK=8", "PMIX_RANK=7", "OMPI_COMM_WORLD_RANK=6", "RANK=5"},
       {"5", "", "", ""},
       "RANK"},
      {"Open MPI before PMIx", {"PMIX_RANK=7", "OMPI_COMM_WORLD_RANK=6"}, {"6", "", "", ""}},
      {"PMIx before PMI", {"PMI_RANK=8", "PMIX_RANK=7"}, {"7", "", "", ""}},
      {"PMI before Slurm", {"SLURM_STEP_ID=0", "SLURM_PROCID=9", "PMI_RANK=8"}, {"8", "", "", ""}},
      {"Slurm alone",
       {"SLURM_PROCID=9", "SLURM_STEP_ID=0", "SLURM_JOB_ID=123", "SLURM_NTASKS=16", "SLURM_LOCALID=1"},
       {"9", "123", "1", "16"},
       "SLURM_PROCID"},
      {"a batch script is no rank",
       {"SLURM_PROCID=0", "SLURM_JOB_ID=123", "SLURM_NTASKS=16", "SLURM_LOCALID=0"},
       {"", "123", "0", "16"},
       ""},
      {"MVAPICH2",
       {"MV2_COMM_WORLD_RANK=3", "MV2_COMM_WORLD_LOCAL_RANK=1", "MV2_COMM_WORLD_SIZE=4"},
       {"3", "", "1", "4"},
       "MV2_COMM_WORLD_RANK"},
      {"Horovod over Gloo",
       {"HOROVOD_RANK=3", "HOROVOD_LOCAL_RANK=1", "HOROVOD_SIZE=4"},
       {"3", "", "1", "4"},
       "HOROVOD_RANK"},
      {"Intel MPI", {"PMI_RANK=3", "MPI_LOCALRANKID=1", "PMI_SIZE=4"}, {"3", "", "1", "4"}, "PMI_RANK"},
      {"PALS", {"PALS_RANKID=3", "PALS_LOCAL_RANKID=1"}, {"3", "", "1", ""}, "PALS_RANKID"},
      {"jsrun",
       {"JSM_NAMESPACE_RANK=3", "JSM_NAMESPACE_LOCAL_RANK=1", "JSM_NAMESPACE_SIZE=4", "LSB_JOBID=77"},
       {"3", "77", "1", "4"},
       "JSM_NAMESPACE_RANK"},
      {"Flux",
       {"FLUX_TASK_RANK=3", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_SIZE=4", "FLUX_JOB_ID=ab12"},
       {"3", "ab12", "1", "4"},
       "FLUX_TASK_RANK"},
      {"Indexed Job", {"JOB_COMPLETION_INDEX=3"}, {"3", "", "", ""}, "JOB_COMPLETION_INDEX"},
      {"empty RANK is present", {"RANK=", "SLURM_PROCID=9", "SLURM_STEP_ID=0"}, {}, ""},
      {"empty RANK beside LOCAL_RANK", {"RANK=", "LOCAL_RANK=1", "NODE_RANK=0"}, {"", "", "1", ""}, ""},
      {"kitty's own mark is nobody's", {"RANK=?0", "OMPI_COMM_WORLD_RANK=6"}, {"6", "", "", ""}},
      {"kitty's own mark alone", {"RANK=?0"}, {}, ""},
      {"local and node rank and their number",
       {"LOCAL_RANK=1", "NODE_RANK=2", "LOCAL_WORLD_SIZE=4", "WORLD_SIZE=16"},
       {"9", "", "1", "16"},
       "LOCAL_RANK"},
      {"on the first node the number does not matter",
       {"LOCAL_RANK=3", "NODE_RANK=0", "WORLD_SIZE=8"},
       {"3", "", "3", "8"},
       "LOCAL_RANK"},
      {"on others it does", {"LOCAL_RANK=3", "NODE_RANK=1", "WORLD_SIZE=8"}, {"", "", "3", "8"}, ""},
      {"a local rank beyond the number",
       {"LOCAL_RANK=4", "NODE_RANK=1", "LOCAL_WORLD_SIZE=4"},
       {"", "", "4", ""},
       ""},
      {"no numbers", {"LOCAL_RANK=-1", "NODE_RANK=0x1", "LOCAL_WORLD_SIZE=4"}, {"", "", "-1", ""}, ""},
      {"too large", {"LOCAL_RANK=1", "NODE_RANK=9999999999", "LOCAL_WORLD_SIZE=4"}, {"", "", "1", ""}, ""},
      {"JOB_NAME before the others",
       {"PMIX_NAMESPACE=p", "SLURM_JOB_ID=s", "TORCHELASTIC_RUN_ID=t", "JOB_NAME=j"},
       {"", "j", "", ""}},
      {"run id none is torchrun's default",
       {"TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=s"},
       {"", "s", "", ""}},
      {"PMIx namespace last", {"PMIX_NAMESPACE=p", "PBS_JOBID=4.head"}, {"", "4.head", "", ""}},
      {"what steers a terminal or breaks a line is replaced",
       {"RANK=\x1b[2J", "JOB_NAME=a\nb\xc2\x9b\xe2\x80\xae\xff", "LOCAL_RANK=\x7f"},
       {"\ufffd[2J", "a\ufffdb\ufffd\ufffd\ufffd", "\ufffd", ""}},
      {"first occurrence", {"RANK=1", "RANK=2"}, {"1", "", "", ""}},
  };
  for (const Case& c : cases) {
    const RankLabels labels = labels_of(c.environ);
    EXPECT_EQ((Shown{labels.rank, labels.job, labels.local_rank, labels.world_size}), c.want) << c.name;
    if (c.from != nullptr) {
      EXPECT_EQ(labels.rank_from, c.from) << c.name;
    }
  }
}

}  // namespace
}  // namespace kitty::collector
