// What the agent itself uses, for the process_* series, and what its log lost. Reads /proc/self; what cannot
// be read stays 0. No allocation.
#pragma once

#include <cstdint>

namespace kitty::collector {

struct AgentUsage {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t open_fds = 0;
  uint64_t log_lines_dropped = 0;
};

[[nodiscard]] AgentUsage read_agent_usage();

}  // namespace kitty::collector
