#include "collector/identity.h"

#include <gtest/gtest.h>

#include <string>

namespace kitty::collector {
namespace {

struct Case {
  const char* name;
  std::string environ;  // NUL-separated
  RankLabels want;
};

RankLabels labels_of(const std::string& environ) {
  std::vector<procfs::EnvironVariable> variables = identity_variables();
  procfs::EnvironScan scan(variables);
  scan.feed(environ);
  scan.finish();
  return rank_labels(variables);
}

std::string entries(std::initializer_list<std::string_view> list) {
  std::string text;
  for (const std::string_view entry : list) {
    text += entry;
    text += '\0';
  }
  return text;
}

TEST(RankLabels, FirstPresentVariableWins) {
  const Case cases[] = {
      {"nothing", entries({"PATH=/bin"}), {}},
      {"torchrun",
       entries({"LOCAL_RANK=1", "WORLD_SIZE=8", "RANK=5", "TORCHELASTIC_RUN_ID=run7"}),
       {"5", "run7", "1", "8"}},
      {"rank before all others",
       entries({"SLURM_PROCID=9", "PMI_RANK=8", "PMIX_RANK=7", "OMPI_COMM_WORLD_RANK=6", "RANK=5"}),
       {.rank = "5", .job = "", .local_rank = "", .world_size = ""}},
      {"Open MPI before PMIx", entries({"PMIX_RANK=7", "OMPI_COMM_WORLD_RANK=6"}), {"6", "", "", ""}},
      {"PMIx before PMI", entries({"PMI_RANK=8", "PMIX_RANK=7"}), {"7", "", "", ""}},
      {"PMI before Slurm", entries({"SLURM_PROCID=9", "PMI_RANK=8"}), {"8", "", "", ""}},
      {"Slurm alone",
       entries({"SLURM_PROCID=9", "SLURM_JOB_ID=123", "SLURM_NTASKS=16"}),
       {"9", "123", "", "16"}},
      {"empty RANK is present", entries({"RANK=", "SLURM_PROCID=9"}), {}},
      {"JOB_NAME before the others",
       entries({"PMIX_NAMESPACE=p", "SLURM_JOB_ID=s", "TORCHELASTIC_RUN_ID=t", "JOB_NAME=j"}),
       {"", "j", "", ""}},
      {"run id none is torchrun's default",
       entries({"TORCHELASTIC_RUN_ID=none", "SLURM_JOB_ID=s"}),
       {"", "s", "", ""}},
      {"PMIx namespace last", entries({"PMIX_NAMESPACE=p"}), {"", "p", "", ""}},
      {"what steers a terminal or breaks a line is replaced",
       entries({"RANK=\x1b[2J", "JOB_NAME=a\nb\xc2\x9b\xe2\x80\xae\xff", "LOCAL_RANK=\x7f"}),
       {"\ufffd[2J", "a\ufffdb\ufffd\ufffd\ufffd", "\ufffd", ""}},
      {"first occurrence", entries({"RANK=1", "RANK=2"}), {"1", "", "", ""}},
  };
  for (const Case& c : cases) EXPECT_EQ(labels_of(c.environ), c.want) << c.name;
}

}  // namespace
}  // namespace kitty::collector
