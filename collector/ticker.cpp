#include "collector/ticker.h"

#include "collector/clock.h"

namespace kitty::collector {

Tick::Tick(const ProcessWatch& processes, FlowMaps* maps, uint32_t have)
    : processes_(processes),
      ledger_(std::make_unique<Ledger>(maps ? std::optional<uint32_t>(have) : std::nullopt)) {
  if (!maps) return;
  rtt_ = std::make_unique<RttCollector>(*maps, *ledger_);
  time_.emplace(*maps, *rtt_);
}

// Both lists ascend by pid.
void Tick::take_conditions() {
  constexpr auto kept_ns = static_cast<uint64_t>(std::chrono::nanoseconds(kConditionsKept).count());
  const std::shared_ptr<const Conditions> conditions = processes_.conditions();
  metrics_.agent.cgroups_dropped = conditions->cgroups_dropped;
  if (monotonic_ns() > conditions->read_ns + kept_ns) return;
  auto of = conditions->processes.begin();
  for (size_t i = 0; i < metrics_.processes.size(); ++i) {
    const WatchedProcess& process = metrics_.state->processes[i];
    while (of != conditions->processes.end() && of->id.pid < process.id.pid) ++of;
    if (of == conditions->processes.end()) return;
    if (of->id == process.id && !process.is_worker) metrics_.processes[i].condition = of->condition;
  }
}

void Tick::read_network() {
  const uint64_t start_ns = monotonic_ns();
  network_.tick(metrics_);
  metrics_.agent.network.duration_seconds = seconds_since(start_ns);
}

void Tick::read_sockets(bool new_state) {
  const uint64_t start_ns = monotonic_ns();
  if (rtt_) {
    rtt_->tick(start_ns, metrics_);
    if (time_) time_->tick(start_ns, metrics_);
    metrics_.agent.rtt.duration_seconds = seconds_since(start_ns);
    return;
  }
  if (new_state) ledger_->follow(*metrics_.state);
  ledger_->end_tick(start_ns, metrics_);
}

const Metrics& Tick::run() {
  std::shared_ptr<const ProcessState> state = processes_.state();
  const bool new_state = state != metrics_.state;
  metrics_.state = std::move(state);
  metrics_.processes.resize(metrics_.state->processes.size());
  for (size_t i = 0; i < metrics_.processes.size(); ++i) {
    const WatchedProcess& process = metrics_.state->processes[i];
    metrics_.processes[i] = {};
    metrics_.processes[i].sockets_known = process.sockets_known;
    if (!process.tx_queue_known) continue;
    uint64_t queued_bytes = 0;
    for (const OwnedSocket& socket : process.sockets) queued_bytes += socket.connection.tx_queue_bytes;
    metrics_.processes[i].tx_queue_bytes = queued_bytes;
  }
  const ScanReport& report = metrics_.state->report;
  metrics_.agent.processes = {report.discovery_ok && is_fresh(report, monotonic_ns()),
                              report.discovery_seconds};
  metrics_.agent.sockets = {report.socket_pass_ok, report.socket_pass_seconds};
  take_conditions();
  read_network();
  read_sockets(new_state);
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
