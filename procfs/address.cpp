#include "procfs/address.h"

#include <algorithm>
#include <cstddef>

namespace kitty::procfs {
namespace {

constexpr size_t kGroups = 8;

char* write_decimal(char* out, uint8_t byte) {
  if (byte >= 100) *out++ = static_cast<char>('0' + byte / 100);
  if (byte >= 10) *out++ = static_cast<char>('0' + byte / 10 % 10);
  *out++ = static_cast<char>('0' + byte % 10);
  return out;
}

char* write_group(char* out, unsigned group) {
  bool started = false;
  for (int shift = 12; shift >= 0; shift -= 4) {
    const unsigned nibble = group >> shift & 0xf;
    started = started || nibble != 0 || shift == 0;
    if (started) *out++ = "0123456789abcdef"[nibble];
  }
  return out;
}

}  // namespace

bool is_v4_mapped(const IpAddress& address) {
  return std::all_of(address.begin(), address.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         address[10] == 0xff && address[11] == 0xff;
}

std::string_view format_address(const IpAddress& address, std::span<char, kMaxAddressBytes> buffer) {
  char* out = buffer.data();
  if (is_v4_mapped(address)) {
    for (size_t i = 12; i < 16; ++i) {
      if (i != 12) *out++ = '.';
      out = write_decimal(out, address[i]);
    }
    return {buffer.data(), static_cast<size_t>(out - buffer.data())};
  }

  std::array<unsigned, kGroups> groups{};
  for (size_t i = 0; i < kGroups; ++i)
    groups[i] = static_cast<unsigned>(address[2 * i] << 8 | address[2 * i + 1]);
  size_t zeros_at = kGroups;
  size_t zeros = 1;  // a single zero group is written out
  for (size_t i = 0; i < kGroups; ++i) {
    size_t end = i;
    while (end < kGroups && groups[end] == 0) ++end;
    if (end - i > zeros) {
      zeros_at = i;
      zeros = end - i;
    }
    i = std::max(i, end);
  }
  for (size_t i = 0; i < kGroups; ++i) {
    if (i == zeros_at) {
      *out++ = ':';
      *out++ = ':';
      i += zeros - 1;
      continue;
    }
    if (i != 0 && i != zeros_at + zeros) *out++ = ':';
    out = write_group(out, groups[i]);
  }
  return {buffer.data(), static_cast<size_t>(out - buffer.data())};
}

}  // namespace kitty::procfs
