#include "http/metrics_text.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace kitty::http {

namespace {

using collector::Condition;
using collector::Metrics;
using collector::PeerMetrics;
using collector::ProcessMetrics;
using collector::TcpTotals;
using collector::TimeMetrics;
using collector::WatchedProcess;

constexpr double kUsPerSecond = 1e6;

// What a text's size is planned with: at most so much a line beyond its name and labels ("{", "} ", a double
// of 24 bytes), of a peer's label beyond its value, and of a bucket's bound.
constexpr size_t kLineBytes = 28;
constexpr size_t kPeerLabelBytes = sizeof(",peer=\"\"");
constexpr size_t kBoundBytes = 16;
constexpr size_t kNameBytes = 32;  // on average at least, of the process's families and of the peers'
constexpr size_t kOwnLines = 7;
constexpr size_t kTimeLines = 5, kPeerTimeLines = 4;
constexpr size_t kConditionBytes = 64;  // at most, a line's name and the label of its own
constexpr size_t kPeerLines = 8;
// Headers, whose data was left out, and what the writer itself wants free for one series more.
constexpr size_t kUnplannedBytes = size_t{32} << 10;

constexpr std::string_view kOtherUsers = "other";

std::vector<double> rtt_bounds_seconds() {
  constexpr std::array<uint32_t, KITTY_RTT_BOUND_COUNT> kBoundsUs = {KITTY_RTT_BOUNDS_US};
  std::vector<double> seconds;
  seconds.reserve(kBoundsUs.size());
  for (const uint32_t us : kBoundsUs) seconds.push_back(us / kUsPerSecond);
  return seconds;
}

// One series of a family whose series differ in one label.
struct Count {
  std::string_view what;
  uint64_t value;
};

constexpr std::array<std::string_view, collector::kResources> kResourceNames = {"cpu", "io", "memory"};

double clock_ticks_per_second() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

// The states of proc_pid_stat(5) that a process which has not ended may be in; empty for any other, and where
// none is known.
std::string_view state_name(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "disk";
    case 'T':
      return "stopped";
    case 't':
      return "traced";
    case 'P':
      return "parked";
    case 'I':
      return "idle";
    default:
      return {};
  }
}

// Series that it is written as.
size_t lines_of(const Condition& condition) {
  const auto known =
      std::ranges::count_if(condition.pressure_us, [](const auto& us) { return us.has_value(); });
  return static_cast<size_t>(known) + (condition.cpu_ticks ? 1 : 0) + (condition.throttled_us ? 1 : 0) +
         (state_name(condition.state).empty() ? 0 : 1);
}

bool has_samples(const ProcessMetrics& process) {
  return process.own && std::ranges::any_of(process.own->rtt.buckets, [](uint64_t n) { return n != 0; });
}

// Whether this counter is known of all the process's sockets: that it is not must not read as 0.
bool counts(const ProcessMetrics& process, uint32_t have) {
  return process.own && process.sockets_known && (process.own->have & have) != 0;
}

std::string_view role_of(const WatchedProcess& process) {
  if (process.is_worker) return "worker";
  return process.is_launcher() ? "launcher" : "rank";
}

std::string_view decimal(uint64_t value, std::array<char, 20>& buffer) {
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), static_cast<size_t>(end - buffer.data())};
}

}  // namespace

MetricsText::MetricsText(AgentInfo info)
    : info_(std::move(info)),
      rtt_bounds_(rtt_bounds_seconds()),
      ticks_per_second_(clock_ticks_per_second()) {}

void MetricsText::label(const collector::ProcessState& state) {
  labels_.resize(state.processes.size());
  identities_.resize(labels_.size());
  texts_.resize(labels_.size());
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

    std::string& identity = identities_[i];
    identity = text;
    std::array<char, 20> netns, start, uid;
    const bool known = process.uid != collector::kUnknownUid;
    const Label labels[] = {{"comm", process.comm},
                            {"uid", known ? decimal(process.uid, uid) : std::string_view()},
                            {"local_rank", process.labels.local_rank},
                            {"world_size", process.labels.world_size},
                            {"netns", decimal(process.netns, netns)},
                            {"role", role_of(process)},
                            {"rank_from", process.labels.rank_from},
                            {"start_time_ticks", decimal(process.id.start_time_ticks, start)},
                            {"container_id", process.container_id},
                            {"pod_uid", process.pod_uid}};
    for (const Label& label : labels) {
      identity += ',';
      append_label(identity, label);
    }
  }
}

// A worker has its identity, and nothing else.
void MetricsText::plan(const Metrics& metrics, size_t room) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const WatchedProcess& process = labelled_->processes[i];
    const ProcessMetrics& figures = metrics.processes[i];
    ProcessText& text = texts_[i];
    const size_t line = kNameBytes + labels_[i].size() + kLineBytes;
    text = {.uid = process.uid, .order = figures.peers.size()};
    text.part(TextPart::identity) = {
        .bytes = kNameBytes + identities_[i].size() + kLineBytes +
                 process.addresses.size() * (line + kPeerLabelBytes + procfs::kMaxAddressBytes),
        .series = 1 + process.addresses.size()};
    if (process.is_worker) continue;
    const size_t own_lines = kOwnLines + lines_of(figures.condition);
    uint64_t bytes = own_lines * line + lines_of(figures.condition) * (kConditionBytes - kNameBytes);
    for (const PeerMetrics& peer : figures.peers)
      bytes += kPeerLines * (line + kPeerLabelBytes + peer.text().size());
    size_t time_lines = 0;
    if (figures.time) {
      time_lines = kTimeLines;
      for (const TimeMetrics::Peer& peer : figures.time->peers) {
        time_lines += peer.any() ? kPeerTimeLines : 0;
        bytes += peer.any() ? kPeerTimeLines * (line + kPeerLabelBytes + peer.name_bytes) : 0;
      }
      bytes += kTimeLines * line;
    }
    text.part(TextPart::figures) = {.bytes = bytes,
                                    .series = own_lines + figures.peers.size() * kPeerLines + time_lines};
    if (has_samples(figures))
      text.part(TextPart::histogram) = {.bytes = (KITTY_RTT_BUCKETS + 2) * (line + kBoundBytes), .series = 1};
  }
  left_out_.clear();
  series_dropped_ += plan_text(room, texts_, left_out_);
}

bool MetricsText::writes(TextPart part, size_t process) const {
  const bool wanted = part == TextPart::identity || !labelled_->processes[process].is_worker;
  return wanted && texts_[process].part(part).granted;
}

void MetricsText::render_left_out(ExpositionWriter& writer) {
  for (const collector::LeftOut& scanned : labelled_->report.left_out) {
    collector::LeftOut& user = left_out_[scanned.uid];
    user.processes += scanned.processes;
    user.sockets += scanned.sockets;
  }
  if (left_out_.empty()) return;
  writer.family("kitty_dropped_by_uid",
                "What there is no room for now, by the user who wants more than a fair share of it.",
                MetricType::gauge);
  for (const collector::LeftOut& user : collector::who_left_out_most(left_out_)) {
    std::array<char, 20> buffer;
    const bool named = user.uid != collector::kUnknownUid;
    const std::string_view uid = named ? decimal(user.uid, buffer) : kOtherUsers;
    for (const Count& count :
         {Count{"processes", user.processes}, Count{"sockets", user.sockets}, Count{"series", user.series}}) {
      if (count.value != 0) writer.sample({}, {{"uid", uid}, {"what", count.what}}, count.value);
    }
  }
}

void MetricsText::render_processes(const Metrics& metrics, ExpositionWriter& writer) {
  const auto each = [&](auto&& write) {
    for (size_t i = 0; i < metrics.processes.size(); ++i) {
      if (writes(TextPart::figures, i)) write(metrics.processes[i], labels_[i]);
    }
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
  for (size_t i = 0; i < metrics.processes.size(); ++i) {
    const ProcessMetrics& process = metrics.processes[i];
    if (!writes(TextPart::histogram, i) || !has_samples(process)) continue;
    std::array<uint64_t, KITTY_RTT_BUCKETS> cumulative{};
    uint64_t sum = 0;
    for (size_t b = 0; b < cumulative.size(); ++b) cumulative[b] = sum += process.own->rtt.buckets[b];
    writer.histogram(labels_[i], {}, rtt_bounds_, cumulative,
                     static_cast<double>(process.own->rtt.sum_us) / kUsPerSecond);
  }
  const auto own_family = [&](std::string_view name, std::string_view help, uint32_t have, auto member) {
    writer.family(name, help, MetricType::counter);
    each([&](const ProcessMetrics& process, const std::string& labels) {
      if (counts(process, have)) writer.sample(labels, process.own->tcp.*member);
    });
  };
  own_family("kitty_tcp_retransmits_total", "TCP segments retransmitted by the sockets this process owns.",
             KITTY_HAVE_TOTAL_RETRANS, &TcpTotals::retransmits);
  own_family("kitty_tcp_segments_sent_total", "TCP segments sent by the sockets this process owns.",
             KITTY_HAVE_SEGS_OUT, &TcpTotals::segments_sent);
  own_family("kitty_tcp_bytes_sent_total",
             "Payload bytes sent, retransmitted ones included, by the sockets this process owns.",
             KITTY_HAVE_BYTES_SENT, &TcpTotals::bytes_sent);
}

void MetricsText::render_conditions(const Metrics& metrics, ExpositionWriter& writer) {
  const auto each = [&](auto&& write) {
    for (size_t i = 0; i < metrics.processes.size(); ++i) {
      if (writes(TextPart::figures, i)) write(metrics.processes[i].condition, labels_[i]);
    }
  };
  const auto seconds = [](uint64_t us) { return static_cast<double>(us) / kUsPerSecond; };
  writer.family("kitty_process_cpu_seconds_total",
                "CPU time of all threads of this process, user and system.", MetricType::counter);
  each([&](const Condition& condition, const std::string& labels) {
    if (condition.cpu_ticks)
      writer.sample(labels, static_cast<double>(*condition.cpu_ticks) / ticks_per_second_);
  });
  writer.family("kitty_process_state_info",
                "The state of this process's main thread: running, sleeping, disk (it waits without being "
                "interruptible), stopped, traced; always 1.",
                MetricType::gauge);
  each([&](const Condition& condition, const std::string& labels) {
    const std::string_view state = state_name(condition.state);
    if (!state.empty()) writer.sample(labels, {{"state", state}}, 1);
  });
  writer.family(
      "kitty_process_cgroup_throttled_seconds_total",
      "Time for which CPU quotas held back the cgroup of this process and those above it, added up, "
      "over all CPUs.",
      MetricType::counter);
  each([&](const Condition& condition, const std::string& labels) {
    if (condition.throttled_us) writer.sample(labels, seconds(*condition.throttled_us));
  });
  writer.family("kitty_process_cgroup_pressure_seconds_total",
                "Time in which some process of this process's cgroup waited for the resource.",
                MetricType::counter);
  each([&](const Condition& condition, const std::string& labels) {
    for (size_t i = 0; i < collector::kResources; ++i) {
      if (condition.pressure_us[i])
        writer.sample(labels, {{"resource", kResourceNames[i]}}, seconds(*condition.pressure_us[i]));
    }
  });
}

void MetricsText::render_time(const Metrics& metrics, ExpositionWriter& writer) {
  const auto each = [&](auto&& write) {
    for (size_t i = 0; i < metrics.processes.size(); ++i) {
      if (const TimeMetrics* const time = metrics.processes[i].time; time && writes(TextPart::figures, i))
        write(*time, labels_[i]);
    }
  };
  const auto whole = [&](std::string_view name, std::string_view help, MetricType type, auto member) {
    writer.family(name, help, type);
    each([&](const TimeMetrics& time, const std::string& labels) {
      writer.sample(labels, {}, static_cast<double>(time.*member) / kUsPerSecond);
    });
  };
  const auto by_peer = [&](std::string_view name, std::string_view help, auto member) {
    writer.family(name, help, MetricType::counter);
    each([&](const TimeMetrics& time, const std::string& labels) {
      for (const TimeMetrics::Peer& peer : time.peers) {
        if (peer.any())
          writer.sample(labels, {{"peer", peer.text()}}, static_cast<double>(peer.*member) / kUsPerSecond);
      }
    });
  };
  whole("kitty_accounted_seconds_total",
        "Time since the account of this process began: the sum of those below, over all peers.",
        MetricType::counter, &TimeMetrics::accounted_us);
  whole("kitty_owing_seconds_total",
        "Time in which this process neither sent nor read, with nothing in flight: the others waited for it.",
        MetricType::counter, &TimeMetrics::owing_us);
  by_peer("kitty_peer_waiting_seconds_total",
          "Time in which nothing came and nothing was in flight, until data of this peer came.",
          &TimeMetrics::Peer::waiting_us);
  by_peer("kitty_peer_receiver_limited_seconds_total",
          "Time in which what this process sends to the peer was held because the peer did not read.",
          &TimeMetrics::Peer::receiver_limited_us);
  by_peer("kitty_peer_path_limited_seconds_total",
          "Time in which what this process sends to the peer was held by the path to it.",
          &TimeMetrics::Peer::path_limited_us);
  by_peer("kitty_peer_receiving_seconds_total", "Time in which data of this peer kept coming.",
          &TimeMetrics::Peer::receiving_us);
  whole("kitty_moving_seconds_total",
        "Time in which this process sent without hindrance, and time that is nobody's: delayed "
        "acknowledgements.",
        MetricType::counter, &TimeMetrics::moving_us);
  whole("kitty_unknown_seconds_total", "Time of which the account was lost.", MetricType::counter,
        &TimeMetrics::unknown_us);
  whole("kitty_unsettled_seconds",
        "Latest time that is in none of the account's sums yet: as long as nothing comes it grows.",
        MetricType::gauge, &TimeMetrics::unsettled_us);
}

void MetricsText::render_peers(const Metrics& metrics, ExpositionWriter& writer) {
  // `write` gets a peer and its labels; `have` says which of the kernel's counters it needs.
  const auto each = [&](uint32_t have, auto&& write) {
    for (size_t i = 0; i < metrics.processes.size(); ++i) {
      const ProcessMetrics& process = metrics.processes[i];
      if (!writes(TextPart::figures, i) || (have != 0 && !counts(process, have))) continue;
      for (const PeerMetrics& peer : process.peers) write(process, peer, labels_[i]);
    }
  };
  const auto counter = [&](std::string_view name, std::string_view help, uint32_t have, auto member) {
    writer.family(name, help, MetricType::counter);
    each(have, [&](const ProcessMetrics&, const PeerMetrics& peer, const std::string& labels) {
      writer.sample(labels, {{"peer", peer.text()}}, peer.tcp.*member);
    });
  };
  writer.family(
      "kitty_peer_rtt_seconds",
      "Every raw TCP round-trip time of the sockets this process owns, by remote address; peer=\"other\" "
      "stands for all beyond 64 and for those that gave up their place.",
      MetricType::summary);
  each(0, [&](const ProcessMetrics& process, const PeerMetrics& peer, const std::string& labels) {
    if (!process.own) return;
    writer.summary(labels, {{"peer", peer.text()}}, static_cast<double>(peer.rtt_sum_us) / kUsPerSecond,
                   peer.rtt_count);
  });
  writer.family("kitty_peer_rtt_min_seconds",
                "Least raw TCP round-trip time of the latest 500 ms with samples; gone after 10 s without.",
                MetricType::gauge);
  each(0, [&](const ProcessMetrics&, const PeerMetrics& peer, const std::string& labels) {
    if (peer.rtt_min_us) writer.sample(labels, {{"peer", peer.text()}}, *peer.rtt_min_us / kUsPerSecond);
  });
  counter("kitty_peer_retransmits_total", "TCP segments retransmitted to this peer.",
          KITTY_HAVE_TOTAL_RETRANS, &TcpTotals::retransmits);
  counter("kitty_peer_segments_sent_total", "TCP segments sent to this peer.", KITTY_HAVE_SEGS_OUT,
          &TcpTotals::segments_sent);
  counter("kitty_peer_data_segments_sent_total", "TCP segments with data sent to this peer.",
          KITTY_HAVE_DATA_SEGS_OUT, &TcpTotals::data_segments_sent);
  writer.family(
      "kitty_peer_busy_seconds_total",
      "Time with data in flight or queued to this peer, of the socket that was busiest in each tick.",
      MetricType::counter);
  each(KITTY_HAVE_BUSY, [&](const ProcessMetrics&, const PeerMetrics& peer, const std::string& labels) {
    writer.sample(labels, {{"peer", peer.text()}}, static_cast<double>(peer.busy_ns) / 1e9);
  });
  writer.family("kitty_peer_tx_queue_bytes",
                "Bytes sent to this peer and not yet acknowledged, or not yet sent.", MetricType::gauge);
  each(0, [&](const ProcessMetrics& process, const PeerMetrics& peer, const std::string& labels) {
    if (process.tx_queue_bytes) writer.sample(labels, {{"peer", peer.text()}}, peer.tx_queue_bytes);
  });
}

void MetricsText::render_identities(const collector::ProcessState& state, ExpositionWriter& writer) {
  writer.family("kitty_process_info", "Who a watched process is; always 1.", MetricType::gauge);
  for (size_t i = 0; i < identities_.size(); ++i) {
    if (writes(TextPart::identity, i)) writer.sample(identities_[i], 1);
  }
  writer.family(
      "kitty_process_address_info",
      "A local address of a TCP connection of this process, where its job's peers see it; always 1.",
      MetricType::gauge);
  for (size_t i = 0; i < labels_.size(); ++i) {
    if (!writes(TextPart::identity, i)) continue;
    for (const procfs::IpAddress& address : state.processes[i].addresses) {
      std::array<char, procfs::kMaxAddressBytes> buffer;
      writer.sample(labels_[i], {{"address", procfs::format_address(address, buffer)}}, 1);
    }
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
  writer.family("kitty_socket_source_info",
                "What lists the sockets of a process: a BPF iterator, or procfs, which costs more; always 1.",
                MetricType::gauge);
  writer.sample({}, {{"source", info_.socket_source}}, 1);

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
  const auto by = [&](std::string_view name, std::string_view help, MetricType type, std::string_view label,
                      std::initializer_list<Count> counts) {
    writer.family(name, help, type);
    for (const Count& count : counts) writer.sample({}, {{label, count.what}}, count.value);
  };
  by("kitty_unreadable_processes",
     "Processes that may be missed, or whose sockets are not known, by what stood in the way.",
     MetricType::gauge, "reason",
     {{"permission", report.unreadable.permission},
      {"open_files", report.unreadable.open_files},
      {"mptcp", report.unreadable.mptcp},
      {"too_long", report.unreadable.too_long},
      {"stuck", report.unreadable.stuck},
      {"waiting", report.unreadable.waiting},
      {"overwritten", report.unreadable.overwritten},
      {"other", report.unreadable.other}});
  by("kitty_parse_errors_total", "Malformed files or rows under /proc, each skipped.", MetricType::counter,
     "file",
     {{"snmp", agent.snmp_parse_errors},
      {"stat", report.stat_parse_errors},
      {"tcp", report.tcp_parse_errors}});
  one("kitty_rtt_samples_total", "RTT samples credited to watched processes.", MetricType::counter,
      agent.rtt_samples);
  by("kitty_rtt_samples_unattributed_total",
     "RTT samples in watched network namespaces that no watched process was credited with: of sockets that "
     "none "
     "holds or that closed before they were found (unowned), not accepted or closed already (no_inode), "
     "refused by "
     "a full table, or over an hour (insane).",
     MetricType::counter, "reason",
     {{"unowned", agent.unattributed.unowned},
      {"no_inode", agent.unattributed.no_inode},
      {"table_full", agent.unattributed.table_full},
      {"insane", agent.unattributed.insane}});
  by("kitty_flow_table_full_total",
     "What found a table full: sockets (owned), samples (pending), network namespaces (watched_netns).",
     MetricType::counter, "table",
     {{"owned", agent.full.owned},
      {"pending", agent.full.pending},
      {"watched_netns", agent.full.watched_netns}});
  by("kitty_processes_dropped",
     "Processes to be watched beyond the limit of 1024, or beyond what the open files limit leaves.",
     MetricType::gauge, "reason",
     {{"limit", report.few_descriptors ? 0 : report.dropped_processes},
      {"open_files", report.few_descriptors ? report.dropped_processes : 0}});
  one("kitty_sockets_dropped", "Sockets of watched processes beyond a fair share of 8192.", MetricType::gauge,
      report.dropped_sockets);
  one("kitty_cgroups_dropped",
      "Watched processes without the figures of their cgroup: more than 1024 cgroups are to be read.",
      MetricType::gauge, agent.cgroups_dropped);
  one("kitty_log_lines_dropped_total", "Lines of the log that stderr did not take.", MetricType::counter,
      usage.log_lines_dropped);
  one("process_cpu_seconds_total", "CPU time of the agent.", MetricType::counter, usage.cpu_seconds);
  one("process_resident_memory_bytes", "Resident memory of the agent.", MetricType::gauge,
      usage.resident_bytes);
  one("process_open_fds", "Open file descriptors of the agent.", MetricType::gauge, usage.open_fds);
  one("process_start_time_seconds", "When the agent started, seconds since the epoch.", MetricType::gauge,
      info_.start_time_seconds);
  by("kitty_series_dropped_total",
     "Series left out of earlier texts: beyond a user's fair share of its size, or local addresses of a "
     "process beyond 64.",
     MetricType::counter, "reason", {{"text_size", series_dropped_}, {"addresses", addresses_dropped_}});
}

void MetricsText::render(const Metrics& metrics, const collector::AgentUsage& usage,
                         ExpositionWriter& writer) {
  if (metrics.state != labelled_) {
    labelled_ = metrics.state;
    label(*labelled_);
  }
  writer.begin();
  render_agent(metrics, usage, writer);
  const size_t taken = writer.text().size() + kUnplannedBytes;
  plan(metrics, writer.max_bytes() - std::min(writer.max_bytes(), taken));
  render_left_out(writer);
  render_processes(metrics, writer);
  render_conditions(metrics, writer);
  render_peers(metrics, writer);
  render_time(metrics, writer);
  render_identities(*metrics.state, writer);
  addresses_dropped_ += metrics.state->report.dropped_addresses;
  series_dropped_ += writer.series_dropped();
}

}  // namespace kitty::http
