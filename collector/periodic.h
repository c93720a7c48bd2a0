// A thread that does one thing again and again until it is destroyed; it sleeps on a condition, so stopping
// is immediate. The work says how long to wait before it is wanted again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace kitty::collector {

class Periodic {
 public:
  using Work = std::function<std::chrono::nanoseconds()>;

  // First runs `work` after `first_pause`. `work` must not throw.
  Periodic(std::chrono::nanoseconds first_pause, Work work)
      : thread_([this, first_pause, work = std::move(work)](const std::stop_token& stop) {
          run(stop, first_pause, work);
        }) {}

 private:
  void run(const std::stop_token& stop, std::chrono::nanoseconds pause, const Work& work) {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, stop, pause, [] { return false; });
      }
      if (stop.stop_requested()) return;
      pause = work();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it joins before the rest goes
};

}  // namespace kitty::collector
