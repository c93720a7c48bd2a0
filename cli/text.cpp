#include "cli/text.h"

#include <algorithm>
#include <cstddef>

#include "http/utf8.h"

namespace kitty::cli {

namespace {

// Code points that steer a terminal: C0, DEL, C1 (U+0080 to U+009F).
bool is_control(std::string_view code_point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(code_point[i]); };
  if (code_point.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  return code_point.size() == 2 && byte(0) == 0xc2 && byte(1) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = http::code_point_bytes(text);
    const std::string_view one = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0 || is_control(one)) {
      out += '?';
    } else {
      out += one;
    }
    text.remove_prefix(one.size());
  }
  return out;
}

void append_json(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const size_t bytes = http::code_point_bytes(text);
    const std::string_view one = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0) {
      out += "\\ufffd";
    } else if (is_control(one) && one.size() == 1) {
      const auto byte = static_cast<unsigned char>(one[0]);
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
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
