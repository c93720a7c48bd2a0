// The background thread that keeps ProcessState and Conditions fresh. It may take long on a busy host, so
// nobody waits for it: readers take the latest snapshot, which never changes.
//
// Discovery runs every 5 s. Where the exec tracepoint says which programs are executed, those that are to be
// watched are looked at within a second; where it was more of them than the kernel keeps, all new and young
// processes. The end of a watched process is noticed within a second. The
// socket pass runs as often as it costs under 0.5 % of a core, every 1 s to 5 s. Conditions are new each
// second, and apart from ProcessState because that costs more to make, and to take over.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "collector/condition.h"
#include "collector/exec_log.h"
#include "collector/periodic.h"
#include "collector/process_state.h"
#include "collector/scanner.h"

namespace kitty::collector {

inline constexpr std::chrono::seconds kDiscoveryInterval{5};
inline constexpr std::chrono::seconds kMinSocketPassInterval{1};
inline constexpr std::chrono::seconds kMaxSocketPassInterval{5};
// The pass may take one part in so many of the time: half of the one percent of a core that the agent may
// take in all.
inline constexpr int kSocketPassShare = 200;

// A state whose processes were listed longer ago is not to be relied on: three discoveries are missing.
inline constexpr std::chrono::seconds kStaleAfter{15};

// Whether all processes were listed, and not too long before `now_ns` (CLOCK_MONOTONIC). Pure.
[[nodiscard]] bool is_fresh(const ScanReport& report, uint64_t now_ns);

// How long after a pass the next one is due, given what it cost. Pure.
[[nodiscard]] std::chrono::nanoseconds socket_pass_interval(std::chrono::nanoseconds cost);

class ProcessWatch {
 public:
  using OnFirst = std::function<void(const ProcessState&)>;

  // Scans in the background from now on. Nobody else uses `scanner` and `execs` any more. `on_first`: called
  // with the first snapshot, on the background thread.
  ProcessWatch(Scanner scanner, ExecLog execs, OnFirst on_first = {});
  ~ProcessWatch() { (void)stop(); }
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // The latest snapshot; never null, and empty before the first scan. Thread-safe.
  [[nodiscard]] std::shared_ptr<const ProcessState> state() const;
  // is_fresh() of that, now. Thread-safe.
  [[nodiscard]] bool fresh() const;
  // What the watched processes were found to do at the latest look; never null, and empty before the first.
  // Thread-safe.
  [[nodiscard]] std::shared_ptr<const Conditions> conditions() const;
  // Ends the background thread within milliseconds, whatever it reads. Returns whom threads that were left
  // behind still wait for in the kernel. Again: the same.
  std::vector<StuckProcess> stop();

 private:
  std::chrono::nanoseconds run_due();
  void publish();
  void publish_conditions();

  Scanner scanner_;
  ExecLog execs_;
  OnFirst on_first_;
  uint64_t next_discovery_ns_ = 0;
  uint64_t next_pass_ns_ = 0;
  mutable std::mutex mutex_;  // guards state_ and conditions_
  std::shared_ptr<const ProcessState> state_;
  std::shared_ptr<const Conditions> conditions_;
  std::unique_ptr<Periodic> thread_;  // last: stops before the rest goes
};

}  // namespace kitty::collector
