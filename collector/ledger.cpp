#include "collector/ledger.h"

#include <algorithm>

namespace kitty::collector {

namespace {

void set_name(PeerMetrics& peer, std::string_view text) {
  peer.name_bytes = std::min(text.size(), peer.name.size());
  std::copy_n(text.data(), peer.name_bytes, peer.name.data());
}

}  // namespace

size_t Account::other_index() {
  if (!other_) {
    other_ = peers_.size();
    PeerMetrics& peer = peers_.emplace_back();
    peer.other = true;
    set_name(peer, kOtherPeers);
    peer_ticks_.emplace_back();
  }
  return *other_;
}

// The place becomes free for another peer; what it counted goes on under "other".
void Account::give_up(size_t index) {
  const size_t other = other_index();  // may move peers_
  peers_[other].rtt_count += peers_[index].rtt_count;
  peers_[other].rtt_sum_us += peers_[index].rtt_sum_us;
  peers_[other].tcp.add(peers_[index].tcp);
  peers_[other].busy_ns = std::max(peers_[other].busy_ns, peers_[index].busy_ns);
  peers_[index] = {};
  peer_ticks_[index] = {};
}

size_t Account::peer_index(const procfs::IpAddress& remote) {
  const auto found = std::ranges::find_if(
      peers_, [&remote](const PeerMetrics& peer) { return !peer.other && peer.address == remote; });
  auto index = static_cast<size_t>(found - peers_.begin());
  if (found == peers_.end()) {
    if (peers_.size() - (other_ ? 1 : 0) >= kMaxPeers) {
      size_t idle = peers_.size();  // the one whose last connection was gone first
      for (size_t i = 0; i < peers_.size(); ++i) {
        if (peers_[i].other || peer_ticks_[i].listed == generation_) continue;
        if (idle == peers_.size() || peer_ticks_[i].listed < peer_ticks_[idle].listed) idle = i;
      }
      if (idle == peers_.size()) return other_index();
      give_up(idle);
      index = idle;
    } else {
      peers_.emplace_back();
      peer_ticks_.emplace_back();
    }
    PeerMetrics& peer = peers_[index];
    peer.address = remote;
    std::array<char, procfs::kMaxAddressBytes> buffer;
    set_name(peer, procfs::format_address(remote, buffer));
  }
  peer_ticks_[index].listed = generation_;
  return index;
}

void Account::add(const procfs::IpAddress& remote, const Growth& growth) {
  if (!growth.any()) return;
  for (size_t i = 0; i < growth.rtt.buckets.size(); ++i) own_.rtt.buckets[i] += growth.rtt.buckets[i];
  own_.rtt.sum_us += growth.rtt.sum_us;
  own_.tcp.add(growth.tcp);
  tick_count_ += growth.rtt_count;
  tick_sum_us_ += growth.rtt.sum_us;

  const size_t index = peer_index(remote);
  PeerMetrics& peer = peers_[index];
  PeerTick& tick = peer_ticks_[index];
  peer.rtt_count += growth.rtt_count;
  peer.rtt_sum_us += growth.rtt.sum_us;
  peer.tcp.add(growth.tcp);
  tick.busy_ns = std::max(tick.busy_ns, growth.busy_ns);
  tick.min_us = std::min(tick.min_us, growth.rtt_min_us.value_or(UINT32_MAX));
}

void Account::end_tick(uint64_t now_ns, uint64_t elapsed_ns) {
  if (tick_count_ != 0) {
    rtt_us_ = static_cast<double>(tick_sum_us_) / static_cast<double>(tick_count_);
    rtt_taken_ns_ = now_ns;
    tick_count_ = 0;
    tick_sum_us_ = 0;
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    PeerMetrics& peer = peers_[i];
    PeerTick& tick = peer_ticks_[i];
    tick.busy_credit_ns = std::min(tick.busy_credit_ns + elapsed_ns, kMaxBusyCreditNs);
    const uint64_t busy_ns = std::min(tick.busy_ns, tick.busy_credit_ns);
    peer.busy_ns += busy_ns;
    tick.busy_credit_ns -= busy_ns;
    tick.busy_ns = 0;
    if (tick.min_us != UINT32_MAX) {
      peer.rtt_min_us = tick.min_us;
      tick.min_taken_ns = now_ns;
      tick.min_us = UINT32_MAX;
    } else if (now_ns - tick.min_taken_ns > kRttStaleNs) {
      peer.rtt_min_us.reset();
    }
  }
}

void Account::take_connections(std::span<const OwnedSocket> sockets) {
  for (PeerMetrics& peer : peers_) peer.tx_queue_bytes = 0;
  // Who still has a connection keeps its place: that is settled before newcomers look for one.
  for (const OwnedSocket& socket : sockets) {
    const auto known = std::ranges::find(peers_, socket.connection.remote, &PeerMetrics::address);
    if (socket.connected && known != peers_.end())
      peer_ticks_[static_cast<size_t>(known - peers_.begin())].listed = generation_;
  }
  for (const OwnedSocket& socket : sockets) {
    if (!socket.connected) continue;
    peers_[peer_index(socket.connection.remote)].tx_queue_bytes += socket.connection.tx_queue_bytes;
  }
}

Account& Ledger::open_account(const WatchedProcess& process) {
  Book& book = books_[process.id];
  const RankLabels& labels = process.labels;
  const auto is_its = [&labels](const Page& page) {
    return page.rank == labels.rank && page.job == labels.job;
  };
  if (!book.pages.empty() && is_its(book.pages[book.open])) return book.current();
  auto page = std::ranges::find_if(book.pages, is_its);
  if (page == book.pages.end()) {
    if (book.pages.size() == kMaxAccounts) book.pages.erase(book.pages.begin());
    page = book.pages.insert(book.pages.end(), {labels.rank, labels.job, {}});
    page->account.own_.have = have_.value_or(0);
  }
  book.open = static_cast<size_t>(page - book.pages.begin());
  return book.current();
}

void Ledger::follow(const ProcessState& state) {
  ++generation_;
  for (const WatchedProcess& process : state.processes) {
    Account& account = open_account(process);
    account.seen_ = generation_;
    account.generation_ = generation_;
    account.take_connections(process.sockets);
  }
  std::erase_if(books_, [this](const auto& entry) { return entry.second.current().seen_ != generation_; });
}

void Ledger::end_tick(uint64_t now_ns, Metrics& metrics) {
  const uint64_t elapsed_ns = last_tick_ns_ == 0 ? 0 : now_ns - last_tick_ns_;
  last_tick_ns_ = now_ns;
  for (auto& [id, book] : books_) {
    for (Page& page : book.pages) page.account.end_tick(now_ns, elapsed_ns);
  }
  for (size_t i = 0; i < metrics.processes.size(); ++i) {
    const WatchedProcess& watched = metrics.state->processes[i];
    const Account& account = of(watched.id);
    ProcessMetrics& process = metrics.processes[i];
    process.peers = account.peers_;
    process.own = nullptr;
    process.rtt_us.reset();
    if (!have_ || watched.flows_unseen) continue;
    process.own = &account.own_;
    if (account.rtt_taken_ns_ != 0 && now_ns - account.rtt_taken_ns_ <= kRttStaleNs)
      process.rtt_us = account.rtt_us_;
  }
}

}  // namespace kitty::collector
