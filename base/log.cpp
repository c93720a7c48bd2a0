#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "base/utc.h"
#include "base/utf8.h"

namespace kitty::log {

namespace {

std::atomic<Level> g_level{Level::info};

// How stderr is written to.
enum class Way {
  waiting,  // as it comes
  own,      // through another open file description of the same pipe or terminal, which does not block
  sending,  // a socket: no call waits that is told so
  polling,  // whoever else writes there may be faster than the look at whether it takes something
};
Way g_way = Way::waiting;  // set before there are threads
int g_fd = STDERR_FILENO;  // likewise
std::atomic<uint64_t> g_dropped{0};
std::atomic<bool> g_cut{false};  // the latest line was taken in part
std::mutex g_polling;

constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warn", "error"};

// logfmt quotes a value that holds a space, a quote, an equals sign or a control character, or is empty. What
// steers a terminal, and what is no UTF-8, becomes '?'.
void append_value(std::string& out, std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte >= 0x7f || c == '"' || c == '=' || c == '\\') plain = false;
  }
  if (plain) {
    out += value;
    return;
  }
  out += '"';
  while (!value.empty()) {
    const size_t bytes = code_point_bytes(value);
    const std::string_view one = value.substr(0, std::max<size_t>(bytes, 1));
    value.remove_prefix(one.size());
    if (one == "\n") {
      out += "\\n";
    } else if (bytes == 0 || is_unprintable(one)) {
      out += '?';
    } else {
      if (one == "\"" || one == "\\") out += '\\';
      out += one;
    }
  }
  out += '"';
}

ssize_t write_polling(std::string_view text) {
  const std::scoped_lock lock(g_polling);
  pollfd stream{.fd = g_fd, .events = POLLOUT, .revents = 0};
  if (poll(&stream, 1, 0) != 1 || (stream.revents & POLLOUT) == 0) return -1;
  // A pipe that is ready takes so much at once (pipe(7)).
  return ::write(g_fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
}

ssize_t write_some(std::string_view text) {
  switch (g_way) {
    case Way::sending:
      return ::send(g_fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case Way::polling:
      return write_polling(text);
    case Way::waiting:
    case Way::own:
      break;
  }
  return ::write(g_fd, text.data(), text.size());
}

void emit(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char milliseconds[32];
  snprintf(milliseconds, sizeof milliseconds, ".%03ldZ ", now.tv_nsec / 1000000);
  std::string line = "ts=" + utc_text(now.tv_sec) + milliseconds;
  line += format_line(level, message, fields);
  line += '\n';
  print(line);
}

}  // namespace

std::optional<Level> parse_level(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<Level>(i);
  }
  return std::nullopt;
}

void set_level(Level level) { g_level.store(level, std::memory_order_relaxed); }

void never_wait() {
  struct stat status{};
  if (fstat(STDERR_FILENO, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) {
    g_way = Way::sending;
  } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    // Whoever may not open it again, or has no /proc, looks before he writes.
    const int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    g_way = fd >= 0 ? Way::own : Way::polling;
    if (fd >= 0) g_fd = fd;
  }
}

uint64_t lines_dropped() { return g_dropped.load(std::memory_order_relaxed); }

void print(std::string_view text) {
  // What follows half a line shall not be taken for the rest of it.
  if (g_cut.load(std::memory_order_relaxed) && write_some("\n") == 1)
    g_cut.store(false, std::memory_order_relaxed);
  const ssize_t written = write_some(text);
  if (written == static_cast<ssize_t>(text.size())) return;
  g_dropped.fetch_add(1, std::memory_order_relaxed);
  if (written > 0) g_cut.store(true, std::memory_order_relaxed);
}

std::string format_line(Level level, std::string_view message, std::initializer_list<Field> fields) {
  std::string line = "level=";
  line += kNames[static_cast<size_t>(level)];
  line += " msg=";
  append_value(line, message);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

void debug(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::debug, message, fields);
}
void info(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::info, message, fields);
}
void warn(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::warn, message, fields);
}
void error(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::error, message, fields);
}

}  // namespace kitty::log
