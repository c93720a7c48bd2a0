#include "base/utf8.h"

#include <algorithm>
#include <array>

namespace kitty {

namespace {

struct Range {
  uint32_t first, last;
};

// Beyond ASCII, ascending.
constexpr std::array kUnprintable = {
    Range{0x80, 0x9f},        // C1
    Range{0xad, 0xad},        // soft hyphen
    Range{0x61c, 0x61c},      // Arabic letter mark
    Range{0x180e, 0x180e},    // Mongolian vowel separator
    Range{0x200b, 0x200b},    // zero width space
    Range{0x200e, 0x200f},    // left-to-right and right-to-left marks
    Range{0x2028, 0x202e},    // line and paragraph separators, embeddings and overrides
    Range{0x2060, 0x206f},    // word joiner, invisible operators, isolates, deprecated format characters
    Range{0xfeff, 0xfeff},    // byte order mark
    Range{0xfff9, 0xfffb},    // interlinear annotations
    Range{0xe0000, 0xe007f},  // tags
};

}  // namespace

uint32_t code_point_value(std::string_view code_point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(code_point[i]); };
  const auto tail = [&](size_t i) { return byte(i) & 0x3fU; };
  switch (code_point.size()) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1fU) << 6 | tail(1);
    case 3:
      return (byte(0) & 0xfU) << 12 | tail(1) << 6 | tail(2);
    default:
      return (byte(0) & 7U) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
  }
}

bool is_unprintable(std::string_view code_point) {
  const uint32_t value = code_point_value(code_point);
  if (value < 0x80) return value < 0x20 || value == 0x7f;
  return std::ranges::any_of(
      kUnprintable, [value](const Range& range) { return range.first <= value && value <= range.last; });
}

std::string printable_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = code_point_bytes(text);
    const std::string_view one = text.substr(0, std::max<size_t>(bytes, 1));
    out += bytes == 0 || is_unprintable(one) ? kReplacementCharacter : one;
    text.remove_prefix(one.size());
  }
  return out;
}

}  // namespace kitty
