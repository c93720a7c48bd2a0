#include "collector/network.h"

#include <algorithm>

namespace kitty::collector {

// The counters of the namespace that the process is in now: the number that its state carries may be seconds
// old, and the process elsewhere since (setns). Null where they could not be read.
const NetworkCollector::Reading* NetworkCollector::read(const procfs::ProcessHandle& handle) {
  procfs::ReadExpected<uint64_t> netns = handle.read_net_namespace();
  if (netns) {
    const auto known = std::ranges::find(readings_, *netns, &Reading::netns);
    if (known != readings_.end()) return &*known;
  } else if (netns.error().status == procfs::ReadStatus::gone) {
    return nullptr;  // the next discovery drops it
  }
  Reading reading;
  const procfs::ReadResult result = procfs::read_snmp(handle.dirfd(), buffer_, reading.tcp);
  if (result.status == procfs::ReadStatus::gone) return nullptr;
  if (!result.ok()) {
    all_read_ = false;
    if (result.status == procfs::ReadStatus::malformed) ++parse_errors_;
    return nullptr;
  }
  // Shared only if it is known whose counters these are.
  const procfs::ReadExpected<uint64_t> after = handle.read_net_namespace();
  reading.netns = netns && after && *netns == *after ? *netns : 0;
  return &readings_.emplace_back(reading);
}

void NetworkCollector::tick(Metrics& metrics) {
  readings_.clear();
  all_read_ = true;
  for (size_t i = 0; i < metrics.processes.size(); ++i) {
    ProcessMetrics& out = metrics.processes[i];
    out.retransmits.reset();
    out.out_segs.reset();
    if (metrics.state->processes[i].is_worker) continue;
    const Reading* reading = read(*metrics.state->processes[i].handle);
    if (!reading) continue;
    out.retransmits = reading->tcp.retrans_segs;
    out.out_segs = reading->tcp.out_segs;
  }
  metrics.agent.network.success = all_read_;
  metrics.agent.snmp_parse_errors = parse_errors_;
}

}  // namespace kitty::collector
