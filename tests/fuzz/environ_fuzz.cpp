// Any bytes as an environment: no read outside the input; the same answer however it is cut (the first byte
// says into pieces of how many bytes); and the answer of a plain walk that holds the whole.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "base/utf8.h"
#include "procfs/environ.h"

namespace {

using namespace kitty::procfs;

// What is kept of an entry that comes in pieces.
constexpr size_t kFirstEntryBytes = kMaxEnvironNameBytes + 1 + kMaxEnvironValueBytes;

using Variables = std::array<EnvironVariable, 2>;

struct Seen {
  bool watched, overwritten;
};

Seen scan_in_pieces(std::string_view text, size_t piece, Variables& variables) {
  EnvironScan scan(variables);
  while (!text.empty()) {
    const size_t size = std::min(piece, text.size());
    const auto copy = std::make_unique<char[]>(size);
    std::memcpy(copy.get(), text.data(), size);
    scan.feed({copy.get(), size});
    text.remove_prefix(size);
  }
  scan.finish();
  return {scan.watched(), scan.overwritten()};
}

std::optional<std::string_view> look_up(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = text.find('\0');
    const std::string_view entry = text.substr(0, end);
    if (const size_t equals = entry.find('=');
        equals != std::string_view::npos && entry.substr(0, equals) == name) {
      return entry.substr(equals + 1);
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (const size_t piece : {text.size(), size_t{1} + data[0]}) {
    Variables variables{{{"RANK"}, {"JOB_NAME"}}};
    const Seen seen = scan_in_pieces(text, piece, variables);
    const std::string_view first = text.substr(0, text.find('\0')).substr(0, kFirstEntryBytes);
    if (seen.overwritten != (!text.empty() && !first.contains('='))) std::abort();
    if (seen.watched != (look_up(text, kWatchName) == kWatchValue)) std::abort();
    for (const EnvironVariable& variable : variables) {
      const auto expected = look_up(text, variable.name.text());
      if (variable.value.present != expected.has_value()) std::abort();
      if (!expected) continue;
      if (variable.value.text() != expected->substr(0, kMaxEnvironValueBytes)) std::abort();
      if (kitty::printable_text(kitty::printable_text(variable.value.text())) !=
          kitty::printable_text(variable.value.text()))
        std::abort();
      if (variable.value.truncated != (expected->size() > kMaxEnvironValueBytes)) std::abort();
    }
  }
  return 0;
}
