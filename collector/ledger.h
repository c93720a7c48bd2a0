// What each watched process's own sockets did, in all and by peer: the sums behind the exported counters.
// They live as long as the process is watched and only grow, whatever becomes of the sockets. What a program
// did stays under its rank and job: where an execve(2) changes these, the next program's sums begin at zero.
// Runs on the tick's thread only; a tick in which no peer is new allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collector/metrics.h"

namespace kitty::collector {

// A process's peers beyond these are one, "other". A peer with which no connection is left gives its place to
// a new one, and its counts to "other", so that what a job once downloaded does not hide its ranks.
inline constexpr size_t kMaxPeers = 64;
// Values of the latest tick with samples (net_tcp_rtt_us, the peers' minimum) say nothing of now once they
// are older than this.
inline constexpr uint64_t kRttStaleNs = 10'000'000'000;
// Busy time is learned late when nothing is acknowledged; up to this much is made up for in one tick. Beyond
// the time that has passed nothing counts: a peer with several sockets is busy once.
inline constexpr uint64_t kMaxBusyCreditNs = 10'000'000'000;
// Ranks and jobs that a process has had, with their sums, should it go back to one; the oldest go first.
inline constexpr size_t kMaxAccounts = 8;

// What one socket did since it was last looked at.
struct Growth {
  RttHistogram rtt;
  uint64_t rtt_count = 0;
  std::optional<uint32_t> rtt_min_us;  // of the tick that has just ended
  TcpTotals tcp;
  uint64_t busy_ns = 0;

  [[nodiscard]] bool any() const { return rtt_count != 0 || rtt_min_us || tcp.any() || busy_ns != 0; }
};

// One process's page of the ledger.
class Account {
 public:
  // Adds to the process and to the peer alike.
  void add(const procfs::IpAddress& remote, const Growth& growth);

 private:
  friend class Ledger;
  struct PeerTick {        // parallel to peers_
    uint64_t listed = 0;   // the generation that last knew a connection to it
    uint64_t busy_ns = 0;  // the largest growth of one socket in this tick
    uint64_t busy_credit_ns = kMaxBusyCreditNs;
    uint32_t min_us = UINT32_MAX;
    uint64_t min_taken_ns = 0;
  };

  void take_connections(std::span<const OwnedSocket> sockets);
  size_t peer_index(const procfs::IpAddress& remote);
  size_t other_index();
  void give_up(size_t index);
  void end_tick(uint64_t now_ns, uint64_t elapsed_ns);

  OwnTotals own_;
  std::vector<PeerMetrics> peers_;
  std::vector<PeerTick> peer_ticks_;
  std::optional<size_t> other_;
  uint64_t generation_ = 0;  // of the Ledger, at its latest follow()
  uint64_t tick_count_ = 0;  // samples of the tick being added up
  uint64_t tick_sum_us_ = 0;
  double rtt_us_ = 0;
  uint64_t rtt_taken_ns_ = 0;  // 0: never
  uint64_t seen_ = 0;          // the generation that last listed the process
};

class Ledger {
 public:
  // `have`: the counters this kernel gives (enum kitty_have); absent without an RTT hook.
  explicit Ledger(std::optional<uint32_t> have) : have_(have) {}

  // Opens an account for every process of `state` that has none under its rank and job, closes those of
  // processes it no longer lists, and takes over which peers there are and what is queued for them.
  void follow(const ProcessState& state);
  // The account of a process of the latest state. Valid until the next follow().
  [[nodiscard]] Account& of(const procfs::ProcessId& id) { return books_.at(id).current(); }
  // Ends the tick: latest values are settled, and put into the metrics of the latest state's processes.
  void end_tick(uint64_t now_ns, Metrics& metrics);

 private:
  // What a series of its is told from others by, beside the pid.
  struct Page {
    std::string rank, job;
    Account account;
  };
  // One process's accounts.
  struct Book {
    std::vector<Page> pages;
    size_t open = 0;
    [[nodiscard]] Account& current() { return pages[open].account; }
    [[nodiscard]] const Account& current() const { return pages[open].account; }
  };

  Account& open_account(const WatchedProcess& process);

  const std::optional<uint32_t> have_;
  std::unordered_map<procfs::ProcessId, Book, ProcessIdHash> books_;
  uint64_t generation_ = 0;
  uint64_t last_tick_ns_ = 0;
};

}  // namespace kitty::collector
