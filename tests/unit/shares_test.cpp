#include "collector/shares.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

namespace kitty::collector {
namespace {

std::vector<uint64_t> granted(uint64_t room, const std::vector<uint64_t>& wanted) {
  std::vector<Share> shares;
  for (size_t i = 0; i < wanted.size(); ++i) shares.push_back({.key = i, .wanted = wanted[i]});
  share_out(room, shares);
  std::vector<uint64_t> out(wanted.size());
  for (const Share& share : shares) out[share.key] = share.granted;
  return out;
}

TEST(ShareOut, WhoWantsLittleGetsItAndTheRestIsDividedAlike) {
  using Numbers = std::vector<uint64_t>;
  EXPECT_EQ(granted(10, {}), Numbers{});
  EXPECT_EQ(granted(10, {3, 4}), (Numbers{3, 4}));
  EXPECT_EQ(granted(10, {8, 4}), (Numbers{6, 4}));
  EXPECT_EQ(granted(10, {100, 1, 100}), (Numbers{4, 1, 5}));
  EXPECT_EQ(granted(0, {5, 1}), (Numbers{0, 0}));
  EXPECT_EQ(granted(2, {9, 9, 9}), (Numbers{0, 1, 1}));
  EXPECT_EQ(granted(8192, {8800, 16}), (Numbers{8176, 16}));
}

// Users that come again and again for a place of a limited number.
struct Crowd {
  Places places;
  std::map<uid_t, size_t> held;

  explicit Crowd(size_t limit) : places(limit) {}
  bool come(uid_t uid) {
    const Places::Answer answer = places.ask(uid, false);
    if (!answer.granted) return false;
    if (answer.from) {
      places.give_up(*answer.from, false);
      --held[*answer.from];
    }
    places.take(uid, false);
    ++held[uid];
    return true;
  }
};

TEST(Places, ACrowdOfOneUserLeavesAnotherHisPart) {
  Crowd crowd(1024);
  for (int i = 0; i < 1100; ++i) crowd.come(1);
  EXPECT_EQ(crowd.held[1], 1024U);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(crowd.come(2));
  EXPECT_EQ(crowd.held[1], 1016U);
  EXPECT_EQ(crowd.held[2], 8U);
}

TEST(Places, ComesToRestWhenAllWantMoreThanTheyGet) {
  Crowd crowd(10);
  for (int round = 0; round < 20; ++round) {
    for (const uid_t uid : {1U, 2U, 3U}) crowd.come(uid);
  }
  for (const uid_t uid : {1U, 2U, 3U}) {
    EXPECT_GE(crowd.held[uid], 3U);
    EXPECT_FALSE(crowd.come(uid)) << "a place goes round for ever";
  }
}

TEST(Places, AWorkerGivesWayToAProcessOfItsOwnUser) {
  Places places(2);
  places.take(1, false);
  places.take(1, true);
  EXPECT_FALSE(places.ask(1, true).granted);
  const Places::Answer answer = places.ask(1, false);
  EXPECT_TRUE(answer.granted);
  EXPECT_EQ(answer.from, 1U);
  places.give_up(1, true);
  places.take(1, false);
  EXPECT_FALSE(places.ask(1, false).granted);
}

TEST(LeftOut, TheUsersWithMostAreNamedAndTheRestCounted) {
  LeftOutByUser users;
  for (uid_t uid = 1; uid <= 20; ++uid) users[uid].sockets = uid;
  users[99];
  const std::vector<LeftOut> list = who_left_out_most(users);
  ASSERT_EQ(list.size(), kMaxLeftOutUsers + 1);
  EXPECT_EQ(list.front().uid, 20U);
  EXPECT_EQ(list.back().uid, kUnknownUid);
  EXPECT_EQ(list.back().sockets, 1U + 2 + 3 + 4 + 5);
}

}  // namespace
}  // namespace kitty::collector
