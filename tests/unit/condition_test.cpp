// What watched processes do, of real ones: CPU time, state, and the figures of their cgroups where this
// machine has any.
#include "collector/condition.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "collector/process_watch.h"
#include "collector/scanner.h"
#include "collector/ticker.h"
#include "procfs/file.h"
#include "scanner_fixture.h"
#include "watched_child.h"

namespace kitty::collector {
namespace {

using testing::WatchedChild;

class ConditionTest : public testing::ScannerFixture {
 protected:
  static WatchedChild run(const std::string& interpreter, const std::string& program) {
    return {{interpreter, "-c", program}, {"KITTY_WATCH=1", "RANK=1", "PATH=/usr/local/bin:/usr/bin:/bin"}};
  }
  // At the latest look; empty where it is not watched.
  Condition now(pid_t pid) {
    (void)scanner_->drop_dead();
    return find(*scanner_->conditions(), pid);
  }
  static Condition find(const Conditions& conditions, pid_t pid) {
    const auto found = std::ranges::find(conditions.processes, pid, [](const auto& of) { return of.id.pid; });
    return found == conditions.processes.end() ? Condition() : found->condition;
  }
  template <typename Met>
  static bool eventually(Met met) {
    for (int i = 0; i < 600 && !met(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return met();
  }
};

TEST_F(ConditionTest, TheCpuTimeOfABusyProcessGrowsAndThatOfASleepingOneDoesNot) {
  const WatchedChild busy = run("sh", "while :; do :; done");
  const WatchedChild idle = testing::sleeper({"KITTY_WATCH=1", "RANK=2"});
  scanner_->discover(Scanner::Depth::all);
  const auto ticks = [this](pid_t pid) { return now(pid).cpu_ticks.value_or(0); };
  const uint64_t busy_before = ticks(busy.pid()), idle_before = ticks(idle.pid());
  EXPECT_TRUE(eventually([&] { return ticks(busy.pid()) >= busy_before + 20; }));
  ASSERT_TRUE(now(idle.pid()).cpu_ticks);
  EXPECT_LE(ticks(idle.pid()), idle_before + 1);
  EXPECT_EQ(now(idle.pid()).state, 'S');
}

TEST_F(ConditionTest, AStoppedProcessIsStopped) {
  const WatchedChild child = run("sh", "while :; do :; done");
  scanner_->discover(Scanner::Depth::all);
  EXPECT_TRUE(eventually([&] { return now(child.pid()).state == 'R'; }));
  ASSERT_EQ(kill(child.pid(), SIGSTOP), 0);
  EXPECT_TRUE(eventually([&] { return now(child.pid()).state == 'T'; }));
  ASSERT_EQ(kill(child.pid(), SIGCONT), 0);
  EXPECT_TRUE(eventually([&] { return now(child.pid()).state == 'R'; }));
}

// Another thread's stat has that thread's time alone.
TEST_F(ConditionTest, TheCpuTimeOfAProcessGoesOnWhereItsMainThreadEnds) {
  const WatchedChild child = run("/usr/bin/python3",
                                 "import ctypes, threading, time\n"
                                 "while time.process_time() < 0.5: pass\n"
                                 "threading.Thread(target=time.sleep, args=(60,)).start()\n"
                                 "time.sleep(2)\n"
                                 "ctypes.CDLL(None).syscall(" +
                                     std::to_string(SYS_exit) + ", 0)\n");
  // User and system time are each cut to whole ticks.
  const uint64_t burnt = static_cast<uint64_t>(sysconf(_SC_CLK_TCK)) * 2 / 5;
  scanner_->discover(Scanner::Depth::all);
  ASSERT_TRUE(eventually([&] { return now(child.pid()).cpu_ticks.value_or(0) >= burnt; }));
  const auto ended = [&] {
    std::ifstream file("/proc/" + std::to_string(child.pid()) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto stat = procfs::parse_stat(text);
    return stat && stat->lives_by_other_threads();
  };
  ASSERT_TRUE(eventually(ended));
  const Condition condition = now(child.pid());
  ASSERT_TRUE(condition.cpu_ticks);
  EXPECT_GE(*condition.cpu_ticks, burnt);
  EXPECT_EQ(condition.state, 'S') << "of the thread that lives";
  scanner_ = std::make_unique<Scanner>(root_.get(), nullptr);
  scanner_->discover(Scanner::Depth::all);
  EXPECT_GE(now(child.pid()).cpu_ticks.value_or(0), burnt) << "found without its main thread";
}

TEST_F(ConditionTest, AWorkerHasNone) {
  const WatchedChild parent =
      run("/usr/bin/python3", "import os, time\nchild = os.fork()\ntime.sleep(60 if child == 0 else 59)\n");
  pid_t worker = 0;
  ASSERT_TRUE(eventually([&] {
    const std::string pid = std::to_string(parent.pid());
    std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> worker;
    return worker != 0;
  }));
  scanner_->discover(Scanner::Depth::all);
  (void)scanner_->drop_dead();
  const auto conditions = scanner_->conditions();
  EXPECT_NE(find(*conditions, parent.pid()).state, 0);
  EXPECT_EQ(find(*conditions, worker).state, 0);
  kill(worker, SIGKILL);
}

// Pressure is accounted for where this machine has it for this program's own cgroup.
TEST_F(ConditionTest, ItsCgroupsPressureIsTheFilesOwn) {
  const WatchedChild child = testing::sleeper({"KITTY_WATCH=1", "RANK=3"});
  scanner_->discover(Scanner::Depth::all);
  const Condition condition = now(child.pid());
  std::string path;
  for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    std::ifstream groups("/proc/" + std::to_string(child.pid()) + "/cgroup");
    for (std::string line; std::getline(groups, line);) {
      if (line.starts_with("0::") && std::ifstream(mount + line.substr(3) + "/cpu.pressure"))
        path = mount + line.substr(3) + "/cpu.pressure";
    }
  }
  if (path.empty()) GTEST_SKIP() << "cpu.pressure of this program's cgroup is missing";
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto later_us = procfs::parse_pressure_us(text);
  if (!later_us) GTEST_SKIP() << path << " cannot be read: psi=1 is missing";
  ASSERT_TRUE(condition.pressure_us[0]);
  EXPECT_LE(*condition.pressure_us[0], *later_us);
}

// From the background thread into a tick's metrics.
TEST_F(ConditionTest, ATickHasThem) {
  const WatchedChild child = testing::sleeper({"KITTY_WATCH=1", "RANK=4"});
  const ProcessWatch watch(Scanner(root_.get(), nullptr), ExecLog(nullptr, 0));
  Tick tick(watch, nullptr, 0);
  EXPECT_TRUE(eventually([&] {
    const Metrics& metrics = tick.run();
    for (size_t i = 0; i < metrics.processes.size(); ++i) {
      if (metrics.state->processes[i].id.pid == child.pid())
        return metrics.processes[i].condition.state == 'S' &&
               metrics.processes[i].condition.cpu_ticks.has_value();
    }
    return false;
  }));
}

}  // namespace
}  // namespace kitty::collector
