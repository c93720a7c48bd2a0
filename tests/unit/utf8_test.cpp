#include "base/utf8.h"

#include <gtest/gtest.h>

namespace kitty {
namespace {

std::string encoded(uint32_t value) {
  std::string out;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (value >> shift & 0x3f)); };
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else if (value < 0x800) {
    out += static_cast<char>(0xc0 | value >> 6);
    tail(0);
  } else if (value < 0x10000) {
    out += static_cast<char>(0xe0 | value >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0 | value >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
  return out;
}

TEST(Utf8, EveryCodePointHasItsNumber) {
  for (uint32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xd800 && value < 0xe000) continue;
    const std::string text = encoded(value);
    ASSERT_EQ(code_point_bytes(text), text.size()) << value;
    ASSERT_EQ(code_point_value(text), value);
  }
}

TEST(Utf8, WhatSteersATerminalIsUnprintable) {
  for (uint32_t value = 0; value < 0xa0; ++value)
    EXPECT_EQ(is_unprintable(encoded(value)), value < 0x20 || value >= 0x7f) << value;
  for (const uint32_t value : {0xadU, 0x61cU, 0x200bU, 0x200eU, 0x200fU, 0x2028U, 0x202aU, 0x202eU, 0x2060U,
                               0x2066U, 0x2069U, 0xfeffU, 0xe0041U})
    EXPECT_TRUE(is_unprintable(encoded(value))) << value;
  for (const uint32_t value :
       {0xa0U, 0xe4U, 0x200cU, 0x200dU, 0x2010U, 0x20acU, 0xfffdU, 0x1f431U, 0x10ffffU})
    EXPECT_FALSE(is_unprintable(encoded(value))) << value;
}

TEST(Utf8, PrintableTextKeepsTheRest) {
  EXPECT_EQ(printable_text(""), "");
  EXPECT_EQ(printable_text("gr\u00fc\u00dfe \"\\ \U0001f431"), "gr\u00fc\u00dfe \"\\ \U0001f431");
  EXPECT_EQ(printable_text("a\nb\x1b[2J\xff\xe2\x80\xae\xe2\x80"),
            "a\ufffdb\ufffd[2J\ufffd\ufffd\ufffd\ufffd");
}

}  // namespace
}  // namespace kitty
