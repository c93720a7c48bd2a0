// An IP address as the socket tables give it, and its text for labels. Values only; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace kitty::procfs {

// Network byte order. IPv4 is v4-mapped (::ffff:a.b.c.d), so that one peer seen through net/tcp and through a
// dual-stack socket in net/tcp6 is one address.
using IpAddress = std::array<uint8_t, 16>;

// "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"; longer than any IPv4 text.
inline constexpr size_t kMaxAddressBytes = 39;

[[nodiscard]] bool is_v4_mapped(const IpAddress& address);

// Dotted decimal for a v4-mapped address, RFC 5952 for any other: lower case, no leading zeros, the first
// longest run of two or more zero groups as "::". The view points into `buffer`; no NUL is written.
[[nodiscard]] std::string_view format_address(const IpAddress& address,
                                              std::span<char, kMaxAddressBytes> buffer);

}  // namespace kitty::procfs
