#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "procfs/file.h"
#include "procfs/process.h"
#include "procfs/status.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

const std::string kBefore =
    "Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t42\nNgid:\t0\nPid:\t42\nPPid:\t1\n"
    "TracerPid:\t0\n";

struct Case {
  const char* name;
  std::string text;
  std::optional<uid_t> uid;
};

const Case kCases[] = {
    {"Plain", kBefore + "Uid:\t1000\t1001\t1002\t1003\nGid:\t5\t5\t5\t5\n", 1000},
    {"SetUserId", kBefore + "Uid:\t1000\t0\t0\t0\n", 1000},
    {"Root", kBefore + "Uid:\t0\t0\t0\t0\n", 0},
    {"Largest", kBefore + "Uid:\t4294967295\t0\t0\t0\n", 4294967295},
    {"NameWithTheLineInIt", "Name:\tx\\nUid:\\t7\\t\n" + kBefore + "Uid:\t1000\t0\t0\t0\n", 1000},
    {"NameThatIsTheLine", "Name:\tUid:\t7\n" + kBefore + "Uid:\t1000\t0\t0\t0\n", 1000},
    {"FirstLine", "Uid:\t1000\t0\t0\t0\n", 1000},
    {"TooLarge", kBefore + "Uid:\t4294967296\t0\t0\t0\n", std::nullopt},
    {"Negative", kBefore + "Uid:\t-1\t0\t0\t0\n", std::nullopt},
    {"NotANumber", kBefore + "Uid:\tx\t0\t0\t0\n", std::nullopt},
    {"Cut", kBefore + "Uid:\t10", std::nullopt},
    {"NoValue", kBefore + "Uid:\t", std::nullopt},
    {"NoLine", kBefore, std::nullopt},
    {"Empty", "", std::nullopt},
};

class RealUidTest : public testing::TestWithParam<Case> {};

TEST_P(RealUidTest, Parses) {
  const GuardPage page(GetParam().text);
  EXPECT_EQ(parse_real_uid(page.text()), GetParam().uid);
}

INSTANTIATE_TEST_SUITE_P(Status, RealUidTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(ReadRealUid, OfThisProcess) {
  const auto root = open_root("/proc");
  ASSERT_TRUE(root);
  const auto self = ProcessHandle::open(root->get(), getpid());
  ASSERT_TRUE(self);
  std::array<char, kStatusBufferBytes> buffer;
  const auto uid = self->read_real_uid(buffer);
  ASSERT_TRUE(uid);
  EXPECT_EQ(*uid, getuid());
}

}  // namespace
}  // namespace kitty::procfs
