#include "collector/time_book.h"

#include <gtest/gtest.h>

#include <memory>

namespace kitty::collector {
namespace {

constexpr uint64_t kBegin = 1'000'000'000;
constexpr uint64_t kMs = 1000;

class TimeBookTest : public ::testing::Test {
 protected:
  TimeBookTest() { account_->last_us = kBegin; }
  // Appends one that ended at `end_us` after `kBegin`.
  kitty_silence& silence(uint64_t begin_us, uint64_t end_us, uint8_t event, uint16_t peer = 1) {
    kitty_silence& one = account_->silences[account_->silence_count++ % KITTY_SILENCES];
    one = {};
    one.begin_us = kBegin + begin_us;
    one.end_us = kBegin + end_us;
    one.event = event;
    one.peer = peer;
    account_->last_us = kBegin + end_us;
    return one;
  }
  static void hold(kitty_silence& one, uint16_t peer, uint16_t rwnd_limited) {
    one.holders[one.holder_count].peer = peer;
    one.holders[one.holder_count++].rwnd_limited = rwnd_limited;
  }
  void tick(uint64_t at_us, std::vector<PeerGrowth> growth = {}) {
    now_us_ = kBegin + at_us;
    book_.tick(now_us_, *account_, growth);
  }
  // All that there is, as long as it adds up to the time that has passed.
  TimeTotals totals() {
    const TimeTotals& all = book_.totals();
    uint64_t sum = all.owing_us + all.moving_us + all.unknown_us + book_.unsettled_us(now_us_);
    for (const PeerTime& peer : all.peers)
      sum += peer.waiting_us + peer.receiver_limited_us + peer.path_limited_us + peer.receiving_us;
    EXPECT_EQ(sum, now_us_ - kBegin);
    TimeTotals copy = all;
    copy.peers.resize(4);
    return copy;
  }

  std::unique_ptr<kitty_account> account_ = std::make_unique<kitty_account>();
  TimeBook book_{kBegin};
  uint64_t now_us_ = kBegin;
};

TEST_F(TimeBookTest, ASilenceThatDataEndedIsWaitingForItsSender) {
  silence(0, 300 * kMs, KITTY_EVENT_DATA, 2);
  tick(2000 * kMs);
  EXPECT_EQ(totals().peers[2].waiting_us, 300 * kMs);
}

TEST_F(TimeBookTest, OneThatTheProcessEndedBySendingIsOwing) {
  silence(0, 300 * kMs, KITTY_EVENT_ACK).sent_us = 299 * kMs;
  tick(2000 * kMs);
  EXPECT_EQ(totals().owing_us, 299 * kMs);
  EXPECT_EQ(totals().moving_us, 1 * kMs);
}

TEST_F(TimeBookTest, OneThatAnAcknowledgementEndedIsOwingUnlessItWasInFlight) {
  silence(0, 300 * kMs, KITTY_EVENT_ACK);
  tick(2000 * kMs);
  EXPECT_EQ(totals().owing_us, 300 * kMs);
}

TEST_F(TimeBookTest, AReplyThatTakesLongIsWaitingFromTheRequestOn) {
  silence(0, 300 * kMs, KITTY_EVENT_DATA, 2).sent_us = 100 * kMs;
  tick(2000 * kMs);
  EXPECT_EQ(totals().owing_us, 100 * kMs);
  EXPECT_EQ(totals().peers[2].waiting_us, 200 * kMs);
}

TEST_F(TimeBookTest, UnreadBytesAreOwingHoweverTheSilenceEnds) {
  silence(0, 300 * kMs, KITTY_EVENT_DATA, 2).unread_us = 250 * kMs;
  tick(2000 * kMs);
  EXPECT_EQ(totals().owing_us, 250 * kMs);
  EXPECT_EQ(totals().peers[2].waiting_us, 50 * kMs);
}

TEST_F(TimeBookTest, WhatIsInFlightHoldsItInEqualParts) {
  kitty_silence& one = silence(0, 300 * kMs, KITTY_EVENT_ACK);
  one.unread_us = 300 * kMs;
  hold(one, 1, 0);
  hold(one, 2, 1000);
  hold(one, 3, 500);
  tick(2000 * kMs);
  EXPECT_EQ(totals().peers[1].path_limited_us, 100 * kMs);
  EXPECT_EQ(totals().peers[2].receiver_limited_us, 100 * kMs);
  EXPECT_EQ(totals().peers[3].path_limited_us, 50 * kMs);
  EXPECT_EQ(totals().peers[3].receiver_limited_us, 50 * kMs);
  EXPECT_EQ(totals().owing_us, 0U);
}

TEST_F(TimeBookTest, ADelayedAcknowledgementIsNobodysTime) {
  silence(0, 40 * kMs, KITTY_EVENT_ACK).excused = 1;
  tick(2000 * kMs);
  EXPECT_EQ(totals().moving_us, 40 * kMs);
}

TEST_F(TimeBookTest, ASilenceIsSettledOnceOthersHaveTold) {
  kitty_silence& one = silence(0, 300 * kMs, KITTY_EVENT_DATA);
  tick(500 * kMs);
  EXPECT_EQ(book_.unsettled_us(now_us_), 500 * kMs);
  hold(one, 1, 0);
  tick(1500 * kMs);
  EXPECT_EQ(totals().peers[1].path_limited_us, 300 * kMs);
  tick(3000 * kMs);
  EXPECT_EQ(totals().peers[1].path_limited_us, 300 * kMs) << "once";
}

TEST_F(TimeBookTest, SendingIsHeldAsFarAsTheFlowWasBusy) {
  account_->last_us = kBegin + 500 * kMs;
  tick(500 * kMs, {{},
                   {.sending_us = 400 * kMs,
                    .receiving_us = 100 * kMs,
                    .busy_us = 300 * kMs,
                    .rwnd_limited_us = 50 * kMs}});
  account_->last_us = kBegin + 2000 * kMs;
  tick(2000 * kMs, {{}, {.sending_us = 1500 * kMs}});
  EXPECT_EQ(totals().peers[1].path_limited_us, 250 * kMs);
  EXPECT_EQ(totals().peers[1].receiver_limited_us, 50 * kMs);
  EXPECT_EQ(totals().moving_us, 100 * kMs);
  EXPECT_EQ(totals().peers[1].receiving_us, 100 * kMs);
}

TEST_F(TimeBookTest, WhatTheKernelCouldNotKeepIsUnknown) {
  for (uint64_t i = 0; i < KITTY_SILENCES + 10; ++i)
    silence(i * 30 * kMs, (i + 1) * 30 * kMs, KITTY_EVENT_DATA);
  tick(60'000 * kMs);
  EXPECT_EQ(totals().unknown_us, 10 * 30 * kMs);
  EXPECT_EQ(totals().peers[1].waiting_us, KITTY_SILENCES * 30 * kMs);
}

TEST_F(TimeBookTest, AnOpenSilenceGrows) {
  tick(90'000 * kMs);
  EXPECT_EQ(book_.unsettled_us(now_us_), 90'000 * kMs);
  EXPECT_EQ(totals().unknown_us, 0U);
}

}  // namespace
}  // namespace kitty::collector
