#include "http/listener.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace kitty::http {
namespace {

TEST(Listener, SaysThePortThatZeroGot) {
  for (const std::string host : {"127.0.0.1:", ":"}) {
    const auto listener = Listener::open(host + "0");
    ASSERT_TRUE(listener) << listener.error().message();
    EXPECT_NE(listener->port, 0);
    EXPECT_EQ(listener->address, host + std::to_string(listener->port));
  }
}

TEST(Listener, ATakenPortIsAnError) {
  const auto first = Listener::open("127.0.0.1:0");
  ASSERT_TRUE(first) << first.error().message();
  const auto second = Listener::open(first->address);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().operation, "listen on");
  EXPECT_EQ(second.error().object, first->address);
  EXPECT_EQ(second.error().err, EADDRINUSE);
}

TEST(Listener, ANameIsAnError) { EXPECT_FALSE(Listener::open("localhost:0")); }

}  // namespace
}  // namespace kitty::http
