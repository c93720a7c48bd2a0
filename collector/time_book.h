// Where one watched process's time goes: the account that docs/ARCHITECTURE.md defines ("Where time goes"),
// from what the programs of kprobe.bpf.c saw of its counted flows. Every microsecond since the account was
// opened is in exactly one place, so the sums add up by construction. Pure; one thread uses it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kprobe.h"

namespace kitty::collector {

// A silence is settled so long after its end: by then the flows that held it have mostly had an event, which
// tells. A little less than two ticks, so that it is the second tick always.
inline constexpr uint64_t kSettleUs = 900'000;

// Towards one peer, in microseconds.
struct PeerTime {
  uint64_t waiting_us = 0;           // nothing in flight, nothing to read; ended by data of the peer
  uint64_t receiver_limited_us = 0;  // held by the peer, which did not read
  uint64_t path_limited_us = 0;      // held by the path to the peer
  uint64_t receiving_us = 0;         // data of the peer kept coming
};

struct TimeTotals {
  uint64_t owing_us = 0;        // the others waited for this process
  uint64_t moving_us = 0;       // sending without hindrance, and what is nobody's (delayed acknowledgements)
  uint64_t unknown_us = 0;      // more silences than the kernel keeps, or two events at once
  std::vector<PeerTime> peers;  // by number
};

// What the flows to one peer did since the tick before.
struct PeerGrowth {
  uint64_t sending_us = 0;
  uint64_t receiving_us = 0;
  // Of the flow that was busy longest.
  uint64_t busy_us = 0;
  uint64_t rwnd_limited_us = 0;
};

class TimeBook {
 public:
  // Opened at `begin_us`, CLOCK_MONOTONIC, as all times here.
  explicit TimeBook(uint64_t begin_us) : begin_us_(begin_us) {}

  // `account` as read at `now_us`, `growth` by number of peer.
  void tick(uint64_t now_us, const kitty_account& account, std::span<const PeerGrowth> growth);

  [[nodiscard]] const TimeTotals& totals() const { return totals_; }
  // Time since the account was opened.
  [[nodiscard]] uint64_t accounted_us(uint64_t now_us) const {
    return now_us > begin_us_ ? now_us - begin_us_ : 0;
  }
  // Time that is in no sum yet: the open silence, and what is younger than kSettleUs.
  [[nodiscard]] uint64_t unsettled_us(uint64_t now_us) const;

 private:
  struct Tick {
    uint64_t at_us = 0;
    std::vector<PeerGrowth> growth;
  };

  void settle(const kitty_silence& silence);
  void settle(const Tick& tick);
  PeerTime& peer(size_t number);

  const uint64_t begin_us_;
  TimeTotals totals_;
  uint64_t settled_us_ = 0;    // in the totals
  uint64_t taken_ = 0;         // silences settled or lost, as kitty_account counts
  std::array<Tick, 4> ticks_;  // from first_tick_ on those that are not settled; their memory is reused
  uint64_t first_tick_ = 0, next_tick_ = 0;
};

}  // namespace kitty::collector
