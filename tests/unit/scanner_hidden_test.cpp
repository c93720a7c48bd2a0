// Processes whose files under /proc do not say who they are: a title lies over the environment, or the main
// thread has ended.
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "collector/embedded_object.h"
#include "collector/exec_log.h"
#include "collector/rtt_hook.h"
#include "collector/scanner.h"
#include "kernel_tests.h"
#include "procfs/file.h"
#include "procfs/pid_namespace.h"
#include "scanner_fixture.h"
#include "tcp_pair.h"
#include "watched_child.h"

namespace kitty::collector {
namespace {

using namespace std::string_literals;
using testing::TcpPair;
using testing::WatchedChild;

// Writes a title over its environment, as setproctitle does where the arguments leave no room.
const std::string kTakeTitle =
    "import ctypes, os, subprocess, sys, time\n"
    "fields = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
    "start, end = int(fields[47]), int(fields[48])\n"
    "ctypes.memset(start, 0, end - start)\n"
    "ctypes.memmove(start, b'train', 5)\n";
const std::string kSleep = "time.sleep(60)\n";

class HiddenProcessTest : public testing::ScannerFixture {
 protected:
  static WatchedChild python(const std::string& program, std::vector<std::string> environment,
                             std::vector<int> inherited = {}) {
    environment.emplace_back("PATH=/usr/local/bin:/usr/bin:/bin");
    return {{"/usr/bin/python3", "-c", program}, std::move(environment), std::move(inherited)};
  }
  static std::string environment_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  template <typename Met>
  static bool eventually(Met met) {
    for (int i = 0; i < 600 && !met(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return met();
  }
  static bool takes_title(pid_t pid) {
    return eventually([pid] { return environment_of(pid).starts_with("train\0"s); });
  }
  procfs::ProcessId id_of(pid_t pid) const {
    return procfs::ProcessHandle::open(root_.get(), pid).value().id();
  }
  void executed(pid_t pid, const std::string& environment, bool whole = true) {
    scanner_->executed({.id = id_of(pid), .environment = environment, .whole = whole});
  }
  const WatchedProcess* scan(pid_t pid) {
    scanner_->discover(Scanner::Depth::all);
    scanner_->pass_sockets();
    return look(pid);
  }
  const WatchedProcess* look(pid_t pid) {
    state_ = scanner_->snapshot();
    const auto found = std::ranges::find(state_->processes, pid, [](const auto& one) { return one.id.pid; });
    return found == state_->processes.end() ? nullptr : &*found;
  }
  // The process that has this parent, once there is one.
  pid_t child_of(pid_t parent) {
    pid_t child = 0;
    (void)eventually([&] {
      std::ifstream("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children") >>
          child;
      return child != 0;
    });
    return child;
  }

  std::shared_ptr<const ProcessState> state_;
};

TEST_F(HiddenProcessTest, WithATitleIsKnownByWhatItsProgramWasGiven) {
  const WatchedChild child = python(kTakeTitle + kSleep, {"KITTY_WATCH=1", "RANK=5"});
  ASSERT_TRUE(takes_title(child.pid()));
  executed(child.pid(), "KITTY_WATCH=1\0RANK=5\0JOB_NAME=titled\0"s);
  EXPECT_TRUE(scanner_->look_at_executed());
  const WatchedProcess* process = look(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "5");
  EXPECT_EQ(process->labels.job, "titled");
  process = scan(child.pid());
  ASSERT_NE(process, nullptr) << "it stays";
  EXPECT_EQ(process->labels.rank, "5");
}

TEST_F(HiddenProcessTest, WithATitleAndNothingGivenIsCounted) {
  const WatchedChild child = python(kTakeTitle + kSleep, {"KITTY_WATCH=1", "RANK=5"});
  ASSERT_TRUE(takes_title(child.pid()));
  EXPECT_EQ(scan(child.pid()), nullptr);
  EXPECT_GE(state_->report.unreadable.overwritten, 1U);
  const uint64_t before = state_->report.unreadable.overwritten;
  EXPECT_EQ(scan(child.pid()), nullptr) << "nor later";
  EXPECT_GE(state_->report.unreadable.overwritten, std::min<uint64_t>(before, 1));
}

TEST_F(HiddenProcessTest, WhatIsGivenOutweighsWhatATitleLeft) {
  const WatchedChild child = testing::sleeper({"KITTY_WATCH=1", "RANK=5"});
  executed(child.pid(), "PATH=/bin\0"s);
  EXPECT_FALSE(scanner_->look_at_executed() && look(child.pid()) != nullptr);
  EXPECT_EQ(scan(child.pid()), nullptr);
}

TEST_F(HiddenProcessTest, WhatIsGivenInPartServesWhereNothingElseTells) {
  const WatchedChild titled = python(kTakeTitle + kSleep, {"KITTY_WATCH=1", "RANK=5"});
  const WatchedChild plain = testing::sleeper({"KITTY_WATCH=1", "RANK=6"});
  ASSERT_TRUE(takes_title(titled.pid()));
  executed(titled.pid(), "KITTY_WATCH=1\0RANK=7\0LONG=xxx"s, false);
  executed(plain.pid(), "KITTY_WATCH=1\0RANK=7\0LONG=xxx"s, false);
  EXPECT_TRUE(scanner_->look_at_executed());
  ASSERT_NE(look(titled.pid()), nullptr);
  EXPECT_EQ(look(titled.pid())->labels.rank, "7");
  ASSERT_NE(look(plain.pid()), nullptr);
  EXPECT_EQ(look(plain.pid())->labels.rank, "6") << "the whole environment can be read";
}

TEST_F(HiddenProcessTest, WhatWasGivenToAnotherProcessOfThatNumberIsNotUsed) {
  const WatchedChild child = testing::sleeper({"PATH=/bin"});
  procfs::ProcessId earlier = id_of(child.pid());
  --earlier.start_time_ticks;
  scanner_->executed({.id = earlier, .environment = "KITTY_WATCH=1\0RANK=7\0"s, .whole = true});
  (void)scanner_->look_at_executed();
  EXPECT_EQ(scan(child.pid()), nullptr);
}

TEST_F(HiddenProcessTest, AForkOfOneWithATitleIsWhatItsParentIs) {
  const WatchedChild child = python(kTakeTitle + "os.fork()\n" + kSleep, {"KITTY_WATCH=1", "RANK=5"});
  ASSERT_TRUE(takes_title(child.pid()));
  executed(child.pid(), "KITTY_WATCH=1\0RANK=5\0JOB_NAME=titled\0"s);
  const pid_t fork = child_of(child.pid());
  ASSERT_NE(scan(child.pid()), nullptr);
  const WatchedProcess* process = look(fork);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "5");
  EXPECT_EQ(process->labels.job, "titled");
  EXPECT_TRUE(process->is_worker);
}

// As an agent finds them that is restarted beside a running job.
TEST_F(HiddenProcessTest, WithATitleAndAWatchedParentIsOfItsJobWithoutARank) {
  const WatchedChild launcher = python(
      "import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', os.environ['PROGRAM']],\n"
      "  env={**os.environ, 'RANK': '3'})\n",
      {"KITTY_WATCH=1", "JOB_NAME=titled", "PROGRAM=" + kTakeTitle + kSleep});
  const pid_t rank = child_of(launcher.pid());
  ASSERT_TRUE(takes_title(rank));
  ASSERT_NE(scan(launcher.pid()), nullptr);
  const WatchedProcess* process = look(rank);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.job, "titled");
  EXPECT_EQ(process->labels.rank, "");
}

TEST_F(HiddenProcessTest, ATitleTakenAtOnceHidesNothingFromTheExecTracepoint) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open_rtt_source(embedded_object(), "", kHookAuto);
  if (!source.maps) GTEST_SKIP() << "no hook: " << source.hook.refusals.back().reason;
  ExecLog log(source.maps.get(), procfs::read_pid_namespace(root_.get()).value());
  const WatchedChild child = python(kTakeTitle + kSleep, {"KITTY_WATCH=1", "RANK=5", "JOB_NAME=titled"});
  ASSERT_TRUE(takes_title(child.pid()));
  log.take([&](const ExecutedProgram& program) { scanner_->executed(program); });
  EXPECT_TRUE(scanner_->look_at_executed());
  const WatchedProcess* process = look(child.pid());
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "5");
  EXPECT_EQ(process->labels.job, "titled");
}

const std::string kEndMainThread =
    "import ctypes, threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,)).start()\n"
    "time.sleep(2)\n"
    "ctypes.CDLL(None).syscall(" +
    std::to_string(SYS_exit) + ", 0)\n";

bool main_thread_ends(pid_t pid) {
  for (int i = 0; i < 600; ++i) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto stat = procfs::parse_stat(text);
    if (stat && stat->is_dead()) return stat->lives_by_other_threads();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

TEST_F(HiddenProcessTest, WithoutItsMainThreadStaysWithItsSockets) {
  const TcpPair pair;
  WatchedChild child = python(kEndMainThread, {"KITTY_WATCH=1", "RANK=4"}, {pair.client.get()});
  const pid_t pid = child.pid();
  ASSERT_NE(scan(pid), nullptr);
  ASSERT_TRUE(main_thread_ends(pid));
  (void)scanner_->drop_dead();
  const WatchedProcess* process = scan(pid);
  ASSERT_NE(process, nullptr);
  EXPECT_EQ(process->labels.rank, "4");
  EXPECT_EQ(process->id.pid, pid);
  EXPECT_TRUE(process->sockets_known);
  const uint64_t inode = testing::inode_of(pair.client);
  const auto owned = std::ranges::find(process->sockets, inode, &OwnedSocket::inode);
  ASSERT_NE(owned, process->sockets.end());
  EXPECT_TRUE(owned->connected);
  child.stop();
  EXPECT_TRUE(scanner_->drop_dead());
  EXPECT_EQ(look(pid), nullptr);
}

TEST_F(HiddenProcessTest, WithoutItsMainThreadIsFound) {
  const TcpPair pair;
  WatchedChild child = python(kEndMainThread, {"KITTY_WATCH=1", "RANK=4"}, {pair.client.get()});
  ASSERT_TRUE(main_thread_ends(child.pid()));
  const RttSource source = open_rtt_source(embedded_object(), "", kHookAuto);
  for (SocketRows* rows : {static_cast<SocketRows*>(nullptr), source.rows.get()}) {
    scanner_ = std::make_unique<Scanner>(root_.get(), rows);
    const WatchedProcess* process = scan(child.pid());
    ASSERT_NE(process, nullptr);
    EXPECT_EQ(process->labels.rank, "4");
    EXPECT_NE(process->netns, 0U);
    EXPECT_EQ(process->sockets.size(), 1U) << (rows ? "by the iterator" : "by procfs");
  }
}

// A zombie is no such process, whatever its parent leaves it lying for.
TEST_F(HiddenProcessTest, AZombieIsDead) {
  const WatchedChild parent = python("import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(60)\n",
                                     {"KITTY_WATCH=1", "RANK=4"});
  const pid_t zombie = child_of(parent.pid());
  ASSERT_FALSE(main_thread_ends(zombie));
  EXPECT_NE(scan(parent.pid()), nullptr);
  EXPECT_EQ(look(zombie), nullptr);
}

}  // namespace
}  // namespace kitty::collector
