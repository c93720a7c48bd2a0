#include "base/utc.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>
#include <string>

namespace kitty {
namespace {

TEST(UtcText, KnownMoments) {
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00");
  EXPECT_EQ(utc_text(-1), "1969-12-31T23:59:59");
  EXPECT_EQ(utc_text(1'767'323'045), "2026-01-02T03:04:05");
  EXPECT_EQ(utc_text(951'782'400), "2000-02-29T00:00:00");
  EXPECT_EQ(utc_text(4'107'542'400), "2100-03-01T00:00:00");  // 2100 has no 29 February
}

TEST(UtcText, WhatHasNoFourDigitYearIsCut) {
  EXPECT_EQ(utc_text(253'402'300'799), "9999-12-31T23:59:59");
  EXPECT_EQ(utc_text(253'402'300'800), "9999-12-31T23:59:59");
  EXPECT_EQ(utc_text(std::numeric_limits<int64_t>::max()), "9999-12-31T23:59:59");
  EXPECT_EQ(utc_text(std::numeric_limits<int64_t>::min()), "0000-01-01T00:00:00");
}

TEST(UtcText, AgreesWithTheCLibrary) {
  // A prime step of about 29 days over 200 years: every month, every time of day.
  for (int64_t seconds = -2'208'988'800; seconds < 4'102'444'800; seconds += 2'500'009) {
    const time_t moment = seconds;
    tm parts{};
    gmtime_r(&moment, &parts);
    char text[64];
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    ASSERT_EQ(utc_text(seconds), text) << seconds;
  }
}

}  // namespace
}  // namespace kitty
