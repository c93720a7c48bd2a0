#include "cli/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace kitty::cli {

namespace {

// Alternate screen, cursor hidden; and back, with whatever colour was on.
constexpr std::string_view kTake = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kGiveBack = "\x1b[0m\x1b[?25h\x1b[?1049l";

// A terminal that takes nothing for so long is left as it is.
constexpr int kRestoreTries = 10, kRestoreWaitMs = 100;

constexpr std::array kCrashes = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGQUIT};

// A signal's handler sees nothing else.
volatile sig_atomic_t taken = 0;
termios settings_before;
bool has_settings = false;

// Async-signal-safe, as all that it calls is (signal-safety(7)).
void restore(int out) {
  if (!taken) return;
  taken = 0;
  if (has_settings) (void)tcsetattr(STDIN_FILENO, TCSANOW, &settings_before);
  std::string_view rest = kGiveBack;
  for (int tries = 0; !rest.empty() && tries < kRestoreTries; ++tries) {
    const ssize_t n = write(out, rest.data(), rest.size());
    if (n > 0) {
      rest.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd writable{.fd = out, .events = POLLOUT, .revents = 0};
      // Ctrl-S must not keep the screen. Linux goes on by TCOON only after TCOOFF: n_tty_ioctl_helper() of
      // drivers/tty/tty_ioctl.c.
      (void)tcflow(out, TCOOFF);  // NOLINT(concurrency-mt-unsafe)
      (void)tcflow(out, TCOON);   // NOLINT(concurrency-mt-unsafe)
      (void)poll(&writable, 1, kRestoreWaitMs);
    }
  }
}

extern "C" void crashed(int signal) {
  restore(STDOUT_FILENO);
  (void)raise(signal);  // whose action is the default one again
}

}  // namespace

bool Terminal::is_usable() {
  // Nobody sets a variable. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* const term = getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && (term == nullptr || std::string_view(term) != "dumb");
}

Terminal::Terminal()
    : out_(open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)),
      has_keys_(isatty(STDIN_FILENO) != 0) {
  struct sigaction action{};
  action.sa_handler = crashed;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : kCrashes) sigaction(signal, &action, nullptr);
  take();
}

Terminal::~Terminal() { give_back(); }

void Terminal::take() {
  // In the background, changing the settings would stop the process, or take the shell's terminal from it.
  const pid_t foreground = tcgetpgrp(STDOUT_FILENO);
  if (taken || (foreground >= 0 && foreground != getpgrp())) return;
  has_settings = has_keys_ && tcgetattr(STDIN_FILENO, &settings_before) == 0;
  taken = 1;
  if (has_settings) {
    termios settings = settings_before;
    settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    settings.c_cc[VMIN] = 1;
    settings.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &settings);
  }
  waiting_ = kTake;
  (void)flush();
}

void Terminal::give_back() {
  waiting_.clear();
  restore(out());
}

Terminal::Size Terminal::size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {80, 24};
  return {std::min<size_t>(size.ws_col, 500), std::min<size_t>(size.ws_row, 500)};
}

bool Terminal::draw(std::string frame) {
  if (!taken) return true;
  if (waiting_.empty()) waiting_ = std::move(frame);
  return flush();
}

bool Terminal::flush() {
  if (waiting_.empty()) return true;
  const ssize_t n = write(out(), waiting_.data(), waiting_.size());
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  waiting_.erase(0, static_cast<size_t>(n));
  return true;
}

bool Terminal::read_keys() {
  std::array<char, 64> keys;
  const ssize_t n = read(STDIN_FILENO, keys.data(), keys.size());
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) has_keys_ = false;
  const std::string_view typed(keys.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return typed.find_first_of("qQ") == std::string_view::npos;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    // Nobody sets a variable. NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* const value = getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower(value);
    std::ranges::transform(lower, lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace kitty::cli
