#include "collector/ticker.h"

#include "collector/clock.h"

namespace kitty::collector {

Tick::Tick(const ProcessWatch& processes, FlowMaps* maps, uint32_t have) : processes_(processes) {
  if (maps) rtt_.emplace(*maps, have);
}

const Metrics& Tick::run() {
  metrics_.state = processes_.state();
  metrics_.processes.resize(metrics_.state->processes.size());
  for (size_t i = 0; i < metrics_.processes.size(); ++i) {
    const WatchedProcess& process = metrics_.state->processes[i];
    metrics_.processes[i] = {};
    if (!process.tx_queue_known) continue;
    uint64_t queued_bytes = 0;
    for (const OwnedSocket& socket : process.sockets) queued_bytes += socket.tx_queue_bytes;
    metrics_.processes[i].tx_queue_bytes = queued_bytes;
  }
  const ScanReport& report = metrics_.state->report;
  metrics_.agent.processes = {report.discovery_ok, report.discovery_seconds};
  metrics_.agent.sockets = {report.socket_pass_ok, report.socket_pass_seconds};

  uint64_t start_ns = monotonic_ns();
  network_.tick(metrics_);
  metrics_.agent.network.duration_seconds = seconds_since(start_ns);
  if (rtt_) {
    start_ns = monotonic_ns();
    rtt_->tick(start_ns, metrics_);
    metrics_.agent.rtt.duration_seconds = seconds_since(start_ns);
  }
  return metrics_;
}

Ticker::Ticker(Tick tick, Publish publish) : tick_(std::move(tick)), publish_(std::move(publish)) {
  next_ns_ = monotonic_ns();
  thread_ = std::make_unique<Periodic>(run(), [this] { return run(); });
}

std::chrono::nanoseconds Ticker::run() {
  publish_(tick_.run());
  // On a grid of ticks; ticks missed while the host was too busy are skipped, not caught up with.
  const uint64_t tick_ns = static_cast<uint64_t>(std::chrono::nanoseconds(kTick).count());
  const uint64_t now_ns = monotonic_ns();
  next_ns_ += tick_ns;
  if (next_ns_ <= now_ns) next_ns_ = now_ns + tick_ns;
  return std::chrono::nanoseconds(next_ns_ - now_ns);
}

}  // namespace kitty::collector
