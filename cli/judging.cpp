#include "cli/judging.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace kitty::cli {

Judging::Judging(Judge judge)
    : judge_(std::move(judge)), done_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { run(); }) {}

Judging::~Judging() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Judging::ask(JudgeRequest request) {
  busy_ = true;
  {
    const std::lock_guard lock(mutex_);
    asked_ = std::move(request);
  }
  wake_.notify_all();
}

Judged Judging::take() {
  busy_ = false;
  uint64_t count = 0;
  // Cannot fail but where nothing is there to take.
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
  [[maybe_unused]] const ssize_t n = read(done_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(judged_, {});
}

void Judging::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || asked_; });
    if (stopping_ || !asked_) return;
    JudgeRequest request = std::move(*asked_);
    asked_.reset();
    lock.unlock();
    Judged judged = judge_(std::move(request));
    lock.lock();
    judged_ = std::move(judged);
    const uint64_t one = 1;
    // Cannot fail: the counter is far from its maximum, and the descriptor is ours.
    [[maybe_unused]] const ssize_t n = write(done_.get(), &one, sizeof one);
  }
}

Judging::Judge live_judge(const VerdictFlags& flags) {
  return [jobs = std::make_shared<LiveJobs>(flags)](JudgeRequest request) {
    jobs->add(std::move(request.scrapes));
    jobs->judge(request.end_s, request.problems.empty());
    Judged judged{.jobs = {}, .left_out = jobs->left_out(), .problems = std::move(request.problems)};
    for (const LiveJob* one : jobs->jobs()) judged.jobs.push_back(*one);
    return judged;
  };
}

}  // namespace kitty::cli
