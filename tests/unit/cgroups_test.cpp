// What is read of control groups: over a directory that stands for a mounted hierarchy, named by a mountinfo
// of the test's making.
#include "collector/cgroups.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "procfs/file.h"

namespace kitty::collector {
namespace {

namespace fs = std::filesystem;
using Us = std::optional<uint64_t>;

class CgroupsTest : public ::testing::Test {
 protected:
  CgroupsTest() {
    std::string name = (fs::temp_directory_path() / "kitty-cgroups-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    fs::create_directories(folder_ / "proc/self");
    group("");
    auto root = procfs::open_root((folder_ / "proc").c_str());
    EXPECT_TRUE(root);
    root_ = std::make_shared<const Fd>(std::move(*root));
  }
  ~CgroupsTest() override { fs::remove_all(folder_); }

  fs::path of(const std::string& path, const std::string& tree = "tree") const {
    return folder_ / tree / path;
  }
  void group(const std::string& path, const std::string& tree = "tree") const {
    fs::create_directories(of(path, tree));
  }
  // Whose own quota has held it back so long.
  void throttled(const std::string& path, uint64_t us) const {
    group(path);
    std::ofstream(of(path) / "cpu.stat") << "usage_usec 1\nnr_throttled 1\nthrottled_usec " << us << "\n";
  }
  void unlimited(const std::string& path) const {
    group(path);
    std::ofstream(of(path) / "cpu.stat") << "usage_usec 1\nuser_usec 1\nsystem_usec 0\n";
  }
  void pressure(const std::string& path, const std::string& resource, uint64_t us) const {
    group(path);
    std::ofstream(of(path) / (resource + ".pressure"))
        << "some avg10=0.00 avg60=0.00 avg300=0.00 total=" << us << "\nfull avg10=0.00 total=1\n";
  }
  std::string mount(const std::string& root, const std::string& tree = "tree",
                    const std::string& type = "cgroup2 cgroup2 rw") const {
    struct stat status{};
    EXPECT_EQ(::stat((folder_ / tree).c_str(), &status), 0);
    return "30 29 " + std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev)) +
           " " + root + " " + (folder_ / tree).string() + " rw - " + type + "\n";
  }
  void mounted(const std::string& lines) {
    std::ofstream(folder_ / "proc/self/mountinfo") << lines;
    cgroups_ = std::make_unique<Cgroups>(root_, reads_, false);
  }

  struct Process {
    pid_t pid = 1;
    CgroupPaths paths;
    uid_t uid = 0;
  };
  std::vector<Condition> read(const std::vector<Process>& processes) {
    std::vector<Condition> conditions(processes.size());
    std::vector<Cgroups::Member> members;
    for (size_t i = 0; i < processes.size(); ++i) {
      members.push_back({.id = {processes[i].pid, 1},
                         .uid = processes[i].uid,
                         .paths = &processes[i].paths,
                         .condition = &conditions[i]});
    }
    cgroups_->read(members);
    return conditions;
  }
  Condition read(const std::string& path) { return read({{.paths = {.unified = path, .cpu = {}}}}).front(); }

  fs::path folder_;
  Root root_;
  Expendable reads_{Expendable::Limits{}};
  std::unique_ptr<Cgroups> cgroups_;
};

TEST_F(CgroupsTest, OwnAndHigherQuotasAddUp) {
  unlimited("");
  throttled("pod", 1000);
  unlimited("pod/between");
  throttled("pod/between/c", 20);
  mounted(mount("/"));
  EXPECT_EQ(read("/pod/between/c").throttled_us, Us(1020));
  throttled("pod", 1300);
  EXPECT_EQ(read("/pod/between/c").throttled_us, Us(1320));
}

TEST_F(CgroupsTest, PressureIsOfTheGroupItselfAndWhatIsMissingIsAbsent) {
  throttled("", 0);
  throttled("a", 5);
  pressure("", "cpu", 9000);
  pressure("a", "cpu", 11);
  pressure("a", "memory", 12);
  mounted(mount("/"));
  const Condition condition = read("/a");
  EXPECT_EQ(condition.pressure_us, (std::array<Us, kResources>{11, std::nullopt, 12}));
  EXPECT_EQ(condition.throttled_us, Us(5));
}

TEST_F(CgroupsTest, WithoutAQuotaAnywhereNothingIsKnownOfThrottling) {
  unlimited("");
  unlimited("a");
  mounted(mount("/"));
  EXPECT_EQ(read("/a").throttled_us, Us());
}

TEST_F(CgroupsTest, ARootWithoutCpuStatIsNoGap) {
  throttled("a", 5);
  mounted(mount("/"));
  EXPECT_EQ(read("/a").throttled_us, Us(5));
}

TEST_F(CgroupsTest, ASumWithAPartThatCannotBeReadIsAbsent) {
  throttled("a", 5);
  throttled("a/b", 6);
  fs::remove(of("a") / "cpu.stat");
  fs::create_directory(of("a") / "cpu.stat");  // its reading fails
  mounted(mount("/"));
  EXPECT_EQ(read("/a/b").throttled_us, Us());
}

TEST_F(CgroupsTest, FiguresGoOnWhereAProcessIsMovedAndNeverFall) {
  throttled("a", 100);
  throttled("b", 100'000);
  pressure("a", "io", 7);
  pressure("b", "io", 1);
  mounted(mount("/"));
  EXPECT_EQ(read("/a").throttled_us, Us(100));
  throttled("a", 130);
  EXPECT_EQ(read("/a").throttled_us, Us(130));
  EXPECT_EQ(read("/b").throttled_us, Us(130)) << "what others did in that group is not its own";
  EXPECT_EQ(read("/b").pressure_us[1], Us(7));
  throttled("b", 100'004);
  pressure("b", "io", 3);
  EXPECT_EQ(read("/b").throttled_us, Us(134));
  EXPECT_EQ(read("/b").pressure_us[1], Us(9));
  throttled("b", 1);  // the controller was off and on again
  EXPECT_EQ(read("/b").throttled_us, Us(134));
  throttled("b", 3);
  EXPECT_EQ(read("/b").throttled_us, Us(136));
}

TEST_F(CgroupsTest, Version1HasTheCpuControllerWhereItIsMounted) {
  throttled("unified", 9);
  pressure("unified", "cpu", 8);
  group("c/d", "cpu");
  std::ofstream(of("c", "cpu") / "cpu.stat") << "nr_periods 1\nthrottled_time 4000\n";
  std::ofstream(of("c/d", "cpu") / "cpu.stat") << "nr_periods 1\nthrottled_time 2000\n";
  mounted(mount("/") + mount("/", "cpu", "cgroup cgroup rw,cpu,cpuacct"));
  const Condition condition = read({{.paths = {.unified = "/unified", .cpu = "/c/d"}}}).front();
  EXPECT_EQ(condition.throttled_us, Us(6));
  EXPECT_EQ(condition.pressure_us[0], Us(8));
}

TEST_F(CgroupsTest, WhatIsOutsideOfWhatIsMountedIsAbsent) {
  throttled("a", 5);
  mounted(mount("/"));
  for (const char* path : {"/../a", "/..", "/a/../a", "", "a", "/missing", "/a/cpu.stat"})
    EXPECT_EQ(read(path).throttled_us, Us()) << path;
  EXPECT_EQ(read("/a").throttled_us, Us(5));
}

TEST_F(CgroupsTest, WhereNothingIsMountedNothingIsKnown) {
  throttled("a", 5);
  mounted("");
  EXPECT_EQ(read("/a").throttled_us, Us());
  mounted(mount("/", "tree", "tmpfs tmpfs rw"));
  EXPECT_EQ(read("/a").throttled_us, Us());
  fs::remove(folder_ / "proc/self/mountinfo");
  cgroups_ = std::make_unique<Cgroups>(root_, reads_, false);
  EXPECT_EQ(read("/a").throttled_us, Us());
}

TEST_F(CgroupsTest, AnotherFileSystemThanMountinfoSaysIsNotRead) {
  throttled("a", 5);
  const std::string line = mount("/");
  mounted(line.substr(0, line.find(' ', 6)) + "1" + line.substr(line.find(' ', 6)));
  EXPECT_EQ(read("/a").throttled_us, Us());
}

TEST_F(CgroupsTest, AMountThatALaterOneHidesIsNotTaken) {
  throttled("a", 5);
  mounted(mount("/") + mount("/", "tree", "tmpfs tmpfs rw"));
  EXPECT_EQ(read("/a").throttled_us, Us());
}

TEST_F(CgroupsTest, ALinkLeadsNowhere) {
  throttled("a", 5);
  fs::create_directory_symlink(of("a"), of("link"));
  group("b");
  fs::create_symlink(of("a") / "cpu.stat", of("b") / "cpu.stat");
  mounted(mount("/"));
  EXPECT_EQ(read("/link").throttled_us, Us());
  EXPECT_EQ(read("/b").throttled_us, Us());
}

// In a container the agent's cgroup namespace begins at its own group; the host's hierarchy is mounted as
// well. Here a link stands for the container's own mount.
TEST_F(CgroupsTest, TheHostsHierarchyServesInANamespaceOfItsOwn) {
  throttled("", 0);
  throttled("pods", 1);
  throttled("pods/rank", 20);
  throttled("system", 300);
  throttled("pods/agent", 4000);
  group("pods/other");
  fs::create_directory_symlink(of("pods/agent"), folder_ / "own");
  mounted(mount("/", "own") + mount("/../.."));
  EXPECT_EQ(read({{.pid = 1, .paths = {.unified = "/../rank", .cpu = {}}}}).front().throttled_us, Us(21));
  EXPECT_EQ(read({{.pid = 2, .paths = {.unified = "/../../system", .cpu = {}}}}).front().throttled_us,
            Us(300));
  EXPECT_EQ(read({{.pid = 3, .paths = {.unified = "/", .cpu = {}}}}).front().throttled_us, Us(4001));
  mounted(mount("/../.."));
  EXPECT_EQ(read({{.pid = 1, .paths = {.unified = "/../rank", .cpu = {}}}}).front().throttled_us, Us())
      << "which group that is beside is not known";
  EXPECT_EQ(read({{.pid = 2, .paths = {.unified = "/../../system", .cpu = {}}}}).front().throttled_us,
            Us(300));
  mounted(mount("/", "own"));
  EXPECT_EQ(read({{.pid = 1, .paths = {.unified = "/../rank", .cpu = {}}}}).front().throttled_us, Us());
  EXPECT_EQ(read({{.pid = 3, .paths = {.unified = "/", .cpu = {}}}}).front().throttled_us, Us(4000));
}

TEST_F(CgroupsTest, AUsersCrowdOfGroupsLeavesAnotherUserHis) {
  std::vector<Process> processes;
  throttled("", 1);
  for (pid_t pid = 1; pid <= static_cast<pid_t>(kMaxCgroupsRead) + 10; ++pid) {
    const std::string name = "crowd" + std::to_string(pid);
    throttled(name, 1);
    processes.push_back({.pid = pid, .paths = {.unified = "/" + name, .cpu = {}}, .uid = 1});
  }
  throttled("rank", 2);
  processes.push_back({.pid = 100'000, .paths = {.unified = "/rank", .cpu = {}}, .uid = 2});
  mounted(mount("/"));
  const std::vector<Condition> conditions = read(processes);
  EXPECT_EQ(conditions.back().throttled_us, Us(3));
  EXPECT_EQ(conditions.front().throttled_us, Us(2));
  EXPECT_EQ(cgroups_->dropped(), 12U) << "of 1,024 groups one is the root, and one the rank's";
}

TEST(CgroupsPause, LooksCostHalfAPercentOfACoreUpToFiveSecondsApart) {
  using std::chrono::milliseconds;
  EXPECT_EQ(cgroups_pause(milliseconds(1)), milliseconds(0)) << "each second";
  EXPECT_EQ(cgroups_pause(milliseconds(10)), milliseconds(2000));
  EXPECT_EQ(cgroups_pause(milliseconds(500)), milliseconds(5000));
}

TEST_F(CgroupsTest, ProcessesOfOneGroupShareItsFiguresAndEachHasItsOwnCount) {
  throttled("a", 5);
  throttled("b", 50);
  mounted(mount("/"));
  const CgroupPaths a{.unified = "/a", .cpu = {}}, b{.unified = "/b", .cpu = {}};
  auto both = read({{.pid = 1, .paths = a}, {.pid = 2, .paths = a}});
  EXPECT_EQ(both[0].throttled_us, Us(5));
  EXPECT_EQ(both[1].throttled_us, Us(5));
  both = read({{.pid = 1, .paths = a}, {.pid = 2, .paths = b}});
  EXPECT_EQ(both[0].throttled_us, Us(5));
  EXPECT_EQ(both[1].throttled_us, Us(5));
  EXPECT_EQ(read({{.pid = 2, .paths = b}}).front().throttled_us, Us(5));
  both = read({{.pid = 1, .paths = b}, {.pid = 2, .paths = b}});
  EXPECT_EQ(both[0].throttled_us, Us(50)) << "it was forgotten, and begins with what its group has";
}

}  // namespace
}  // namespace kitty::collector
