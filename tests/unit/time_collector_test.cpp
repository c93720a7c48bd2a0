// Which flows count, and what becomes of their time, on real BPF maps. No program is attached: the tests
// write what the kernel side would.
#include "collector/time_collector.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>

#include "flow_maps_fixture.h"
#include "loader/sys.h"

namespace kitty::collector {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kHave =
    KITTY_HAVE_SEGS_OUT | KITTY_HAVE_BYTES_SENT | KITTY_HAVE_BYTES_RECEIVED | KITTY_HAVE_BUSY;

class TimeCollectorTest : public testing::FlowMapsFixture {
 protected:
  void SetUp() override {
    FlowMapsFixture::SetUp();
    if (!maps_) return;
    ledger_ = std::make_unique<Ledger>(kHave);
    rtt_ = std::make_unique<RttCollector>(*maps_, *ledger_);
    time_ = std::make_unique<TimeCollector>(*maps_, *rtt_);
  }
  static procfs::IpAddress address(uint8_t last) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
  }
  // A connection that has carried so many bytes.
  static OwnedSocket socket(uint64_t inode, uint8_t peer, uint64_t bytes, uint16_t remote_port = 40000) {
    OwnedSocket one{.inode = inode, .connection = {}};
    one.connected = true;
    one.connection.remote = address(peer);
    one.connection.local_port = 30000;
    one.connection.remote_port = remote_port;
    one.connection.hash = 7;
    one.connection.counters.have = kHave;
    one.connection.counters.us = 1;
    one.connection.counters.segs_out = 10;
    one.connection.counters.bytes_sent = bytes / 2;
    one.connection.counters.bytes_received = bytes - bytes / 2;
    return one;
  }
  struct Holder {
    pid_t pid;
    std::vector<OwnedSocket> sockets;
  };
  void tick(const std::vector<Holder>& holders, uint64_t now_ns) {
    auto state = std::make_shared<ProcessState>();
    for (const Holder& holder : holders) {
      WatchedProcess process;
      process.id = {holder.pid, 100};
      process.netns = 4026531840;
      process.sockets = holder.sockets;
      state->processes.push_back(process);
    }
    metrics_.state = state;
    again(now_ns);
  }
  void again(uint64_t now_ns) {
    metrics_.processes.assign(metrics_.state->processes.size(), {});
    rtt_->tick(now_ns, metrics_);
    time_->tick(now_ns, metrics_);
  }
  std::set<uint64_t> counted() const {
    std::set<uint64_t> inodes;
    for (uint64_t inode = 0; inode < 100; ++inode) {
      kitty_timed timed;
      if (maps_->read_timed(inode, timed)) inodes.insert(inode);
    }
    return inodes;
  }
  void add(uint64_t inode, uint64_t sending_us, uint64_t receiving_us) {
    kitty_timed timed;
    ASSERT_TRUE(maps_->read_timed(inode, timed));
    timed.sending_us += sending_us;
    timed.receiving_us += receiving_us;
    ASSERT_EQ(loader::sys::update_element(map_fd("timed"), &inode, &timed, BPF_ANY), 0);
  }
  // A silence of the account that this flow is of, until that time.
  void wait(uint64_t inode, uint64_t end_us, uint64_t us) {
    kitty_timed timed;
    ASSERT_TRUE(maps_->read_timed(inode, timed));
    auto account = std::make_unique<kitty_account>();
    ASSERT_TRUE(maps_->read_account(timed.account, *account));
    kitty_silence& silence = account->silences[account->silence_count++ % KITTY_SILENCES];
    silence = {};
    silence.begin_us = end_us - us;
    silence.end_us = account->last_us = end_us;
    silence.peer = timed.peer;
    silence.event = KITTY_EVENT_DATA;
    ASSERT_EQ(loader::sys::update_element(map_fd("accounts"), &timed.account, account.get(), BPF_ANY), 0);
  }
  const TimeMetrics* time(size_t process = 0) const { return metrics_.processes[process].time; }
  const TimeMetrics::Peer* peer(std::string_view name, size_t process = 0) const {
    for (const TimeMetrics::Peer& one : time(process)->peers) {
      if (one.text() == name) return &one;
    }
    return nullptr;
  }

  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<RttCollector> rtt_;
  std::unique_ptr<TimeCollector> time_;
  Metrics metrics_;
};

TEST_F(TimeCollectorTest, OnlyBulkFlowsOfUserPortsCount) {
  tick({{1,
         {socket(10, 2, 1'000'000), socket(11, 3, 12'000), socket(12, 4, 2'000),
          socket(13, 5, 9'000'000, 443)}}},
       kSecond);
  EXPECT_EQ(counted(), (std::set<uint64_t>{10, 11}));
  EXPECT_NE(time(), nullptr);
}

TEST_F(TimeCollectorTest, WithoutTrafficThereIsNoAccount) {
  tick({{1, {socket(10, 2, 0)}}, {2, {}}}, kSecond);
  EXPECT_TRUE(counted().empty());
  EXPECT_EQ(time(0), nullptr);
  EXPECT_EQ(time(1), nullptr);
}

TEST_F(TimeCollectorTest, AFlowThatFallsSilentStopsCounting) {
  uint64_t bytes = 1'000'000;
  tick({{1, {socket(10, 2, bytes), socket(11, 3, bytes)}}}, kSecond);
  EXPECT_EQ(counted(), (std::set<uint64_t>{10, 11}));
  for (uint64_t second = 2; second < 100; ++second) {
    OwnedSocket busy = socket(10, 2, bytes += 1'000'000);
    busy.connection.counters.us = second;
    tick({{1, {busy, socket(11, 3, 1'000'000)}}}, second * kSecond);
  }
  EXPECT_EQ(counted(), (std::set<uint64_t>{10}));
}

TEST_F(TimeCollectorTest, TimeIsToldByPeerAndAddsUp) {
  const Holder holder{1, {socket(10, 2, 1'000'000), socket(11, 3, 1'000'000)}};
  tick({holder}, kSecond);
  add(10, 0, 200'000);
  wait(11, 1'700'000, 500'000);
  for (uint64_t ms = 1500; ms <= 4000; ms += 500) again(ms * 1'000'000);
  ASSERT_NE(time(), nullptr);
  EXPECT_EQ(time()->accounted_us, 3'000'000U);
  EXPECT_EQ(time()->unsettled_us, 2'300'000U);
  ASSERT_NE(peer("10.0.0.2"), nullptr);
  EXPECT_EQ(peer("10.0.0.2")->receiving_us, 200'000U);
  ASSERT_NE(peer("10.0.0.3"), nullptr);
  EXPECT_EQ(peer("10.0.0.3")->waiting_us, 500'000U);
}

TEST_F(TimeCollectorTest, WhatAFlowDidLastIsNotLostWithIt) {
  tick({{1, {socket(10, 2, 1'000'000), socket(11, 3, 1'000'000)}}}, kSecond);
  add(10, 0, 200'000);
  tick({{1, {socket(11, 3, 1'000'000)}}}, 2 * kSecond);
  EXPECT_EQ(counted(), (std::set<uint64_t>{11}));
  for (uint64_t second = 3; second < 6; ++second) again(second * kSecond);
  ASSERT_NE(peer("10.0.0.2"), nullptr);
  EXPECT_EQ(peer("10.0.0.2")->receiving_us, 200'000U);
}

TEST_F(TimeCollectorTest, ASocketThatGoesToAnotherProcessCountsForThatOneFromThenOn) {
  tick({{1, {socket(10, 2, 1'000'000), socket(11, 3, 1'000'000)}}, {2, {}}}, kSecond);
  add(10, 0, 200'000);
  tick({{1, {socket(11, 3, 1'000'000)}}, {2, {socket(10, 2, 1'000'000)}}}, 2 * kSecond);
  add(10, 0, 300'000);
  for (uint64_t second = 3; second < 6; ++second) again(second * kSecond);
  ASSERT_NE(time(1), nullptr);
  EXPECT_EQ(peer("10.0.0.2", 1)->receiving_us, 300'000U);
  EXPECT_EQ(time(1)->accounted_us, 3'000'000U);
}

TEST_F(TimeCollectorTest, AccountsAreFreeAgainOnceTheirProcessesHaveEnded) {
  for (pid_t pid = 1; pid <= 2 * KITTY_MAX_ACCOUNTS; ++pid) {
    tick({{pid, {socket(10, 2, 1'000'000)}}}, static_cast<uint64_t>(pid) * kSecond);
    ASSERT_NE(time(), nullptr) << pid;
    EXPECT_EQ(time()->accounted_us, 0U);
    tick({}, static_cast<uint64_t>(pid) * kSecond + kSecond / 2);
    EXPECT_TRUE(counted().empty());
  }
}

TEST_F(TimeCollectorTest, MorePeersThanHavePlacesAreOne) {
  std::vector<OwnedSocket> sockets;
  for (uint8_t i = 1; i <= kMaxTimedPeers + 2; ++i) sockets.push_back(socket(i, i, 1'000'000));
  tick({{1, sockets}}, kSecond);
  for (uint8_t i = 1; i <= kMaxTimedPeers + 2; ++i) add(i, 0, 1000);
  for (uint64_t second = 2; second < 5; ++second) again(second * kSecond);
  EXPECT_EQ(time()->peers.size(), kMaxTimedPeers + 1);
  ASSERT_NE(peer("other"), nullptr);
  EXPECT_EQ(peer("other")->receiving_us, 2000U);
}

}  // namespace
}  // namespace kitty::collector
