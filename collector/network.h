// The network collector: /proc/PID/net/snmp once per network namespace, and what it says to every watched
// process in it. Runs on the tick's thread only; a steady tick allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collector/metrics.h"
#include "procfs/snmp.h"

namespace kitty::collector {

class NetworkCollector {
 public:
  // Fills retransmits and out_segs of every process of metrics.state but workers. A process that is gone, or
  // whose namespace could not be read, gets none; a malformed file counts as a parse error.
  void tick(Metrics& metrics);

 private:
  struct Reading {
    uint64_t netns = 0;  // 0: not known for sure, so of one process only
    procfs::SnmpTcp tcp;
  };
  const Reading* read(const procfs::ProcessHandle& handle);

  std::vector<Reading> readings_;  // of this tick
  bool all_read_ = true;           // of this tick
  std::array<char, procfs::kSnmpBufferBytes> buffer_{};
  uint64_t parse_errors_ = 0;
};

}  // namespace kitty::collector
