#include "collector/roles.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/unit/environment.h"

namespace kitty::collector {
namespace {

using Environment = std::vector<std::string_view>;

struct Process {
  pid_t pid;  // also when it started
  pid_t parent;
  const char* comm;
  Environment environment;
  std::vector<const char*> connected;  // "local>remote", each a last byte of 10.0.0.x; 127 is loopback
  const char* want;
};

Environment operator+(Environment left, const Environment& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

procfs::IpAddress address(int last) {
  if (last == 127) return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, static_cast<uint8_t>(last)};
}

WatchedProcess watched(const Process& process) {
  WatchedProcess one;
  one.id = {process.pid, static_cast<uint64_t>(process.pid)};
  one.parent = process.parent;
  one.comm = process.comm;
  one.labels = labels_of(process.environment);
  for (const std::string_view text : process.connected) {
    const size_t arrow = text.find('>');
    OwnedSocket socket;
    socket.connected = true;
    socket.connection.local = address(std::stoi(std::string(text.substr(0, arrow))));
    socket.connection.remote = address(std::stoi(std::string(text.substr(arrow + 1))));
    one.sockets.push_back(socket);
  }
  return one;
}

std::vector<std::pair<pid_t, std::string>> shown(Roles& roles, const std::vector<Process>& processes) {
  std::vector<WatchedProcess> list;
  for (const Process& process : processes) list.push_back(watched(process));
  std::vector<WatchedProcess> before = list;
  roles.assign(before);
  roles.assign(list);
  std::vector<std::pair<pid_t, std::string>> result;
  for (const WatchedProcess& process : list) result.emplace_back(process.id.pid, process.labels.rank);
  return result;
}

void expect_shown(Roles& roles, const char* name, const std::vector<Process>& processes) {
  std::vector<std::pair<pid_t, std::string>> want;
  for (const Process& process : processes) want.emplace_back(process.pid, process.want);
  EXPECT_EQ(shown(roles, processes), want) << name;
}

Environment torch(std::string_view rank, std::string_view local_rank, std::string_view world_size) {
  return {rank, local_rank, world_size, "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=none"};
}

const Environment kStep1 = {"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=2"};
const Environment kBatch = {"SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NTASKS=4"};
const Environment kMpi0 = {"OMPI_COMM_WORLD_RANK=0", "PMIX_RANK=0", "PMIX_NAMESPACE=p"};
const Environment kMpi1 = {"OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=1", "PMIX_NAMESPACE=p"};
const Environment kMpi2 = {"OMPI_COMM_WORLD_RANK=2", "PMIX_RANK=2", "PMIX_NAMESPACE=p"};
const Environment kRank2 = torch("RANK=2", "LOCAL_RANK=0", "WORLD_SIZE=4");
const Environment kRank3 = torch("RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=4");

TEST(Roles, LauncherIsNoRank) {
  const std::pair<const char*, std::vector<Process>> cases[] = {
      {"torchrun alone",
       {{10, 1, "python3", {}, {"1>9"}, ""},
        {11, 10, "python3", kRank2, {"1>2", "1>9"}, "2"},
        {12, 10, "python3", kRank3, {"1>2"}, "3"}}},
      {"srun torchrun on node 1",
       {{10, 1, "python3", kStep1, {"1>9"}, ""},
        {11, 10, "python3", kStep1 + kRank2, {"1>2"}, "2"},
        {12, 10, "python3", kStep1 + kRank3, {"1>2"}, "3"}}},
      {"srun bash torchrun, ranks not connected yet",
       {{9, 1, "bash", kStep1, {}, ""},
        {10, 9, "python3", kStep1, {"1>9"}, ""},
        {11, 10, "python3", kStep1 + kRank2, {}, "2"},
        {12, 10, "python3", kStep1 + kRank3, {}, "3"}}},
      {"srun torchrun with one rank a node, whose number is the node's",
       {{10, 1, "python3", kStep1, {"1>9"}, ""},
        {11, 10, "python3", kStep1 + torch("RANK=1", "LOCAL_RANK=0", "WORLD_SIZE=2"), {"1>2"}, "1"}}},
      {"PyTorchJob: RANK is the pod's",
       {{10, 1, "python3", {"RANK=1", "WORLD_SIZE=2"}, {"1>9"}, ""},
        {11, 10, "python3", kRank2, {"1>2"}, "2"},
        {12, 10, "python3", kRank3, {"1>2"}, "3"}}},
      {"PyTorchJob's first pod: the first rank has the pod's number",
       {{10, 1, "python3", {"RANK=0", "WORLD_SIZE=2"}, {"1>9"}, ""},
        {11, 10, "python3", torch("RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=4"), {}, "0"},
        {12, 10, "python3", torch("RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=4"), {"1>2"}, "1"}}},
      {"PyTorchJob without torchrun: RANK is the rank's",
       {{10, 1, "bash", {"RANK=1", "WORLD_SIZE=2"}, {}, ""},
        {11, 10, "python3", {"RANK=1", "WORLD_SIZE=2"}, {"1>2"}, "1"}}},
      {"Indexed Job with torchrun",
       {{10, 1, "python3", {"JOB_COMPLETION_INDEX=1"}, {"1>9"}, ""},
        {11, 10, "python3", Environment{"JOB_COMPLETION_INDEX=1"} + kRank2, {"1>2"}, "2"}}},
      {"mpirun in a batch script",
       {{9, 1, "slurm_script", kBatch, {}, ""},
        {10, 9, "mpirun", kBatch, {"1>2"}, ""},
        {11, 10, "srun", kBatch, {"1>9"}, ""},
        {12, 10, "train", kBatch + kMpi0, {"1>2"}, "0"},
        {13, 10, "train", kBatch + kMpi1, {"1>2"}, "1"}}},
      {"orted under srun, beside it its rank",
       {{10, 1, "orted", kStep1, {"1>2"}, ""}, {11, 10, "train", kStep1 + kMpi2, {"1>2"}, "2"}}},
      {"mpirun in a pod with a RANK, which is handed on",
       {{10, 1, "mpirun", {"RANK=0"}, {"1>2"}, ""},
        {11, 10, "train", Environment{"RANK=0"} + kMpi0, {"1>2"}, "0"},
        {12, 10, "train", Environment{"RANK=0"} + kMpi1, {"1>2"}, "1"}}},
      {"mpirun -npernode 1 torchrun",
       {{10, 1, "mpirun", {}, {"1>2"}, ""},
        {11, 10, "python3", kMpi1, {"1>9"}, ""},
        {12, 11, "python3", kMpi1 + kRank2, {"1>2"}, "2"},
        {13, 11, "python3", kMpi1 + kRank3, {"1>2"}, "3"}}},
      {"a script that makes RANK of its launcher's",
       {{10, 1, "mpirun", {}, {"1>2"}, ""},
        {11, 10, "bash", kMpi1, {}, ""},
        {12, 11, "python3", kMpi1 + Environment{"RANK=1"}, {"1>2"}, "1"}}},
      {"srun of a shell around the rank",
       {{10, 1, "bash", kStep1, {}, ""}, {11, 10, "python3", kStep1, {"1>2"}, "1"}}},
      {"nested torchrun",
       {{10, 1, "python3", {}, {"127>127"}, ""},
        {11, 10, "python3", torch("RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1"), {"127>127"}, ""},
        {12, 11, "python3", kRank2, {"1>2"}, "2"},
        {13, 11, "python3", kRank3, {"1>2"}, "3"}}},
      {"torchrun by name, before its ranks are there", {{10, 1, "torchrun", kStep1, {"1>9"}, ""}}},
      {"Hydra",
       {{10, 1, "mpiexec.hydra", {}, {"1>1"}, ""},
        {11, 10, "hydra_pmi_proxy", {}, {"1>1"}, ""},
        {12, 11, "train", {"PMI_RANK=0"}, {"1>2"}, "0"}}},
      {"a name of more than 15 bytes", {{10, 1, "hydra_bstrap_pr", {"PMI_RANK=0"}, {"1>2"}, ""}}},
  };
  for (const auto& [name, processes] : cases) {
    Roles roles;
    expect_shown(roles, name, processes);
  }
}

TEST(Roles, RankThatStartsOthersStaysOne) {
  const std::pair<const char*, std::vector<Process>> cases[] = {
      {"forked workers say nothing of their parent",
       {{10, 1, "python3", kRank2, {"1>2"}, "2"},
        {11, 10, "python3", kRank2, {}, "2"},
        {12, 10, "python3", kRank2, {"1>77"}, "2"}}},
      {"the same by Slurm",
       {{10, 1, "python3", kStep1, {"1>2"}, "1"},
        {11, 10, "python3", kStep1, {}, "1"},
        {12, 10, "python3", kStep1, {"1>77"}, "1"}}},
      {"not connected yet", {{10, 1, "python3", kRank2, {}, "2"}, {11, 10, "python3", kRank2, {}, "2"}}},
      {"RANK of its own at run time, which helpers get",
       {{10, 1, "train", kMpi1, {"1>2"}, "1"},
        {11, 10, "python3", kMpi1 + Environment{"RANK=1", "LOCAL_RANK=1"}, {}, "1"},
        {12, 10, "wandb", kMpi1 + Environment{"RANK=1", "LOCAL_RANK=1"}, {"1>88"}, "1"}}},
      {"a rank that evaluates in a job of one",
       {{10, 1, "python3", kRank3, {"1>2"}, "3"},
        {11, 10, "python3", torch("RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1"), {"127>127"}, "0"}}},
      {"who never was connected is still a rank", {{10, 1, "python3", kStep1, {}, "1"}}},
      {"a parent's number that belongs to somebody younger",
       {{12, 1, "python3", kStep1, {"1>9"}, "1"}, {11, 12, "python3", kRank2, {"1>2"}, "2"}}},
  };
  for (const auto& [name, processes] : cases) {
    Roles roles;
    expect_shown(roles, name, processes);
  }
}

TEST(Roles, RanksWithoutOneAreNumbered) {
  const Environment job = {"JOB_NAME=j"}, other = {"JOB_NAME=k"};
  const Environment local1 = {"LOCAL_RANK=1", "NODE_RANK=1", "WORLD_SIZE=6"},
                    local2 = {"LOCAL_RANK=2", "NODE_RANK=1", "WORLD_SIZE=6"};
  const std::pair<const char*, std::vector<Process>> cases[] = {
      {"mp.spawn",
       {{10, 1, "python3", job, {}, ""},
        {11, 10, "python3", job, {}, ""},
        {12, 10, "python3", job, {"1>2", "1>3"}, "?0"},
        {13, 10, "python3", job, {"1>2", "1>3"}, "?1"}}},
      {"mp.spawn whose parent reports elsewhere",
       {{10, 1, "python3", job, {"1>88"}, ""},
        {12, 10, "python3", job, {"1>2"}, "?0"},
        {13, 10, "python3", job, {"1>2"}, "?1"}}},
      {"the parent is a rank itself",
       {{10, 1, "python3", job, {"127>127", "1>2"}, "?0"},
        {12, 10, "python3", job, {"127>127"}, "?1"},
        {13, 10, "python3", job, {"127>127"}, "?2"}}},
      {"workers that load from elsewhere are none",
       {{10, 1, "python3", job, {"1>2", "1>77"}, "?0"},
        {11, 10, "python3", job, {"1>77"}, ""},
        {12, 10, "python3", job, {}, ""}}},
      {"Lightning's own launcher on node 1",
       {{10, 1, "python3", job, {"1>2"}, "3"},
        {11, 10, "python3", job + local1, {"1>2"}, "4"},
        {12, 10, "python3", job + local2, {"1>2"}, "5"},
        {13, 10, "python3", job, {"1>77"}, ""},
        {14, 11, "python3", job + local1, {}, "4"}}},
      {"Lightning on node 0, not connected yet",
       {{10, 1, "python3", job, {}, "0"},
        {11, 10, "python3", job + Environment{"LOCAL_RANK=1", "NODE_RANK=0", "WORLD_SIZE=2"}, {}, "1"}}},
      {"local ranks with one missing",
       {{10, 1, "python3", job, {"1>2"}, "?0"}, {12, 10, "python3", job + local2, {"1>2"}, "?1"}}},
      {"a script that sets LOCAL_RANK",
       {{10, 1, "bash", job, {}, ""},
        {11, 10, "python3", job + Environment{"LOCAL_RANK=0", "NODE_RANK=2"}, {"1>2"}, "4"},
        {12, 10, "python3", job + Environment{"LOCAL_RANK=1", "NODE_RANK=2"}, {"1>2"}, "5"}}},
      {"Ray Train: helpers tell what the ranks have set for themselves",
       {{10, 1, "raylet", job, {"1>9"}, ""},
        {11, 10, "ray::RayTrainWo", job, {"1>2", "1>9"}, "2"},
        {12, 10, "ray::RayTrainWo", job, {"1>2", "1>9"}, "?0"},
        {13, 11, "python3", job + Environment{"RANK=2", "LOCAL_RANK=0", "WORLD_SIZE=4"}, {}, "2"}}},
      {"mp.spawn under srun: the rank was the node's",
       {{10, 1, "python3", job + kStep1, {}, ""},
        {11, 10, "python3", job + kStep1, {}, ""},
        {12, 10, "python3", job + kStep1, {"1>2"}, "?0"},
        {13, 10, "python3", job + kStep1, {"1>2"}, "?1"}}},
      {"what a shell starts beside the rank is none of it",
       {{10, 1, "bash", kStep1, {}, ""},
        {12, 10, "python3", kStep1, {"1>2"}, "1"},
        {13, 10, "tensorboard", kStep1, {"3>66"}, "1"}}},
      {"each job has its own numbers",
       {{10, 1, "python3", job, {"1>2"}, "?0"},
        {11, 1, "python3", other, {"1>2"}, "?0"},
        {12, 1, "python3", job, {"1>2"}, "?1"}}},
  };
  for (const auto& [name, processes] : cases) {
    Roles roles;
    expect_shown(roles, name, processes);
  }
}

TEST(Roles, NumberStaysAsLongAsItsProcess) {
  const Environment job = {"JOB_NAME=j"};
  Roles roles;
  expect_shown(roles, "before connections", {{12, 1, "a", job, {}, ""}, {13, 1, "a", job, {}, ""}});
  expect_shown(roles, "the younger first", {{12, 1, "a", job, {}, ""}, {13, 1, "a", job, {"1>2"}, "?0"}});
  expect_shown(roles, "an elder one", {{12, 1, "a", job, {"1>2"}, "?1"}, {13, 1, "a", job, {"1>2"}, "?0"}});
  expect_shown(roles, "disconnected", {{12, 1, "a", job, {}, "?1"}, {13, 1, "a", job, {}, "?0"}});
  expect_shown(roles, "one has ended", {{12, 1, "a", job, {"1>2"}, "?1"}, {20, 1, "a", job, {"1>2"}, "?0"}});
  expect_shown(roles, "it has executed a program with a rank",
               {{12, 1, "a", kRank2, {"1>2"}, "2"}, {20, 1, "a", job, {"1>2"}, "?0"}});
}

TEST(Roles, ConnectionOnceSeenCounts) {
  Roles roles;
  const Process shell{10, 1, "bash", kStep1, {}, ""};
  expect_shown(roles, "connected", {shell, {11, 10, "python3", kStep1, {"1>2"}, "1"}});
  expect_shown(roles, "not any more", {shell, {11, 10, "python3", kStep1, {}, "1"}});
}

// Ranks that connect within some snapshots of each other have the order they were started in.
TEST(Roles, NumbersNewcomersOnceNoMoreOfTheJobCome) {
  Roles roles;
  const Environment job = {"JOB_NAME=j"}, other = {"JOB_NAME=k"};
  const auto ranks = [&](const std::vector<Process>& processes) {
    std::vector<WatchedProcess> list;
    for (const Process& process : processes) list.push_back(watched(process));
    roles.assign(list);
    std::vector<std::string> result;
    for (const WatchedProcess& process : list) result.push_back(process.labels.rank);
    return result;
  };
  using Ranks = std::vector<std::string>;
  const Process elder{11, 1, "a", job, {"1>2"}, ""}, younger{12, 1, "a", job, {"1>2"}, ""};
  const Process unconnected{11, 1, "a", job, {}, ""}, of_other{13, 1, "a", other, {"1>2"}, ""};
  EXPECT_EQ(ranks({unconnected, younger, of_other}), (Ranks{"", "", ""}));
  EXPECT_EQ(ranks({elder, younger, of_other}), (Ranks{"", "", "?0"})) << "the other job's wait for nobody";
  EXPECT_EQ(ranks({elder, younger, of_other}), (Ranks{"?0", "?1", "?0"}));
  std::vector<Process> crowd = {{20, 1, "a", {"JOB_NAME=c"}, {"1>2"}, ""}};
  for (unsigned i = 0; i < kMostWaits; ++i) {
    EXPECT_EQ(ranks(crowd).front(), "");
    crowd.push_back({static_cast<pid_t>(21 + i), 1, "a", {"JOB_NAME=c"}, {"1>2"}, ""});
  }
  EXPECT_EQ(ranks(crowd).front(), "?0") << "though more come each time";
}

TEST(Roles, SaysWhereARankIsFrom) {
  std::vector<WatchedProcess> list = {
      watched({10, 1, "a", {"OMPI_COMM_WORLD_RANK=1", "JOB_NAME=j"}, {}, ""}),
      watched({11, 1, "a", {"JOB_NAME=j"}, {"1>2"}, ""}),
      watched({12, 1, "a", {"JOB_NAME=j"}, {}, ""}),
  };
  Roles().assign(list);
  EXPECT_EQ(list[0].labels.rank_from, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(list[1].labels.rank_from, kFromOrder);
  EXPECT_EQ(list[2].labels.rank_from, "");
}

// What a claim's launcher says of local rank and world belongs to it.
TEST(Roles, LabelsAreOfTheClaimThatCounts) {
  std::vector<WatchedProcess> list = {
      watched({10, 1, "mpirun", {"RANK=0", "WORLD_SIZE=2"}, {}, ""}),
      watched({11,
               10,
               "a",
               {"RANK=0", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_LOCAL_RANK=1",
                "OMPI_COMM_WORLD_SIZE=8"},
               {},
               ""}),
  };
  Roles().assign(list);
  EXPECT_EQ(list[1].labels.rank, "5");
  EXPECT_EQ(list[1].labels.local_rank, "1");
  EXPECT_EQ(list[1].labels.world_size, "8");
}

// As many as can be watched, each below the one before, or all below one: told within a discovery's time.
TEST(Roles, CrowdIsToldSoon) {
  for (const bool chain : {false, true}) {
    std::vector<WatchedProcess> list;
    for (size_t i = 0; i < kMaxWatchedProcesses; ++i) {
      const auto pid = static_cast<pid_t>(10 + i);
      list.push_back(watched({pid, i == 0 ? 1 : chain ? pid - 1 : 10, "a", {}, {"1>2", "127>127"}, ""}));
    }
    Roles roles;
    std::vector<WatchedProcess> before = list;
    roles.assign(before);
    roles.assign(list);
    EXPECT_EQ(list.back().labels.rank, "?" + std::to_string(kMaxWatchedProcesses - 1));
  }
}

}  // namespace
}  // namespace kitty::collector
