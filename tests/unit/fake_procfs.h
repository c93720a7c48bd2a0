// A directory that looks like /proc, with processes of the test's making: as many, and of as many users, as a
// case needs. Removed with the object.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "procfs/file.h"

namespace kitty::testing {

struct FakeProcess {
  pid_t pid = 0;
  pid_t parent = 1;
  uint64_t start_time_ticks = 1000;
  uid_t uid = 0;
  std::vector<std::string> environment = {"KITTY_WATCH=1"};
  std::vector<uint64_t> sockets = {};  // inodes
};

class FakeProcfs {
 public:
  FakeProcfs() {
    std::string path = (std::filesystem::temp_directory_path() / "kitty-procfs-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "cannot make " << path;
    path_ = path;
    auto root = procfs::open_root(path.c_str());
    if (root) root_ = std::move(*root);
  }
  FakeProcfs(const FakeProcfs&) = delete;
  FakeProcfs& operator=(const FakeProcfs&) = delete;
  ~FakeProcfs() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] int root() const { return root_.get(); }

  // Makes the process, or what has become of it.
  void put(const FakeProcess& process) const {
    const std::filesystem::path directory = path_ / std::to_string(process.pid);
    std::filesystem::remove_all(directory / "fd");  // the directory itself stays: it may be held
    std::filesystem::create_directories(directory / "fd");
    std::filesystem::create_directories(directory / "ns");
    std::filesystem::create_directories(directory / "net");
    std::ofstream(directory / "stat")
        << process.pid << " (python3) S " << process.parent << " 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 "
        << process.start_time_ticks << " 8192 5\n";
    std::ofstream(directory / "status") << "Name:\tpython3\nUid:\t" << process.uid << "\t0\t0\t0\n";
    std::ofstream(directory / "cgroup") << "0::/\n";
    for (const char* table : {"net/tcp", "net/tcp6"}) std::ofstream(directory / table) << "  sl\n";
    std::error_code exists;
    std::filesystem::create_symlink("net:[4026531840]", directory / "ns/net", exists);
    std::ofstream environment(directory / "environ");
    for (const std::string& entry : process.environment) environment << entry << '\0';
    int fd = 3;
    for (const uint64_t inode : process.sockets) {
      std::filesystem::create_symlink("socket:[" + std::to_string(inode) + "]",
                                      directory / "fd" / std::to_string(fd++));
    }
  }
  void remove(pid_t pid) const { std::filesystem::remove_all(path_ / std::to_string(pid)); }

 private:
  std::filesystem::path path_;
  Fd root_;
};

}  // namespace kitty::testing
