// /proc/PID/environ: the environment a program was started with, NUL-separated, of any size up to a quarter
// of the stack limit. It is scanned as it streams by, cut at any byte, and never held whole; what setenv(3)
// does later is not in it, and setproctitle may leave only the tail of some entry. The scan allocates nothing
// and serves one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// A process that is to be watched says so with exactly this entry.
inline constexpr std::string_view kWatchName = "KITTY_WATCH";
inline constexpr std::string_view kWatchValue = "1";

inline constexpr size_t kMaxEnvironNameBytes = 63;
inline constexpr size_t kMaxEnvironValueBytes = 256;  // longer values are cut, and say so
inline constexpr size_t kEnvironBufferBytes = size_t{16} * 1024;
// What is read of one environment. execve(2) gives arguments and environment 6 MiB together at most
// (bprm_stack_limits in fs/exec.c); only prctl(PR_SET_MM_MAP) makes more, as many terabytes as the caller
// likes.
inline constexpr uint64_t kMaxEnvironBytes = uint64_t{8} << 20;

// Defined nowhere, and not constexpr: a compiler that comes to it names it in its error.
void a_variables_name_is_1_to_63_bytes_without_an_equals_sign();

// The name of a wanted variable: a string literal, checked when compiling.
class EnvironName {
 public:
  consteval EnvironName(const char* text) : text_(text) {  // implicit: {"RANK"} reads as a table
    if (text_.empty() || text_.size() > kMaxEnvironNameBytes || text_.find('=') != std::string_view::npos) {
      a_variables_name_is_1_to_63_bytes_without_an_equals_sign();
    }
  }
  [[nodiscard]] std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// `NAME=` is present and empty; no entry at all, or `NAME` alone, is not present.
struct EnvironValue {
  bool present = false;
  bool truncated = false;  // the value goes on after the bytes that are kept
  uint16_t size = 0;
  std::array<char, kMaxEnvironValueBytes> bytes{};

  // Any bytes but NUL, not necessarily UTF-8; points into this object.
  [[nodiscard]] std::string_view text() const { return {bytes.data(), size}; }
};

struct EnvironVariable {
  EnvironName name;
  EnvironValue value{};
};

class EnvironScan {
 public:
  // `variables` says what is wanted and receives the values; it outlives the scan. Two variables may not
  // share a name.
  explicit EnvironScan(std::span<EnvironVariable> variables);

  // Forgets everything seen, the values of the variables included.
  void reset();
  // The next bytes of the file.
  void feed(std::string_view chunk);
  // The end of the file: only now does a last entry without its NUL count.
  void finish();

  // The first entry that begins with `KITTY_WATCH=` is `KITTY_WATCH=1`. As with getenv(3), the first
  // occurrence counts.
  [[nodiscard]] bool watched() const { return watched_; }
  // The first entry is none, as no program is started with: the process has written its title over it
  // (setproctitle), and the rest may be what the title left. False of an empty environment.
  [[nodiscard]] bool overwritten() const { return overwritten_; }
  // 0 also while execve(2) has not laid out the new program's environment yet: look again later.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  void take_entry(std::string_view entry, bool cut);
  void keep(std::string_view part);

  std::span<EnvironVariable> variables_;
  uint64_t first_letters_ = 0;  // bit c % 64 is set if a wanted name begins with c
  bool watch_seen_ = false;
  bool watched_ = false;
  bool first_seen_ = false;
  bool overwritten_ = false;
  uint64_t bytes_ = 0;
  // The beginning of an unfinished entry: enough for any wanted name, its '=' and the part of the value that
  // is kept.
  std::array<char, kMaxEnvironNameBytes + 1 + kMaxEnvironValueBytes> carry_;
  size_t carry_size_ = 0;
  bool carry_cut_ = false;
};

// Scans the environment of the process behind `pid_dirfd` through `buffer`, beginning with reset(). An execve
// in the middle is noticed, and the new program's environment read; failed with EAGAIN if that happens again
// and again. too_long beyond kMaxEnvironBytes, of which nothing counts. gone also for zombies and kernel
// threads; denied for other users' processes without CAP_SYS_PTRACE.
[[nodiscard]] ReadResult read_environ(int pid_dirfd, std::span<char> buffer, EnvironScan& scan);

}  // namespace kitty::procfs
