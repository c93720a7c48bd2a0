// The RTT collector on real BPF maps. No program is attached: the tests write flow entries as the kernel side
// would.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "collector/clock.h"
#include "collector/rtt.h"
#include "flow_maps_fixture.h"
#include "loader/sys.h"

namespace kitty::collector {
namespace {

constexpr uint32_t kAll =
    KITTY_HAVE_SEGS_OUT | KITTY_HAVE_BYTES_SENT | KITTY_HAVE_TOTAL_RETRANS | KITTY_HAVE_BUSY;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr size_t kBucket1Ms = 6;  // <= 1000 us

class RttCollectorTest : public testing::FlowMapsFixture {
 protected:
  void SetUp() override {
    FlowMapsFixture::SetUp();
    if (!maps_) return;
    ledger_ = std::make_unique<Ledger>(kAll);
    rtt_ = std::make_unique<RttCollector>(*maps_, *ledger_);
    owned_ = map_fd("owned");
    pending_ = map_fd("pending");
  }

  static kitty_flow flow(uint64_t samples, uint64_t sum_us, uint32_t segs, uint32_t retrans = 0,
                         uint64_t bytes = 0) {
    kitty_flow flow{};
    flow.hash = 7;
    flow.buckets[kBucket1Ms] = samples;
    flow.rtt_sum_us = sum_us;
    flow.counters.segs_out = segs;
    flow.counters.total_retrans = retrans;
    flow.counters.bytes_sent = bytes;
    flow.counters.have = segs || retrans ? kAll : 0;
    return flow;
  }
  static void put(int map, uint64_t inode, const kitty_flow& flow) {
    ASSERT_EQ(loader::sys::update_element(map, &inode, &flow, BPF_ANY), 0);
  }
  static bool has(int map, uint64_t inode) {
    kitty_flow flow;
    return loader::sys::lookup_element(map, &inode, &flow) == 0;
  }

  struct Holder {
    pid_t pid;
    std::vector<OwnedSocket> sockets;
  };
  const Metrics& tick(std::vector<Holder> holders, uint64_t now_ns) {
    auto state = std::make_shared<ProcessState>();
    for (const Holder& holder : holders) {
      WatchedProcess process;
      process.id = {holder.pid, 100};
      process.netns = 4026531840;
      process.sockets = holder.sockets;
      state->processes.push_back(process);
    }
    metrics_.state = state;
    return again(now_ns);
  }
  const Metrics& again(uint64_t now_ns) {
    metrics_.processes.assign(metrics_.state->processes.size(), {});
    rtt_->tick(now_ns, metrics_);
    return metrics_;
  }
  static OwnedSocket fresh(uint64_t inode, uint64_t listed_ns = 0) {
    return {.inode = inode, .listed_ns = listed_ns, .connection = {}};
  }
  static OwnedSocket old(uint64_t inode) {
    return {.inode = inode, .older_than_agent = true, .connection = {}};
  }
  // As the socket pass lists it.
  static OwnedSocket listed(uint64_t inode, uint32_t hash, uint8_t peer, uint32_t segs) {
    OwnedSocket socket = fresh(inode);
    socket.connected = true;
    socket.connection.hash = hash;
    socket.connection.remote = address(peer);
    socket.connection.counters.segs_out = segs;
    socket.connection.counters.have = KITTY_HAVE_SEGS_OUT;
    return socket;
  }
  // As a listing at `us` has it.
  static OwnedSocket listed_at(uint64_t us, uint32_t segs, uint32_t busy_jiffies = 0) {
    OwnedSocket socket = listed(10, 7, 2, segs);
    socket.listed_ns = us * 1000;
    socket.connection.counters.us = us;
    socket.connection.counters.busy_jiffies = busy_jiffies;
    socket.connection.counters.have |= KITTY_HAVE_BUSY;
    return socket;
  }
  static kitty_flow flow_at(uint64_t us, uint32_t segs, uint32_t busy_jiffies = 0) {
    kitty_flow now = towards(2, flow(1, 100, segs));
    now.counters.us = us;
    now.counters.busy_jiffies = busy_jiffies;
    return now;
  }
  uint64_t segments_sent(size_t process = 0) const {
    return metrics_.processes[process].own->tcp.segments_sent;
  }
  static procfs::IpAddress address(uint8_t last) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
  }
  static kitty_flow towards(uint8_t peer, kitty_flow flow) {
    std::memcpy(flow.remote, address(peer).data(), sizeof flow.remote);
    return flow;
  }
  const PeerMetrics* peer(std::string_view name, size_t process = 0) const {
    const auto peers = metrics_.processes[process].peers;
    const auto found = std::ranges::find(peers, name, &PeerMetrics::text);
    return found == peers.end() ? nullptr : &*found;
  }

  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<RttCollector> rtt_;
  int owned_ = -1, pending_ = -1;
  Metrics metrics_;
};

TEST_F(RttCollectorTest, MeanIsOfTheLatestTickWithSamplesAndGoesStale) {
  tick({{1, {fresh(10)}}}, kSecond);
  EXPECT_FALSE(metrics_.processes[0].rtt_us);
  put(owned_, 10, flow(4, 2000, 5));
  again(2 * kSecond);
  EXPECT_EQ(metrics_.processes[0].rtt_us, 500);
  put(owned_, 10, flow(6, 2000 + 1800, 7));
  again(3 * kSecond);
  EXPECT_EQ(metrics_.processes[0].rtt_us, 900);
  again(13 * kSecond);
  EXPECT_EQ(metrics_.processes[0].rtt_us, 900) << "10 s old still counts";
  again(13 * kSecond + 1);
  EXPECT_FALSE(metrics_.processes[0].rtt_us);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 6U);
  EXPECT_EQ(metrics_.processes[0].own->rtt.sum_us, 3800U);
  EXPECT_EQ(metrics_.agent.rtt_samples, 6U);
}

TEST_F(RttCollectorTest, SocketsOlderThanTheAgentStartAtZeroLaterOnesAtBirth) {
  tick({{1, {old(10)}}, {2, {fresh(20)}}}, kSecond);
  put(owned_, 10, flow(1, 100, 5000, 300, 1 << 20));
  put(owned_, 20, flow(1, 100, 5000, 300, 1 << 20));
  again(2 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 0U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.retransmits, 0U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.bytes_sent, 0U);
  EXPECT_EQ(metrics_.processes[1].own->tcp.segments_sent, 5000U);
  EXPECT_EQ(metrics_.processes[1].own->tcp.retransmits, 300U);
  put(owned_, 10, flow(2, 200, 5010, 301, (1 << 20) + 7));
  again(3 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 10U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.retransmits, 1U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.bytes_sent, 7U);
}

TEST_F(RttCollectorTest, CountersOf32BitsWrap) {
  tick({{1, {old(10)}}}, kSecond);
  put(owned_, 10, flow(1, 1, UINT32_MAX - 1));
  again(2 * kSecond);
  put(owned_, 10, flow(2, 2, 8));
  again(3 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 10U);
}

TEST_F(RttCollectorTest, PendingSamplesAreHandedOverOneTickLater) {
  put(pending_, 10, flow(3, 900, 4));
  tick({{1, {fresh(10)}}}, kSecond);
  EXPECT_TRUE(has(pending_, 10)) << "a program may still be writing to it";
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 0U);
  put(owned_, 10, flow(1, 100, 6));
  again(2 * kSecond);
  EXPECT_FALSE(has(pending_, 10));
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 4U);
  EXPECT_EQ(metrics_.processes[0].own->rtt.sum_us, 1000U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 6U)
      << "the kernel's counters are totals: not added twice";
  again(3 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 4U);
}

TEST_F(RttCollectorTest, WhatAListingHasCountedIsNotCountedAgainWhenPendingIsTaken) {
  for (const bool older : {false, true}) {
    const uint64_t inode = older ? 11 : 10;
    OwnedSocket socket = listed(inode, 7, 2, 40);
    socket.older_than_agent = older;
    put(pending_, inode, towards(2, flow(3, 900, 42)));
    tick({{1, {}}}, kSecond);
    const uint64_t before = metrics_.processes[0].own->tcp.segments_sent;
    tick({{1, {socket}}}, 2 * kSecond);
    again(3 * kSecond);
    EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent - before, older ? 2U : 42U);
  }
}

TEST_F(RttCollectorTest, PendingSamplesOfAnotherConnectionAreNotTaken) {
  kitty_flow other = flow(3, 900, 4);
  other.hash = 8;
  put(pending_, 10, other);
  tick({{1, {fresh(10)}}}, kSecond);
  put(owned_, 10, flow(1, 100, 6));
  again(2 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 1U);
}

TEST_F(RttCollectorTest, NothingIsLostOrFallsWhenASocketCloses) {
  tick({{1, {fresh(10)}}}, kSecond);
  put(owned_, 10, flow(2, 200, 6));
  again(2 * kSecond);
  put(owned_, 10, flow(5, 500, 9));  // after the last tick that saw the socket open
  tick({{1, {}}}, 3 * kSecond);
  EXPECT_FALSE(has(owned_, 10));
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 5U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 9U);
}

TEST_F(RttCollectorTest, AnotherConnectionOnTheInodeCountsFromItsBirthForWhoeverHoldsItNow) {
  tick({{1, {old(10)}}, {2, {}}}, kSecond);
  put(owned_, 10, flow(5, 500, 100));
  again(2 * kSecond);
  kitty_flow next = flow(2, 50, 3);
  next.resets = 1;
  next.hash = 8;
  put(owned_, 10, next);
  again(3 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 5U) << "it may be another's by now";
  tick({{1, {}}, {2, {fresh(10, 3 * kSecond)}}}, 4 * kSecond);
  again(5 * kSecond);
  EXPECT_EQ(metrics_.processes[1].own->rtt.buckets[kBucket1Ms], 0U) << "listed before it was known";
  tick({{1, {}}, {2, {fresh(10, 5 * kSecond)}}}, 6 * kSecond);
  again(7 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 5U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 0U);
  EXPECT_EQ(metrics_.processes[1].own->rtt.buckets[kBucket1Ms], 2U);
  EXPECT_EQ(metrics_.processes[1].own->tcp.segments_sent, 3U);
}

TEST_F(RttCollectorTest, PeersAddUpToTheProcess) {
  tick({{1, {fresh(10), fresh(11), fresh(12)}}}, kSecond);
  put(owned_, 10, towards(2, flow(2, 200, 6, 1)));
  put(owned_, 11, towards(2, flow(3, 600, 7)));
  put(owned_, 12, towards(3, flow(4, 4000, 8, 2)));
  again(2 * kSecond);
  ASSERT_NE(peer("10.0.0.2"), nullptr);
  ASSERT_NE(peer("10.0.0.3"), nullptr);
  EXPECT_EQ(peer("10.0.0.2")->rtt_count, 5U);
  EXPECT_EQ(peer("10.0.0.2")->rtt_sum_us, 800U);
  EXPECT_EQ(peer("10.0.0.2")->tcp.segments_sent, 13U);
  EXPECT_EQ(peer("10.0.0.3")->rtt_count, 4U);
  EXPECT_EQ(peer("10.0.0.3")->tcp.retransmits, 2U);
  const OwnTotals& own = *metrics_.processes[0].own;
  EXPECT_EQ(own.rtt.buckets[kBucket1Ms], 9U);
  EXPECT_EQ(own.tcp.segments_sent, 21U);
  EXPECT_EQ(own.tcp.retransmits, 3U);
  tick({{1, {}}}, 3 * kSecond);
  EXPECT_EQ(peer("10.0.0.3")->rtt_count, 4U) << "stays when its socket closes";
}

TEST_F(RttCollectorTest, TheMinimumIsOfTheTickThatEnded) {
  tick({{1, {fresh(10)}}}, kSecond);  // the programs write to tick 1 until here, then to tick 2
  kitty_flow now = towards(2, flow(3, 900, 6));
  now.tick[0] = 2;
  now.tick_min_us[0] = 250;
  now.tick[1] = 1;
  now.tick_min_us[1] = 17;
  put(owned_, 10, now);
  again(2 * kSecond);
  ASSERT_NE(peer("10.0.0.2"), nullptr);
  EXPECT_EQ(peer("10.0.0.2")->rtt_min_us, 250U);
  again(3 * kSecond);
  EXPECT_EQ(peer("10.0.0.2")->rtt_min_us, 250U) << "of the latest tick that had samples";
  again(12 * kSecond + 1);
  EXPECT_FALSE(peer("10.0.0.2")->rtt_min_us);
}

TEST_F(RttCollectorTest, ASocketWithoutSamplesIsCountedFromItsListing) {
  tick({{1, {listed(10, 7, 2, 40)}}}, kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 40U);
  tick({{1, {listed(10, 7, 2, 55)}}}, 2 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 55U);
  ASSERT_NE(peer("10.0.0.2"), nullptr);
  EXPECT_EQ(peer("10.0.0.2")->tcp.segments_sent, 55U);
  put(owned_, 10, towards(2, flow(1, 100, 60)));
  again(3 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 60U);
  tick({{1, {listed(10, 7, 2, 58)}}}, 4 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 60U) << "an older word of the same counter";
  tick({{1, {listed(10, 9, 3, 500)}}}, 5 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 60U)
      << "of a connection the entry knows nothing of";
}

TEST_F(RttCollectorTest, AListingOfASocketOlderThanTheAgentStartsAtZero) {
  OwnedSocket socket = listed(10, 7, 2, 4000);
  socket.older_than_agent = true;
  tick({{1, {socket}}}, kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 0U);
  put(owned_, 10, towards(2, flow(1, 100, 4007)));
  again(2 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 7U);
}

TEST_F(RttCollectorTest, ANewOwnerStartsWhereTheOldOneStopped) {
  tick({{1, {fresh(10)}}, {2, {}}}, kSecond);
  put(owned_, 10, flow(2, 200, 6));
  again(2 * kSecond);
  tick({{1, {}}, {2, {fresh(10)}}}, 3 * kSecond);
  put(owned_, 10, flow(5, 500, 10));
  again(4 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 2U);
  EXPECT_EQ(metrics_.processes[0].own->tcp.segments_sent, 6U);
  EXPECT_EQ(metrics_.processes[1].own->rtt.buckets[kBucket1Ms], 3U);
  EXPECT_EQ(metrics_.processes[1].own->tcp.segments_sent, 4U);
}

TEST_F(RttCollectorTest, BusyTimeThatEntryAndListingTellInOneTickIsAddedUp) {
  tick({{1, {listed_at(1000, 1)}}}, kSecond);
  again(20 * kSecond);  // so that there is credit for all that follows
  put(owned_, 10, flow_at(2000, 2, 60));
  tick({{1, {listed_at(3000, 3, 100)}}}, 30 * kSecond);
  ASSERT_NE(peer("10.0.0.2"), nullptr);
  EXPECT_EQ(peer("10.0.0.2")->busy_ns, 100 * jiffy_ns());
  put(owned_, 10, flow_at(4000, 4, 130));
  again(31 * kSecond);
  EXPECT_EQ(peer("10.0.0.2")->busy_ns, 130 * jiffy_ns()) << "what the tick before has told is not told again";
}

TEST_F(RttCollectorTest, TheLatestCountersOfASocketAreOfOneReading) {
  const auto limited = [](OwnedSocket socket, uint32_t jiffies) {
    socket.connection.counters.rwnd_limited_jiffies = jiffies;
    return socket;
  };
  EXPECT_EQ(rtt_->counters_of(10), nullptr);
  tick({{1, {limited(listed_at(1000, 1, 10), 4)}}}, kSecond);
  again(20 * kSecond);
  kitty_flow now = flow_at(2000, 2, 60);
  now.counters.rwnd_limited_jiffies = 34;
  put(owned_, 10, now);
  again(25 * kSecond);
  ASSERT_NE(rtt_->counters_of(10), nullptr);
  EXPECT_EQ(rtt_->counters_of(10)->busy_jiffies, 60U);
  EXPECT_EQ(rtt_->counters_of(10)->rwnd_limited_jiffies, 34U);
  tick({{1, {limited(listed_at(3000, 3, 100), 54)}}}, 30 * kSecond);
  EXPECT_EQ(rtt_->counters_of(10)->rwnd_limited_jiffies, 54U);
  tick({{1, {limited(listed_at(2500, 3, 80), 44)}}}, 31 * kSecond);
  EXPECT_EQ(rtt_->counters_of(10)->busy_jiffies, 100U) << "an older word";
  EXPECT_EQ(rtt_->counters_of(10)->rwnd_limited_jiffies, 54U) << "an older word";
}

TEST_F(RttCollectorTest, ALookupThatOverlapsAResetDoesNotWrap) {
  tick({{1, {fresh(10)}}}, kSecond);
  put(owned_, 10, flow(5, 500, 100));
  again(2 * kSecond);
  kitty_flow torn = flow(0, 0, 100);  // emptied so far, and the rest as it was
  torn.rtt_sum_us = 500;
  put(owned_, 10, torn);
  again(3 * kSecond);
  kitty_flow next = flow(2, 50, 3);
  next.resets = 1;
  put(owned_, 10, next);
  again(4 * kSecond);
  tick({{1, {fresh(10, 5 * kSecond)}}}, 6 * kSecond);
  again(7 * kSecond);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 7U);
  EXPECT_EQ(metrics_.processes[0].own->rtt.sum_us, 550U);
  EXPECT_EQ(segments_sent(), 103U);
}

// connect(2) to AF_UNSPEC, then to the same address and port from the same: sk_hash is what it was.
TEST_F(RttCollectorTest, TheSameTupleUsedAgainCountsOnFromItsBirth) {
  tick({{1, {listed_at(1000, 90, 7)}}}, kSecond);
  put(owned_, 10, flow_at(1500, 100, 9));
  again(20 * kSecond);
  kitty_flow next = flow_at(2000, 5, 11);
  next.resets = 1;
  put(owned_, 10, next);
  again(21 * kSecond);
  EXPECT_EQ(segments_sent(), 100U) << "it may be another's by now";
  tick({{1, {listed_at(22'000'000, 6, 12)}}}, 23 * kSecond);
  EXPECT_EQ(segments_sent(), 106U);
  EXPECT_EQ(peer("10.0.0.2")->busy_ns, 12 * jiffy_ns()) << "busy time goes on where it was";
  tick({{1, {listed_at(24'000'000, 8, 12)}}}, 25 * kSecond);
  EXPECT_EQ(segments_sent(), 108U);
}

TEST_F(RttCollectorTest, TheSameTupleUsedAgainIsSeenByListingsAlone) {
  tick({{1, {listed_at(1000, 90)}}}, kSecond);
  put(owned_, 10, flow_at(1500, 100));
  again(2 * kSecond);
  tick({{1, {listed_at(2000, 3)}}}, 3 * kSecond);
  EXPECT_EQ(segments_sent(), 103U);
  again(4 * kSecond);
  EXPECT_EQ(segments_sent(), 103U) << "the entry still tells of the connection before";
  kitty_flow next = flow_at(2500, 8);
  next.resets = 1;
  put(owned_, 10, next);
  again(5 * kSecond);
  tick({{1, {listed_at(6'000'000, 9)}}}, 7 * kSecond);
  EXPECT_EQ(segments_sent(), 109U) << "the entry's reset is the one that was counted";
}

TEST_F(RttCollectorTest, AnOlderWordOfACounterIsNoNewConnection) {
  tick({{1, {listed_at(1000, 50)}}}, kSecond);
  put(owned_, 10, flow_at(3000, 60));
  again(2 * kSecond);
  tick({{1, {listed_at(2000, 55)}}}, 3 * kSecond);
  EXPECT_EQ(segments_sent(), 60U);
}

TEST_F(RttCollectorTest, AnotherTupleOnTheSocketDoesNotBringItsBusyTimeAgain) {
  tick({{1, {listed_at(1000, 90, 7)}}}, kSecond);
  again(20 * kSecond);
  kitty_flow next = flow_at(2000, 5, 9);
  next.resets = 1;
  next.hash = 8;
  put(owned_, 10, next);
  again(21 * kSecond);
  tick({{1, {fresh(10, 22 * kSecond)}}}, 23 * kSecond);
  again(24 * kSecond);
  EXPECT_EQ(segments_sent(), 95U);
  EXPECT_EQ(peer("10.0.0.2")->busy_ns, 9 * jiffy_ns());
}

TEST_F(RttCollectorTest, AnotherSocketsBusyTimeOnTheInodeCountsFromItsBirth) {
  tick({{1, {listed_at(1000, 90, 70)}}}, kSecond);
  again(20 * kSecond);
  kitty_flow next = flow_at(2000, 5, 9);
  next.resets = 1;
  next.hash = 8;
  put(owned_, 10, next);
  again(21 * kSecond);
  tick({{1, {fresh(10, 22 * kSecond)}}}, 23 * kSecond);
  again(24 * kSecond);
  EXPECT_EQ(peer("10.0.0.2")->busy_ns, 79 * jiffy_ns());
}

TEST_F(RttCollectorTest, ASocketHandedOverByAnotherProcessStartsWhereItIs) {
  OwnedSocket socket = listed(10, 7, 2, 4000);
  socket.handed = true;
  put(pending_, 10, towards(2, flow(30, 9000, 3990, 12, 1 << 20)));
  tick({{1, {socket}}}, kSecond);
  again(2 * kSecond);
  EXPECT_EQ(segments_sent(), 0U);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 0U) << "another's round trips";
  EXPECT_FALSE(has(pending_, 10));
  put(owned_, 10, towards(2, flow(1, 100, 4007, 12, (1 << 20) + 7)));
  again(3 * kSecond);
  EXPECT_EQ(segments_sent(), 7U);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 1U);
}

TEST_F(RttCollectorTest, ASocketThatFoundNoRoomAtFirstStartsWhereItIs) {
  for (uint64_t inode = 1000; inode < 1000 + KITTY_MAX_OWNED_FLOWS; ++inode) put(owned_, inode, {});
  put(pending_, 10, flow(30, 9000, 3990));
  tick({{1, {fresh(10)}}}, kSecond);
  EXPECT_EQ(metrics_.agent.full.owned, 1U);
  const uint64_t freed = 1000;
  ASSERT_EQ(loader::sys::delete_element(owned_, &freed), 0);
  tick({{1, {fresh(10)}}}, 2 * kSecond);
  ASSERT_TRUE(has(owned_, 10));
  put(owned_, 10, flow(1, 100, 4000));
  again(3 * kSecond);
  EXPECT_EQ(segments_sent(), 0U);
  EXPECT_EQ(metrics_.processes[0].own->rtt.buckets[kBucket1Ms], 1U);
  put(owned_, 10, flow(2, 200, 4007));
  again(4 * kSecond);
  EXPECT_EQ(segments_sent(), 7U);
}

TEST_F(RttCollectorTest, AFullTableIsCountedAndTheRestStillMeasured) {
  Holder holder{1, {}};
  for (uint64_t inode = 1; inode <= KITTY_MAX_OWNED_FLOWS + 1; ++inode)
    holder.sockets.push_back(fresh(inode));
  tick({holder}, kSecond);
  EXPECT_EQ(metrics_.agent.full.owned, 1U);
  put(owned_, 1, flow(1, 100, 2));
  again(2 * kSecond);
  EXPECT_EQ(metrics_.processes[0].rtt_us, 100);
}

TEST_F(RttCollectorTest, NamespacesAreWatchedWhileTheyHoldAWatchedProcess) {
  const int netns = map_fd("watched_netns");
  const uint32_t key = 4026531840;
  uint32_t value = 0;
  tick({{1, {}}}, kSecond);
  EXPECT_EQ(loader::sys::lookup_element(netns, &key, &value), 0);
  tick({}, 2 * kSecond);
  EXPECT_EQ(loader::sys::lookup_element(netns, &key, &value), ENOENT);
}

}  // namespace
}  // namespace kitty::collector
