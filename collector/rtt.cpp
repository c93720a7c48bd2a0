#include "collector/rtt.h"

#include <algorithm>
#include <numeric>

namespace kitty::collector {

namespace {

uint64_t sample_count(const kitty_flow& flow) {
  return std::accumulate(std::begin(flow.buckets), std::end(flow.buckets), uint64_t{0});
}

// What a counter grew by since `last`. At first sight it counts from birth or from now; `last` is brought up
// to date.
template <class Counter>
uint64_t growth(uint32_t bit, uint32_t have, uint32_t& counted, bool from_birth, Counter now, Counter& last) {
  if ((have & bit) == 0) return 0;
  const bool first = (counted & bit) == 0;
  counted |= bit;
  const Counter before = first ? (from_birth ? Counter{0} : now) : last;
  last = now;
  return static_cast<Counter>(now - before);  // modulo 2^32 for the counters the kernel keeps in 32 bits
}

}  // namespace

void RttCollector::add_counters(Flow& flow, const kitty_counters& now) {
  OwnTotals& own = flow.owner->own;
  kitty_counters& last = flow.last.counters;
  const auto grow = [&](uint32_t bit, auto value, auto& before) {
    return growth(bit, now.have, flow.counted_have, flow.from_birth, value, before);
  };
  own.segments_sent += grow(KITTY_HAVE_SEGS_OUT, now.segs_out, last.segs_out);
  own.bytes_sent += grow(KITTY_HAVE_BYTES_SENT, now.bytes_sent, last.bytes_sent);
  own.retransmits += grow(KITTY_HAVE_TOTAL_RETRANS, now.total_retrans, last.total_retrans);
}

void RttCollector::add_flow(Flow& flow, const kitty_flow& now) {
  if (now.resets != flow.last.resets) {  // the inode is another connection now
    flow.last = kitty_flow{};
    flow.last.resets = now.resets;
    flow.counted_have = 0;
    flow.from_birth = true;
  }
  Totals& to = *flow.owner;
  for (size_t i = 0; i < KITTY_RTT_BUCKETS; ++i) {
    const uint64_t grown = now.buckets[i] - flow.last.buckets[i];
    to.own.rtt.buckets[i] += grown;
    to.tick_samples += grown;
    samples_ += grown;
    flow.last.buckets[i] = now.buckets[i];
  }
  const uint64_t sum = now.rtt_sum_us - flow.last.rtt_sum_us;
  to.own.rtt.sum_us += sum;
  to.tick_sum_us += sum;
  flow.last.rtt_sum_us = now.rtt_sum_us;
  flow.last.hash = now.hash;
  add_counters(flow, now.counters);
}

void RttCollector::read_flow(uint64_t inode, Flow& flow) {
  kitty_flow now;
  if (!maps_.read_owned(inode, now)) return;
  if (flow.pending_due) {
    kitty_flow kept;
    flow.pending_due = false;
    // Another hash is another connection that once had this inode.
    if (maps_.take_pending(inode, kept) && (now.hash == 0 || kept.hash == now.hash)) {
      Totals& to = *flow.owner;
      const uint64_t count = sample_count(kept);
      for (size_t i = 0; i < KITTY_RTT_BUCKETS; ++i) to.own.rtt.buckets[i] += kept.buckets[i];
      to.own.rtt.sum_us += kept.rtt_sum_us;
      to.tick_samples += count;
      to.tick_sum_us += kept.rtt_sum_us;
      samples_ += count;
      handed_over_ += count;
      if (now.counters.have == 0) add_counters(flow, kept.counters);
    }
  }
  add_flow(flow, now);
}

void RttCollector::follow_namespaces(const ProcessState& state) {
  for (const WatchedProcess& process : state.processes) {
    if (process.netns == 0) continue;
    auto [entry, added] = netns_.try_emplace(process.netns, generation_);
    entry->second = generation_;
    if (added && !maps_.watch_netns(process.netns)) {
      ++table_full_;
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
  for (const WatchedProcess& process : state.processes) {
    std::unique_ptr<Totals>& totals = totals_[process.id];
    if (!totals) {
      totals = std::make_unique<Totals>();
      totals->own.have = have_;
    }
    totals->seen = generation_;
    for (const OwnedSocket& socket : process.sockets) {
      auto [entry, added] = flows_.try_emplace(socket.inode);
      Flow& flow = entry->second;
      if (added) {
        flow.owner = totals.get();
        flow.from_birth = !socket.older_than_agent;
        flow.pending_due = true;
      } else if (flow.owner != totals.get()) {
        read_flow(socket.inode, flow);  // what it did so far is the former owner's
        flow.owner = totals.get();
      }
      if (!flow.measured) {
        flow.measured = maps_.own(socket.inode) == OwnResult::owned;
        if (added && !flow.measured) ++table_full_;
      }
      flow.seen = generation_;
    }
  }
  for (auto it = flows_.begin(); it != flows_.end();) {
    if (it->second.seen == generation_) {
      ++it;
      continue;
    }
    read_flow(it->first, it->second);
    maps_.disown(it->first);
    it = flows_.erase(it);
  }
  std::erase_if(totals_, [this](const auto& entry) { return entry.second->seen != generation_; });
}

void RttCollector::tick(uint64_t now_ns, Metrics& metrics) {
  // Flows taken up by this tick's follow() wait for the next one before `pending` is read.
  for (auto& [inode, flow] : flows_) read_flow(inode, flow);
  if (metrics.state != state_) {
    state_ = metrics.state;
    follow(*state_);
  }
  tick_ = tick_ == UINT32_MAX ? 1 : tick_ + 1;
  const bool ticking = maps_.set_tick(tick_);

  for (auto& [identity, totals] : totals_) {
    if (totals->tick_samples == 0) continue;
    totals->rtt_us = static_cast<double>(totals->tick_sum_us) / static_cast<double>(totals->tick_samples);
    totals->rtt_ns = now_ns;
    totals->tick_samples = 0;
    totals->tick_sum_us = 0;
  }
  for (size_t i = 0; i < state_->processes.size(); ++i) {
    const Totals& totals = *totals_.at(state_->processes[i].id);
    ProcessMetrics& process = metrics.processes[i];
    process.own = &totals.own;
    process.rtt_us.reset();
    if (totals.rtt_ns != 0 && now_ns - totals.rtt_ns <= kRttStaleNs) process.rtt_us = totals.rtt_us;
  }

  const auto misses = maps_.misses();
  const uint64_t missed = std::accumulate(misses.begin(), misses.end(), uint64_t{0});
  // A hand-over takes back what counted as missed; the exported counter waits until it is made up for.
  unattributed_ = std::max(unattributed_, missed - std::min(missed, handed_over_));
  metrics.agent.rtt_samples = samples_;
  metrics.agent.rtt_samples_unattributed = unattributed_;
  metrics.agent.flow_table_full = table_full_ + misses[KITTY_MISS_FULL];
  metrics.agent.rtt.success = ticking;
}

}  // namespace kitty::collector
