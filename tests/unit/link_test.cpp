#include "loader/link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loader/kernel_btf.h"
#include "tests/unit/kernel_tests.h"

namespace kitty::loader {
namespace {

TEST(ParsePmuType, IsANumber) {
  struct Case {
    const char* name;
    std::string_view text;
    int64_t want;  // -1: an error
  };
  const Case cases[] = {
      {"Linux 6.1", "6\n", 6},  {"Linux 6.12", "8\n", 8},
      {"no newline", "8", 8},   {"empty", "", -1},
      {"newline", "\n", -1},    {"word", "kprobe\n", -1},
      {"trailing", "8 \n", -1}, {"two lines", "8\n9\n", -1},
      {"sign", "-1\n", -1},     {"overflow", "4294967296\n", -1},
  };
  for (const Case& c : cases) {
    const auto got = parse_pmu_type(c.text);
    EXPECT_EQ(got ? static_cast<int64_t>(*got) : -1, c.want) << c.name;
  }
}

// Two descriptors whose closing can be observed from their other ends: closing queues a real-time signal
// there, and the kernel delivers those in the order they were queued, each with its descriptor (fcntl(2),
// F_SETSIG).
class ClosingOrder : public ::testing::Test {
 protected:
  struct Watched {
    Fd end;       // the one to close
    Fd observer;  // signals when it is
  };

  void SetUp() override {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGRTMIN);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &signals_, &previous_), 0);
  }
  void TearDown() override {
    while (next_closed() != -1) {
    }
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  static Watched watched() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_EQ(fcntl(ends[1], F_SETOWN, getpid()), 0);
    EXPECT_EQ(fcntl(ends[1], F_SETSIG, SIGRTMIN), 0);
    EXPECT_EQ(fcntl(ends[1], F_SETFL, O_ASYNC), 0);
    return {Fd(ends[0]), Fd(ends[1])};
  }
  // Whose other end was closed next; -1 when none was.
  int next_closed() {
    siginfo_t info{};
    const timespec now{};
    return sigtimedwait(&signals_, &info, &now) == SIGRTMIN ? info.si_fd : -1;
  }

  sigset_t signals_{};
  sigset_t previous_{};
};

TEST_F(ClosingOrder, LinkGoesBeforeItsPerfEvent) {
  Watched link_fd = watched();
  Watched perf = watched();
  {
    const Link link(std::move(link_fd.end), std::move(perf.end), AttachMethod::link);
  }
  EXPECT_EQ(next_closed(), link_fd.observer.get());
  EXPECT_EQ(next_closed(), perf.observer.get());
}

TEST_F(ClosingOrder, AlsoWhenAnotherLinkTakesItsPlace) {
  Watched link_fd = watched();
  Watched perf = watched();
  Watched second_link = watched();
  Watched second_perf = watched();
  Link link(std::move(link_fd.end), std::move(perf.end), AttachMethod::link);
  link = Link(std::move(second_link.end), std::move(second_perf.end), AttachMethod::perf_ioctl);
  EXPECT_EQ(next_closed(), link_fd.observer.get());
  EXPECT_EQ(next_closed(), perf.observer.get());
  EXPECT_EQ(next_closed(), -1);
  EXPECT_TRUE(link.attached());
  EXPECT_EQ(link.method(), AttachMethod::perf_ioctl);

  Link& same = link;
  link = std::move(same);
  EXPECT_EQ(next_closed(), -1);
  EXPECT_TRUE(link.attached());

  link.detach();
  EXPECT_FALSE(link.attached());
  EXPECT_EQ(next_closed(), second_link.observer.get());
  EXPECT_EQ(next_closed(), second_perf.observer.get());
}

LinkedProgram returning_zero(std::string section) {
  LinkedProgram program;
  program.name = "tiny";
  program.section = std::move(section);
  program.insns = testing::return_zero();
  return program;
}

class Attaching : public ::testing::Test {
 protected:
  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    auto kernel = KernelBtf::of_running_kernel();
    if (kernel) kernel_ = std::move(*kernel);
  }
  Result<Program> load(const std::string& section) const {
    ProgramOptions options;
    options.license = "GPL";
    if (kernel_) options.kernel_btf = &kernel_->btf();
    return Program::load(returning_zero(section), options);
  }

  // Checks that system calls make the program run, detaches, and checks that they no longer do.
  static void runs_only_while_attached(const Program& program, Result<Link> attached_link) {
    const auto stats = enable_run_stats();
    ASSERT_TRUE(stats) << stats.error().message();
    constexpr uint64_t kCalls = 1000;
    {
      ASSERT_TRUE(attached_link) << attached_link.error().message();
      const Link link = std::move(*attached_link);
      for (uint64_t i = 0; i < kCalls; ++i) close(open("/dev/null", O_RDONLY | O_CLOEXEC));
      const auto attached = program.run_stats();
      ASSERT_TRUE(attached) << attached.error().message();
      EXPECT_GE(attached->run_count, kCalls);
      EXPECT_GT(attached->run_time_ns, 0U);
    }
    // Kernels may finish detaching a moment after the close, so: it stops within seconds, however many calls
    // are made.
    uint64_t before = 0;
    uint64_t after = 1;
    for (int attempt = 0; attempt < 50 && before != after; ++attempt) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      before = program.run_stats().value_or(RunStats{}).run_count;
      for (uint64_t i = 0; i < kCalls; ++i) close(open("/dev/null", O_RDONLY | O_CLOEXEC));
      after = program.run_stats().value_or(RunStats{}).run_count;
    }
    EXPECT_EQ(before, after) << "still running though detached";
    EXPECT_GE(after, kCalls);
  }

  std::optional<KernelBtf> kernel_;
};

TEST_F(Attaching, RawTracepoint) {
  const auto program = load("raw_tp/sys_enter");
  ASSERT_TRUE(program) << program.error().message();
  runs_only_while_attached(*program, Link::attach(*program));
  const auto link = Link::attach(*program);
  ASSERT_TRUE(link) << link.error().message();
  EXPECT_EQ(link->method(), AttachMethod::raw_tracepoint);
}

TEST_F(Attaching, TracepointWithBtf) {
  if (!kernel_) GTEST_SKIP() << "no /sys/kernel/btf/vmlinux";
  const auto program = load("tp_btf/sys_enter");
  ASSERT_TRUE(program) << program.error().message();
  runs_only_while_attached(*program, Link::attach(*program));
}

TEST_F(Attaching, AbsentTracepointIsNamed) {
  const auto program = load("raw_tp/kitty_no_such_point");
  ASSERT_TRUE(program) << program.error().message();
  const auto link = Link::attach(*program);
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().message(),
            "attach 'raw_tp/kitty_no_such_point': No such file or directory: this kernel has no tracepoint "
            "kitty_no_such_point");
}

// Where the kernel has trampolines it works; where it, or a policy of the host, refuses, the refusal must
// come with a reason.
TEST_F(Attaching, FunctionEntry) {
  if (!kernel_) GTEST_SKIP() << "no /sys/kernel/btf/vmlinux";
  const auto program = load("fentry/do_sys_openat2");
  if (!program) {
    EXPECT_NE(program.error().err, 0);
    EXPECT_EQ(program.error().object, "tiny");
    EXPECT_FALSE(program.error().detail.empty());
    GTEST_SKIP() << program.error().message();
  }
  auto link = Link::attach(*program);
  if (!link) {
    EXPECT_NE(link.error().err, 0);
    EXPECT_EQ(link.error().object, "fentry/do_sys_openat2");
    EXPECT_FALSE(link.error().detail.empty()) << link.error().message();
    GTEST_SKIP() << link.error().message();
  }
  runs_only_while_attached(*program, std::move(link));
}

TEST_F(Attaching, Kprobe) {
  const auto program = load("kprobe/do_sys_openat2");
  ASSERT_TRUE(program) << program.error().message();
  if (access("/sys/bus/event_source/devices/kprobe/type", F_OK) != 0) {
    const auto link = Link::attach(*program);
    ASSERT_FALSE(link);
    EXPECT_EQ(link.error().object, "kprobe/do_sys_openat2");
    EXPECT_NE(link.error().detail.find("this kernel has no kprobes"), std::string::npos)
        << link.error().message();
    GTEST_SKIP() << link.error().message();
  }
  runs_only_while_attached(*program, Link::attach(*program));
}

TEST_F(Attaching, KprobeOnAnAbsentFunction) {
  if (access("/sys/bus/event_source/devices/kprobe/type", F_OK) != 0) GTEST_SKIP() << "no kprobe PMU";
  const auto program = load("kprobe/kitty_no_such_function");
  ASSERT_TRUE(program) << program.error().message();
  const auto link = Link::attach(*program);
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().message(),
            "attach 'kprobe/kitty_no_such_function': No such file or directory: this kernel has no symbol "
            "kitty_no_such_function: inlined or absent");
}

TEST_F(Attaching, ProgramOutlivesItsDescriptorWhileLinked) {
  std::vector<Map> maps;
  auto map = Map::create(testing::counter_map());
  ASSERT_TRUE(map) << map.error().message();
  maps.push_back(std::move(*map));
  std::optional<Link> link;
  {
    ProgramOptions options;
    options.maps = maps;
    options.license = "GPL";
    const auto program = Program::load(testing::counting_program("raw_tp/sys_enter"), options);
    ASSERT_TRUE(program) << program.error().message();
    auto attached = Link::attach(*program);
    ASSERT_TRUE(attached) << attached.error().message();
    link = std::move(*attached);
  }
  const uint32_t key = 0;
  std::array<uint64_t, 2> before{};
  std::array<uint64_t, 2> after{};
  ASSERT_EQ(maps[0].lookup(key, before).value_or(false), true);
  for (int i = 0; i < 1000; ++i) getppid();
  ASSERT_EQ(maps[0].lookup(key, after).value_or(false), true);
  EXPECT_GE(after[1] - before[1], 1000U);
}

}  // namespace
}  // namespace kitty::loader
