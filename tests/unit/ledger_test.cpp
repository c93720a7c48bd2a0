// The sums behind the counters: pure, so every case is written out.
#include "collector/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kitty::collector {
namespace {

constexpr uint64_t kTickNs = 500'000'000;

class LedgerTest : public ::testing::Test {
 protected:
  static procfs::IpAddress address(size_t n) {
    return {0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0xff,
            0xff,
            10,
            0,
            static_cast<uint8_t>(n / 256),
            static_cast<uint8_t>(n % 256)};
  }
  // One process with a connection to each of these.
  void follow(std::initializer_list<size_t> peers, uint64_t queued_bytes = 0) {
    auto state = std::make_shared<ProcessState>();
    WatchedProcess& process = state->processes.emplace_back();
    process.id = kId;
    for (const size_t n : peers) {
      OwnedSocket& socket = process.sockets.emplace_back();
      socket.connected = true;
      socket.connection.remote = address(n);
      socket.connection.tx_queue_bytes = queued_bytes;
    }
    ledger_.follow(*state);
    metrics_.state = state;
    metrics_.processes.assign(1, {});
    end_tick();
  }
  void end_tick(uint64_t elapsed_ns = kTickNs) { ledger_.end_tick(now_ns_ += elapsed_ns, metrics_); }
  void add(size_t n, uint64_t segments, uint64_t busy_ns = 0) {
    Growth growth;
    growth.tcp.segments_sent = segments;
    growth.rtt_count = segments;
    growth.rtt.buckets[2] = segments;
    growth.busy_ns = busy_ns;
    ledger_.of(kId).add(address(n), growth);
  }
  const PeerMetrics* find(std::string_view name) const {
    const auto peers = metrics_.processes[0].peers;
    const auto found = std::ranges::find(peers, name, &PeerMetrics::text);
    return found == peers.end() ? nullptr : &*found;
  }
  uint64_t sum_of_peers() const {
    uint64_t sum = 0;
    for (const PeerMetrics& peer : metrics_.processes[0].peers) sum += peer.tcp.segments_sent;
    return sum;
  }

  static constexpr procfs::ProcessId kId{7, 100};
  Ledger ledger_{KITTY_HAVE_SEGS_OUT};
  Metrics metrics_;
  uint64_t now_ns_ = 1'000'000'000;
};

TEST_F(LedgerTest, QueuesOfOnePeerAddUpAndGoWithTheConnection) {
  follow({2, 2, 3}, 100);
  EXPECT_EQ(find("10.0.0.2")->tx_queue_bytes, 200U);
  EXPECT_EQ(find("10.0.0.3")->tx_queue_bytes, 100U);
  follow({3}, 50);
  EXPECT_EQ(find("10.0.0.2")->tx_queue_bytes, 0U);
  EXPECT_EQ(find("10.0.0.3")->tx_queue_bytes, 50U);
}

TEST_F(LedgerTest, PeersBeyondTheLimitAreOne) {
  follow({});
  for (size_t n = 1; n <= kMaxPeers + 36; ++n) add(n, n);
  end_tick();
  EXPECT_EQ(metrics_.processes[0].peers.size(), kMaxPeers + 1);
  ASSERT_NE(find("other"), nullptr);
  EXPECT_EQ(find("10.0.0.64")->tcp.segments_sent, 64U);
  EXPECT_EQ(find("10.0.0.65"), nullptr);
  EXPECT_EQ(sum_of_peers(), 100U * 101 / 2);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, sum_of_peers());
}

TEST_F(LedgerTest, APeerWithoutConnectionGivesWayAndNothingIsLost) {
  follow({});
  for (size_t n = 1; n <= kMaxPeers; ++n) add(n, n);
  follow({1, 3});  // peer 2 and 4 to 64 have no connection any more
  add(200, 7);
  end_tick();
  ASSERT_NE(find("10.0.0.200"), nullptr);
  EXPECT_EQ(find("10.0.0.200")->tcp.segments_sent, 7U);
  EXPECT_NE(find("10.0.0.1"), nullptr);
  EXPECT_EQ(find("10.0.0.2"), nullptr);
  EXPECT_NE(find("10.0.0.3"), nullptr);
  EXPECT_EQ(find("other")->tcp.segments_sent, 2U);
  EXPECT_EQ(sum_of_peers(), 64U * 65 / 2 + 7);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, sum_of_peers());
  EXPECT_EQ(metrics_.processes[0].peers.size(), kMaxPeers + 1);
}

TEST_F(LedgerTest, BusyIsThatOfTheBusiestSocketAndNeverMoreThanTheTime) {
  follow({2});
  end_tick(kMaxBusyCreditNs);
  add(2, 1, 300'000'000);
  add(2, 1, 200'000'000);
  end_tick();
  EXPECT_EQ(find("10.0.0.2")->busy_ns, 300'000'000U);
  // One socket tells of every tick, another of two at once.
  for (int i = 0; i < 100; ++i) {
    add(2, 1, kTickNs);
    if (i % 2 == 1) add(2, 1, 2 * kTickNs);
    end_tick();
  }
  EXPECT_LE(find("10.0.0.2")->busy_ns, 300'000'000U + kMaxBusyCreditNs + 100 * kTickNs);
  const uint64_t before = find("10.0.0.2")->busy_ns;
  for (int i = 0; i < 100; ++i) {
    add(2, 1, kTickNs);
    if (i % 2 == 1) add(2, 1, 2 * kTickNs);
    end_tick();
  }
  EXPECT_LE(find("10.0.0.2")->busy_ns - before, 100 * kTickNs);
  EXPECT_GE(find("10.0.0.2")->busy_ns - before, 99 * kTickNs);
}

TEST_F(LedgerTest, BusyTimeThatIsToldLateIsNotLost) {
  follow({2});
  for (int i = 0; i < 9; ++i) end_tick();
  add(2, 1, 5 * kTickNs);
  end_tick();
  EXPECT_EQ(find("10.0.0.2")->busy_ns, 5 * kTickNs);
}

TEST_F(LedgerTest, AnotherProcessOfTheSamePidStartsAtZero) {
  follow({2});
  add(2, 9);
  auto state = std::make_shared<ProcessState>();
  state->processes.emplace_back().id = {kId.pid, kId.start_time_ticks + 1};
  ledger_.follow(*state);
  metrics_.state = state;
  end_tick();
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 0U);
  EXPECT_TRUE(metrics_.processes[0].peers.empty());
}

// A launcher's child has its parent's labels until it executes the rank's program; a program may execute
// another rank's.
TEST_F(LedgerTest, AnotherRankOrJobAfterAnExecStartsAtZeroAndNoSumFalls) {
  const auto follow_as = [this](std::string rank, std::string job) {
    auto state = std::make_shared<ProcessState>();
    WatchedProcess& process = state->processes.emplace_back();
    process.id = kId;
    process.labels = {.rank = std::move(rank), .job = std::move(job), .local_rank = {}, .world_size = {}};
    ledger_.follow(*state);
    metrics_.state = state;
    metrics_.processes.assign(1, {});
    end_tick();
    return metrics_.processes[0].own->tcp.segments_sent;
  };
  EXPECT_EQ(follow_as("0", "a"), 0U);
  add(2, 9);
  EXPECT_EQ(follow_as("0", "a"), 9U);
  EXPECT_EQ(follow_as("1", "a"), 0U);
  EXPECT_TRUE(metrics_.processes[0].peers.empty());
  EXPECT_FALSE(metrics_.processes[0].rtt_us);
  add(2, 4);
  EXPECT_EQ(follow_as("1", "a"), 4U);
  EXPECT_EQ(sum_of_peers(), 4U);
  EXPECT_EQ(follow_as("1", "b"), 0U);
  EXPECT_EQ(follow_as("0", "a"), 9U) << "a series that comes back goes on where it was";
  for (size_t i = 0; i < 2 * kMaxAccounts; ++i) EXPECT_EQ(follow_as(std::to_string(100 + i), "a"), 0U);
  EXPECT_EQ(metrics_.processes[0].own->have, uint32_t{KITTY_HAVE_SEGS_OUT});
}

TEST_F(LedgerTest, WhereSomeFlowsAreUnseenNothingIsASum) {
  auto state = std::make_shared<ProcessState>();
  WatchedProcess& process = state->processes.emplace_back();
  process.id = kId;
  process.flows_unseen = true;
  ledger_.follow(*state);
  metrics_.state = state;
  metrics_.processes.assign(1, {});
  add(2, 9);
  end_tick();
  EXPECT_EQ(metrics_.processes[0].own, nullptr);
  EXPECT_FALSE(metrics_.processes[0].rtt_us);
}

}  // namespace
}  // namespace kitty::collector
