// Which of the watched processes are ranks, and which only start them. The environment does not tell: a
// launcher hands on the variables of the launcher above it, so that under srun, torchrun has the rank that
// srun gave the node; and a program that makes ranks of itself (mp.spawn, Ray Train) sets RANK at run time,
// where nobody sees it. What tells is who started whom, and who is connected. Pure but for what it remembers;
// one thread uses it.
//
// Whose a claim is: a process's that its parent does not have alike; else it is inherited. A process with a
// claim of its own and those that inherit it are a family. Then
//   launcher   a known one by name; or its family's rank may be a node's or pod's (no LOCAL_RANK came with
//   RANK)
//              and a descendant has another rank of its own; or it has no connection, and descendants of its
//              family have: a shell around the rank
//   rank       the others of a family with a rank. Also of one without, where all that descendants claim is
//   one
//              rank and none of them is connected, while it is: it has set RANK for itself, and helpers got
//              it
//   numbered   without any rank, but connected: kOwnRankMark and a number of its own within its job on this
//   node,
//              by start, for as long as it lives. Not a parent that is connected elsewhere than its children
//              are (a tracker), nor a child that is connected to nobody of the job (a worker that loads data)
// Lightning's own launcher gives its children LOCAL_RANK=1.. and is local rank 0 itself.
#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collector/process_state.h"

namespace kitty::collector {

// Those to be numbered wait until a call brings no other one of their job, so that ranks that connect one
// after the other are numbered by start all the same; no longer than for so many calls.
inline constexpr unsigned kMostWaits = 5;

// What a numbered rank is said to be from, also while it waits for its number, and one that descendants told.
inline constexpr std::string_view kFromOrder = "order";
inline constexpr std::string_view kFromDescendant = "descendant";

class Roles {
 public:
  // Puts `labels` right, of any order of processes: a launcher's rank is empty, and that of one that waits
  // for a number. All that is watched is given at each call: what is not there has ended.
  void assign(std::vector<WatchedProcess>& processes);

 private:
  struct Known {
    bool connected = false;  // ever since it has been known
    std::optional<unsigned> number;
    unsigned waits = 0;  // calls at which it was to be numbered, and was not
    uint64_t seen = 0;
  };

  std::unordered_map<procfs::ProcessId, Known, ProcessIdHash> known_;
  uint64_t calls_ = 0;
};

// Whether a program of this name (/proc/PID/comm, cut at 15 bytes) starts ranks and is none.
[[nodiscard]] bool is_launcher_name(std::string_view comm);

}  // namespace kitty::collector
