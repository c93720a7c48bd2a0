// Which programs were executed on the host, each with the environment it was given, from the exec tracepoint
// of kprobe.bpf.c. What a program does to its environment afterwards (setproctitle) does not show here, and
// nothing of it has to be read under /proc. One thread uses it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "collector/flow_maps.h"
#include "procfs/function_ref.h"
#include "procfs/process.h"

namespace kitty::collector {

struct ExecutedProgram {
  procfs::ProcessId id;          // pid and start time as procfs shows them
  std::string_view environment;  // as /proc/PID/environ; lives until the callback returns
  bool whole = false;            // nothing of it is missing
};

class ExecLog {
 public:
  // `maps`: owned by the caller; null where no program fills them: then nothing is ever executed.
  // `pid_namespace`: the one that processes are numbered in (procfs::read_pid_namespace); 0 where that is not
  // known: then all that is executed is lost.
  ExecLog(const FlowMaps* maps, uint64_t pid_namespace);

  // Calls back for every program executed since the last call, in their order; those of processes that the
  // pid namespace does not show are passed over. Returns how many were lost: more were executed than the
  // kernel keeps (KITTY_EXEC_SLOTS), their record could not be read, or it does not tell their number here.
  uint64_t take(procfs::FunctionRef<void(const ExecutedProgram&)> on_program);

 private:
  const FlowMaps* maps_;
  const uint64_t pid_namespace_;
  const uint64_t ns_per_tick_;
  uint64_t taken_;  // executed before, as FlowMaps::execs() counts
  std::unique_ptr<kitty_exec> record_;
};

}  // namespace kitty::collector
