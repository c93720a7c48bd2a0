// base/terminate.cpp replaces libstdc++'s handler: what is printed is kitty's line and not "terminate called
// after throwing".
#include <gtest/gtest.h>

#include <csignal>
#include <exception>
#include <stdexcept>

namespace {

template <class T>
void throw_one(T what) {
  throw what;
}

TEST(TerminateDeathTest, AnExceptionThatNobodyCatchesIsNamed) {
  EXPECT_EXIT([]() noexcept { throw_one(std::runtime_error("out of ink")); }(),
              testing::KilledBySignal(SIGABRT), "^kitty: ended by an uncaught exception: out of ink\n$");
  EXPECT_EXIT([]() noexcept { throw_one(7); }(), testing::KilledBySignal(SIGABRT),
              "^kitty: ended by an uncaught exception of unknown type\n$");
}

TEST(TerminateDeathTest, WithoutAnException) {
  EXPECT_EXIT(std::terminate(), testing::KilledBySignal(SIGABRT), "^kitty: ended by std::terminate\\(\\)\n$");
}

}  // namespace
