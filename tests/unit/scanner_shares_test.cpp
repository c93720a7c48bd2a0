// What many processes and sockets of one user leave of another's, and processes that own nothing: the scanner
// over a made-up /proc.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "collector/scanner.h"
#include "fake_procfs.h"

namespace kitty::collector {
namespace {

using testing::FakeProcess;
using testing::FakeProcfs;

std::vector<uint64_t> inodes(uint64_t first, size_t count) {
  std::vector<uint64_t> list(count);
  std::iota(list.begin(), list.end(), first);
  return list;
}

class ScannerSharesTest : public ::testing::Test {
 protected:
  const WatchedProcess* scan(pid_t pid) {
    scanner_.discover(Scanner::Depth::all);
    scanner_.pass_sockets();
    state_ = scanner_.snapshot();
    return find(pid);
  }
  [[nodiscard]] const WatchedProcess* find(pid_t pid) const {
    const auto found =
        std::ranges::find(state_->processes, pid, [](const WatchedProcess& p) { return p.id.pid; });
    return found == state_->processes.end() ? nullptr : &*found;
  }
  [[nodiscard]] LeftOut left_out(uid_t uid) const {
    const auto found = std::ranges::find(state_->report.left_out, uid, &LeftOut::uid);
    return found == state_->report.left_out.end() ? LeftOut{} : *found;
  }

  static constexpr size_t kPlaces = 64;

  FakeProcfs procfs_;
  Scanner scanner_{procfs_.root(), nullptr, kPlaces};
  std::shared_ptr<const ProcessState> state_;
};

TEST_F(ScannerSharesTest, ACrowdOfOneUserDoesNotKeepALaterRankFromBeingWatched) {
  for (pid_t pid = 100; pid < 180; ++pid) procfs_.put({.pid = pid, .uid = 65533});
  ASSERT_EQ(scan(5000), nullptr);
  EXPECT_EQ(state_->processes.size(), kPlaces);
  EXPECT_EQ(left_out(65533).processes, 80 - kPlaces);
  procfs_.put(
      {.pid = 5000, .start_time_ticks = 2000, .uid = 1000, .environment = {"KITTY_WATCH=1", "RANK=3"}});
  const WatchedProcess* rank = scan(5000);
  ASSERT_NE(rank, nullptr);
  EXPECT_EQ(rank->labels.rank, "3");
  EXPECT_EQ(rank->uid, 1000U);
  EXPECT_EQ(state_->processes.size(), kPlaces);
  EXPECT_EQ(left_out(65533).processes, 81 - kPlaces);
  EXPECT_EQ(left_out(1000).processes, 0U);
  for (int i = 0; i < 3; ++i) EXPECT_NE(scan(5000), nullptr) << "it does not stay";
}

TEST_F(ScannerSharesTest, WhatAUserGivesUpHasNoSocketAndStartedLast) {
  constexpr pid_t kElder = 100, kLast = 100 + static_cast<pid_t>(kPlaces) - 1;
  for (pid_t pid = kElder; pid <= kLast; ++pid) {
    procfs_.put({.pid = pid,
                 .start_time_ticks = 1000 + static_cast<uint64_t>(pid),
                 .uid = 65533,
                 .sockets = inodes(1, pid == kLast ? 1 : 0)});
  }
  scan(kLast);
  procfs_.put({.pid = 5000, .start_time_ticks = 9000, .uid = 1000});
  ASSERT_NE(scan(5000), nullptr);
  EXPECT_NE(find(kElder), nullptr);
  EXPECT_EQ(find(kLast - 1), nullptr) << "the one that started last of those without a socket";
  EXPECT_NE(find(kLast), nullptr);
}

TEST_F(ScannerSharesTest, AWorkerGivesWayToARankOfItsOwnUser) {
  const std::vector<std::string> environment = {"KITTY_WATCH=1", "RANK=0"};
  procfs_.put({.pid = 100, .environment = environment});
  for (pid_t pid = 101; pid < 180; ++pid)
    procfs_.put({.pid = pid, .parent = 100, .start_time_ticks = 1001, .environment = environment});
  scan(100);
  EXPECT_EQ(state_->processes.size(), kPlaces);
  procfs_.put({.pid = 5000, .start_time_ticks = 2000, .environment = {"KITTY_WATCH=1", "RANK=1"}});
  for (int i = 0; i < 3; ++i) EXPECT_NE(scan(5000), nullptr);
  EXPECT_NE(find(100), nullptr);
  EXPECT_EQ(state_->processes.size(), kPlaces);
}

TEST_F(ScannerSharesTest, SocketsOfOneProcessLeaveALaterRankItsOwnAndNoFalseZero) {
  procfs_.put({.pid = 100, .uid = 65533, .sockets = inodes(1, 8800)});
  procfs_.put({.pid = 200, .start_time_ticks = 1500, .uid = 1000, .sockets = inodes(20'000, 10)});
  const WatchedProcess* crowd = scan(100);
  ASSERT_NE(crowd, nullptr);
  const WatchedProcess* rank = find(200);
  ASSERT_NE(rank, nullptr);
  EXPECT_EQ(rank->sockets.size(), 10U);
  EXPECT_TRUE(rank->sockets_known);
  EXPECT_TRUE(rank->tx_queue_known);
  EXPECT_EQ(crowd->sockets.size(), kMaxOwnedSockets - 10);
  EXPECT_FALSE(crowd->sockets_known);
  EXPECT_FALSE(crowd->tx_queue_known) << "what is queued in sockets that are not followed is not known";
  EXPECT_EQ(left_out(65533).sockets, 8810 - kMaxOwnedSockets);
  EXPECT_EQ(state_->report.dropped_sockets, 8810 - kMaxOwnedSockets);
}

// In containers everybody is root.
TEST_F(ScannerSharesTest, ProcessesOfOneUserShareSocketsToo) {
  procfs_.put({.pid = 100, .sockets = inodes(1, 8800)});
  procfs_.put({.pid = 200, .start_time_ticks = 1500, .sockets = inodes(20'000, 10)});
  scan(100);
  ASSERT_NE(find(200), nullptr);
  EXPECT_TRUE(find(200)->sockets_known);
  EXPECT_EQ(find(200)->sockets.size(), 10U);
}

TEST_F(ScannerSharesTest, ASocketThatIsFollowedStaysAndOneLeftOutBeginsWhereItIs) {
  procfs_.put({.pid = 100, .start_time_ticks = UINT64_MAX / 2, .uid = 65533, .sockets = inodes(1, 8192)});
  ASSERT_NE(scan(100), nullptr);
  EXPECT_TRUE(find(100)->sockets_known);
  std::vector<uint64_t> more = inodes(30'000, 400);  // listed first
  const std::vector<uint64_t> old = inodes(1, 8192);
  more.insert(more.end(), old.begin(), old.end());
  procfs_.put({.pid = 100, .start_time_ticks = UINT64_MAX / 2, .uid = 65533, .sockets = more});
  scan(100);
  EXPECT_EQ(find(100)->sockets.size(), kMaxOwnedSockets);
  for (const OwnedSocket& socket : find(100)->sockets) EXPECT_LE(socket.inode, 8192U);
  procfs_.put({.pid = 100, .start_time_ticks = UINT64_MAX / 2, .uid = 65533, .sockets = inodes(30'000, 400)});
  scan(100);
  EXPECT_TRUE(find(100)->sockets_known);
  EXPECT_EQ(find(100)->sockets.size(), 400U);
  for (const OwnedSocket& socket : find(100)->sockets) EXPECT_TRUE(socket.older_than_agent);
}

TEST_F(ScannerSharesTest, AForkedChildThatOwnsNothingIsAWorkerUntilItHasASocketOfItsOwn) {
  const std::vector<std::string> environment = {"KITTY_WATCH=1", "RANK=2", "JOB_NAME=train"};
  procfs_.put({.pid = 300, .environment = environment, .sockets = inodes(1, 4)});
  FakeProcess child{.pid = 200,  // found before its parent
                    .parent = 300,
                    .start_time_ticks = 1001,
                    .environment = environment,
                    .sockets = inodes(1, 4)};
  FakeProcess grandchild = child;
  grandchild.pid = 400;
  grandchild.parent = 200;
  procfs_.put(child);
  procfs_.put(grandchild);
  const WatchedProcess* worker = scan(200);
  ASSERT_NE(worker, nullptr);
  EXPECT_TRUE(worker->is_worker);
  EXPECT_FALSE(worker->is_launcher());
  ASSERT_NE(find(400), nullptr);
  EXPECT_TRUE(find(400)->is_worker);
  ASSERT_NE(find(300), nullptr);
  EXPECT_FALSE(find(300)->is_worker);
  EXPECT_EQ(find(300)->sockets.size(), 4U);

  child.sockets.push_back(77);
  procfs_.put(child);
  for (unsigned i = 0; i <= kMaxWorkerListingAge && scan(200) && find(200)->is_worker; ++i) continue;
  EXPECT_FALSE(find(200)->is_worker);
  EXPECT_EQ(find(200)->sockets.size(), 1U);
  child.sockets.pop_back();
  procfs_.put(child);
  ASSERT_NE(scan(200), nullptr);
  EXPECT_FALSE(find(200)->is_worker) << "what the socket did is in its sums";
}

// A discovery between two full ones lists newcomers only: what they hold may be their parent's all the same.
TEST_F(ScannerSharesTest, AWorkerIsOneThoughItIsListedBeforeItsParentsNewSockets) {
  const std::vector<std::string> environment = {"KITTY_WATCH=1", "RANK=2", "JOB_NAME=train"};
  procfs_.put({.pid = 100, .environment = environment});
  ASSERT_NE(scan(100), nullptr);
  procfs_.put({.pid = 100, .environment = environment, .sockets = inodes(1, 4)});
  procfs_.put({.pid = 200,
               .parent = 100,
               .start_time_ticks = 1001,
               .environment = environment,
               .sockets = inodes(1, 4)});
  scanner_.discover(Scanner::Depth::new_and_young);
  scanner_.pass_sockets();
  scan(200);
  ASSERT_NE(find(200), nullptr);
  EXPECT_TRUE(find(200)->is_worker);
  EXPECT_EQ(find(100)->sockets.size(), 4U);
}

TEST_F(ScannerSharesTest, ARankWithoutASocketIsARankUnlessItIsItsParents) {
  procfs_.put({.pid = 100, .environment = {"KITTY_WATCH=1", "JOB_NAME=train"}});
  procfs_.put({.pid = 200,
               .parent = 100,
               .start_time_ticks = 1001,
               .environment = {"KITTY_WATCH=1", "RANK=0", "JOB_NAME=train"}});
  procfs_.put({.pid = 300, .parent = 100, .environment = {"KITTY_WATCH=1", "JOB_NAME=train"}});
  ASSERT_NE(scan(200), nullptr);
  EXPECT_FALSE(find(200)->is_worker);
  EXPECT_TRUE(find(300)->is_worker);
  // A number used again is no parent.
  procfs_.put({.pid = 400,
               .parent = 200,
               .start_time_ticks = 900,
               .environment = {"KITTY_WATCH=1", "RANK=0", "JOB_NAME=train"}});
  ASSERT_NE(scan(400), nullptr);
  EXPECT_FALSE(find(400)->is_worker);
}

TEST_F(ScannerSharesTest, AnOrphanedWorkerIsNoRank) {
  const std::vector<std::string> environment = {"KITTY_WATCH=1", "RANK=2", "JOB_NAME=train"};
  procfs_.put({.pid = 100, .environment = environment, .sockets = inodes(1, 1)});
  procfs_.put({.pid = 200, .parent = 100, .start_time_ticks = 1001, .environment = environment});
  ASSERT_NE(scan(200), nullptr);
  procfs_.remove(100);
  ASSERT_NE(scan(200), nullptr);
  EXPECT_EQ(find(100), nullptr);
  EXPECT_TRUE(find(200)->is_worker);
}

}  // namespace
}  // namespace kitty::collector
