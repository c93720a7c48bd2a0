// iter/task_file programs made by hand, run over processes of the test's own.
#include "loader/iterator.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loader/explain.h"
#include "loader/kernel_btf.h"
#include "loader/link.h"
#include "tests/unit/kernel_tests.h"
#include "tests/unit/watched_child.h"

namespace kitty::loader {
namespace {

using kitty::testing::sleeper;
using kitty::testing::WatchedChild;
using testing::insn;

constexpr uint8_t kLoad64 = BPF_LDX | BPF_MEM | BPF_DW;
constexpr uint8_t kCopy = BPF_ALU64 | BPF_MOV | BPF_X;
constexpr size_t kRecordBytes = 16;

// Writes a record for each descriptor: its number, and kMark. What the verifier lets a program read stands in
// the context of bpf_iter_task_file (kernel/bpf/task_iter.c): meta, task, fd, file; meta begins with the
// seq_file.
constexpr int32_t kMark = 0x6b697474;
LinkedProgram listing_program() {
  LinkedProgram program;
  program.name = "list_fds";
  program.section = "iter/task_file";
  program.insns = {
      insn(kLoad64, 2, 1, 24, 0),                         // r2 = file
      insn(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 9, 0),        // none: the end of the run
      insn(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 16, 0),       // r3 = fd
      insn(BPF_STX | BPF_MEM | BPF_DW, 10, 3, -16, 0),    // record[0] = fd
      insn(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, kMark),  // record[1] = kMark
      insn(kLoad64, 1, 1, 0, 0),                          // r1 = meta
      insn(kLoad64, 1, 1, 0, 0),                          // r1 = meta->seq
      insn(kCopy, 2, 10, 0, 0),                           // r2 = record
      insn(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -16),    //
      testing::set(3, kRecordBytes),                      //
      testing::call(BPF_FUNC_seq_write),                  //
      testing::set(0, 0),                                 //
      testing::leave(),                                   //
  };
  return program;
}

class IteratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KITTY_NEEDS_KERNEL();
    auto kernel = KernelBtf::of_running_kernel();
    if (!kernel) GTEST_SKIP() << kernel.error().message();
    if (!kernel->btf().find(BTF_KIND_FUNC, "bpf_iter_task_file")) {
      GTEST_SKIP() << "this kernel has no iterator task_file (Linux 5.8)";
    }
    auto program =
        Program::load(listing_program(), {.maps = {}, .license = "GPL", .kernel_btf = &kernel->btf()});
    ASSERT_TRUE(program) << program.error().message();
    program_ = std::move(*program);
    const auto run = Iterator::start(*program_, static_cast<uint32_t>(getpid()));
    const HostFacts host = read_host_facts();
    const bool must_run = host.kernel_major > 6 || (host.kernel_major == 6 && host.kernel_minor >= 1);
    if (!run && !must_run) GTEST_SKIP() << run.error().message();
    ASSERT_TRUE(run) << run.error().message();
  }

  // The descriptors of `pid` as the iterator tells them, through a buffer of `buffer_bytes`.
  std::vector<uint64_t> descriptors(pid_t pid, size_t buffer_bytes = 4096) {
    auto run = Iterator::start(*program_, static_cast<uint32_t>(pid));
    EXPECT_TRUE(run) << run.error().message();
    std::vector<std::byte> bytes;
    std::vector<std::byte> buffer(buffer_bytes);
    for (;;) {
      const auto count = run->read(buffer);
      EXPECT_TRUE(count) << count.error().message();
      if (!count || *count == 0) break;
      bytes.insert(bytes.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    EXPECT_EQ(bytes.size() % kRecordBytes, 0U);
    std::vector<uint64_t> numbers;
    for (size_t at = 0; bytes.size() - at >= kRecordBytes; at += kRecordBytes) {
      std::array<uint64_t, 2> record{};
      std::memcpy(record.data(), bytes.data() + at, sizeof record);
      EXPECT_EQ(record[1], uint64_t{kMark}) << "record at byte " << at << " is not whole";
      numbers.push_back(record[0]);
    }
    return numbers;
  }

  std::optional<Program> program_;
};

std::vector<int> open_many(size_t count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<int> fds;
  for (size_t i = 0; i < count; ++i) fds.push_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  return fds;
}

TEST_F(IteratorTest, VisitsTheDescriptorsOfOneProcessAlone) {
  const Fd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd second(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const WatchedChild one = sleeper({}, {first.get()});
  const WatchedChild other = sleeper({}, {first.get(), second.get()});
  const auto number = [](const Fd& fd) { return static_cast<uint64_t>(fd.get()); };
  const auto of_one = descriptors(one.pid());
  EXPECT_EQ(std::ranges::count(of_one, number(first)), 1);
  EXPECT_EQ(std::ranges::count(of_one, number(second)), 0);
  const auto of_other = descriptors(other.pid());
  EXPECT_EQ(std::ranges::count(of_other, number(first)), 1) << "once: no other process's";
  EXPECT_EQ(std::ranges::count(of_other, number(second)), 1);
}

// More records than the kernel's buffer of 32 KiB holds: each comes once and whole, whatever the reader's
// buffer.
TEST_F(IteratorTest, RecordsSurviveEveryBufferSize) {
  constexpr size_t kMany = 3000;
  const std::vector<int> fds = open_many(kMany);
  if (fds.back() < 0) {
    for (const int fd : fds) close(fd);
    GTEST_SKIP() << "fewer than " << kMany << " descriptors allowed (RLIMIT_NOFILE)";
  }
  for (const size_t buffer_bytes : {size_t{16}, size_t{24}, size_t{4096}, size_t{65536}}) {
    const auto numbers = descriptors(getpid(), buffer_bytes);
    EXPECT_TRUE(std::ranges::is_sorted(numbers)) << buffer_bytes;
    EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end()) << buffer_bytes << ": a record came twice";
    for (const int fd : fds) {
      ASSERT_TRUE(std::ranges::binary_search(numbers, static_cast<uint64_t>(fd)))
          << buffer_bytes << ": descriptor " << fd << " is missing";
    }
  }
  for (const int fd : fds) close(fd);
}

TEST_F(IteratorTest, AProcessThatIsGoneHasNone) {
  WatchedChild child = sleeper({});
  const pid_t pid = child.pid();
  EXPECT_FALSE(descriptors(pid).empty());
  child.stop();
  EXPECT_TRUE(descriptors(pid).empty());
}

TEST_F(IteratorTest, NothingStaysOpen) {
  const auto before = descriptors(getpid());
  for (int i = 0; i < 10; ++i) (void)descriptors(getpid());
  EXPECT_EQ(descriptors(getpid()), before);
}

TEST_F(IteratorTest, NeedsAProcessAndAnIterator) {
  const auto of_all = Iterator::start(*program_, 0);
  ASSERT_FALSE(of_all) << "0 would visit every task";
  EXPECT_EQ(of_all.error().err, EINVAL);
  LinkedProgram plain;
  plain.name = "plain";
  plain.section = "raw_tp/sys_enter";
  plain.insns = testing::return_zero();
  const auto other = Program::load(plain, {.maps = {}, .license = "GPL"});
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_FALSE(Iterator::start(*other, static_cast<uint32_t>(getpid())));
  const auto link = Link::attach(*program_);
  ASSERT_FALSE(link);
  EXPECT_NE(link.error().message().find("iter/task_file"), std::string::npos) << link.error().message();
}

// As a kernel would that takes the question and does not heed it: the iterator of all maps knows of no
// process.
TEST_F(IteratorTest, AnIteratorThatIgnoresTheProcessIsNotRun) {
  const auto kernel = KernelBtf::of_running_kernel();
  ASSERT_TRUE(kernel);
  LinkedProgram maps;
  maps.name = "maps";
  maps.section = "iter/bpf_map";
  maps.insns = testing::return_zero();
  const auto program = Program::load(maps, {.maps = {}, .license = "GPL", .kernel_btf = &kernel->btf()});
  ASSERT_TRUE(program) << program.error().message();
  const auto run = Iterator::start(*program, static_cast<uint32_t>(getpid()));
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().err, E2BIG);
}

// Where one process cannot be visited alone, none is: a kernel that ignored the question would show every
// task's descriptors.
TEST(IteratorRefusal, KernelsBefore61AreToldFromTheErrnoAlone) {
  KITTY_NEEDS_KERNEL();
  auto kernel = KernelBtf::of_running_kernel();
  if (!kernel) GTEST_SKIP() << kernel.error().message();
  const auto program =
      Program::load(listing_program(), {.maps = {}, .license = "GPL", .kernel_btf = &kernel->btf()});
  if (!program) GTEST_SKIP() << program.error().message();
  const auto run = Iterator::start(*program, static_cast<uint32_t>(getpid()));
  if (run) GTEST_SKIP() << "this kernel visits one process";
  EXPECT_NE(run.error().message().find("Linux 6.1 can"), std::string::npos) << run.error().message();
  EXPECT_TRUE(run.error().err == E2BIG || run.error().err == EINVAL) << run.error().message();
  std::printf("refused: %s\n", run.error().message().c_str());
}

TEST(IteratorRefusal, IsExplained) {
  HostFacts host;
  host.effective_capabilities = ~uint64_t{0};
  Refusal refusal{.step = Step::iterate, .err = E2BIG, .kind = HookKind::iter, .target = "task_file"};
  EXPECT_EQ(explain(refusal, host),
            "this kernel cannot visit the task_file of one process alone (Linux 6.1 can)");
  refusal.err = EINVAL;
  EXPECT_EQ(explain(refusal, host),
            "this kernel cannot visit the task_file of one process alone (Linux 6.1 can)");
  refusal.step = Step::load_program;
  refusal.log = "12: (85) call unknown#162\ninvalid func unknown#162\nprocessed 12 insns\n";
  EXPECT_EQ(
      explain(refusal, host),
      "this kernel is older than helper function 162 (include/uapi/linux/bpf.h), which the program calls");
}

TEST(IteratorRefusal, AnUnknownIteratorIsNamed) {
  KITTY_NEEDS_KERNEL();
  auto kernel = KernelBtf::of_running_kernel();
  if (!kernel) GTEST_SKIP() << kernel.error().message();
  LinkedProgram program = listing_program();
  program.section = "iter/kitty_no_such";
  const auto loaded = Program::load(program, {.maps = {}, .license = "GPL", .kernel_btf = &kernel->btf()});
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message().find("iterator kitty_no_such is not in the kernel's BTF"),
            std::string::npos)
      << loaded.error().message();
  const auto without = Program::load(listing_program(), {.maps = {}, .license = "GPL"});
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message().find("needs the kernel's BTF"), std::string::npos);
}

}  // namespace
}  // namespace kitty::loader
