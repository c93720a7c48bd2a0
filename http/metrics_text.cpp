#include "http/metrics_text.h"

#include <unistd.h>

#include <array>
#include <charconv>

namespace kitty::http {

namespace {

using collector::Metrics;
using collector::OwnTotals;
using collector::ProcessMetrics;
using collector::WatchedProcess;

constexpr double kUsPerSecond = 1e6;

std::vector<double> rtt_bounds_seconds() {
  constexpr std::array<uint32_t, KITTY_RTT_BOUND_COUNT> kBoundsUs = {KITTY_RTT_BOUNDS_US};
  std::vector<double> seconds;
  seconds.reserve(kBoundsUs.size());
  for (const uint32_t us : kBoundsUs) seconds.push_back(us / kUsPerSecond);
  return seconds;
}

std::string_view decimal(uint64_t value, std::array<char, 20>& buffer) {
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), static_cast<size_t>(end - buffer.data())};
}

}  // namespace

MetricsText::MetricsText(AgentInfo info) : info_(std::move(info)), rtt_bounds_(rtt_bounds_seconds()) {}

void MetricsText::label(const collector::ProcessState& state) {
  labels_.resize(state.processes.size());
  for (size_t i = 0; i < labels_.size(); ++i) {
    const WatchedProcess& process = state.processes[i];
    std::array<char, 20> pid;
    std::string& text = labels_[i];
    text = "pid=\"";
    text += decimal(static_cast<uint64_t>(process.id.pid), pid);
    text += "\",rank=\"";
    append_label_value(text, process.labels.rank);
    text += "\",job=\"";
    append_label_value(text, process.labels.job);
    text += '"';
  }
}

void MetricsText::render_processes(const Metrics& metrics, ExpositionWriter& writer) {
  const auto each = [&](auto&& write) {
    for (size_t i = 0; i < metrics.processes.size(); ++i) write(metrics.processes[i], labels_[i]);
  };
  const auto optional_family = [&](std::string_view name, std::string_view help, MetricType type,
                                   auto member) {
    writer.family(name, help, type);
    each([&](const ProcessMetrics& process, const std::string& labels) {
      if (process.*member) writer.sample(labels, *(process.*member));
    });
  };
  optional_family("net_tcp_rtt_us",
                  "Mean raw TCP round-trip time in microseconds, before any smoothing, of the latest 500 ms "
                  "with samples, "
                  "over the sockets this process owns; gone after 10 s without samples.",
                  MetricType::gauge, &ProcessMetrics::rtt_us);
  optional_family("net_tcp_retransmits_total",
                  "TCP segments retransmitted in the network namespace of this process (Tcp.RetransSegs).",
                  MetricType::counter, &ProcessMetrics::retransmits);
  optional_family("net_tcp_out_segs_total",
                  "TCP segments sent in the network namespace of this process (Tcp.OutSegs).",
                  MetricType::counter, &ProcessMetrics::out_segs);
  optional_family(
      "net_tcp_tx_queue_bytes",
      "Bytes sent but not yet acknowledged, or not yet sent, in the TCP connections this process owns.",
      MetricType::gauge, &ProcessMetrics::tx_queue_bytes);

  writer.family("kitty_tcp_rtt_seconds", "Every raw TCP round-trip time of the sockets this process owns.",
                MetricType::histogram);
  each([&](const ProcessMetrics& process, const std::string& labels) {
    if (!process.own) return;
    std::array<uint64_t, KITTY_RTT_BUCKETS> cumulative{};
    uint64_t sum = 0;
    for (size_t b = 0; b < cumulative.size(); ++b) cumulative[b] = sum += process.own->rtt.buckets[b];
    writer.histogram(labels, {}, rtt_bounds_, cumulative,
                     static_cast<double>(process.own->rtt.sum_us) / kUsPerSecond);
  });
  const auto own_family = [&](std::string_view name, std::string_view help, uint32_t have, auto member) {
    writer.family(name, help, MetricType::counter);
    each([&](const ProcessMetrics& process, const std::string& labels) {
      if (process.own && (process.own->have & have) != 0) writer.sample(labels, process.own->*member);
    });
  };
  own_family("kitty_tcp_retransmits_total", "TCP segments retransmitted by the sockets this process owns.",
             KITTY_HAVE_TOTAL_RETRANS, &OwnTotals::retransmits);
  own_family("kitty_tcp_segments_sent_total", "TCP segments sent by the sockets this process owns.",
             KITTY_HAVE_SEGS_OUT, &OwnTotals::segments_sent);
  own_family("kitty_tcp_bytes_sent_total",
             "Payload bytes sent, retransmitted ones included, by the sockets this process owns.",
             KITTY_HAVE_BYTES_SENT, &OwnTotals::bytes_sent);

  writer.family("kitty_process_info", "Who a watched process is; always 1.", MetricType::gauge);
  for (size_t i = 0; i < labels_.size(); ++i) {
    const WatchedProcess& process = metrics.state->processes[i];
    std::array<char, 20> netns, start;
    writer.sample(labels_[i],
                  {{"comm", process.comm},
                   {"local_rank", process.labels.local_rank},
                   {"world_size", process.labels.world_size},
                   {"netns", decimal(process.netns, netns)},
                   {"role", process.is_launcher() ? "launcher" : "rank"},
                   {"start_time_ticks", decimal(process.id.start_time_ticks, start)},
                   {"container_id", process.container_id},
                   {"pod_uid", process.pod_uid}},
                  1);
  }
}

void MetricsText::render_agent(const Metrics& metrics, const collector::AgentUsage& usage,
                               ExpositionWriter& writer) {
  const collector::AgentMetrics& agent = metrics.agent;
  const collector::ScanReport& report = metrics.state->report;
  const auto one = [&](std::string_view name, std::string_view help, MetricType type, Value value) {
    writer.family(name, help, type);
    writer.sample({}, value);
  };
  writer.family("kitty_build_info", "The agent's version; always 1.", MetricType::gauge);
  writer.sample({}, {{"version", info_.version}}, 1);
  writer.family("kitty_rtt_hook_info", "The kernel hook that RTT samples come from; always 1.",
                MetricType::gauge);
  writer.sample({}, {{"hook", info_.rtt_hook}}, 1);
  writer.family("kitty_rtt_hook_refused_info", "A hook that was tried and not taken, and why; always 1.",
                MetricType::gauge);
  for (const AgentInfo::Refusal& refusal : info_.refused_hooks) {
    writer.sample({}, {{"hook", refusal.hook}, {"reason", refusal.reason}}, 1);
  }

  struct Named {
    std::string_view name;
    const collector::Collector& collector;
  };
  const Named collectors[] = {{"processes", agent.processes},
                              {"sockets", agent.sockets},
                              {"network", agent.network},
                              {"rtt", agent.rtt}};
  writer.family("kitty_collector_success", "1 if the collector's latest run read all it wanted.",
                MetricType::gauge);
  for (const Named& named : collectors) {
    writer.sample({}, {{"collector", named.name}}, named.collector.success ? 1 : 0);
  }
  writer.family("kitty_collector_duration_seconds", "How long the collector's latest run took.",
                MetricType::gauge);
  for (const Named& named : collectors) {
    writer.sample({}, {{"collector", named.name}}, named.collector.duration_seconds);
  }
  one("kitty_watched_processes", "Processes with KITTY_WATCH=1 in their environment.", MetricType::gauge,
      metrics.state->processes.size());
  one("kitty_unreadable_processes",
      "Processes whose environment could not be read, so that they may be missed.", MetricType::gauge,
      report.unreadable_processes);
  one("kitty_parse_errors_total", "Malformed files or rows under /proc, each skipped.", MetricType::counter,
      agent.parse_errors);
  one("kitty_rtt_samples_total", "RTT samples credited to watched processes.", MetricType::counter,
      agent.rtt_samples);
  one("kitty_rtt_samples_unattributed_total",
      "RTT samples in watched network namespaces of sockets that no watched process owns.",
      MetricType::counter, agent.rtt_samples_unattributed);
  one("kitty_flow_table_full_total", "Sockets or namespaces that found a table full and are not measured.",
      MetricType::counter, agent.flow_table_full);
  one("kitty_processes_dropped", "Watched processes beyond the limit of 1024.", MetricType::gauge,
      report.dropped_processes);
  one("kitty_sockets_dropped", "Sockets of watched processes beyond the limit of 8192.", MetricType::gauge,
      report.dropped_sockets);
  one("process_cpu_seconds_total", "CPU time of the agent.", MetricType::counter, usage.cpu_seconds);
  one("process_resident_memory_bytes", "Resident memory of the agent.", MetricType::gauge,
      usage.resident_bytes);
  one("process_open_fds", "Open file descriptors of the agent.", MetricType::gauge, usage.open_fds);
  one("process_start_time_seconds", "When the agent started, seconds since the epoch.", MetricType::gauge,
      info_.start_time_seconds);
  one("kitty_series_dropped_total", "Series left out of earlier texts because a text would exceed its limit.",
      MetricType::counter, series_dropped_);
}

void MetricsText::render(const Metrics& metrics, const collector::AgentUsage& usage,
                         ExpositionWriter& writer) {
  if (metrics.state != labelled_) {
    labelled_ = metrics.state;
    label(*labelled_);
  }
  writer.begin();
  render_agent(metrics, usage, writer);
  render_processes(metrics, writer);
  series_dropped_ += writer.series_dropped();
}

}  // namespace kitty::http
