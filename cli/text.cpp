#include "cli/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/utf8.h"

namespace kitty::cli {

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = code_point_bytes(text);
    const std::string_view one = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0 || is_unprintable(one)) {
      out += '?';
    } else {
      out += one;
    }
    text.remove_prefix(one.size());
  }
  return out;
}

namespace {

// Four hexadecimal digits.
void append_json_unit(std::string& out, uint32_t unit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
}

// RFC 8259, 7: beyond U+FFFF as a pair of surrogates.
void append_json_escape(std::string& out, uint32_t value) {
  constexpr uint32_t kFirstOfPairs = 0x10000;
  if (value < kFirstOfPairs) return append_json_unit(out, value);
  append_json_unit(out, 0xd800 + ((value - kFirstOfPairs) >> 10));
  append_json_unit(out, 0xdc00 + ((value - kFirstOfPairs) & 0x3ff));
}

}  // namespace

void append_json(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const size_t bytes = code_point_bytes(text);
    const std::string_view one = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (is_unprintable(one)) {
      append_json_escape(out, code_point_value(one));
    } else {
      if (one == "\"" || one == "\\") out += '\\';
      out += one;
    }
    text.remove_prefix(one.size());
  }
  out += '"';
}

void append_json(std::string& out, std::string_view name, std::string_view text) {
  append_json(out, name);
  out += ':';
  append_json(out, text);
}

}  // namespace kitty::cli
