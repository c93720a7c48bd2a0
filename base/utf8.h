// Well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, nothing above U+10FFFF; and
// which of it may be shown. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kitty {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// The length in bytes, 1 to 4, of the well-formed code point at the start of `text`; 0 where there is none.
[[nodiscard]] inline size_t code_point_bytes(std::string_view text) {
  auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  auto between = [&](size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  if (text.empty()) return 0;
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return between(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool second = between(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf);
    return second && between(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool second = between(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf);
    return second && between(2, 0x80, 0xbf) && between(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

// The number of a well-formed code point.
[[nodiscard]] uint32_t code_point_value(std::string_view code_point);

// Whether a well-formed code point steers what shows it, or is nothing to be seen: control characters (C0,
// DEL, C1; a newline is one), line and paragraph separators, what turns the direction of writing (Unicode
// Standard Annex 9), and characters without a width. Not U+200C and U+200D, with which Persian words and
// joined emoji are spelt.
[[nodiscard]] bool is_unprintable(std::string_view code_point);

// `text` with U+FFFD for each byte that is no UTF-8 and each unprintable character. For what other processes
// say of themselves: from here on it may be shown, logged and handed on.
[[nodiscard]] std::string printable_text(std::string_view text);

}  // namespace kitty
