// Any bytes as net/tcp: no read outside the input; the same rows however the input is cut (the first byte
// says into pieces of how many bytes); and a row that is read at fixed places is read token by token to the
// same values.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "procfs/tcp_table.h"

namespace {

using namespace kitty::procfs;

struct Outcome {
  std::vector<TcpRow> rows;
  uint64_t counted = 0;
  uint64_t errors = 0;
  uint64_t irregular = 0;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome parse(std::string_view text, size_t piece) {
  Outcome outcome;
  TcpTableParser parser;
  const auto on_row = [&](const TcpRow& row) { outcome.rows.push_back(row); };
  while (!text.empty()) {
    // A copy of its own, so that a read past the piece is a read past an allocation.
    const size_t size = std::min(piece, text.size());
    const auto copy = std::make_unique<char[]>(size);
    std::memcpy(copy.get(), text.data(), size);
    parser.feed({copy.get(), size}, on_row);
    text.remove_prefix(size);
  }
  parser.finish(on_row);
  outcome.counted = parser.rows();
  outcome.errors = parser.errors();
  outcome.irregular = parser.irregular_rows();
  return outcome;
}

void compare_ways(std::string_view line, bool terminated) {
  TcpRow fixed;
  TcpRow tokens;
  if (!parse_tcp_row_fixed(line, terminated, fixed)) return;
  if (!parse_tcp_row_tokens(line, terminated, tokens) || fixed != tokens) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = size_t{1} + data[0];
  std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = parse(text, text.size());
  if (whole.counted != whole.rows.size() || whole.irregular > whole.counted) std::abort();
  if (parse(text, piece) != whole) std::abort();
  for (const TcpRow& row : whole.rows) {
    if (queued_tx_bytes(row) > row.tx_queue_bytes) std::abort();
    std::array<char, kMaxAddressBytes> buffer;
    if (format_address(row.local, buffer).size() > buffer.size()) std::abort();
  }
  while (!text.empty()) {
    const size_t end = text.find('\n');
    compare_ways(text.substr(0, end), end != std::string_view::npos);
    compare_ways(text.substr(0, end), false);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return 0;
}
