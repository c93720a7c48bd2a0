// The network collector: /proc/PID/net/snmp once per network namespace, and what it says to every watched
// process in it. The files are read by a thread that may be left behind (expendable.h), because under
// hidepid= looking one up waits for an execve(2) of its process. Runs on the tick's thread only; a steady
// tick allocates nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "collector/expendable.h"
#include "collector/hang.h"
#include "collector/metrics.h"
#include "collector/process_reader.h"
#include "procfs/snmp.h"

namespace kitty::collector {

// What the tick waits for all files in all.
inline constexpr std::chrono::milliseconds kNetworkWait{200};
// What was read last stands for a process whose file is not read in time, for so long.
inline constexpr std::chrono::seconds kCountersKept{2};
// Namespaces whose counters are read once a tick; of those beyond, once for each of their processes.
inline constexpr size_t kNamespacesShared = 128;

// A process's counters. Namespaces are told apart by the file's inode, of which each has its own: ns/net
// would do, but asks whether the process may be traced.
class CountersReader {
 public:
  struct Request {
    Handle handle;
    uid_t uid = 0;
  };
  struct Answer {
    procfs::ReadResult result;
    procfs::SnmpTcp tcp;
  };
  Answer read(const Request& request, Turns& turns);

 private:
  struct Reading {
    uint64_t inode = 0;
    procfs::SnmpTcp tcp;
  };
  procfs::ReadResult read_file(int directory, Reading& reading);

  std::array<Reading, kNamespacesShared> readings_;  // of this batch
  size_t count_ = 0;
  std::array<char, procfs::kSnmpBufferBytes> buffer_;
};

class NetworkCollector {
 public:
  NetworkCollector();

  // Fills retransmits and out_segs of every process of metrics.state but workers. A process that is gone, or
  // whose namespace could not be read, gets none; a malformed file counts as a parse error.
  void tick(Metrics& metrics);

 private:
  // What is remembered of one process from tick to tick.
  struct Of {
    procfs::ProcessId id;
    Hang hang{std::chrono::seconds(1)};
    uint64_t read_ns = 0;  // 0: nothing to stand for it
    std::optional<uint64_t> retransmits, out_segs;
  };
  void follow(const ProcessState& state);
  void ask(uint64_t now_ns);
  void take(size_t item, uint64_t now_ns);

  std::unique_ptr<Expendable> reads_;
  std::shared_ptr<const ProcessState> state_;
  std::vector<Of> processes_;  // parallel to state_->processes
  std::shared_ptr<ReadBatch<CountersReader>> batch_;
  std::vector<size_t> asked_;  // which of processes_ an item is
  bool ask_again_ = true;      // the batch is not that of all processes, or somebody still works on it
  Expendable::Outcome outcome_;
  bool all_read_ = true;  // of this tick
  uint64_t parse_errors_ = 0;
};

}  // namespace kitty::collector
