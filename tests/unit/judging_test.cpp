#include "cli/judging.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <semaphore>

namespace kitty::cli {
namespace {

constexpr int kPatienceMs = 20000;  // what no test should ever need

bool is_done(const Judging& judging, int wait_ms) {
  pollfd polled{.fd = judging.done().get(), .events = POLLIN, .revents = 0};
  return poll(&polled, 1, wait_ms) == 1;
}

// `q` and Ctrl-C were not obeyed while `kitty top` judged.
TEST(Judging, NobodyWaitsForAVerdict) {
  std::binary_semaphore may_end(0);
  Judging judging([&may_end](JudgeRequest request) {
    may_end.acquire();
    return Judged{
        .jobs = {}, .left_out = static_cast<size_t>(request.end_s), .problems = std::move(request.problems)};
  });
  EXPECT_FALSE(judging.is_busy());
  for (const double end_s : {7.0, 8.0}) {
    judging.ask({.scrapes = {}, .end_s = end_s, .problems = {{"n0", "gone"}}});
    EXPECT_TRUE(judging.is_busy());
    EXPECT_FALSE(is_done(judging, 0));
    may_end.release();
    ASSERT_TRUE(is_done(judging, kPatienceMs));
    EXPECT_TRUE(judging.is_busy());
    const Judged judged = judging.take();
    EXPECT_EQ(judged.left_out, static_cast<size_t>(end_s));
    ASSERT_EQ(judged.problems.size(), 1U);
    EXPECT_FALSE(judging.is_busy());
    EXPECT_FALSE(is_done(judging, 0));
  }
}

}  // namespace
}  // namespace kitty::cli
