#include "collector/network.h"

#include <algorithm>

namespace kitty::collector {

void NetworkCollector::tick(Metrics& metrics) {
  readings_.clear();
  bool all_read = true;
  for (size_t i = 0; i < metrics.processes.size(); ++i) {
    const WatchedProcess& process = metrics.state->processes[i];
    ProcessMetrics& out = metrics.processes[i];
    out.retransmits.reset();
    out.out_segs.reset();

    // Namespace 0 is an unknown one, so nothing may be shared with it.
    auto reading = std::ranges::find(readings_, process.netns, &Reading::netns);
    if (reading == readings_.end() || process.netns == 0) {
      procfs::SnmpTcp tcp;
      const procfs::ReadResult result = procfs::read_snmp(process.handle->dirfd(), buffer_, tcp);
      if (result.status == procfs::ReadStatus::gone) continue;  // the next discovery drops it
      if (!result.ok()) {
        all_read = false;
        if (result.status == procfs::ReadStatus::malformed) ++parse_errors_;
        continue;
      }
      readings_.push_back({process.netns, tcp});
      reading = std::prev(readings_.end());
    }
    out.retransmits = reading->tcp.retrans_segs;
    out.out_segs = reading->tcp.out_segs;
  }
  metrics.agent.network.success = all_read;
  metrics.agent.parse_errors = parse_errors_ + metrics.state->report.parse_errors;
}

}  // namespace kitty::collector
