#include "procfs/cgroup_stat.h"

#include <fcntl.h>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

constexpr uint64_t kNsPerUs = 1000;

// The next line of `text` without its newline, which is taken off; nothing where none is complete: a number
// at the end of a file that was cut may be another one.
std::optional<std::string_view> next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

// Neither a link nor a file that makes its reader wait for a writer is opened.
ReadExpected<std::string_view> read_file(int dirfd, const char* name, std::span<char> buffer) {
  const auto file = open_at(dirfd, name, O_NOFOLLOW | O_NONBLOCK);
  if (!file) return std::unexpected(file.error());
  return read_text(file->get(), buffer);
}

}  // namespace

std::optional<uint64_t> parse_throttled_us(std::string_view text) {
  while (const auto line = next_line(text)) {
    Tokens tokens(*line);
    const std::string_view name = tokens.next();
    const bool in_us = name == "throttled_usec";
    if (!in_us && name != "throttled_time") continue;
    const auto number = parse_decimal(tokens.next());
    if (!number || !tokens.next().empty()) return std::nullopt;
    return in_us ? *number : *number / kNsPerUs;
  }
  return std::nullopt;
}

std::optional<uint64_t> parse_pressure_us(std::string_view text) {
  constexpr std::string_view kTotal = "total=";
  while (const auto line = next_line(text)) {
    Tokens tokens(*line);
    if (tokens.next() != "some") continue;
    for (std::string_view token = tokens.next(); !token.empty(); token = tokens.next()) {
      if (token.starts_with(kTotal)) return parse_decimal(token.substr(kTotal.size()));
    }
    return std::nullopt;
  }
  return std::nullopt;
}

ReadExpected<std::optional<uint64_t>> read_throttled_us(int dirfd, std::span<char> buffer) {
  const auto text = read_file(dirfd, "cpu.stat", buffer);
  if (!text) return std::unexpected(text.error());
  return parse_throttled_us(*text);
}

ReadExpected<uint64_t> read_pressure_us(int dirfd, const char* name, std::span<char> buffer) {
  const auto text = read_file(dirfd, name, buffer);
  if (!text) return std::unexpected(text.error());
  const auto total = parse_pressure_us(*text);
  if (!total) return std::unexpected(ReadResult{ReadStatus::malformed, 0});
  return *total;
}

}  // namespace kitty::procfs
