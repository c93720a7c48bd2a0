// Reads the files that say how hosts are called: hosts(5) and resolv.conf(5). Words between blanks, a line
// each, comments behind '#' or ';'. Splitting is pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace kitty::http {

// What is read of one file; the rest is passed over.
inline constexpr size_t kMaxNameFileBytes = size_t{1} << 20;

// Empty where it cannot be read.
[[nodiscard]] std::string read_name_file(const char* path);

// The next word of a line; empty at its end.
[[nodiscard]] inline std::string_view take_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

// `each` gets every line without its comment.
template <class Each>
void for_each_line(std::string_view text, Each&& each) {
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    each(line.substr(0, std::min(line.find_first_of("#;"), line.size())));
  }
}

}  // namespace kitty::http
