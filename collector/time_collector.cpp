#include "collector/time_collector.h"

#include <algorithm>

#include "collector/clock.h"

namespace kitty::collector {

namespace {

bool may_count(const OwnedSocket& socket) {
  const Connection& connection = socket.connection;
  return socket.connected && connection.local_port >= kFirstUserPort &&
         connection.remote_port >= kFirstUserPort;
}

}  // namespace

std::optional<uint32_t> TimeCollector::free_number() const {
  const auto found = std::ranges::find(taken_, false);
  if (found == taken_.end()) return std::nullopt;
  return static_cast<uint32_t>(found - taken_.begin());
}

uint16_t TimeCollector::peer_number(Process& process, const procfs::IpAddress& remote) {
  const auto found = std::ranges::find(process.peers, remote);
  if (found == process.peers.end()) {
    if (process.peers.size() >= kMaxTimedPeers) return 0;
    process.peers.push_back(remote);
    return static_cast<uint16_t>(process.peers.size());
  }
  return static_cast<uint16_t>(found - process.peers.begin() + 1);
}

// Which of the process's connections count.
void TimeCollector::choose(const WatchedProcess& process) {
  double all = 0;
  for (const OwnedSocket& socket : process.sockets) {
    if (!may_count(socket)) continue;
    Weight& weight = weights_[socket.inode];
    weight.seen = generation_;
    weight.weight *= 1 - 1 / kByteMemory;
    if (const kitty_counters* const counters = rtt_.counters_of(socket.inode)) {
      const uint64_t bytes = counters->bytes_sent + counters->bytes_received;
      if (bytes > weight.bytes) weight.weight += static_cast<double>(bytes - weight.bytes);
      weight.bytes = bytes;
    }
    all += weight.weight;
  }
  for (const OwnedSocket& socket : process.sockets) {
    const auto found = weights_.find(socket.inode);
    if (found == weights_.end() || found->second.seen != generation_) continue;
    Weight& weight = found->second;
    const double least = weight.counted ? kCountedShare / 2 : kCountedShare;
    weight.counted = all > 0 && weight.weight >= least * all;
  }
}

void TimeCollector::take_up(const WatchedProcess& process, uint64_t now_us) {
  auto found = processes_.find(process.id);
  for (const OwnedSocket& socket : process.sockets) {
    const auto weight = weights_.find(socket.inode);
    if (weight == weights_.end() || weight->second.seen != generation_ || !weight->second.counted) continue;
    if (found == processes_.end()) {
      const auto number = free_number();
      if (!number || !maps_.open_account(*number, now_us)) return;
      taken_[*number] = true;
      found = processes_.try_emplace(process.id, *number, now_us).first;
    }
    Process& owner = found->second;
    auto [entry, added] = flows_.try_emplace(socket.inode);
    Flow& flow = entry->second;
    if (!added && flow.owner != process.id) {
      maps_.stop_timing(socket.inode);
      flow = {};
      added = true;
    }
    flow.seen = generation_;
    if (!added) continue;
    flow.owner = process.id;
    flow.peer = peer_number(owner, socket.connection.remote);
    if (!maps_.time_flow(socket.inode, owner.number, flow.peer)) flows_.erase(entry);
  }
  if (found != processes_.end()) found->second.seen = generation_;
}

void TimeCollector::follow(const ProcessState& state, uint64_t now_us) {
  ++generation_;
  for (const WatchedProcess& process : state.processes) {
    if (process.is_worker) continue;
    choose(process);
    take_up(process, now_us);
    if (const auto found = processes_.find(process.id); found != processes_.end())
      found->second.seen = generation_;
  }
  std::erase_if(weights_, [this](const auto& entry) { return entry.second.seen != generation_; });
  for (auto it = flows_.begin(); it != flows_.end();) {
    auto& [inode, flow] = *it;
    if (flow.seen == generation_) {
      ++it;
      continue;
    }
    if (const auto owner = processes_.find(flow.owner); owner != processes_.end())
      read(inode, flow, owner->second);
    maps_.stop_timing(inode);
    it = flows_.erase(it);
  }
  std::erase_if(processes_, [this](const auto& entry) {
    if (entry.second.seen == generation_) return false;
    taken_[entry.second.number] = false;
    return true;
  });
}

void TimeCollector::read(uint64_t inode, Flow& flow, Process& process) {
  kitty_timed now;
  if (!maps_.read_timed(inode, now)) return;
  if (process.growth.size() <= flow.peer) process.growth.resize(flow.peer + size_t{1});
  PeerGrowth& growth = process.growth[flow.peer];
  growth.sending_us += now.sending_us - flow.before.sending_us;
  growth.receiving_us += now.receiving_us - flow.before.receiving_us;
  flow.before = now;
  const kitty_counters* const counters = rtt_.counters_of(inode);
  if (!counters) return;
  if (flow.counters) {
    const uint64_t jiffy_us = jiffy_ns() / 1000;
    const uint64_t busy_us = (counters->busy_jiffies - flow.counters->busy_jiffies) * jiffy_us;
    const uint64_t limited_us =
        (counters->rwnd_limited_jiffies - flow.counters->rwnd_limited_jiffies) * jiffy_us;
    if (busy_us > growth.busy_us && counters->busy_jiffies >= flow.counters->busy_jiffies) {
      growth.busy_us = busy_us;
      growth.rwnd_limited_us = std::min(limited_us, busy_us);
    }
  }
  flow.counters = *counters;
}

void TimeCollector::describe(Process& process, uint64_t now_us) {
  const TimeTotals& totals = process.book.totals();
  TimeMetrics& metrics = process.metrics;
  metrics.accounted_us = process.book.accounted_us(now_us);
  metrics.owing_us = totals.owing_us;
  metrics.moving_us = totals.moving_us;
  metrics.unknown_us = totals.unknown_us;
  metrics.unsettled_us = process.book.unsettled_us(now_us);
  metrics.peers.resize(totals.peers.size());
  for (size_t number = 0; number < totals.peers.size(); ++number) {
    TimeMetrics::Peer& peer = metrics.peers[number];
    const PeerTime& time = totals.peers[number];
    peer.waiting_us = time.waiting_us;
    peer.receiver_limited_us = time.receiver_limited_us;
    peer.path_limited_us = time.path_limited_us;
    peer.receiving_us = time.receiving_us;
    if (peer.name_bytes != 0) continue;
    std::array<char, procfs::kMaxAddressBytes> buffer;
    const std::string_view name =
        number == 0 ? kOtherPeers : procfs::format_address(process.peers[number - 1], buffer);
    peer.name_bytes = name.copy(peer.name.data(), peer.name.size());
  }
}

void TimeCollector::tick(uint64_t now_ns, Metrics& metrics) {
  const uint64_t now_us = now_ns / 1000;
  if (metrics.state.get() != state_) {
    state_ = metrics.state.get();
    follow(*metrics.state, now_us);
  }
  // Accounts before flows: what an event adds to a flow is then never missing beside the account's latest
  // event.
  for (auto& [id, process] : processes_) process.read = maps_.read_account(process.number, *process.account);
  for (auto& [inode, flow] : flows_) {
    if (const auto owner = processes_.find(flow.owner); owner != processes_.end())
      read(inode, flow, owner->second);
  }
  for (auto& [id, process] : processes_) {
    if (!process.read) continue;
    process.book.tick(now_us, *process.account, process.growth);
    std::ranges::fill(process.growth, PeerGrowth{});
    describe(process, now_us);
  }
  for (size_t i = 0; i < metrics.processes.size(); ++i) {
    const auto found = processes_.find(metrics.state->processes[i].id);
    metrics.processes[i].time = found == processes_.end() ? nullptr : &found->second.metrics;
  }
}

}  // namespace kitty::collector
