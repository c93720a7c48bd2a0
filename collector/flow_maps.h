// The BPF maps of kprobe.bpf.c under their own names. Owns them; the programs keep their own references once
// loaded. Every call is one system call on one map, so any thread may make it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "kprobe.h"
#include "loader/map.h"
#include "loader/object.h"

namespace kitty::collector {

enum class OwnResult { owned, table_full, failed };

class FlowMaps {
 public:
  // Creates every map of the object. Raises `pending` to 128 entries per possible CPU, the least an LRU map
  // needs.
  static Result<FlowMaps> create(const loader::Object& object);

  // In the order of Object::maps(), as loading a program wants them.
  [[nodiscard]] std::span<const loader::Map> maps() const { return maps_; }
  // Whether the kernel lets this thread read them: before 5.19 that may take a capability each time (bpf(2)).
  [[nodiscard]] bool readable() const;
  // Bytes of kernel memory held by all maps together, as the kernel accounts them (fdinfo's memlock).
  [[nodiscard]] uint64_t memory_bytes() const;

  // Inserts a zeroed entry; from then on the socket's samples land there. An entry already there is left
  // alone.
  [[nodiscard]] OwnResult own(uint64_t inode);
  [[nodiscard]] bool read_owned(uint64_t inode, kitty_flow& flow) const;
  void disown(uint64_t inode);
  // What the socket did before it was owned; false when there is no such entry.
  [[nodiscard]] bool read_pending(uint64_t inode, kitty_flow& flow) const;
  void drop_pending(uint64_t inode);
  [[nodiscard]] bool watch_netns(uint32_t netns);
  void unwatch_netns(uint32_t netns);
  // Samples from now on belong to this tick; never 0.
  [[nodiscard]] bool set_tick(uint32_t tick);

  // Has an account begin at `now_us` (CLOCK_MONOTONIC): nothing of what it held before is left.
  [[nodiscard]] bool open_account(uint32_t number, uint64_t now_us);
  [[nodiscard]] bool read_account(uint32_t number, kitty_account& account) const;
  // Counts the socket's packets as events of that account, towards that peer of it.
  [[nodiscard]] bool time_flow(uint64_t inode, uint32_t account, uint16_t peer);
  [[nodiscard]] bool read_timed(uint64_t inode, kitty_timed& timed) const;
  void stop_timing(uint64_t inode);
  // Programs executed on the host since the maps exist. 0 where the exec tracepoint is not attached.
  [[nodiscard]] uint64_t execs() const;
  // The record of the n-th of them, from 0. False where its slot holds another one by now, or is being
  // written.
  [[nodiscard]] bool read_exec(uint64_t n, kitty_exec& exec) const;
  // Sums over CPUs, by enum kitty_miss. Zeroes when unreadable.
  [[nodiscard]] std::array<uint64_t, KITTY_MISS_COUNT> misses();

 private:
  FlowMaps() = default;
  std::vector<loader::Map> maps_;
  size_t owned_ = 0, pending_ = 0, watched_netns_ = 0, misses_ = 0, settings_ = 0, execs_ = 0, exec_log_ = 0,
         timed_ = 0, accounts_ = 0;  // indices into maps_
  std::vector<uint64_t> per_cpu_;    // one slot per possible CPU, for misses()
};

}  // namespace kitty::collector
