// The few pieces all the parsers share: tokens between spaces or commas, and numbers that are digits alone.
// They own nothing, allocate nothing, read no locale and never look past the end they were given.
// Thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace kitty::procfs {

// The tokens of a line, separated by one or more spaces. An empty token means that there are no more.
class Tokens {
 public:
  explicit Tokens(std::string_view line) : rest_(line) {}

  std::string_view next() {
    size_t begin = 0;
    while (begin < rest_.size() && rest_[begin] == ' ') ++begin;
    size_t end = begin;
    while (end < rest_.size() && rest_[end] != ' ') ++end;
    const std::string_view token = rest_.substr(begin, end - begin);
    rest_.remove_prefix(end);
    return token;
  }

  // What follows the latest token, its separator included.
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

[[nodiscard]] constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Digits only, at least one, no sign; nothing if it does not fit into 64 bits.
[[nodiscard]] constexpr std::optional<uint64_t> parse_decimal(std::string_view text) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  if (text.empty()) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    if (value > kMax / 10 || (value == kMax / 10 && digit > kMax % 10)) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

// Whether a list with commas between has the item.
[[nodiscard]] constexpr bool lists(std::string_view list, std::string_view item) {
  for (;;) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == item) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

// `PREFIX[123]` as a whole, the form of the links in /proc/PID/fd and /proc/PID/ns (proc(5)); prefix includes
// the bracket, as in "socket:[".
[[nodiscard]] constexpr std::optional<uint64_t> parse_bracketed(std::string_view link,
                                                                std::string_view prefix) {
  if (!link.starts_with(prefix) || !link.ends_with(']')) return std::nullopt;
  link.remove_prefix(prefix.size());
  if (link.empty()) return std::nullopt;
  link.remove_suffix(1);
  return parse_decimal(link);
}

}  // namespace kitty::procfs
