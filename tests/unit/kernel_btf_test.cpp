#include "loader/kernel_btf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

namespace kitty::loader {
namespace {

class BtfFile : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  const std::string path_ = ::testing::TempDir() + "kitty_kernel_btf";
};

TEST_F(BtfFile, MappedAndReadAreTheSame) {
  std::ifstream file(kKernelBtfPath, std::ios::binary);
  if (!file) GTEST_SKIP() << "no " << kKernelBtfPath;
  write(std::string(std::istreambuf_iterator<char>(file), {}));

  auto running = KernelBtf::of_running_kernel();
  ASSERT_TRUE(running) << running.error().message();
  const auto copied = KernelBtf::from_file(path_);
  ASSERT_TRUE(copied) << copied.error().message();
  const KernelBtf moved = std::move(*running);
  EXPECT_GT(moved.btf().type_count(), 1000U);
  EXPECT_EQ(moved.btf().type_count(), copied->btf().type_count());
  for (const auto& [kind, name] : {std::pair<uint32_t, const char*>{BTF_KIND_STRUCT, "task_struct"},
                                   {BTF_KIND_STRUCT, "sock"},
                                   {BTF_KIND_FUNC, "tcp_sendmsg"}}) {
    const auto id = moved.btf().find(kind, name);
    EXPECT_TRUE(id) << name;
    EXPECT_EQ(id, copied->btf().find(kind, name)) << name;
  }
}

TEST_F(BtfFile, AbsentIsAnErrorWithItsErrno) {
  const auto absent = KernelBtf::from_file(path_);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().err, ENOENT);
  EXPECT_EQ(absent.error().object, path_);
}

TEST_F(BtfFile, ElfIsRefusedWithTheWayOut) {
  write(std::string("\x7f") + "ELF" + std::string(100, '\0'));
  const auto elf = KernelBtf::from_file(path_);
  ASSERT_FALSE(elf);
  EXPECT_NE(elf.error().detail.find("objcopy"), std::string::npos) << elf.error().message();
}

TEST_F(BtfFile, FifosDevicesAndHugeFilesAreRefusedUnread) {
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // nobody writes: opening it as usual would never return
  for (const std::string& path :
       {path_, std::string("/dev/zero"), std::string("/dev"), std::string("/dev/tty")}) {
    const auto refused = KernelBtf::from_file(path);
    ASSERT_FALSE(refused) << path;
    EXPECT_NE(refused.error().message().find(path), std::string::npos) << refused.error().message();
    if (path == "/dev/tty" && refused.error().err != 0) continue;  // no terminal here
    EXPECT_NE(refused.error().detail.find("not a regular file"), std::string::npos)
        << refused.error().message();
  }
  unlink(path_.c_str());
  write("");
  ASSERT_EQ(truncate(path_.c_str(), off_t{400} << 20), 0);  // takes no room: all of it is a hole
  const auto huge = KernelBtf::from_file(path_);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().err, EFBIG);
  EXPECT_NE(huge.error().detail.find("400 MiB"), std::string::npos) << huge.error().message();
}

TEST_F(BtfFile, GarbageNamesTheFile) {
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(1000, '\xff')}) {
    write(bytes);
    const auto garbage = KernelBtf::from_file(path_);
    ASSERT_FALSE(garbage) << bytes.size();
    EXPECT_NE(garbage.error().message().find(path_), std::string::npos) << garbage.error().message();
  }
}

}  // namespace
}  // namespace kitty::loader
