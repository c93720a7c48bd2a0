// A log that nobody reads: what is written to stderr while stderr takes nothing.
#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "tests/unit/said_in_child.h"

namespace kitty {
namespace {

using kitty::testing::said_in_child;

constexpr int kMostLines = 100'000;  // some MiB: more than any buffer between two programs holds

// A pair of descriptors, the second of which becomes stderr.
struct Ends {
  int reader = -1;
  int writer = -1;
};

Ends make_pipe() {
  int ends[2];
  return pipe(ends) == 0 ? Ends{ends[0], ends[1]} : Ends{};
}

Ends make_sockets() {
  int ends[2];
  return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 ? Ends{ends[0], ends[1]} : Ends{};
}

Ends make_terminal() {
  const int reader = posix_openpt(O_RDWR | O_NOCTTY);
  if (reader < 0 || grantpt(reader) != 0 || unlockpt(reader) != 0) return {};
  char name[128];
  if (ptsname_r(reader, name, sizeof name) != 0) return {};
  return {reader, open(name, O_WRONLY | O_NOCTTY)};
}

// Of all that lies there, without waiting for more.
std::string drain(int reader) {
  std::string text;
  char buffer[65536];
  pollfd there{.fd = reader, .events = POLLIN, .revents = 0};
  while (poll(&there, 1, 0) == 1) {
    const ssize_t n = read(reader, buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

// In a child whose stderr is `ends.writer`: lines until some are dropped, and again once all has been read.
std::string fill_and_drain(const Ends& ends, bool few_descriptors) {
  if (ends.writer < 0) return "no ends";
  if (dup2(ends.writer, STDERR_FILENO) != STDERR_FILENO) return "no stderr";
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  const rlimit none_left{.rlim_cur = 3, .rlim_max = 3};
  if (few_descriptors && setrlimit(RLIMIT_NOFILE, &none_left) != 0) return "no limit";
  log::never_wait();
  if (fcntl(STDERR_FILENO, F_GETFL) != flags) return "other programs' flags were changed";
  int lines = 0;
  while (log::lines_dropped() == 0 && lines < kMostLines) {
    ++lines;
    log::info("filling", {{"line", std::to_string(lines)}});
  }
  if (log::lines_dropped() != 1) return "none dropped of " + std::to_string(lines);
  log::info("one more");
  if (log::lines_dropped() != 2) return "one more is taken";
  if (drain(ends.reader).find("msg=filling line=1") == std::string::npos) return "the first line is missing";
  log::info("after");
  if (log::lines_dropped() != 2) return "dropped after it was read";
  const std::string after = drain(ends.reader);
  // On a line of its own, whatever was cut before it.
  if (after.find("msg=after") == std::string::npos) return "the line after it is missing: " + after;
  const size_t begin = after.rfind('\n', after.find("msg=after"));
  if (!after.substr(begin == std::string::npos ? 0 : begin + 1).starts_with("ts="))
    return "amid a line: " + after;
  return {};
}

TEST(LogThatNobodyReads, CostsLinesAndNoTime) {
  struct Case {
    const char* name;
    Ends (*make)();
    bool few_descriptors;
  };
  const Case cases[] = {
      {"a pipe", make_pipe, false},
      {"a pipe that cannot be opened again", make_pipe, true},
      {"a socket", make_sockets, false},
      {"a terminal", make_terminal, false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(said_in_child([&] { return fill_and_drain(c.make(), c.few_descriptors); }), "") << c.name;
  }
}

TEST(LogThatNobodyReads, ALostReaderCostsLines) {
  EXPECT_EQ(said_in_child([]() -> std::string {
              const Ends ends = make_pipe();
              if (dup2(ends.writer, STDERR_FILENO) != STDERR_FILENO) return "no stderr";
              close(ends.reader);
              (void)signal(SIGPIPE, SIG_IGN);
              log::never_wait();
              log::info("lost");
              return std::to_string(log::lines_dropped());
            }),
            "1");
}

}  // namespace
}  // namespace kitty
