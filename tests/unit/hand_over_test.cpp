// Sockets under full traffic while they change hands: from `pending` to `owned`, and from one process to
// another. The truth is a second source, with maps and programs of its own on the same hook, that owned each
// socket before its first packet; what the collector adds up must be the same samples, not about as many.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <thread>

#include "collector/embedded_object.h"
#include "collector/rtt.h"
#include "collector/rtt_hook.h"
#include "kernel_tests.h"
#include "procfs/file.h"
#include "procfs/net_namespace.h"
#include "tcp_pair.h"

namespace kitty::collector {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr int kFlows = 24;
// Shorter than the agent's tick, longer than any program runs: what is tested is the order of things.
constexpr milliseconds kTick(10);

// A network namespace of its own for the calling thread, so that nobody else's connections are in `pending`.
class OwnNetwork {
 public:
  OwnNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    entered_ = before_ && unshare(CLONE_NEWNET) == 0;
    if (!entered_) return;
    const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq lo{};
    std::snprintf(lo.ifr_name, sizeof lo.ifr_name, "lo");
    lo.ifr_flags = IFF_UP;
    if (ioctl(any.get(), SIOCSIFFLAGS, &lo) != 0) entered_ = false;
  }
  ~OwnNetwork() {
    if (setns(before_.get(), CLONE_NEWNET) != 0) std::abort();  // every later test would run in here
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

  [[nodiscard]] bool entered() const { return entered_; }
  [[nodiscard]] static uint32_t inode() {
    const auto self = procfs::open_at(AT_FDCWD, "/proc/thread-self", O_DIRECTORY);
    const auto netns = self ? procfs::read_net_namespace(self->get()) : std::unexpected(self.error());
    return netns ? static_cast<uint32_t>(*netns) : 0;
  }

 private:
  Fd before_;
  bool entered_ = false;
};

struct Pair {
  Fd client, server;
};

enum class Direction { both, to_server };

// Two threads that send as fast as the sockets take it, from both ends at once or from the client's, until it
// goes.
class Hammer {
 public:
  explicit Hammer(const Pair& pair, Direction direction = Direction::both) {
    for (std::jthread& thread : threads_) {
      thread = std::jthread([&pair, direction](const std::stop_token& stop) {
        std::array<char, 2048> block{};
        while (!stop.stop_requested()) {
          (void)send(pair.client.get(), block.data(), block.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
          if (direction == Direction::both)
            (void)send(pair.server.get(), block.data(), block.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
          for (const Fd* end : {&pair.client, &pair.server})
            (void)recv(end->get(), block.data(), block.size(), MSG_DONTWAIT);
        }
      });
    }
  }

 private:
  std::array<std::jthread, 2> threads_;
};

template <class Buckets>
uint64_t sum(const Buckets& buckets) {
  return std::accumulate(std::begin(buckets), std::end(buckets), uint64_t{0});
}

class HandOverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    truth_ = open_rtt_source(embedded_object(), "", kHookAuto);
    ASSERT_NE(truth_.maps, nullptr) << truth_.hook.refusals.back().reason;
    source_ = open_rtt_source(embedded_object(), "", truth_.hook.name);
    ASSERT_NE(source_.maps, nullptr) << source_.hook.refusals.back().reason;
    network_ = std::make_unique<OwnNetwork>();
    if (!network_->entered()) GTEST_SKIP() << "no network namespace of its own: CAP_SYS_ADMIN is missing";
    netns_ = OwnNetwork::inode();
    ASSERT_NE(netns_, 0U);
    listener_ = std::make_unique<testing::TcpPair>();
    ledger_ = std::make_unique<Ledger>(source_.hook.have);
    rtt_ = std::make_unique<RttCollector>(*source_.maps, *ledger_);
    tick(state({{1, {}}}));  // from here on the namespace is watched
  }

  // A connection whose ends the truth owns before they have sent or received anything that it could miss. The
  // hook sees the server's end during the handshake too, but then it has no inode for either source.
  Pair connect() {
    Pair pair;
    pair.client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(truth_.maps->own(testing::inode_of(pair.client)), OwnResult::owned);
    sockaddr_in address{};
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    getsockname(listener_->listener.get(), generic, &size);
    EXPECT_EQ(::connect(pair.client.get(), generic, size), 0);
    pair.server = Fd(accept4(listener_->listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(truth_.maps->own(testing::inode_of(pair.server)), OwnResult::owned);
    return pair;
  }
  void close(const Pair& pair) {
    tick(state({{1, {}}}));
    for (const Fd* end : {&pair.client, &pair.server}) truth_.maps->disown(testing::inode_of(*end));
  }

  struct Holder {
    pid_t pid;
    std::vector<uint64_t> inodes;
  };
  [[nodiscard]] std::shared_ptr<const ProcessState> state(const std::vector<Holder>& holders) const {
    auto state = std::make_shared<ProcessState>();
    for (const Holder& holder : holders) {
      WatchedProcess process;
      process.id = {holder.pid, 100};
      process.netns = netns_;
      for (const uint64_t inode : holder.inodes)
        process.sockets.push_back({.inode = inode, .connection = {}});
      state->processes.push_back(process);
    }
    return state;
  }
  void tick(std::shared_ptr<const ProcessState> state) {
    metrics_.state = std::move(state);
    tick();
  }
  void tick() {
    metrics_.processes.assign(metrics_.state->processes.size(), {});
    rtt_->tick(++ticks_ * kSecond, metrics_);
  }
  void ticks(int count) {
    for (; count > 0; --count) {
      pass_tick();
      tick();
    }
  }
  // The agent's ticks are so far apart that what programs began before one has long ended at the next. These
  // are not, and a processor may be taken from a program for longer: so they wait for RCU, which every
  // program is within. MEMBARRIER_CMD_GLOBAL is synchronize_rcu(), kernel/sched/membarrier.c.
  static void pass_tick() {
    std::this_thread::sleep_for(kTick);
    EXPECT_EQ(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0), 0) << strerror(errno);
  }
  // One byte from the server, whose ACK is its only one for as long as the client alone sends.
  static void greet(const Pair& pair) {
    char byte = 'k';
    EXPECT_EQ(send(pair.server.get(), &byte, 1, 0), 1);
    EXPECT_EQ(recv(pair.client.get(), &byte, 1, 0), 1);
    EXPECT_EQ(send(pair.client.get(), &byte, 1, 0), 1);
    EXPECT_EQ(recv(pair.server.get(), &byte, 1, 0), 1);
  }
  // Traffic has stopped, but its last ACKs may be delayed. Then a few exchanges, each long enough after the
  // one before that every program takes a snapshot of the socket's counters; both sources' latest are of one
  // packet.
  void settle(const Pair& pair) {
    std::array<char, 65536> buffer;
    for (const Fd* end : {&pair.client, &pair.server}) {
      std::this_thread::sleep_for(milliseconds(50));
      while (recv(end->get(), buffer.data(), buffer.size(), MSG_DONTWAIT) > 0) {
      }
    }
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(milliseconds(3));
      ASSERT_EQ(send(pair.client.get(), "k", 1, 0), 1);
      ASSERT_EQ(recv(pair.server.get(), buffer.data(), 1, 0), 1);
      std::this_thread::sleep_for(milliseconds(3));
      ASSERT_EQ(send(pair.server.get(), "k", 1, 0), 1);
      ASSERT_EQ(recv(pair.client.get(), buffer.data(), 1, 0), 1);
    }
    std::this_thread::sleep_for(
        milliseconds(60));  // the last delayed ACK: TCP_DELACK_MIN of net/tcp.h is 40 ms
    tick();
  }
  struct Figures {
    uint64_t samples = 0, lost = 0, doubled = 0;
    int wrong = 0;
  };
  // What all of a socket's owners say of it together, against the truth.
  void compare(std::initializer_list<size_t> owners, const Fd& socket, Figures& figures) {
    kitty_flow truth{};
    ASSERT_TRUE(truth_.maps->read_owned(testing::inode_of(socket), truth));
    OwnTotals mine;
    for (const size_t owner : owners) {
      const OwnTotals& own = *metrics_.processes[owner].own;
      for (size_t i = 0; i < KITTY_RTT_BUCKETS; ++i) mine.rtt.buckets[i] += own.rtt.buckets[i];
      mine.rtt.sum_us += own.rtt.sum_us;
      mine.tcp.add(own.tcp);
    }
    const uint64_t expected = sum(truth.buckets), seen = sum(mine.rtt.buckets);
    figures.samples += expected;
    figures.lost += expected - std::min(expected, seen);
    figures.doubled += seen - std::min(expected, seen);
    figures.wrong +=
        !std::ranges::equal(mine.rtt.buckets, truth.buckets) || mine.rtt.sum_us != truth.rtt_sum_us;
    EXPECT_EQ(mine.tcp.segments_sent, truth.counters.segs_out);
    EXPECT_EQ(mine.tcp.bytes_sent, truth.counters.bytes_sent);
    EXPECT_EQ(mine.tcp.retransmits, truth.counters.total_retrans);
  }
  static void expect_none_wrong(const char* what, const Figures& figures) {
    std::cout << "  " << what << ": " << figures.samples << " samples, " << figures.lost << " lost, "
              << figures.doubled << " doubled, " << figures.wrong << " of " << kFlows << " sockets differ\n";
    EXPECT_EQ(figures.lost, 0U) << what;
    EXPECT_EQ(figures.doubled, 0U) << what;
    EXPECT_EQ(figures.wrong, 0) << what;
  }

  // `rests`: nothing is sent while the sockets change hands, for longer than a tick.
  void from_pending_to_owned(Direction direction, bool rests = false) {
    Figures clients, servers;
    uint64_t pending = 0;
    for (int flow = 0; flow < kFlows; ++flow) {
      SCOPED_TRACE(flow);
      const pid_t first = 2 + 2 * flow;
      const Pair pair = connect();
      const uint64_t client = testing::inode_of(pair.client), server = testing::inode_of(pair.server);
      const auto hand_over = [&] {
        tick(state({{first, {client}}, {first + 1, {server}}}));
        ticks(3);
      };
      {
        if (direction == Direction::to_server) greet(pair);
        const Hammer hammer(pair, direction);
        // Not a multiple of the tick, so that the hand-over meets the traffic at ever other moments.
        std::this_thread::sleep_for(microseconds(20'000 + 137 * flow));
        kitty_flow before{};
        EXPECT_TRUE(truth_.maps->read_owned(client, before));
        pending += sum(before.buckets);
        if (!rests) hand_over();
      }
      if (rests) {
        hand_over();
        const Hammer hammer(pair, direction);
        ticks(2);
      }
      settle(pair);
      compare({0}, pair.client, clients);
      compare({1}, pair.server, servers);
      close(pair);
    }
    std::cout << "  hook " << source_.hook.name << ", " << pending
              << " samples of clients before their hand-over\n";
    expect_none_wrong("client sockets", clients);
    expect_none_wrong("server sockets", servers);
    EXPECT_GT(pending, 20U * kFlows) << "nothing was handed over";
    EXPECT_GT(clients.samples, pending + 20U * kFlows) << "nothing came after it";
  }

  RttSource truth_, source_;
  std::unique_ptr<OwnNetwork> network_;
  uint32_t netns_ = 0;
  std::unique_ptr<testing::TcpPair> listener_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<RttCollector> rtt_;
  Metrics metrics_;
  uint64_t ticks_ = 0;
};

TEST_F(HandOverTest, FromPendingToOwnedNoSampleIsLostOrDoubled) { from_pending_to_owned(Direction::both); }

// The end that only receives has one sample, which its later packets show again where the hook is tcp_probe.
TEST_F(HandOverTest, NorOfAFlowInOneDirection) { from_pending_to_owned(Direction::to_server); }

TEST_F(HandOverTest, NorOfAFlowThatRestsMeanwhile) { from_pending_to_owned(Direction::both, true); }

TEST_F(HandOverTest, FromProcessToProcessTheirSumIsTheTruth) {
  Figures clients, servers;
  for (int flow = 0; flow < kFlows; ++flow) {
    SCOPED_TRACE(flow);
    const pid_t first = 2 + 4 * flow;
    const Pair pair = connect();
    const uint64_t client = testing::inode_of(pair.client), server = testing::inode_of(pair.server);
    {
      const Hammer hammer(pair);
      std::this_thread::sleep_for(microseconds(5'000 + 137 * flow));
      tick(state({{first, {client}}, {first + 1, {}}, {first + 2, {server}}, {first + 3, {}}}));
      ticks(flow % 3);  // 0: the owner changes while what `pending` kept is not taken yet
      pass_tick();
      tick(state({{first, {}}, {first + 1, {client}}, {first + 2, {}}, {first + 3, {server}}}));
      ticks(2);
    }
    settle(pair);
    for (const ProcessMetrics& owner : metrics_.processes)
      EXPECT_GT(sum(owner.own->rtt.buckets), 0U) << "an owner without samples: nothing was tested";
    compare({0, 1}, pair.client, clients);
    compare({2, 3}, pair.server, servers);
    close(pair);
  }
  expect_none_wrong("client sockets", clients);
  expect_none_wrong("server sockets", servers);
}

}  // namespace
}  // namespace kitty::collector
