#include "http/text_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace kitty::http {
namespace {

ProcessText process(uid_t uid, uint64_t identity, uint64_t figures, uint64_t histogram, uint64_t order = 0) {
  ProcessText text{.uid = uid, .order = order};
  text.part(TextPart::identity) = {.bytes = identity, .series = 1};
  text.part(TextPart::figures) = {.bytes = figures, .series = 10};
  text.part(TextPart::histogram) = {.bytes = histogram, .series = 1};
  return text;
}

size_t count(const std::vector<ProcessText>& texts, uid_t uid, TextPart which) {
  size_t granted = 0;
  for (const ProcessText& text : texts)
    if (text.uid == uid && text.part(which).granted) ++granted;
  return granted;
}

TEST(PlanText, WhatFitsIsWrittenWhole) {
  std::vector<ProcessText> texts = {process(1, 10, 20, 30), process(2, 10, 20, 30)};
  collector::LeftOutByUser left_out;
  EXPECT_EQ(plan_text(120, texts, left_out), 0U);
  EXPECT_TRUE(left_out.empty());
  for (const TextPart part : {TextPart::identity, TextPart::figures, TextPart::histogram}) {
    EXPECT_EQ(count(texts, 1, part) + count(texts, 2, part), 2U);
  }
}

TEST(PlanText, WhoWantsMostLosesHistogramsFirstAndThenFigures) {
  std::vector<ProcessText> texts(300, process(1, 10, 20, 30));
  texts.push_back(process(2, 10, 200, 30));
  collector::LeftOutByUser left_out;
  // All of the second user's; of the first's the identities, and a third of the figures.
  EXPECT_EQ(plan_text(240 + 3000 + 2000, texts, left_out), 200U * 10 + 300);
  EXPECT_EQ(count(texts, 1, TextPart::identity), 300U);
  EXPECT_EQ(count(texts, 1, TextPart::figures), 100U);
  EXPECT_EQ(count(texts, 2, TextPart::figures), 1U);
  EXPECT_EQ(count(texts, 1, TextPart::histogram), 0U);
  EXPECT_EQ(count(texts, 2, TextPart::histogram), 1U);
  EXPECT_EQ(left_out[1].series, 2000U + 300);
  EXPECT_FALSE(left_out.contains(2));
}

TEST(PlanText, AmongOneUsersTheSmallAndThenTheEarlierGoFirst) {
  std::vector<ProcessText> texts = {process(1, 0, 900, 0, 9), process(1, 0, 100, 0, 1),
                                    process(1, 0, 100, 0, 1), process(1, 0, 100, 0, 1)};
  collector::LeftOutByUser left_out;
  EXPECT_EQ(plan_text(250, texts, left_out), 20U);
  EXPECT_FALSE(texts[0].part(TextPart::figures).granted);
  EXPECT_TRUE(texts[1].part(TextPart::figures).granted);
  EXPECT_TRUE(texts[2].part(TextPart::figures).granted);
  EXPECT_FALSE(texts[3].part(TextPart::figures).granted);
}

TEST(PlanText, WithoutAnyRoomNothingIsWritten) {
  std::vector<ProcessText> texts = {process(1, 10, 20, 30)};
  collector::LeftOutByUser left_out;
  EXPECT_EQ(plan_text(0, texts, left_out), 12U);
}

}  // namespace
}  // namespace kitty::http
