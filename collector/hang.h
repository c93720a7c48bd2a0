// What is remembered of a process whose reads have hung: whether one still does, and when it is worth
// another. One thread uses it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "collector/expendable.h"

namespace kitty::collector {

// Between a read that hung and the next one: none after the first, then so long, and twice as long each time,
// so that a process that hangs again and again costs no more each time.
inline constexpr std::chrono::seconds kFirstRetryPause{5};
inline constexpr std::chrono::seconds kLastRetryPause{640};

class Hang {
 public:
  // `forgiven`: one that comes back within that time from now was only late.
  explicit Hang(std::chrono::nanoseconds forgiven = {})
      : forgiven_ns_(static_cast<uint64_t>(forgiven.count())) {}

  void begin(std::shared_ptr<const LeftRead> read, uint64_t now_ns) {
    end();
    read_ = std::move(read);
    began_ns_ = now_ns;
    ++times_;
  }
  // A read has come back in time.
  void end() {
    if (read_ && was_only_late()) --times_;
    read_.reset();
  }
  // The latest read hung, and none has succeeded since.
  [[nodiscard]] bool is_on() const { return read_ != nullptr; }
  // A thread waits in the kernel.
  [[nodiscard]] bool holds_a_thread() const { return read_ && returned_ns(*read_) == 0; }
  // Nothing is to be read: that read still hangs, or it is too soon.
  [[nodiscard]] bool forbids(uint64_t now_ns) const {
    if (!read_) return false;
    return holds_a_thread() || (!was_only_late() && now_ns < returned_ns(*read_) + pause_ns());
  }

 private:
  [[nodiscard]] bool was_only_late() const {
    const uint64_t returned = returned_ns(*read_);
    return returned != 0 && returned < began_ns_ + forgiven_ns_;
  }
  [[nodiscard]] uint64_t pause_ns() const {
    if (times_ < 2) return 0;
    const auto pause = std::min<std::chrono::nanoseconds>(
        kFirstRetryPause * (1U << std::min(times_ - 2, 20U)), kLastRetryPause);
    return static_cast<uint64_t>(pause.count());
  }

  std::shared_ptr<const LeftRead> read_;
  uint64_t forgiven_ns_;
  uint64_t began_ns_ = 0;
  unsigned times_ = 0;
};

}  // namespace kitty::collector
