#include "http/text_slot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace kitty::http {
namespace {

TEST(TextSlot, IsEmptyBeforeTheFirstText) {
  TextSlot slot;
  SharedText text = slot.read();
  EXPECT_FALSE(text);
  EXPECT_EQ(text.view(), "");
}

TEST(TextSlot, ReadsTheLatest) {
  TextSlot slot;
  std::string text = "one";
  ASSERT_TRUE(slot.publish(text));
  EXPECT_EQ(slot.read().view(), "one");
  text = "two";
  ASSERT_TRUE(slot.publish(text));
  EXPECT_EQ(slot.read().view(), "two");
}

TEST(TextSlot, AReaderKeepsItsTextWhileOthersArePublished) {
  TextSlot slot;
  std::string text = "one";
  ASSERT_TRUE(slot.publish(text));
  const SharedText held = slot.read();
  for (int i = 0; i < 40; ++i) {
    text.assign("later");
    ASSERT_TRUE(slot.publish(text));
  }
  EXPECT_EQ(held.view(), "one");
  EXPECT_EQ(slot.read().view(), "later");
}

TEST(TextSlot, ReusesMemoryThatNoReaderHolds) {
  TextSlot slot;
  std::string text(1000, 'a');
  std::set<const char*> seen;
  for (int i = 0; i < 100; ++i) {
    text.assign(1000, static_cast<char>('a' + i % 26));
    seen.insert(text.data());
    ASSERT_TRUE(slot.publish(text));
    const SharedText held = slot.read();  // let go before the next
    EXPECT_EQ(held.view(), std::string(1000, static_cast<char>('a' + i % 26)));
  }
  EXPECT_EQ(seen.size(), 2U);
}

TEST(TextSlot, RefusesOnlyWhenReadersHoldEveryText) {
  TextSlot slot;
  std::vector<SharedText> held;
  std::string text;
  for (size_t i = 0; i < kMaxTexts; ++i) {
    text = std::to_string(i);
    ASSERT_TRUE(slot.publish(text));
    held.push_back(slot.read());
  }
  text = "one too many";
  EXPECT_FALSE(slot.publish(text));
  EXPECT_EQ(text, "one too many");
  EXPECT_EQ(slot.read().view(), std::to_string(kMaxTexts - 1));
  held[3].reset();
  EXPECT_TRUE(slot.publish(text));
  EXPECT_EQ(slot.read().view(), "one too many");
  for (size_t i = 0; i < kMaxTexts; ++i) {
    if (i != 3) {
      EXPECT_EQ(held[i].view(), std::to_string(i));
    }
  }
}

TEST(TextSlot, MovingAHoldLetsGoOnce) {
  TextSlot slot;
  std::string text = "one";
  ASSERT_TRUE(slot.publish(text));
  SharedText a = slot.read();
  SharedText b = std::move(a);
  a = slot.read();
  a = std::move(b);
  EXPECT_EQ(a.view(), "one");
  a.reset();
  // Nobody holds the latest now, so it is overwritten in place and its memory comes back.
  text.assign(100, 'x');
  ASSERT_TRUE(slot.publish(text));
  EXPECT_EQ(text, "one");
}

// Texts of one repeated letter: a reader that saw a text being written would see two letters.
TEST(TextSlot, ManyReadersSeeWholeTexts) {
  constexpr int kTexts = 20000;
  constexpr size_t kReaders = 4;
  TextSlot slot;
  std::atomic<bool> done = false;
  std::atomic<uint64_t> torn = 0;
  std::vector<std::thread> readers;
  for (size_t i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      SharedText kept;  // some of the reads outlive the next
      for (uint64_t n = 0; !done.load(std::memory_order_relaxed); ++n) {
        SharedText text = slot.read();
        const std::string_view view = text.view();
        if (view.find_first_not_of(view.substr(0, 1)) != std::string_view::npos) torn.fetch_add(1);
        if (n % 7 == i) kept = std::move(text);
      }
      const std::string_view view = kept.view();
      if (view.find_first_not_of(view.substr(0, 1)) != std::string_view::npos) torn.fetch_add(1);
    });
  }
  std::string text;
  uint64_t refused = 0;
  for (int i = 0; i < kTexts; ++i) {
    text.assign(static_cast<size_t>(200 + i % 100), static_cast<char>('a' + i % 26));
    if (!slot.publish(text)) ++refused;
  }
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn.load(), 0U);
  EXPECT_EQ(refused, 0U);  // each reader holds two at most
}

}  // namespace
}  // namespace kitty::http
