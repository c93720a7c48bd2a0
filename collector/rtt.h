// The RTT collector: keeps the BPF map `owned` in step with ProcessState and posts to the Ledger what each
// watched process's sockets did, from the flow entries and from what the socket pass read of the kernel's own
// counters. Runs on the tick's thread only. Never writes counts into a map: it reads entries and remembers
// what it has posted, so what a closed socket did is not lost and no counter falls.
//
// Hand-over of a new socket: insert a zeroed `owned` entry, let one tick pass (a program that missed it has
// long finished), then take what `pending` kept and add it. The entry there stays until a packet has shown
// the program of tcp_probe where it left off: a flow may rest for longer than a tick.
//
// An inode that turns out to carry another connection than before may have another owner by now: what the new
// connection does is posted only once its holder has been listed again.
//
// Counters start at a socket's birth where its owner opened it and the agent was there, else where they are
// when the socket is first seen: what another process did with it is not its owner's. Counters that fall
// begin anew: the socket was disconnected and connected to the same peer again.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "collector/flow_maps.h"
#include "collector/ledger.h"
#include "collector/metrics.h"

namespace kitty::collector {

class RttCollector {
 public:
  RttCollector(FlowMaps& maps, Ledger& ledger);

  // One tick at `now_ns` (CLOCK_MONOTONIC): posts to the owners of the state before what happened since;
  // then, if metrics.state is another, has the ledger follow it, takes up and lets go of sockets; ends the
  // ledger's tick; and last fills in what the agent says of itself.
  void tick(uint64_t now_ns, Metrics& metrics);
  // The latest word of a followed socket's own counters; null where there is none. Valid until the next tick.
  [[nodiscard]] const kitty_counters* counters_of(uint64_t inode) const {
    const auto found = flows_.find(inode);
    return found == flows_.end() || found->second.counted_have == 0 ? nullptr : &found->second.last;
  }

 private:
  void read(uint64_t now_ns);
  void follow(const ProcessState& state);
  void report(AgentMetrics& agent);
  // What one source of counters has been posted up to.
  struct Flow {
    procfs::ProcessId owner;
    uint32_t hash = 0;  // of the connection that `last` is about; 0: none yet
    procfs::IpAddress remote{};
    uint32_t resets = 0;  // as the flow entry counted them when it was last read
    RttHistogram posted;
    kitty_counters last{};
    uint32_t counted_have = 0;      // counters whose starting point is set
    bool from_birth = true;         // counters start at the socket's birth, not at first sight
    bool busy_unsure = false;       // busy time may have begun anew with the connection, or gone on
    bool begun_by_listing = false;  // a listing saw counters begin anew, which the entry may have yet to tell
    uint64_t begun_us = 0;   // that listing's time: what the entry counted before is the connection's before
    uint64_t listed_us = 0;  // of the latest listing with counters; 0: none of this connection
    uint32_t listed_segs_out = 0;
    uint64_t tick_busy_ns = 0;  // posted in this tick
    bool pending_due = false;   // what `pending` has is not counted yet
    bool pending_left = false;  // it is, but the entry is still wanted
    bool measured = false;      // has an entry in `owned`; tried again while the table is full
    uint64_t held_ns = 0;       // not posted until its owner is listed later than this; 0: posted
    uint64_t seen = 0;
  };

  void follow_namespaces(const ProcessState& state);
  void read_flow(uint64_t inode, Flow& flow, uint64_t now_ns);
  void take_pending(uint64_t inode, Flow& flow, const kitty_flow& now, Growth& growth);
  void drop_pending(uint64_t inode, Flow& flow);
  void take_listed(Flow& flow, const Connection& connection);
  void add_samples(Flow& flow, const kitty_flow& now, Growth& growth) const;
  void add_counters(Flow& flow, const kitty_counters& now, Growth& growth) const;
  static void start_counters(Flow& flow);
  static void start_connection(Flow& flow, uint32_t hash, const procfs::IpAddress& remote);
  static void restart_entry(Flow& flow, const kitty_flow& now, uint64_t now_ns);
  void post(Flow& flow, Growth& growth);

  FlowMaps& maps_;
  Ledger& ledger_;
  const uint64_t jiffy_ns_;
  std::shared_ptr<const ProcessState> state_;  // the latest that was followed
  std::unordered_map<uint64_t, Flow> flows_;   // by inode
  std::unordered_map<uint32_t, uint64_t>
      netns_;  // watched namespaces and the generation_ that last named them
  uint64_t generation_ = 0;
  uint32_t tick_ = 1;
  bool ticking_ = false;     // the programs know of tick_
  uint32_t ended_tick_ = 0;  // the one before: its minima are complete
  uint64_t samples_ = 0;
  uint64_t handed_over_ = 0;
  uint64_t unowned_ = 0;
  uint64_t owned_full_ = 0;
  uint64_t netns_full_ = 0;
};

}  // namespace kitty::collector
