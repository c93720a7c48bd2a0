// A process for the scanner to find: a real program, started with an environment of the test's choosing and
// with chosen descriptors, stopped by its own pid when the object goes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace kitty::testing {

class WatchedChild {
 public:
  // `inherited`: descriptors the child shall hold; they keep their numbers.
  WatchedChild(std::vector<std::string> command, std::vector<std::string> environment,
               std::vector<int> inherited = {}) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int fd : inherited)
      posix_spawn_file_actions_adddup2(&actions, fd, fd);  // to itself: drops close-on-exec
    std::vector<char*> argv = pointers(command);
    std::vector<char*> envp = pointers(environment);
    const int error = posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = -1;
      ADD_FAILURE() << "cannot start " << command[0] << ": errno " << error;
    } else if (!environment.empty()) {
      wait_for_environment();
    }
  }
  WatchedChild(const WatchedChild&) = delete;
  WatchedChild& operator=(const WatchedChild&) = delete;
  ~WatchedChild() { stop(); }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void stop() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  // posix_spawn() returns when the child has left this program, which is before /proc shows the new
  // environment: exec_mmap() comes before create_elf_tables() in load_elf_binary() of fs/binfmt_elf.c.
  void wait_for_environment() const {
    const std::string path = "/proc/" + std::to_string(pid_) + "/environ";
    for (int i = 0; i < 10'000; ++i) {
      if (std::ifstream(path).peek() != std::ifstream::traits_type::eof()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << path << " stays empty";
  }
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  }

  pid_t pid_ = -1;
};

inline WatchedChild sleeper(std::vector<std::string> environment, std::vector<int> inherited = {}) {
  return WatchedChild({"sleep", "60"}, std::move(environment), std::move(inherited));
}

}  // namespace kitty::testing
