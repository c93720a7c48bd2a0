#include "collector/time_book.h"

#include <algorithm>

namespace kitty::collector {

PeerTime& TimeBook::peer(size_t number) {
  if (totals_.peers.size() <= number) totals_.peers.resize(number + 1);
  return totals_.peers[number];
}

// What held it comes first: a process that cannot send cannot be blamed for not reading. Then what it did not
// read, then who ended it.
void TimeBook::settle(const kitty_silence& silence) {
  uint64_t rest = silence.end_us - silence.begin_us;
  settled_us_ += rest;
  if (const size_t holders = std::min<size_t>(silence.holder_count, KITTY_HOLDERS); holders != 0) {
    for (size_t i = 0; i < holders; ++i) {
      const uint64_t part = rest / (holders - i);
      const uint64_t limited = part * std::min<uint64_t>(silence.holders[i].rwnd_limited, 1000) / 1000;
      PeerTime& held = peer(silence.holders[i].peer);
      held.receiver_limited_us += limited;
      held.path_limited_us += part - limited;
      rest -= part;
    }
    return;
  }
  const uint64_t unread = std::min<uint64_t>(silence.unread_us, rest);
  totals_.owing_us += unread;
  rest -= unread;
  if (silence.sent_us != 0) {
    const uint64_t before_sending = std::min<uint64_t>(silence.sent_us, rest);
    totals_.owing_us += before_sending;
    rest -= before_sending;
    if (rest < KITTY_SILENCE_US) {
      totals_.moving_us += rest;
      return;
    }
  }
  if (silence.event == KITTY_EVENT_DATA) {
    peer(silence.peer).waiting_us += rest;
  } else if (silence.excused != 0 || silence.sent_us != 0) {
    totals_.moving_us += rest;
  } else {
    totals_.owing_us += rest;  // what is acknowledged was sent a moment before
  }
}

void TimeBook::settle(const Tick& tick) {
  for (size_t number = 0; number < tick.growth.size(); ++number) {
    const PeerGrowth& growth = tick.growth[number];
    if ((growth.sending_us | growth.receiving_us) == 0) continue;
    PeerTime& time = peer(number);
    const uint64_t path = std::min(growth.sending_us, growth.busy_us - growth.rwnd_limited_us);
    const uint64_t receiver = std::min(growth.sending_us - path, growth.rwnd_limited_us);
    time.path_limited_us += path;
    time.receiver_limited_us += receiver;
    time.receiving_us += growth.receiving_us;
    totals_.moving_us += growth.sending_us - path - receiver;
    settled_us_ += growth.sending_us + growth.receiving_us;
  }
}

void TimeBook::tick(uint64_t now_us, const kitty_account& account, std::span<const PeerGrowth> growth) {
  const uint64_t due_us = now_us - std::min(now_us, kSettleUs);
  while (first_tick_ != next_tick_ &&
         (ticks_[first_tick_ % ticks_.size()].at_us <= due_us || next_tick_ - first_tick_ == ticks_.size())) {
    settle(ticks_[first_tick_ % ticks_.size()]);
    ++first_tick_;
  }
  Tick& latest = ticks_[next_tick_++ % ticks_.size()];
  latest.at_us = now_us;
  latest.growth.assign(growth.begin(), growth.end());
  if (account.silence_count - taken_ > KITTY_SILENCES) taken_ = account.silence_count - KITTY_SILENCES;
  for (; taken_ != account.silence_count; ++taken_) {
    const kitty_silence& silence = account.silences[taken_ % KITTY_SILENCES];
    if (silence.end_us > due_us) break;
    if (silence.end_us >= silence.begin_us) settle(silence);
  }
  // All time up to the latest event is in a silence or a gap; what is not was lost.
  uint64_t known_us = settled_us_ + totals_.unknown_us;
  for (uint64_t i = first_tick_; i != next_tick_; ++i) {
    for (const PeerGrowth& one : ticks_[i % ticks_.size()].growth)
      known_us += one.sending_us + one.receiving_us;
  }
  for (uint64_t i = taken_; i != account.silence_count; ++i) {
    const kitty_silence& silence = account.silences[i % KITTY_SILENCES];
    known_us += silence.end_us - silence.begin_us;
  }
  const uint64_t passed_us = account.last_us - begin_us_;
  if (passed_us > known_us) totals_.unknown_us += passed_us - known_us;
}

uint64_t TimeBook::unsettled_us(uint64_t now_us) const {
  const uint64_t passed_us = now_us - std::min(now_us, begin_us_);
  return passed_us - std::min(passed_us, settled_us_ + totals_.unknown_us);
}

}  // namespace kitty::collector
