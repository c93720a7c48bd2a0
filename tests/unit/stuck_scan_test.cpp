// The scanner against a false procfs: FIFOs stand for files that never come, and a stat line says what it
// likes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "collector/process_watch.h"
#include "collector/scanner.h"
#include "procfs/file.h"

namespace kitty::collector {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kWatched("KITTY_WATCH=1\0RANK=1\0", 21);

class StuckScanTest : public ::testing::Test {
 protected:
  StuckScanTest() {
    std::string name = (fs::temp_directory_path() / "kitty-procfs-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    auto root = procfs::open_root(folder_.c_str());
    EXPECT_TRUE(root);
    root_ = std::move(*root);
    scanner_ = std::make_unique<Scanner>(root_.get(), nullptr);
  }
  ~StuckScanTest() override {
    for (const fs::path& fifo : fifos_) release(fifo);
    fs::remove_all(folder_);
  }

  fs::path of(pid_t pid) const { return folder_ / std::to_string(pid); }
  static void write(const fs::path& path, std::string_view text) {
    // Whoever reads sees the one or the other, never half.
    std::ofstream(path.string() + ".new", std::ios::binary) << text;
    fs::rename(path.string() + ".new", path);
  }
  void stat(pid_t pid, std::string_view comm = "train", uint64_t start = 12345, uint64_t place = 1) {
    std::string line = std::to_string(pid) + " (" + std::string(comm) + ") S 1 1 1 0 -1 0";
    for (int i = 0; i < 12; ++i) line += " 0";
    line += " " + std::to_string(start) + " 1000";
    for (int i = 0; i < 30; ++i) line += " " + std::to_string(place);
    write(of(pid) / "stat", line + "\n");
  }
  void process(pid_t pid, std::string_view environment) {
    fs::create_directory(of(pid));
    stat(pid);
    write(of(pid) / "environ", environment);
    write(of(pid) / "comm", "train\n");
  }
  void fifo(const fs::path& path) {
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    fifos_.push_back(path);
  }
  // Whoever waits for it reads an empty file.
  static void release(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) ::close(fd);
  }
  const ProcessState& discover() {
    scanner_->discover(Scanner::Depth::all);
    state_ = scanner_->snapshot();
    return *state_;
  }
  bool watches(pid_t pid) const {
    return std::ranges::any_of(state_->processes, [pid](const WatchedProcess& p) { return p.id.pid == pid; });
  }
  template <class Condition>
  bool eventually(Condition&& condition) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(60);
    while (!condition() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(20));
    return condition();
  }

  fs::path folder_;
  std::vector<fs::path> fifos_;
  Fd root_;
  std::unique_ptr<Scanner> scanner_;
  std::shared_ptr<const ProcessState> state_;
};

TEST_F(StuckScanTest, AnEnvironmentThatNeverComesHidesNobodyElse) {
  process(100, "A=1");
  process(200, kWatched);
  fifo(of(100) / "environ");
  discover();
  EXPECT_TRUE(watches(200));
  EXPECT_EQ(state_->report.unreadable.stuck, 1U);
  ASSERT_EQ(state_->report.stuck.size(), 1U);
  EXPECT_EQ(state_->report.stuck.front().pid, 100);
  EXPECT_EQ(state_->report.stuck.front().comm, "train");
  EXPECT_TRUE(state_->report.discovery_ok);
  process(300, kWatched);
  fs::remove_all(of(200));
  discover();
  EXPECT_TRUE(watches(300));
  EXPECT_FALSE(watches(200));
  EXPECT_EQ(state_->report.unreadable.stuck, 1U) << "as long as it hangs";
  EXPECT_EQ(scanner_->waited_for().size(), 1U);
}

TEST_F(StuckScanTest, AStatThatNeverComesHidesNobodyElse) {
  process(100, "A=1");
  process(200, kWatched);
  fifo(of(100) / "stat");
  discover();
  EXPECT_TRUE(watches(200));
  ASSERT_EQ(state_->report.stuck.size(), 1U);
  EXPECT_EQ(state_->report.stuck.front().comm, "train") << "by the file that does not hang";
}

TEST_F(StuckScanTest, AProcessThatComesBackIsReadAgain) {
  process(100, "A=1");
  fifo(of(100) / "environ");
  discover();
  ASSERT_EQ(state_->report.unreadable.stuck, 1U);
  const fs::path hung = folder_ / "hung";
  fs::rename(of(100) / "environ", hung);
  write(of(100) / "environ", kWatched);
  discover();
  EXPECT_FALSE(watches(100)) << "somebody still waits for the first";
  release(hung);
  EXPECT_TRUE(eventually([&] {
    discover();
    return watches(100);
  }));
  EXPECT_EQ(state_->report.unreadable.stuck, 0U);
  EXPECT_TRUE(scanner_->waited_for().empty());
}

TEST_F(StuckScanTest, ANumberGivenToAnotherProcessIsLookedAtAlthoughTheFirstHangs) {
  process(100, "A=1");
  fifo(of(100) / "environ");
  discover();
  ASSERT_EQ(state_->report.unreadable.stuck, 1U);
  fs::rename(of(100), folder_ / "gone");
  fifos_ = {folder_ / "gone" / "environ"};
  process(100, kWatched);
  discover();
  EXPECT_TRUE(watches(100));
}

TEST_F(StuckScanTest, AWatchedProcessThatHangsKeepsItsIdentity) {
  process(200, kWatched);
  discover();
  ASSERT_TRUE(watches(200));
  fifo(of(200) / "stat");
  EXPECT_TRUE(scanner_->drop_dead()) << "it has begun to hang";
  scanner_->pass_sockets();
  discover();
  ASSERT_TRUE(watches(200));
  EXPECT_TRUE(state_->processes.front().stuck);
  EXPECT_EQ(state_->processes.front().labels.rank, "1");
  EXPECT_FALSE(state_->processes.front().tx_queue_known);
  EXPECT_EQ(state_->report.unreadable.stuck, 1U);
  EXPECT_FALSE(scanner_->drop_dead());
  fs::rename(of(200), folder_ / "gone");
  fifos_ = {folder_ / "gone" / "stat"};
  discover();
  EXPECT_FALSE(watches(200));
}

TEST_F(StuckScanTest, AHundredHungProcessesOfOneUserLeaveAnotherUsersRankToBeFound) {
  if (geteuid() != 0) GTEST_SKIP() << "root is missing";
  for (pid_t pid = 1000; pid < 1000 + 2 * static_cast<pid_t>(kMaxHungReadsOfUser); ++pid) {
    process(pid, "A=1");
    fifo(of(pid) / "environ");
    ASSERT_EQ(chown(of(pid).c_str(), 4711, 0), 0);
  }
  process(9000, kWatched);
  discover();
  EXPECT_TRUE(watches(9000));
  EXPECT_EQ(state_->report.unreadable.stuck, kMaxHungReadsOfUser);
  EXPECT_EQ(state_->report.unreadable.waiting, kMaxHungReadsOfUser);
  // By turns: those that come back make room for those that wait.
  for (const fs::path& path : fifos_) {
    release(path);
    fs::remove(path);
    write(path, "A=1");
  }
  for (const fs::path& path : fifos_) release(path);
  fifos_.clear();
  EXPECT_TRUE(eventually([&] {
    const Unreadable unreadable = discover().report.unreadable;
    return unreadable.stuck == 0 && unreadable.waiting == 0;
  }));
}

TEST_F(StuckScanTest, AnEnvironmentThatWasReadIsNotReadAgainUntilAnotherProgramIsExecuted) {
  process(100, "A=1");
  discover();
  write(of(100) / "environ", kWatched);
  for (int i = 0; i < 30; ++i) discover();
  EXPECT_FALSE(watches(100)) << "the same program, for all that stat says";
  stat(100, "train", 12345, 2);
  discover();
  EXPECT_TRUE(watches(100)) << "elsewhere in memory";
}

TEST_F(StuckScanTest, AnExecWithoutRandomPlacesShowsInTheName) {
  process(100, "A=1");
  discover();
  write(of(100) / "environ", kWatched);
  stat(100, "other");
  discover();
  EXPECT_TRUE(watches(100));
}

TEST_F(StuckScanTest, AnEnvironmentWithoutEndIsCountedAndNotReadAgain) {
  std::string endless(procfs::kMaxEnvironBytes + 4096, 'x');
  endless.replace(0, kWatched.size(), kWatched);
  process(100, endless);
  process(200, kWatched);
  discover();
  EXPECT_FALSE(watches(100));
  EXPECT_TRUE(watches(200));
  EXPECT_EQ(state_->report.unreadable.too_long, 1U);
  write(of(100) / "environ", kWatched);
  discover();
  EXPECT_FALSE(watches(100)) << "remembered";
  EXPECT_EQ(state_->report.unreadable.too_long, 1U);
  stat(100, "train", 12345, 2);
  discover();
  EXPECT_TRUE(watches(100)) << "another program";
  EXPECT_EQ(state_->report.unreadable.too_long, 0U);
}

TEST_F(StuckScanTest, AProcessThatPretendsToExecuteAgainAndAgainIsReadEverMoreRarely) {
  process(100, "A=1");
  for (uint64_t place = 1; place <= 3UL * kFreeReadings; ++place) {
    stat(100, "train", 12345, place);
    discover();
  }
  write(of(100) / "environ", kWatched);
  stat(100, "train", 12345, 1000);
  discover();
  EXPECT_FALSE(watches(100));
}

TEST_F(StuckScanTest, TheWatchEndsAlthoughAReadHangs) {
  process(100, "A=1");
  process(200, kWatched);
  fifo(of(100) / "environ");
  auto watch = std::make_unique<ProcessWatch>(std::move(*scanner_), ExecLog(nullptr, 0));
  EXPECT_FALSE(watch->fresh()) << "nobody waits for the first scan";
  EXPECT_TRUE(eventually([&] { return watch->fresh(); }));
  const auto stuck = watch->stop();
  ASSERT_EQ(stuck.size(), 1U);
  EXPECT_EQ(stuck.front().pid, 100);
  EXPECT_EQ(stuck.front().comm, "train");
}

TEST(Fresh, AStateOlderThanFifteenSecondsIsNotReliedOn) {
  constexpr uint64_t kSecond = 1'000'000'000;
  ScanReport report;
  EXPECT_FALSE(is_fresh(report, kSecond)) << "never listed";
  report.discovered_ns = kSecond;
  EXPECT_TRUE(is_fresh(report, 15 * kSecond));
  EXPECT_FALSE(is_fresh(report, 16 * kSecond));
}

}  // namespace
}  // namespace kitty::collector
