// Text of other processes made fit for a terminal and for JSON: whatever they put into a name cannot break a
// line, steer a terminal or end a string. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kitty::cli {

// `text` with a '?' for every byte that is no UTF-8 and every character that steers a terminal or is not to
// be seen.
[[nodiscard]] std::string printable(std::string_view text);

// Appends a JSON string (RFC 8259, 7) with its quotes; what is no UTF-8 becomes U+FFFD, and what steers a
// terminal an escape.
void append_json(std::string& out, std::string_view text);
// Appends "name":"text".
void append_json(std::string& out, std::string_view name, std::string_view text);

}  // namespace kitty::cli
