// The ladder on the running kernel, whatever that is.
#include "collector/rtt_hook.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collector/embedded_object.h"
#include "collector/self_test.h"
#include "kernel_tests.h"
#include "tcp_pair.h"

namespace kitty::collector {
namespace {

RttSource open(std::string_view wanted, const std::string& btf = "") {
  return open_rtt_source(embedded_object(), btf, wanted);
}

TEST(RttHook, AutoTakesTheFirstRungThatWorksAndKeepsEveryRefusal) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("auto");
  const auto names = rtt_hook_names();
  const auto taken = std::ranges::find(names, source.hook.name);
  ASSERT_NE(taken, names.end()) << source.hook.refusals.back().reason;
  ASSERT_EQ(source.hook.refusals.size(), static_cast<size_t>(taken - names.begin()));
  for (size_t i = 0; i < source.hook.refusals.size(); ++i) {
    EXPECT_EQ(source.hook.refusals[i].hook, names[i]);
    EXPECT_FALSE(source.hook.refusals[i].reason.empty()) << names[i];
    EXPECT_EQ(source.hook.refusals[i].reason.find('\n'), std::string::npos) << "one line";
  }
  EXPECT_TRUE(source.hook.missing.empty()) << source.hook.missing.front().reason;
  EXPECT_NE(source.hook.have & KITTY_HAVE_TOTAL_RETRANS, 0U);
}

TEST(RttHook, TcpProbeCountsTheSamplesOfAnOwnedSocketOnly) {
  KITTY_NEEDS_KERNEL();
  const RttSource source = open("tp_btf/tcp_probe");
  ASSERT_NE(source.maps, nullptr) << source.hook.refusals.front().reason;
  const testing::TcpPair mine, foreign;
  const uint64_t inode = testing::inode_of(mine.client);
  ASSERT_EQ(source.maps->own(inode), OwnResult::owned);
  constexpr int kRounds = 50;
  for (int i = 0; i < kRounds; ++i) {
    for (const testing::TcpPair* pair : {&mine, &foreign}) {
      char byte = 'k';
      ASSERT_EQ(send(pair->client.get(), &byte, 1, 0), 1);
      ASSERT_EQ(recv(pair->server.get(), &byte, 1, 0), 1);
      ASSERT_EQ(send(pair->server.get(), &byte, 1, 0), 1);
      ASSERT_EQ(recv(pair->client.get(), &byte, 1, 0), 1);
    }
  }
  kitty_flow flow;
  ASSERT_TRUE(source.maps->read_owned(inode, flow));
  uint64_t samples = 0;
  for (const uint64_t bucket : flow.buckets) samples += bucket;
  EXPECT_GE(samples, static_cast<uint64_t>(kRounds - 2));
  EXPECT_LE(samples, static_cast<uint64_t>(kRounds + 1));
  EXPECT_EQ(flow.remote[2], htonl(0xffff));
  EXPECT_EQ(flow.remote[3], htonl(INADDR_LOOPBACK));
  EXPECT_NE(flow.remote_port, 0);
  ASSERT_FALSE(source.maps->read_owned(testing::inode_of(foreign.client), flow));
  kitty_flow pending;
  EXPECT_FALSE(source.maps->take_pending(testing::inode_of(foreign.client), pending))
      << "its namespace is not watched";
}

TEST(RttHook, NoneAsksForNothing) {
  const RttSource source = open("none");
  EXPECT_EQ(source.maps, nullptr);
  EXPECT_EQ(source.hook.name, "none");
  EXPECT_TRUE(source.hook.refusals.empty());
}

TEST(RttHook, AMissingBtfFileIsAReasonNotAnEnd) {
  const RttSource source = open("auto", "/nonexistent.btf");
  EXPECT_EQ(source.hook.name, "none");
  ASSERT_EQ(source.hook.refusals.size(), 1U);
  EXPECT_NE(source.hook.refusals[0].reason.find("/nonexistent.btf"), std::string::npos);
}

TEST(SelfTest, WithoutAHookItSaysThatNothingFired) {
  KITTY_NEEDS_KERNEL();
  const auto object = loader::Object::parse(embedded_object());
  ASSERT_TRUE(object);
  auto maps = FlowMaps::create(*object);
  ASSERT_TRUE(maps) << maps.error().message();
  const Result<uint32_t> result = run_self_test(*maps);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("fired for 0 of 20 data ACKs"), std::string::npos)
      << result.error().message();
}

}  // namespace
}  // namespace kitty::collector
