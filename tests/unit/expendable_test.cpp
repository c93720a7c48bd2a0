// Reads that hang, with readers that wait for the test in place of the kernel.
#include "collector/expendable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/allocation_count.h"

namespace kitty::collector {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// What hung readers wait for. Opened at the end of each test, so that no thread outlives it by much.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class TestReader {
 public:
  struct Request {
    int number = 0;
    std::shared_ptr<Gate> hangs;  // null: it does not
    uint32_t owner = 0;
    milliseconds takes{0};
    size_t most_of_owner = 1000;
  };
  using Answer = int;
  Answer read(const Request& request, Turns& turns) {
    if (!turns.may_hang({.owner = request.owner, .start_time_ticks = 7}, request.most_of_owner)) return -1;
    if (request.hangs) request.hangs->wait();
    if (request.takes.count() != 0) std::this_thread::sleep_for(request.takes);
    return request.number * 2;
  }
};
using TestBatch = ReadBatch<TestReader>;

class ExpendableTest : public ::testing::Test {
 protected:
  ~ExpendableTest() override { gate_->open(); }
  std::shared_ptr<TestBatch> batch(int size, std::initializer_list<int> hanging = {}) {
    auto made = std::make_shared<TestBatch>();
    for (int i = 0; i < size; ++i)
      made->requests.push_back({.number = i, .hangs = std::ranges::count(hanging, i) ? gate_ : nullptr});
    made->answers.resize(static_cast<size_t>(size));
    return made;
  }
  bool eventually_hung(const Expendable& reads, size_t count) {
    const auto deadline = steady_clock::now() + seconds(30);
    while (reads.hung() != count && steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(5));
    return reads.hung() == count;
  }

  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  Expendable::Outcome outcome_;
};

TEST_F(ExpendableTest, WhatDoesNotHangIsRead) {
  Expendable reads({});
  for (const int size : {0, 1, 1000, 3}) {
    const auto asked = batch(size);
    reads.run(asked, outcome_);
    EXPECT_TRUE(outcome_.complete());
    for (int i = 0; i < size; ++i) EXPECT_EQ(asked->answers[static_cast<size_t>(i)], 2 * i);
  }
}

TEST_F(ExpendableTest, OneThatHangsKeepsNobodyElseFromBeingRead) {
  Expendable reads({.late_after = milliseconds(20), .stuck_after = milliseconds(200)});
  const auto asked = batch(10, {3});
  reads.run(asked, outcome_);
  ASSERT_EQ(outcome_.left.size(), 1U);
  EXPECT_EQ(outcome_.left.front().item, 3U);
  EXPECT_EQ(outcome_.left.front().subject.start_time_ticks, 7U);
  EXPECT_EQ(outcome_.ends[3], ReadEnd::stuck);
  EXPECT_EQ(std::ranges::count(outcome_.ends, ReadEnd::read), 9);
  EXPECT_EQ(asked->answers[9], 18);
  EXPECT_EQ(reads.hung(), 1U);
  const auto more = batch(10);
  reads.run(more, outcome_);
  EXPECT_TRUE(outcome_.complete());
}

TEST_F(ExpendableTest, WhatComesBackLaterIsToldAndHangsNoMore) {
  Expendable reads({.late_after = milliseconds(20), .stuck_after = milliseconds(100)});
  reads.run(batch(2, {0}), outcome_);
  ASSERT_EQ(outcome_.left.size(), 1U);
  const std::shared_ptr<const LeftRead> left = outcome_.left.front().read;
  EXPECT_EQ(returned_ns(*left), 0U);
  gate_->open();
  EXPECT_TRUE(eventually_hung(reads, 0));
  EXPECT_NE(returned_ns(*left), 0U);
}

TEST_F(ExpendableTest, ManyThatHangDoNotCostADeadlineEach) {
  Expendable reads({.late_after = milliseconds(10), .stuck_after = seconds(2)});
  const auto asked = batch(40);
  for (size_t i = 0; i < 30; ++i) asked->requests[i].hangs = gate_;
  const auto start = steady_clock::now();
  reads.run(asked, outcome_);
  EXPECT_LT(steady_clock::now() - start, seconds(30)) << "one after the other they would take 60 s";
  EXPECT_EQ(outcome_.left.size(), 30U);
  EXPECT_EQ(std::ranges::count(outcome_.ends, ReadEnd::read), 10);
}

TEST_F(ExpendableTest, OneThatIsOnlyLateIsRead) {
  Expendable reads({.late_after = milliseconds(10), .stuck_after = seconds(60)});
  const auto asked = batch(3);
  asked->requests[1].takes = milliseconds(200);
  reads.run(asked, outcome_);
  EXPECT_TRUE(outcome_.complete());
  EXPECT_EQ(asked->answers[1], 2);
  EXPECT_TRUE(eventually_hung(reads, 0));
}

TEST_F(ExpendableTest, BeyondTheLimitNothingIsBegunUntilSomethingComesBack) {
  Expendable reads({.late_after = milliseconds(10), .stuck_after = milliseconds(100), .hung_reads = 2});
  reads.run(batch(5, {0, 1, 2}), outcome_);
  EXPECT_EQ(outcome_.left.size(), 2U);
  EXPECT_EQ(outcome_.refused, 3U);
  EXPECT_EQ(reads.hung(), 2U);
  gate_->open();
  EXPECT_TRUE(eventually_hung(reads, 0));
  reads.run(batch(5), outcome_);
  EXPECT_TRUE(outcome_.complete());
}

TEST_F(ExpendableTest, OneOwnersHungReadsLeaveRoomForOthers) {
  Expendable reads({.late_after = milliseconds(10), .stuck_after = milliseconds(100), .hung_reads = 8});
  const auto asked = batch(20);
  for (size_t i = 0; i < asked->requests.size(); ++i) {
    TestReader::Request& request = asked->requests[i];
    request.owner = i == 19 ? 2 : 1;
    request.most_of_owner = 3;
    if (i != 19) request.hangs = gate_;
  }
  reads.run(asked, outcome_);
  EXPECT_EQ(outcome_.left.size(), 3U);
  EXPECT_EQ(outcome_.refused, 16U);
  EXPECT_EQ(outcome_.ends[19], ReadEnd::read);
  EXPECT_EQ(asked->answers[19], 38);
}

TEST_F(ExpendableTest, ARunEndsInTime) {
  Expendable reads({.late_after = seconds(300), .stuck_after = seconds(300)});
  reads.run(batch(3, {1}), outcome_, milliseconds(50));
  EXPECT_EQ(outcome_.ends, (std::vector{ReadEnd::read, ReadEnd::stuck, ReadEnd::refused}));
}

TEST_F(ExpendableTest, ARunEndsWhenItIsCancelled) {
  Expendable reads({.late_after = seconds(300), .stuck_after = seconds(300)});
  std::thread other([&reads] {
    std::this_thread::sleep_for(milliseconds(50));
    reads.cancel();
  });
  reads.run(batch(3, {0}), outcome_);
  other.join();
  EXPECT_EQ(outcome_.ends.front(), ReadEnd::stuck);
  reads.run(batch(3), outcome_);
  EXPECT_EQ(outcome_.refused, 3U) << "from then on nothing is read";
}

// ThreadSanitizer's own operator new cannot be replaced by one that counts.
#if !__has_feature(thread_sanitizer)
TEST_F(ExpendableTest, ABatchAskedAgainTakesNothingFromTheHeap) {
  Expendable reads({.late_after = seconds(300), .stuck_after = seconds(300)});
  const auto asked = batch(20);
  reads.run(asked, outcome_);
  const AllocationCount allocations;
  for (int i = 0; i < 100; ++i) reads.run(asked, outcome_);
  EXPECT_EQ(allocations.count(), 0U);
  EXPECT_TRUE(outcome_.complete());
}
#endif

}  // namespace
}  // namespace kitty::collector
