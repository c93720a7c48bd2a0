#include "procfs/tcp_table.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

constexpr uint8_t kNoDigit = 0xff;

constexpr std::array<uint8_t, 256> kNibbles = [] {
  std::array<uint8_t, 256> table{};
  table.fill(kNoDigit);
  for (unsigned i = 0; i < 10; ++i) table['0' + i] = static_cast<uint8_t>(i);
  for (unsigned i = 0; i < 6; ++i) table['a' + i] = table['A' + i] = static_cast<uint8_t>(10 + i);
  return table;
}();

constexpr uint8_t nibble(char c) { return kNibbles[static_cast<uint8_t>(c)]; }

constexpr uint64_t every_byte(uint8_t byte) { return 0x0101010101010101u * byte; }

// Eight hexadecimal digits at `digits`, all at once in a 64-bit word; false if any is something else.
bool read_hex8(const char* digits, uint32_t& value) {
  uint64_t x = 0;
  std::memcpy(&x, digits, sizeof x);
  if (x == every_byte('0')) {  // most queues and timers
    value = 0;
    return true;
  }
  if constexpr (std::endian::native == std::endian::big) x = __builtin_bswap64(x);
  // Below 0x80 a byte cannot carry into its neighbour; the additions move a range's ends onto the top bit.
  const uint64_t folded = x & every_byte(0xdf);
  const uint64_t decimal = (x + every_byte(0x80 - '0')) & ~(x + every_byte(0x80 - '9' - 1));
  const uint64_t letter = (folded + every_byte(0x80 - 'A')) & ~(folded + every_byte(0x80 - 'F' - 1));
  if (((decimal | letter) & ~x & every_byte(0x80)) != every_byte(0x80)) return false;
  // The first digit is the lowest byte: join neighbours into bytes, those into halves, those into the word.
  uint64_t n = (x & every_byte(0x0f)) + (x >> 6 & every_byte(0x01)) * 9;
  n = (n << 4 | n >> 8) & 0x00ff00ff00ff00ffu;
  n = (n << 8 | n >> 16) & 0x0000ffff0000ffffu;
  value = static_cast<uint32_t>(n << 16 | n >> 32);
  return true;
}

bool read_hex4(const char* digits, uint16_t& value) {
  const uint8_t a = nibble(digits[0]);
  const uint8_t b = nibble(digits[1]);
  const uint8_t c = nibble(digits[2]);
  const uint8_t d = nibble(digits[3]);
  value = static_cast<uint16_t>(a << 12 | b << 8 | c << 4 | d);
  return ((a | b | c | d) & 0xf0) == 0;
}

bool read_hex2(const char* digits, uint8_t& value) {
  const uint8_t a = nibble(digits[0]);
  const uint8_t b = nibble(digits[1]);
  value = static_cast<uint8_t>(a << 4 | b);
  return ((a | b) & 0xf0) == 0;
}

// Between `min_digits` and `max_digits` (16 at most) hexadecimal digits.
std::optional<uint64_t> parse_hex(std::string_view text, size_t min_digits, size_t max_digits) {
  if (text.size() < min_digits || text.size() > max_digits) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    const uint8_t digit = nibble(c);
    if (digit == kNoDigit) return std::nullopt;
    value = value << 4 | digit;
  }
  return value;
}

// The kernel prints each 32-bit word of an address, which lies in network order, as a host-order number:
// storing that number in host order gives the network's bytes back.
void store_word(IpAddress& address, size_t word, uint32_t value) {
  std::memcpy(address.data() + 4 * word, &value, sizeof value);
}

void map_v4(IpAddress& address, uint32_t value) {
  static constexpr std::array<uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::memcpy(address.data(), kPrefix.data(), kPrefix.size());
  store_word(address, 3, value);
}

constexpr size_t kV4Digits = 8;
constexpr size_t kV6Digits = 32;

// kV4Digits or kV6Digits digits.
bool read_address(std::string_view digits, IpAddress& address) {
  const char* p = digits.data();
  uint32_t value = 0;
  if (digits.size() == kV4Digits) {
    if (!read_hex8(p, value)) return false;
    map_v4(address, value);
    return true;
  }
  for (size_t word = 0; word < 4; ++word) {
    if (!read_hex8(p + 8 * word, value)) return false;
    store_word(address, word, value);
  }
  return true;
}

// One or more digits at the beginning of `text`, which is shortened by them; false if there are none or too
// many.
bool take_decimal(std::string_view& text, uint64_t& value) {
  constexpr size_t kAlwaysFits = 19;  // 10^19 < 2^64
  size_t size = 0;
  uint64_t sum = 0;
  for (; size < text.size() && is_digit(text[size]); ++size)
    sum = sum * 10 + static_cast<uint64_t>(text[size] - '0');
  if (size > kAlwaysFits) {
    const auto checked = parse_decimal(text.substr(0, size));
    if (!checked) return false;
    sum = *checked;
  }
  value = sum;
  text.remove_prefix(size);
  return size != 0;
}

// One or more spaces, likewise.
bool take_spaces(std::string_view& text) {
  size_t size = 0;
  while (size < text.size() && text[size] == ' ') ++size;
  text.remove_prefix(size);
  return size != 0;
}

// " UID TIMEOUT INODE" and, where the line goes on, a space: these have no fixed places in either way of
// reading.
bool parse_tail(std::string_view text, bool terminated, TcpRow& row) {
  uint64_t uid = 0;
  if (!take_spaces(text) || !take_decimal(text, uid) || uid > std::numeric_limits<uint32_t>::max())
    return false;
  row.uid = static_cast<uint32_t>(uid);
  if (!take_spaces(text)) return false;
  if (text.starts_with('-')) text.remove_prefix(1);
  uint64_t timeout = 0;
  if (!take_decimal(text, timeout) || !take_spaces(text) || !take_decimal(text, row.inode)) return false;
  return text.empty() ? terminated : text.front() == ' ';
}

// ": ADDR:PORT ADDR:PORT ST TX:RX TR:WHEN RETR " in the kernel's widths, then the tail.
template <size_t Digits>
bool parse_fixed(std::string_view line, size_t colon, bool terminated, TcpRow& row) {
  constexpr size_t kLocal = 2;
  constexpr size_t kLocalPort = kLocal + Digits + 1;
  constexpr size_t kRemote = kLocalPort + 5;
  constexpr size_t kRemotePort = kRemote + Digits + 1;
  constexpr size_t kState = kRemotePort + 5;
  constexpr size_t kTx = kState + 3;
  constexpr size_t kRx = kTx + 9;
  constexpr size_t kTimer = kRx + 9;
  constexpr size_t kWhen = kTimer + 3;
  constexpr size_t kRetransmits = kWhen + 9;
  constexpr size_t kTail = kRetransmits + 8;
  if (line.size() - colon <= kTail) return false;
  const char* p = line.data() + colon;
  if (p[kLocal - 1] != ' ' || p[kLocalPort - 1] != ':' || p[kRemote - 1] != ' ' ||
      p[kRemotePort - 1] != ':' || p[kState - 1] != ' ' || p[kTx - 1] != ' ' || p[kRx - 1] != ':' ||
      p[kTimer - 1] != ' ' || p[kWhen - 1] != ':' || p[kRetransmits - 1] != ' ' || p[kTail] != ' ') {
    return false;
  }
  uint32_t tx = 0;
  uint32_t rx = 0;
  uint32_t unused_word = 0;
  uint8_t unused_byte = 0;
  if (!read_address({p + kLocal, Digits}, row.local) || !read_hex4(p + kLocalPort, row.local_port) ||
      !read_address({p + kRemote, Digits}, row.remote) || !read_hex4(p + kRemotePort, row.remote_port) ||
      !read_hex2(p + kState, row.state) || !read_hex8(p + kTx, tx) || !read_hex8(p + kRx, rx) ||
      !read_hex2(p + kTimer, unused_byte) || !read_hex8(p + kWhen, unused_word) ||
      !read_hex8(p + kRetransmits, unused_word)) {
    return false;
  }
  row.tx_queue_bytes = tx;
  row.rx_queue_bytes = rx;
  row.ipv6 = Digits == kV6Digits;
  return parse_tail(line.substr(colon + kTail), terminated, row);
}

// "ADDR:PORT"
bool parse_endpoint(std::string_view token, IpAddress& address, uint16_t& port, size_t& digits) {
  const size_t colon = token.find(':');
  if (colon != kV4Digits && colon != kV6Digits) return false;
  const auto number = parse_hex(token.substr(colon + 1), 4, 4);
  if (!number || !read_address(token.substr(0, colon), address)) return false;
  port = static_cast<uint16_t>(*number);
  digits = colon;
  return true;
}

// The two halves of "A:B".
bool split(std::string_view token, std::string_view& left, std::string_view& right) {
  const size_t colon = token.find(':');
  if (colon == std::string_view::npos) return false;
  left = token.substr(0, colon);
  right = token.substr(colon + 1);
  return true;
}

bool is_header(std::string_view line) { return Tokens(line).next() == "sl"; }

}  // namespace

uint64_t queued_tx_bytes(const TcpRow& row) {
  switch (static_cast<TcpState>(row.state)) {
    case TcpState::listen:
    case TcpState::syn_recv:
    case TcpState::time_wait:
    case TcpState::close:
      return 0;
    case TcpState::syn_sent:
    case TcpState::fin_wait1:
    case TcpState::closing:
    case TcpState::last_ack:
      return row.tx_queue_bytes == 0 ? 0 : row.tx_queue_bytes - 1;
    case TcpState::established:
    case TcpState::fin_wait2:
    case TcpState::close_wait:
      break;
  }
  return row.tx_queue_bytes;
}

bool parse_tcp_row_fixed(std::string_view line, bool terminated, TcpRow& row) {
  size_t colon = 0;
  while (colon < line.size() && line[colon] == ' ') ++colon;
  const size_t slot = colon;
  while (colon < line.size() && is_digit(line[colon])) ++colon;
  if (colon == slot || colon == line.size() || line[colon] != ':') return false;
  const size_t after_v4 = 2 + kV4Digits;
  if (line.size() - colon <= after_v4) return false;
  return line[colon + after_v4] == ':' ? parse_fixed<kV4Digits>(line, colon, terminated, row)
                                       : parse_fixed<kV6Digits>(line, colon, terminated, row);
}

bool parse_tcp_row_tokens(std::string_view line, bool terminated, TcpRow& row) {
  // The widths in the kernel's format are minima: fewer digits are damage, more a larger number.
  constexpr size_t kMinDigits = 8;
  constexpr size_t kMaxDigits = 16;
  Tokens tokens(line);
  std::string_view slot = tokens.next();
  if (!slot.ends_with(':')) return false;
  slot.remove_suffix(1);
  if (slot.empty() || !std::all_of(slot.begin(), slot.end(), is_digit)) return false;

  size_t local_digits = 0;
  size_t remote_digits = 0;
  if (!parse_endpoint(tokens.next(), row.local, row.local_port, local_digits)) return false;
  if (!parse_endpoint(tokens.next(), row.remote, row.remote_port, remote_digits)) return false;
  if (local_digits != remote_digits) return false;
  row.ipv6 = local_digits == kV6Digits;

  const auto state = parse_hex(tokens.next(), 2, 2);
  if (!state) return false;
  row.state = static_cast<uint8_t>(*state);

  std::string_view left;
  std::string_view right;
  if (!split(tokens.next(), left, right)) return false;
  const auto tx = parse_hex(left, kMinDigits, kMaxDigits);
  const auto rx = parse_hex(right, kMinDigits, kMaxDigits);
  if (!tx || !rx) return false;
  row.tx_queue_bytes = *tx;
  row.rx_queue_bytes = *rx;

  if (!split(tokens.next(), left, right)) return false;
  if (!parse_hex(left, 2, 2) || !parse_hex(right, kMinDigits, kMaxDigits)) return false;
  if (!parse_hex(tokens.next(), kMinDigits, kMaxDigits)) return false;
  return parse_tail(tokens.rest(), terminated, row);
}

void TcpTableParser::take_line(std::string_view line, bool terminated, OnRow on_row) {
  if (first_line_) {
    first_line_ = false;
    if (is_header(line)) return;
  }
  if (!parse_tcp_row_fixed(line, terminated, row_)) {
    if (!parse_tcp_row_tokens(line, terminated, row_)) {
      ++errors_;
      return;
    }
    ++irregular_rows_;
  }
  ++rows_;
  on_row(row_);
}

// Adds to the unfinished line, or gives it up as too long.
void TcpTableParser::keep(std::string_view part) {
  if (skipping_ || part.empty()) return;
  if (part.size() > carry_.size() - carry_size_) {
    skipping_ = true;
    first_line_ = false;
    carry_size_ = 0;
    ++errors_;
    return;
  }
  std::memcpy(carry_.data() + carry_size_, part.data(), part.size());
  carry_size_ += part.size();
}

void TcpTableParser::feed(std::string_view chunk, OnRow on_row) {
  while (!chunk.empty()) {
    const size_t end = chunk.find('\n');
    const std::string_view part = chunk.substr(0, end);
    if (end == std::string_view::npos) {
      keep(part);
      return;
    }
    chunk.remove_prefix(end + 1);
    if (carry_size_ == 0 && !skipping_ && part.size() <= kMaxTcpLineBytes) {
      take_line(part, true, on_row);
      continue;
    }
    keep(part);
    if (!skipping_) take_line({carry_.data(), carry_size_}, true, on_row);
    skipping_ = false;
    carry_size_ = 0;
  }
}

void TcpTableParser::finish(OnRow on_row) {
  if (carry_size_ != 0) take_line({carry_.data(), carry_size_}, false, on_row);
  skipping_ = false;
  carry_size_ = 0;
  first_line_ = true;
}

TcpTableRead read_tcp_table(int pid_dirfd, TcpTable table, std::span<char> buffer,
                            TcpTableParser::OnRow on_row) {
  TcpTableRead read;
  const auto file = open_at(pid_dirfd, table == TcpTable::tcp ? "net/tcp" : "net/tcp6");
  if (!file) {
    read.result = file.error();
    // A zombie's net directory is gone as well; one that still has net/tcp lives on a kernel without IPv6.
    struct stat status;
    if (table == TcpTable::tcp6 && file.error().err == ENOENT &&
        ::fstatat(pid_dirfd, "net/tcp", &status, 0) == 0) {
      read.result = {};
      read.absent = true;
    }
    return read;
  }
  TcpTableParser parser;
  for (;;) {
    const auto count = read_some(file->get(), buffer);
    if (!count) {
      read.result = count.error();
      break;
    }
    if (*count == 0) {
      parser.finish(on_row);
      break;
    }
    parser.feed({buffer.data(), *count}, on_row);
  }
  read.rows = parser.rows();
  read.errors = parser.errors();
  return read;
}

}  // namespace kitty::procfs
