// The scanner against real processes and sockets of this machine.
#include "collector/scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "collector/embedded_object.h"
#include "collector/process_watch.h"
#include "collector/rtt_hook.h"
#include "kernel_tests.h"
#include "procfs/file.h"
#include "scanner_fixture.h"
#include "tcp_pair.h"
#include "watched_child.h"

namespace kitty::collector {
namespace {

using testing::inode_of;
using testing::sleeper;
using testing::TcpPair;
using testing::WatchedChild;

class ScannerTest : public testing::ScannerFixture {
 protected:
  const WatchedProcess* scan(pid_t pid, Scanner::Depth depth = Scanner::Depth::all) {
    scanner_->discover(depth);
    scanner_->pass_sockets();
    state_ = scanner_->snapshot();
    return find(pid);
  }
  const WatchedProcess* find(pid_t pid) const {
    const auto found =
        std::ranges::find(state_->processes, pid, [](const WatchedProcess& p) { return p.id.pid; });
    return found == state_->processes.end() ? nullptr : &*found;
  }
  static const OwnedSocket* socket_of(const WatchedProcess& process, uint64_t inode) {
    const auto found = std::ranges::find(process.sockets, inode, &OwnedSocket::inode);
    return found == process.sockets.end() ? nullptr : &*found;
  }

  std::shared_ptr<const ProcessState> state_;
};

TEST_F(ScannerTest, FindsOnlyTheWatchedAndForgetsTheDead) {
  WatchedChild watched = sleeper({"KITTY_WATCH=1", "RANK=3", "JOB_NAME=job a", "WORLD_SIZE=4"});
  const WatchedChild other = sleeper({"KITTY_WATCH=0", "RANK=4"});
  const pid_t pid = watched.pid();
  const WatchedProcess* process = scan(pid);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "3");
  EXPECT_EQ(process->labels.job, "job a");
  EXPECT_EQ(process->labels.local_rank, "");
  EXPECT_EQ(process->labels.world_size, "4");
  EXPECT_EQ(process->comm, "sleep");
  EXPECT_EQ(process->uid, getuid());
  EXPECT_NE(process->netns, 0U);
  EXPECT_FALSE(process->is_launcher());
  EXPECT_EQ(scan(other.pid()), nullptr);
  watched.stop();
  EXPECT_EQ(scan(pid), nullptr);
}

TEST_F(ScannerTest, ALauncherHasNoRank) {
  const WatchedChild launcher = sleeper({"KITTY_WATCH=1", "JOB_NAME=j"});
  const WatchedProcess* process = scan(launcher.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(process->is_launcher());
}

TEST_F(ScannerTest, AnExecIsNoticedThoughThePidStays) {
  const WatchedChild child({"sh", "-c", "sleep 1; RANK=8 KITTY_WATCH=1 exec sleep 60"},
                           {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(scan(child.pid()), nullptr);
  const WatchedProcess* process = nullptr;
  for (int i = 0; !process && i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    process = scan(child.pid(), Scanner::Depth::new_and_young);
  }
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "8");
}

TEST_F(ScannerTest, AnExecBringsItsOwnLabelsOrEndsTheWatching) {
  const WatchedChild child(
      {"sh", "-c",
       "sleep 1; RANK=8 exec sh -c 'sleep 2; unset KITTY_WATCH; export PATH RANK; exec sleep 60'"},
      {"PATH=/usr/bin:/bin", "KITTY_WATCH=1", "JOB_NAME=j"});
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "");
  EXPECT_EQ(process->labels.job, "j");
  const procfs::ProcessId id = process->id;
  const auto eventually = [&](auto&& met) {
    for (int i = 0; i < 100 && !met(process); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      process = scan(child.pid());
    }
    return met(process);
  };
  EXPECT_TRUE(eventually([](const WatchedProcess* p) { return p && p->labels.rank == "8"; }));
  if (process) {
    EXPECT_EQ(process->id, id);
  }
  EXPECT_TRUE(eventually([](const WatchedProcess* p) { return p == nullptr; }));
}

TEST_F(ScannerTest, BeyondItsLimitProcessesAreDroppedAndCounted) {
  scanner_ = std::make_unique<Scanner>(root_.get(), nullptr, 1);
  const WatchedChild first = sleeper({"KITTY_WATCH=1"}), second = sleeper({"KITTY_WATCH=1"});
  scan(first.pid());
  EXPECT_EQ(state_->processes.size(), 1U);
  EXPECT_GE(state_->report.dropped_processes, 1U);
}

TEST_F(ScannerTest, AConnectionIsKnownByBothItsEnds) {
  const TcpPair pair;
  const WatchedChild child = sleeper({"KITTY_WATCH=1"}, {pair.client.get(), pair.listener.get()});
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  const OwnedSocket* owned = socket_of(*process, inode_of(pair.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_TRUE(owned->connected);
  const procfs::IpAddress loopback = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  EXPECT_EQ(owned->connection.local, loopback);
  EXPECT_EQ(owned->connection.remote, loopback);
  owned = socket_of(*process, inode_of(pair.listener));
  ASSERT_NE(owned, nullptr);
  EXPECT_FALSE(owned->connected);
  EXPECT_EQ(process->addresses, std::vector{loopback});
}

TEST_F(ScannerTest, TheDeadAreDroppedAtOnceAndTheirSocketsGoOn) {
  const TcpPair pair;
  WatchedChild first = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const WatchedChild second = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  scan(second.pid());
  const pid_t pid = first.pid();
  scanner_->drop_dead();  // Whose result may be about a process of another test that runs beside this one.
  state_ = scanner_->snapshot();
  EXPECT_NE(find(pid), nullptr);
  first.stop();
  EXPECT_TRUE(scanner_->drop_dead());
  state_ = scanner_->snapshot();
  EXPECT_EQ(find(pid), nullptr);
  ASSERT_NE(find(second.pid()), nullptr);
  EXPECT_NE(socket_of(*find(second.pid()), inode_of(pair.client)), nullptr);
}

TEST_F(ScannerTest, SocketsAreFoundByInodeWithWhatTheyHaveQueued) {
  const TcpPair quiet, full;
  full.fill();
  const WatchedChild child =
      sleeper({"KITTY_WATCH=1"}, {quiet.client.get(), full.client.get(), full.listener.get()});
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(process->tx_queue_known);
  const OwnedSocket* owned = socket_of(*process, inode_of(full.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_GT(owned->connection.tx_queue_bytes, 0U);
  owned = socket_of(*process, inode_of(quiet.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_EQ(owned->connection.tx_queue_bytes, 0U);
  owned = socket_of(*process, inode_of(full.listener));
  ASSERT_NE(owned, nullptr);
  EXPECT_EQ(owned->connection.tx_queue_bytes, 0U) << "a listener's queue is connections, not bytes";
  EXPECT_EQ(socket_of(*process, inode_of(full.server)), nullptr) << "held by this test only";
}

TEST_F(ScannerTest, APassFindsASocketThatDiscoveryHasNotSeen) {
  const TcpPair listening;
  const WatchedChild child(
      {"bash", "-c", "sleep 1; exec 3<>/dev/tcp/127.0.0.1/$PORT; sleep 60"},
      {"KITTY_WATCH=1", "PATH=/usr/bin:/bin", "PORT=" + std::to_string(listening.port())});
  ASSERT_NE(scan(child.pid()), nullptr);
  const WatchedProcess* process = nullptr;
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    scanner_->pass_sockets();
    state_ = scanner_->snapshot();
    process = find(child.pid());
    ASSERT_NE(process, nullptr);
    if (!process->sockets.empty()) break;
  }
  EXPECT_EQ(process->sockets.size(), 1U);
}

TEST_F(ScannerTest, ASharedSocketBelongsToTheFirstStartedThenToTheNext) {
  const TcpPair pair;
  const uint64_t inode = inode_of(pair.client);
  WatchedChild first = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // start times count in hundredths of a second
  const WatchedChild second = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  const WatchedProcess* process = scan(first.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_NE(socket_of(*process, inode), nullptr);
  process = scan(second.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(socket_of(*process, inode), nullptr);
  first.stop();
  process = scan(second.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_NE(socket_of(*process, inode), nullptr);
}

TEST_F(ScannerTest, SocketsOpenBeforeTheAgentAreOlderThanIt) {
  const TcpPair before;
  const WatchedChild early = sleeper({"KITTY_WATCH=1"}, {before.client.get()});
  // Start times are cut to hundredths of a second, the agent's to whole ones.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  scanner_ = std::make_unique<Scanner>(root_.get(), nullptr);
  const WatchedProcess* process = scan(early.pid());
  ASSERT_NE(process, nullptr);
  const OwnedSocket* owned = socket_of(*process, inode_of(before.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_TRUE(owned->older_than_agent);

  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const TcpPair later;
  const WatchedChild late = sleeper({"KITTY_WATCH=1"}, {later.client.get()});
  process = scan(late.pid());
  ASSERT_NE(process, nullptr);
  owned = socket_of(*process, inode_of(later.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_FALSE(owned->older_than_agent);
}

// Net/tcp of the process's own namespace does not show what it was connected to in another: not known, not
// idle.
TEST_F(ScannerTest, AConnectionOfAnotherNamespaceIsNotKnownToBeIdle) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: no network namespace can be made";
  const TcpPair full;
  full.fill();
  const WatchedChild child({"unshare", "--net", "sleep", "60"}, {"PATH=/usr/bin:/bin", "KITTY_WATCH=1"},
                           {full.client.get()});
  const WatchedProcess* process = nullptr;
  for (int i = 0; i < 100 && (!process || process->comm != "sleep"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    process = scan(child.pid());
  }
  ASSERT_NE(process, nullptr);
  ASSERT_EQ(process->comm, "sleep");
  process = scan(child.pid());
  // Another watched process of this machine may show the test's own namespace.
  const OwnedSocket* owned = socket_of(*process, inode_of(full.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_TRUE(!process->tx_queue_known || owned->connection.tx_queue_bytes > 0);
}

TEST_F(ScannerTest, AClosedConnectionAndOtherSocketsLeaveTheQueueKnown) {
  TcpPair pair;
  const Fd local(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd datagram(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const WatchedChild child =
      sleeper({"KITTY_WATCH=1"}, {pair.client.get(), local.get(), datagram.get(), pair.listener.get()});
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(process->tx_queue_known);
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(pair.server.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
  pair.server.reset();  // closes by RST: the client's end has no row any more
  for (int i = 0; i < 2; ++i) {
    process = scan(child.pid());
    ASSERT_NE(process, nullptr);
    EXPECT_TRUE(process->tx_queue_known);
  }
}

TEST_F(ScannerTest, WhereDescriptorsAreListedMptcpSubflowsAreUnseenAndTheQueueIsUnknown) {
  const TcpPair pair(IPPROTO_MPTCP);
  if (!pair.client) GTEST_SKIP() << "no MPTCP sockets here: " << errno_text(errno);
  pair.fill();
  const WatchedChild child = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  scan(child.pid());
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(process->flows_unseen);
  EXPECT_GE(state_->report.unreadable.mptcp, 1U);
  EXPECT_FALSE(process->tx_queue_known);
}

// A process of a procfs of the test's own, with as many sockets as it likes.
class FalseProcfsTest : public ScannerTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "4242/fd");
    write("4242/stat", "4242 (many) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99999999999 0 0");
    write("4242/environ", std::string("KITTY_WATCH=1\0", 14));
    auto root = procfs::open_root(folder_.c_str());
    ASSERT_TRUE(root) << root.error().message();
    root_ = std::move(*root);
    scanner_ = std::make_unique<Scanner>(root_.get(), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& path, const std::string& text) const {
    std::ofstream(folder_ / path) << text;
  }
  void hold(uint64_t inode) const {
    std::filesystem::create_symlink("socket:[" + std::to_string(inode) + "]",
                                    folder_ / "4242/fd" / std::to_string(inode));
  }
  void drop(uint64_t inode) const { std::filesystem::remove(folder_ / "4242/fd" / std::to_string(inode)); }
  const WatchedProcess* discover() {
    scanner_->discover(Scanner::Depth::all);
    state_ = scanner_->snapshot();
    return find(4242);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("kitty_false_procfs" + std::to_string(getpid()));
};

TEST_F(FalseProcfsTest, ASocketThatTheLimitTurnedAwayIsNoNewbornOnceThereIsRoom) {
  for (uint64_t inode = 1; inode <= kMaxOwnedSockets + 1; ++inode) hold(inode);
  const WatchedProcess* process = discover();
  ASSERT_NE(process, nullptr);
  ASSERT_EQ(process->sockets.size(), kMaxOwnedSockets);
  EXPECT_EQ(state_->report.dropped_sockets, 1U);
  uint64_t turned_away = 0;
  for (uint64_t inode = 1; turned_away == 0 && inode <= kMaxOwnedSockets + 1; ++inode) {
    if (!socket_of(*process, inode)) turned_away = inode;
  }
  for (uint64_t inode = 1; inode <= 20; ++inode) {
    if (inode != turned_away) drop(inode);
  }
  for (unsigned i = 0; i < kMaxListingAge; ++i)
    process = discover();                   // where the folder's size tells nothing
  constexpr uint64_t kNewborn = 1'000'000;  // after there is room
  hold(kNewborn);
  for (unsigned i = 0; i < kMaxListingAge; ++i) process = discover();
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(state_->report.dropped_sockets, 0U);
  ASSERT_NE(socket_of(*process, turned_away), nullptr);
  ASSERT_NE(socket_of(*process, kNewborn), nullptr);
  EXPECT_TRUE(socket_of(*process, turned_away)->older_than_agent);
  EXPECT_FALSE(socket_of(*process, kNewborn)->older_than_agent);
}

// The same answers from the BPF iterator, where this kernel has one.
class ScannerWithRowsTest : public ScannerTest {
 protected:
  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    ScannerTest::SetUp();
    source_ = open_rtt_source(embedded_object(), "", kHookAuto);
    if (!source_.rows) GTEST_SKIP() << source_.rows_refusal;
    scanner_ = std::make_unique<Scanner>(root_.get(), source_.rows.get());
  }
  RttSource source_;
};

TEST_F(ScannerWithRowsTest, ConnectionsQueuesAndTheKernelsCounters) {
  const TcpPair quiet, full;
  full.fill();
  const WatchedChild child =
      sleeper({"KITTY_WATCH=1"}, {quiet.client.get(), full.client.get(), full.listener.get()});
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_TRUE(process->tx_queue_known);
  const OwnedSocket* owned = socket_of(*process, inode_of(full.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_TRUE(owned->connected);
  EXPECT_GT(owned->connection.tx_queue_bytes, 0U);
  EXPECT_NE(owned->connection.hash, 0U);
  EXPECT_NE(owned->connection.counters.have & KITTY_HAVE_SEGS_OUT, 0U);
  EXPECT_GT(owned->connection.counters.segs_out, 0U);
  owned = socket_of(*process, inode_of(quiet.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_EQ(owned->connection.tx_queue_bytes, 0U);
  owned = socket_of(*process, inode_of(full.listener));
  ASSERT_NE(owned, nullptr);
  EXPECT_FALSE(owned->connected);
  EXPECT_EQ(socket_of(*process, inode_of(full.server)), nullptr) << "held by this test only";
  EXPECT_EQ(process->addresses.size(), 1U);
}

TEST_F(ScannerWithRowsTest, ASharedSocketGoesFromTheFirstStartedToTheNext) {
  auto pair = std::make_unique<TcpPair>();
  const uint64_t inode = inode_of(pair->client);
  WatchedChild first = sleeper({"KITTY_WATCH=1"}, {pair->client.get()});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  WatchedChild second = sleeper({"KITTY_WATCH=1"}, {pair->client.get()});
  const WatchedProcess* process = scan(first.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_NE(socket_of(*process, inode), nullptr);
  ASSERT_NE(find(second.pid()), nullptr);
  EXPECT_EQ(socket_of(*find(second.pid()), inode), nullptr);
  first.stop();
  EXPECT_TRUE(scanner_->drop_dead());
  scanner_->pass_sockets();
  state_ = scanner_->snapshot();
  ASSERT_NE(find(second.pid()), nullptr);
  EXPECT_NE(socket_of(*find(second.pid()), inode), nullptr);
}

TEST_F(ScannerWithRowsTest, WhoOpenedASocketIsTold) {
  const TcpPair pair;
  const WatchedChild heir = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  const WatchedProcess* process = scan(heir.pid());
  ASSERT_NE(process, nullptr);
  const OwnedSocket* owned = socket_of(*process, inode_of(pair.client));
  ASSERT_NE(owned, nullptr);
  EXPECT_TRUE(owned->handed);
  EXPECT_FALSE(process->flows_unseen);
}

TEST_F(ScannerWithRowsTest, MptcpSubflowsAreSocketsOfTheirOwn) {
  const TcpPair pair(IPPROTO_MPTCP);
  if (!pair.client) GTEST_SKIP() << "no MPTCP sockets here: " << errno_text(errno);
  pair.fill();
  const WatchedChild child = sleeper({"KITTY_WATCH=1"}, {pair.client.get()});
  const WatchedProcess* process = scan(child.pid());
  ASSERT_NE(process, nullptr);
  ASSERT_EQ(process->sockets.size(), 1U);
  const OwnedSocket& subflow = process->sockets.front();
  EXPECT_EQ(subflow.inode, inode_of(pair.client) ^ uint64_t{subflow.connection.hash} << 32);
  EXPECT_TRUE(subflow.connected);
  EXPECT_GT(subflow.connection.tx_queue_bytes, 0U);
  EXPECT_GT(subflow.connection.counters.segs_out, 0U);
  EXPECT_TRUE(process->tx_queue_known);
  EXPECT_FALSE(process->flows_unseen);
}

TEST(SocketPassInterval, HalfAPercentOfACoreBetweenOneAndFiveSeconds) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  EXPECT_EQ(socket_pass_interval(milliseconds(1)), seconds(1));
  EXPECT_EQ(socket_pass_interval(milliseconds(13)), milliseconds(2600));
  EXPECT_EQ(socket_pass_interval(milliseconds(500)), seconds(5));
}

TEST_F(ScannerTest, ProcessWatchPublishesNewAndDropsDeadProcessesWithinARefresh) {
  const ProcessWatch watch(Scanner(root_.get(), nullptr), ExecLog(nullptr, 0));
  const auto listed = [&watch](pid_t pid) {
    const auto state = watch.state();
    return std::ranges::any_of(state->processes, [pid](const WatchedProcess& p) { return p.id.pid == pid; });
  };
  const auto within_a_refresh = [&](pid_t pid, bool wanted) {
    const auto deadline = std::chrono::steady_clock::now() + kDiscoveryInterval + std::chrono::seconds(5);
    while (listed(pid) != wanted && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return listed(pid) == wanted;
  };
  WatchedChild child = sleeper({"KITTY_WATCH=1"});
  const pid_t pid = child.pid();
  EXPECT_TRUE(within_a_refresh(pid, true));
  child.stop();
  EXPECT_TRUE(within_a_refresh(pid, false));
}

}  // namespace
}  // namespace kitty::collector
