#include "loader/sys.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/kernel_tests.h"

namespace kitty::loader {
namespace {

// Runs `body` in a child and returns its exit status, or -1 where it died of a signal.
int in_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(ObjectName, FitsTheKernel) {
  struct Case {
    const char* name;
    std::string_view input;
    std::string_view want;
  };
  const Case cases[] = {
      {"plain", "owned", "owned"},
      {"leading dot", ".rodata", "rodata"},
      {"only dots", "...", ""},
      {"inner dot", ".rodata.str1.1", "rodata_str1_1"},
      {"dash and space", "a-b c", "a_b_c"},
      {"bytes above 127", "\xc3\xa9", "__"},
      {"empty", "", ""},
      {"fifteen", "abcdefghijklmno", "abcdefghijklmno"},
      {"sixteen", "abcdefghijklmnop", "abcdefghijklmno"},
      {"dots do not count", "..abcdefghijklmnop", "abcdefghijklmno"},
  };
  for (const Case& c : cases) {
    const sys::ObjectName got = sys::object_name(c.input);
    EXPECT_EQ(got.back(), '\0') << c.name;
    EXPECT_EQ(std::string_view(got.data()), c.want) << c.name;
  }
}

TEST(ReadFile, StopsAtItsLimit) {
  const std::string path = ::testing::TempDir() + "kitty_read_file";
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_EQ(sys::read_file(path.c_str(), 5000).value_or("").size(), 5000U);
  const auto over = sys::read_file(path.c_str(), 4999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error(), EFBIG);
  unlink(path.c_str());
  EXPECT_EQ(sys::read_file(path.c_str(), 5000).error(), ENOENT);
  EXPECT_EQ(sys::read_file("/", 5000).error(), EISDIR);
}

TEST(RaiseMemlock, RaisesToTheHardLimitAtLeastAndNeverLowers) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  if (before.rlim_max < 4096) GTEST_SKIP() << "RLIMIT_MEMLOCK's hard limit is below a page";
  EXPECT_EQ(in_child([&] {
              const rlimit low{.rlim_cur = 4096, .rlim_max = before.rlim_max};
              if (setrlimit(RLIMIT_MEMLOCK, &low) != 0) return 2;
              sys::raise_memlock();
              rlimit raised{};
              if (getrlimit(RLIMIT_MEMLOCK, &raised) != 0) return 3;
              if (raised.rlim_cur < before.rlim_max || raised.rlim_max < before.rlim_max) return 4;
              sys::raise_memlock();
              rlimit again{};
              if (getrlimit(RLIMIT_MEMLOCK, &again) != 0) return 5;
              return again.rlim_cur == raised.rlim_cur && again.rlim_max == raised.rlim_max ? 0 : 6;
            }),
            0);
}

sys::Outcome<Fd> tiny_map() {
  return sys::create_map(
      {.type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1, .name = ".tiny.map"});
}

sys::Outcome<Fd> tiny_program(const std::vector<bpf_insn>& insns, std::span<char> log, uint32_t& true_size) {
  return sys::load_program(
      {.type = BPF_PROG_TYPE_RAW_TRACEPOINT, .insns = insns, .license = "GPL", .name = "tiny.program"}, log,
      true_size);
}

TEST(Descriptors, AreNeverStandardStreamsEvenWhenThoseAreClosed) {
  KITTY_NEEDS_KERNEL();
  const auto is_safe = [](const sys::Outcome<Fd>& fd) {
    return fd && fd->get() > STDERR_FILENO && (fcntl(fd->get(), F_GETFD) & FD_CLOEXEC) != 0;
  };
  EXPECT_EQ(in_child([&] {
              for (int fd = 0; fd <= 2; ++fd) close(fd);
              uint32_t true_size = 0;
              const auto map = tiny_map();
              if (!is_safe(map)) return 1;
              const auto program = tiny_program(testing::return_zero(), {}, true_size);
              if (!is_safe(program)) return 2;
              const auto link = sys::open_raw_tracepoint("sys_enter", program->get());
              if (!is_safe(link)) return 3;
              for (int fd = 0; fd <= 2; ++fd) {
                if (fcntl(fd, F_GETFD) != -1) return 4;  // nothing was left behind on the way
              }
              return 0;
            }),
            0);
}

TEST(LoadProgram, SaysHowMuchLogItNeeds) {
  KITTY_NEEDS_KERNEL();
  std::vector<bpf_insn> insns(200, testing::set(1, 7));
  insns.push_back(testing::leave());  // r0 was never written
  std::array<char, 256> small{};
  uint32_t true_size = 0;
  const auto cut = tiny_program(insns, small, true_size);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error(), ENOSPC);
  if (true_size != 0) {
    EXPECT_GT(true_size, small.size());
  }

  std::vector<char> large(1 << 20);
  const auto refused = tiny_program(insns, large, true_size);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), EACCES);
  EXPECT_NE(std::string_view(large.data()).find("R0 !read_ok"), std::string_view::npos) << large.data();
}

TEST(LoadProgram, RefusesMoreInstructionsThanAnAttributeCanCount) {
  uint32_t true_size = 1;
  const bpf_insn one = testing::leave();
  // A span that claims 2^32 instructions; it must be refused before anybody reads them.
  const std::span<const bpf_insn> huge(&one, size_t{1} << 32);
  sys::ProgramLoad load;
  load.type = BPF_PROG_TYPE_RAW_TRACEPOINT;
  load.insns = huge;
  load.license = "GPL";
  const auto fd = sys::load_program(load, {}, true_size);
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error(), E2BIG);
  EXPECT_EQ(true_size, 0U);
}

TEST(ProgramInfo, KnowsWhatWasLoaded) {
  KITTY_NEEDS_KERNEL();
  uint32_t true_size = 0;
  const auto program = tiny_program(testing::return_zero(), {}, true_size);
  ASSERT_TRUE(program) << errno_text(program.error());
  const auto reply = sys::program_info(program->get());
  ASSERT_TRUE(reply) << errno_text(reply.error());
  EXPECT_EQ(reply->info.type, static_cast<uint32_t>(BPF_PROG_TYPE_RAW_TRACEPOINT));
  EXPECT_STREQ(static_cast<const char*>(reply->info.name), "tiny_program");
  EXPECT_EQ(reply->info.xlated_prog_len, 2 * sizeof(bpf_insn));
  EXPECT_GT(reply->known_bytes, offsetof(bpf_prog_info, name));
}

TEST(SystemCalls, ReturnErrnoValues) {
  KITTY_NEEDS_KERNEL();
  constexpr int kNoFd = 1 << 20;
  uint32_t key = 0;
  uint64_t value = 0;
  EXPECT_EQ(sys::lookup_element(kNoFd, &key, &value), EBADF);
  EXPECT_EQ(sys::update_element(kNoFd, &key, &value, 0), EBADF);
  EXPECT_EQ(sys::delete_element(kNoFd, &key), EBADF);
  EXPECT_EQ(sys::next_key(kNoFd, nullptr, &key), EBADF);
  EXPECT_EQ(sys::freeze_map(kNoFd), EBADF);
  EXPECT_FALSE(sys::program_info(kNoFd));  // EBADF, EBADFD in 6.18
  EXPECT_EQ(sys::create_link({.program_fd = kNoFd, .attach_type = BPF_TRACE_RAW_TP}).error(), EBADF);
  EXPECT_EQ(sys::open_raw_tracepoint("sys_enter", kNoFd).error(), EBADF);
  EXPECT_EQ(sys::set_event_program(kNoFd, kNoFd), EBADF);
  EXPECT_EQ(sys::enable_event(kNoFd), EBADF);
  EXPECT_EQ(sys::create_map({.type = 100'000, .key_size = 4, .value_size = 4, .max_entries = 1, .name = "x"})
                .error(),
            EINVAL);
  constexpr uint32_t kNoPmu = 0x7fffffff;
  EXPECT_EQ(sys::open_kprobe({.pmu_type = kNoPmu, .function = "nothing"}).error(), ENOENT);
}

}  // namespace
}  // namespace kitty::loader
