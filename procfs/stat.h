// /proc/PID/stat (proc_pid_stat(5)): one line about a process. The parser owns and allocates nothing;
// thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// 52 numbers of at most 20 digits and a name of at most 64 bytes.
inline constexpr size_t kStatBufferBytes = 2048;

struct ProcessStat {
  pid_t pid = 0;
  std::string_view comm;  // any bytes but NUL, ")" and newlines included; points into the text
  char state = 0;         // "RSDZTtXxKWPI"
  pid_t ppid = 0;         // 0 when the parent lies outside this pid namespace
  uint64_t utime_ticks = 0;
  uint64_t stime_ticks = 0;
  uint64_t threads = 0;                 // that have not ended; 0 where the kernel does not tell any more
  uint64_t start_time_ticks = 0;        // since boot, in 1/sysconf(_SC_CLK_TCK) s: with the pid, who this is
  std::optional<uint64_t> vsize_bytes;  // absent where the text ends before
  std::optional<uint64_t> rss_pages;
  // Where the arguments and the environment lie in its memory: other values mean an execve(2) since, or that
  // it moved them itself. 0 for those who may not read its environment either.
  std::optional<uint64_t> arg_start, arg_end, env_start, env_end;
  // Likewise of its code and of its stack when it began.
  std::optional<uint64_t> start_code, start_stack;

  // The thread that this is about, which is the main one in /proc/PID/stat, has ended.
  [[nodiscard]] bool is_dead() const { return state == 'Z' || state == 'X' || state == 'x'; }
  // Other threads go on without the main one, which has called pthread_exit(3). It counts until they end, too
  // (delay_group_leader of kernel/exit.c).
  [[nodiscard]] bool lives_by_other_threads() const { return is_dead() && threads > 1; }
};

// Nothing if the text is not a stat line at least up to the start time. The name ends at the last ")".
[[nodiscard]] std::optional<ProcessStat> parse_stat(std::string_view text);

// Reads stat of the process behind `pid_dirfd`; `comm` points into `buffer`.
[[nodiscard]] ReadExpected<ProcessStat> read_stat(int pid_dirfd, std::span<char> buffer);

}  // namespace kitty::procfs
