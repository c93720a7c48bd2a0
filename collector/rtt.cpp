#include "collector/rtt.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "collector/clock.h"

namespace kitty::collector {

namespace {

// Whether the entry knows which sample tcp_probe showed last. Other hooks have no use for that.
bool knows_shown(const kitty_flow& flow) { return flow.hash != 0 && flow.rack_mstamp != KITTY_RACK_UNKNOWN; }

uint64_t sample_count(const kitty_flow& flow) {
  return std::accumulate(std::begin(flow.buckets), std::end(flow.buckets), uint64_t{0});
}

procfs::IpAddress remote_of(const kitty_flow& flow) {
  procfs::IpAddress address;
  static_assert(sizeof address == sizeof flow.remote);
  std::memcpy(address.data(), flow.remote, sizeof address);
  return address;
}

// What a counter grew by since `last`, which is brought up to date. At first sight it counts from birth or
// from now. Two sources tell of the same counter, so a value may be older than the one before: no growth
// then.
template <class Counter>
uint64_t growth_of(uint32_t bit, uint32_t have, uint32_t& counted, bool from_birth, Counter now,
                   Counter& last) {
  if ((have & bit) == 0) return 0;
  const bool first = (counted & bit) == 0;
  counted |= bit;
  const Counter before = first ? (from_birth ? Counter{0} : now) : last;
  // Modulo 2^32 for the counters that the kernel keeps in 32 bits; half of the range is the past.
  const auto grown = static_cast<Counter>(now - before);
  if (!first && static_cast<std::make_signed_t<Counter>>(grown) < 0) return 0;
  last = now;
  return grown;
}

// A 32-bit counter that wraps is behind by more than half of its range only where it began anew.
bool is_behind(uint32_t now, uint32_t last) { return static_cast<int32_t>(now - last) < 0; }

// Samples only grow until the entry begins anew. A lookup that overlaps that copies some of it emptied
// already, and `resets` as it was.
bool lost_samples(const kitty_flow& now, const RttHistogram& posted) {
  if (now.rtt_sum_us < posted.sum_us) return true;
  for (size_t i = 0; i < KITTY_RTT_BUCKETS; ++i) {
    if (now.buckets[i] < posted.buckets[i]) return true;
  }
  return false;
}

}  // namespace

RttCollector::RttCollector(FlowMaps& maps, Ledger& ledger)
    : maps_(maps), ledger_(ledger), jiffy_ns_(jiffy_ns()) {}

void RttCollector::add_counters(Flow& flow, const kitty_counters& now, Growth& growth) const {
  kitty_counters& last = flow.last;
  if (flow.busy_unsure && (now.have & KITTY_HAVE_BUSY) != 0) {
    if (is_behind(now.busy_jiffies, last.busy_jiffies)) last.busy_jiffies = last.rwnd_limited_jiffies = 0;
    flow.busy_unsure = false;
  }
  const auto grow = [&](uint32_t bit, auto value, auto& before) {
    return growth_of(bit, now.have, flow.counted_have, flow.from_birth, value, before);
  };
  growth.tcp.segments_sent += grow(KITTY_HAVE_SEGS_OUT, now.segs_out, last.segs_out);
  growth.tcp.data_segments_sent += grow(KITTY_HAVE_DATA_SEGS_OUT, now.data_segs_out, last.data_segs_out);
  growth.tcp.bytes_sent += grow(KITTY_HAVE_BYTES_SENT, now.bytes_sent, last.bytes_sent);
  if ((now.have & KITTY_HAVE_BYTES_RECEIVED) != 0)
    last.bytes_received = std::max(last.bytes_received, now.bytes_received);
  growth.tcp.retransmits += grow(KITTY_HAVE_TOTAL_RETRANS, now.total_retrans, last.total_retrans);
  growth.busy_ns += grow(KITTY_HAVE_BUSY, now.busy_jiffies, last.busy_jiffies) * jiffy_ns_;
  // A part of busy time: that of the same reading.
  if ((now.have & KITTY_HAVE_BUSY) != 0 && last.busy_jiffies == now.busy_jiffies)
    last.rwnd_limited_jiffies = now.rwnd_limited_jiffies;
}

void RttCollector::add_samples(Flow& flow, const kitty_flow& now, Growth& growth) const {
  for (size_t i = 0; i < KITTY_RTT_BUCKETS; ++i) {
    const uint64_t grown = now.buckets[i] - flow.posted.buckets[i];
    growth.rtt.buckets[i] += grown;
    growth.rtt_count += grown;
    flow.posted.buckets[i] = now.buckets[i];
  }
  growth.rtt.sum_us += now.rtt_sum_us - flow.posted.sum_us;
  flow.posted.sum_us = now.rtt_sum_us;
  const uint32_t slot = ended_tick_ & 1;
  if (ended_tick_ != 0 && now.tick[slot] == ended_tick_) growth.rtt_min_us = now.tick_min_us[slot];
}

// Of a connection that is not the first on this inode, so it was born while the agent looked. Busy time goes
// on where it is the same socket (tcp_disconnect of net/ipv4/tcp.c leaves it alone).
void RttCollector::start_counters(Flow& flow) {
  const auto [busy_jiffies, rwnd_limited_jiffies] =
      std::pair(flow.last.busy_jiffies, flow.last.rwnd_limited_jiffies);
  flow.last = {};
  flow.last.busy_jiffies = busy_jiffies;
  flow.last.rwnd_limited_jiffies = rwnd_limited_jiffies;
  flow.counted_have &= KITTY_HAVE_BUSY;
  flow.busy_unsure = flow.counted_have != 0;
  flow.from_birth = true;
  flow.listed_us = 0;
}

// Does nothing where `hash` is the connection that is counted already.
void RttCollector::start_connection(Flow& flow, uint32_t hash, const procfs::IpAddress& remote) {
  if (flow.hash == hash) return;
  if (flow.hash != 0) {
    start_counters(flow);
    flow.begun_by_listing = false;
    flow.begun_us = 0;
  }
  flow.hash = hash;
  flow.remote = remote;
  flow.tick_busy_ns = 0;
}

// The entry began anew: with another connection, or the same addresses and ports once more.
void RttCollector::restart_entry(Flow& flow, const kitty_flow& now, uint64_t now_ns) {
  if (now.resets != flow.resets && now.hash == flow.hash) {
    if (!flow.begun_by_listing) start_counters(flow);
    flow.begun_by_listing = false;
  }
  flow.resets = now.resets;
  flow.posted = {};
  flow.held_ns = now_ns;
}

// A peer's busy time is that of its busiest socket in a tick. Entry and listing may both tell of one socket
// in the same tick, so what is posted is the socket's sum.
void RttCollector::post(Flow& flow, Growth& growth) {
  samples_ += growth.rtt_count;
  if (!growth.any()) return;
  flow.tick_busy_ns += growth.busy_ns;
  growth.busy_ns = flow.tick_busy_ns;
  ledger_.of(flow.owner).add(flow.remote, growth);
}

void RttCollector::take_pending(uint64_t inode, Flow& flow, const kitty_flow& now, Growth& growth) {
  kitty_flow kept;
  flow.pending_due = false;
  if (!maps_.read_pending(inode, kept)) return;
  // Another hash is another connection that once had this inode.
  const bool is_another =
      (now.hash != 0 && kept.hash != now.hash) || (flow.hash != 0 && kept.hash != flow.hash);
  flow.pending_left = !is_another && knows_shown(kept) && !knows_shown(now);
  if (!flow.pending_left) maps_.drop_pending(inode);
  if (is_another) return;
  start_connection(flow, kept.hash, remote_of(kept));
  for (size_t i = 0; i < KITTY_RTT_BUCKETS; ++i) growth.rtt.buckets[i] += kept.buckets[i];
  growth.rtt.sum_us += kept.rtt_sum_us;
  const uint64_t count = sample_count(kept);
  growth.rtt_count += count;
  handed_over_ += count;
  add_counters(flow, kept.counters, growth);
}

void RttCollector::drop_pending(uint64_t inode, Flow& flow) {
  flow.pending_left = false;
  maps_.drop_pending(inode);
}

void RttCollector::read_flow(uint64_t inode, Flow& flow, uint64_t now_ns) {
  flow.tick_busy_ns = 0;
  kitty_flow now;
  if (!maps_.read_owned(inode, now)) return;
  Growth growth;
  if (flow.pending_due) take_pending(inode, flow, now, growth);
  if (flow.pending_left && knows_shown(now)) drop_pending(inode, flow);
  if (now.hash != 0) {
    if (now.resets != flow.resets || lost_samples(now, flow.posted)) restart_entry(flow, now, now_ns);
    start_connection(flow, now.hash, remote_of(now));
    if (flow.held_ns == 0) {
      add_samples(flow, now, growth);
      if (now.counters.us >= flow.begun_us) add_counters(flow, now.counters, growth);
    }
  }
  post(flow, growth);
}

// What the socket pass read of the socket itself: the only word of one that sends no data and so has no
// samples, and the latest of one whose acknowledgements fail to come.
void RttCollector::take_listed(Flow& flow, const Connection& connection) {
  if (connection.hash == 0 || flow.held_ns != 0) return;
  if (flow.hash == 0) start_connection(flow, connection.hash, connection.remote);
  if (flow.hash != connection.hash)
    return;  // of the connection before, or of one that the next sample tells of
  const kitty_counters& now = connection.counters;
  if ((now.have & KITTY_HAVE_SEGS_OUT) != 0 && now.us > flow.listed_us) {
    // Against the listing before alone: an entry's word may be older or newer.
    if (flow.listed_us != 0 && is_behind(now.segs_out, flow.listed_segs_out)) {
      start_counters(flow);
      flow.begun_us = now.us;
      flow.begun_by_listing = true;
    }
    flow.listed_us = now.us;
    flow.listed_segs_out = now.segs_out;
  }
  Growth growth;
  add_counters(flow, connection.counters, growth);
  post(flow, growth);
}

void RttCollector::follow_namespaces(const ProcessState& state) {
  for (const WatchedProcess& process : state.processes) {
    if (process.netns == 0) continue;
    auto [entry, added] = netns_.try_emplace(process.netns, generation_);
    entry->second = generation_;
    if (added && !maps_.watch_netns(process.netns)) {
      ++netns_full_;
      netns_.erase(entry);
    }
  }
  for (auto it = netns_.begin(); it != netns_.end();) {
    if (it->second == generation_) {
      ++it;
      continue;
    }
    maps_.unwatch_netns(it->first);
    it = netns_.erase(it);
  }
}

void RttCollector::follow(const ProcessState& state) {
  ++generation_;
  follow_namespaces(state);
  // Those that go make room in the map first.
  for (const WatchedProcess& process : state.processes) {
    for (const OwnedSocket& socket : process.sockets) {
      if (const auto found = flows_.find(socket.inode); found != flows_.end())
        found->second.seen = generation_;
    }
  }
  for (auto it = flows_.begin(); it != flows_.end();) {
    if (it->second.seen == generation_) {
      ++it;
      continue;
    }
    if (it->second.pending_left) drop_pending(it->first, it->second);  // or it would be taken once more
    maps_.disown(it->first);
    it = flows_.erase(it);
  }
  for (const WatchedProcess& process : state.processes) {
    for (const OwnedSocket& socket : process.sockets) {
      auto [entry, added] = flows_.try_emplace(socket.inode);
      Flow& flow = entry->second;
      if (added) {
        flow.from_birth = !socket.older_than_agent && !socket.handed;
        flow.pending_due = !socket.handed;
      }
      // Flows taken up now wait for the next read() before `pending` is read.
      if (flow.owner != process.id) flow.tick_busy_ns = 0;
      flow.owner = process.id;
      if (flow.held_ns != 0 && socket.listed_ns > flow.held_ns) flow.held_ns = 0;
      if (!flow.measured) {
        flow.measured = maps_.own(socket.inode) == OwnResult::owned;
        if (added && !flow.measured) ++owned_full_;
        if (!flow.measured) flow.pending_due = false;
        if (flow.measured && !flow.pending_due) maps_.drop_pending(socket.inode);
      }
      if (socket.connected) take_listed(flow, socket.connection);
      // Once there is room in the table it starts where it is.
      if (!flow.measured && flow.counted_have == 0) flow.from_birth = false;
      flow.seen = generation_;
    }
  }
}

void RttCollector::read(uint64_t now_ns) {
  // Set first, so that the minima of the tick that ends are complete when they are read.
  ended_tick_ = tick_;
  tick_ = tick_ == UINT32_MAX ? 1 : tick_ + 1;
  ticking_ = maps_.set_tick(tick_);
  for (auto& [inode, flow] : flows_) read_flow(inode, flow, now_ns);
}

void RttCollector::report(AgentMetrics& agent) {
  agent.rtt.success = ticking_;
  const auto misses = maps_.misses();
  // A hand-over takes back what counted as missed; the exported counter waits until it is made up for.
  const uint64_t pending = misses[KITTY_MISS_PENDING];
  unowned_ = std::max(unowned_, pending - std::min(pending, handed_over_));
  agent.rtt_samples = samples_;
  agent.unattributed = {.unowned = unowned_,
                        .no_inode = misses[KITTY_MISS_NO_INODE],
                        .table_full = misses[KITTY_MISS_FULL],
                        .insane = misses[KITTY_MISS_INSANE]};
  agent.full = {.owned = owned_full_, .pending = misses[KITTY_MISS_FULL], .watched_netns = netns_full_};
}

void RttCollector::tick(uint64_t now_ns, Metrics& metrics) {
  read(now_ns);
  if (metrics.state != state_) {
    state_ = metrics.state;
    ledger_.follow(*state_);
    follow(*state_);
  }
  ledger_.end_tick(now_ns, metrics);
  report(metrics.agent);
}

}  // namespace kitty::collector
