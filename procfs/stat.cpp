#include "procfs/stat.h"

#include <limits>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

// Places after the name, counted from 1, as proc_pid_stat(5) counts them less two.
constexpr int kState = 1;
constexpr int kPpid = 2;
constexpr int kUtime = 12;
constexpr int kStime = 13;
constexpr int kThreads = 18;
constexpr int kStartTime = 20;
constexpr int kVsize = 21;
constexpr int kRss = 22;
constexpr int kStartCode = 24;
constexpr int kStartStack = 26;
constexpr int kArgStart = 46;
constexpr int kArgEnd = 47;
constexpr int kEnvStart = 48;
constexpr int kEnvEnd = 49;

std::optional<pid_t> parse_pid_field(std::string_view text) {
  const auto number = parse_decimal(text);
  if (!number || *number > static_cast<uint64_t>(std::numeric_limits<pid_t>::max())) return std::nullopt;
  return static_cast<pid_t>(*number);
}

}  // namespace

std::optional<ProcessStat> parse_stat(std::string_view text) {
  const bool terminated = text.ends_with('\n');
  if (terminated) text.remove_suffix(1);
  const size_t open = text.find(" (");
  const size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open + 2)
    return std::nullopt;

  ProcessStat stat;
  const auto pid = parse_pid_field(text.substr(0, open));
  if (!pid) return std::nullopt;
  stat.pid = *pid;
  stat.comm = text.substr(open + 2, close - open - 2);

  Tokens tokens(text.substr(close + 1));
  for (int place = kState; place <= kEnvEnd; ++place) {
    const std::string_view token = tokens.next();
    // A number at the very end may be cut unless a newline says otherwise.
    if (token.empty() || (!terminated && tokens.rest().empty())) {
      if (place <= kStartTime) return std::nullopt;
      break;
    }
    if (place == kState) {
      if (token.size() != 1) return std::nullopt;
      stat.state = token.front();
    } else if (place == kPpid) {
      const auto ppid = parse_pid_field(token);
      if (!ppid) return std::nullopt;
      stat.ppid = *ppid;
    } else if (place == kUtime || place == kStime || place == kThreads || place == kStartTime) {
      const auto number = parse_decimal(token);
      if (!number) return std::nullopt;
      (place == kUtime     ? stat.utime_ticks
       : place == kStime   ? stat.stime_ticks
       : place == kThreads ? stat.threads
                           : stat.start_time_ticks) = *number;
    } else if (place == kVsize) {
      stat.vsize_bytes = parse_decimal(token);
    } else if (place == kRss) {
      stat.rss_pages = parse_decimal(token);
    } else if (place == kStartCode) {
      stat.start_code = parse_decimal(token);
    } else if (place == kStartStack) {
      stat.start_stack = parse_decimal(token);
    } else if (place == kArgStart) {
      stat.arg_start = parse_decimal(token);
    } else if (place == kArgEnd) {
      stat.arg_end = parse_decimal(token);
    } else if (place == kEnvStart) {
      stat.env_start = parse_decimal(token);
    } else if (place == kEnvEnd) {
      stat.env_end = parse_decimal(token);
    }
  }
  return stat;
}

ReadExpected<ProcessStat> read_stat(int pid_dirfd, std::span<char> buffer) {
  const auto text = read_text_at(pid_dirfd, "stat", buffer);
  if (!text) return std::unexpected(text.error());
  const auto stat = parse_stat(*text);
  if (!stat) return std::unexpected(ReadResult{ReadStatus::malformed, 0});
  return *stat;
}

}  // namespace kitty::procfs
