// The 500 ms tick: joins the latest ProcessState with what the kernel counted since, and hands the result on.
// Itself it reads nothing but one map entry per owned socket: the snmp files are read by a thread that may be
// left behind.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "collector/ledger.h"
#include "collector/metrics.h"
#include "collector/network.h"
#include "collector/periodic.h"
#include "collector/process_watch.h"
#include "collector/rtt.h"
#include "collector/rtt_hook.h"
#include "collector/time_collector.h"

namespace kitty::collector {

inline constexpr std::chrono::milliseconds kTick{500};
// Conditions are new each second. Older ones are not shown: a CPU time that stands still would say that its
// process does, and not that the scanner is held up.
inline constexpr std::chrono::seconds kConditionsKept{5};

// One tick's work, without a thread: for the ticker, and for tests and benchmarks that want to see one.
class Tick {
 public:
  // `maps` may be null: no RTT hook.
  Tick(const ProcessWatch& processes, FlowMaps* maps, uint32_t have);
  // The result lives until the next call.
  const Metrics& run();

 private:
  void take_conditions();
  void read_network();
  void read_sockets(bool new_state);

  const ProcessWatch& processes_;
  NetworkCollector network_;
  std::unique_ptr<Ledger> ledger_;     // by pointer: the RTT collector refers to it, and a Tick may be moved
  std::unique_ptr<RttCollector> rtt_;  // likewise: the time collector refers to it
  std::optional<TimeCollector> time_;
  Metrics metrics_;
};

class Ticker {
 public:
  using Publish = std::function<void(const Metrics&)>;

  // Ticks once on the caller's thread, so that something is published when this returns, then in the
  // background.
  Ticker(Tick tick, Publish publish);

 private:
  std::chrono::nanoseconds run();

  Tick tick_;
  Publish publish_;
  uint64_t next_ns_ = 0;
  std::unique_ptr<Periodic> thread_;  // last: stops before the rest goes
};

}  // namespace kitty::collector
