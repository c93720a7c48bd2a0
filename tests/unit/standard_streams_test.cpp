#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "tests/unit/said_in_child.h"

namespace kitty {
namespace {

using kitty::testing::said_in_child;

// Which of the three are open after `closed` were closed, and what is opened next.
std::string after_closing(std::initializer_list<int> closed) {
  const int held = dup(STDERR_FILENO);
  for (const int stream : closed) close(stream);
  if (const Status opened = open_standard_streams(); !opened) return opened.error().message();
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) != 0) return std::to_string(stream) + " is closed, or closed by exec";
  }
  const int next = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return next > 2 && held > 2 ? "" : "descriptor " + std::to_string(next) + " comes next";
}

TEST(StandardStreams, NothingElseBecomesOneOfThem) {
  for (const auto& closed : {std::initializer_list<int>{}, {0}, {1}, {2}, {0, 2}, {0, 1, 2}})
    EXPECT_EQ(said_in_child([&] { return after_closing(closed); }), "") << closed.size();
}

TEST(StandardStreams, ThoseThatAreOpenStayWhatTheyAre) {
  EXPECT_EQ(said_in_child([]() -> std::string {
              struct stat before{}, after{};
              if (fstat(STDOUT_FILENO, &before) != 0) return "no stdout";
              close(STDIN_FILENO);
              if (!open_standard_streams() || fstat(STDOUT_FILENO, &after) != 0) return "not opened";
              return before.st_ino == after.st_ino && before.st_dev == after.st_dev ? "" : "another file";
            }),
            "");
}

TEST(StandardStreams, WhereThereIsNoDevNull) {
  if (geteuid() != 0) GTEST_SKIP() << "root is missing";
  char folder[] = "/tmp/kitty-streams-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  EXPECT_EQ(said_in_child([&]() -> std::string {
              if (chroot(folder) != 0 || chdir("/") != 0) return "no chroot";
              if (const std::string problem = after_closing({0, 1, 2}); !problem.empty()) return problem;
              return write(STDERR_FILENO, "x", 1) == -1 && errno == EBADF ? "" : "written to";
            }),
            "");
  rmdir(folder);
}

}  // namespace
}  // namespace kitty
