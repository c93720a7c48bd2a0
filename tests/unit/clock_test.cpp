#include "collector/clock.h"

#include <gtest/gtest.h>

namespace kitty::collector {
namespace {

// In whole seconds, a process that was started in the agent's own second would be younger than the agent, and
// what its sockets did before would all be counted at once.
TEST(Ticks, TellApartWhatStartsWithinOneSecond) {
  EXPECT_EQ(to_ticks({.tv_sec = 0, .tv_nsec = 0}, 100), 0u);
  EXPECT_EQ(to_ticks({.tv_sec = 7, .tv_nsec = 9'999'999}, 100), 700u);
  EXPECT_EQ(to_ticks({.tv_sec = 7, .tv_nsec = 10'000'000}, 100), 701u);
  EXPECT_EQ(to_ticks({.tv_sec = 7, .tv_nsec = 999'999'999}, 100), 799u);
  EXPECT_EQ(to_ticks({.tv_sec = 7, .tv_nsec = 999'999'999}, 1000), 7999u);
}

}  // namespace
}  // namespace kitty::collector
