// The interface of a link-local address, as in fe80::1%eth0 (RFC 4007, 11): such an address is another host's
// behind each interface, so it says which one it means. Splitting is pure; looking an interface up asks the
// kernel. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kitty::http {

struct ScopedAddress {
  std::string_view address;
  std::optional<std::string_view> scope = {};  // what stands behind the '%'; none without one
};
[[nodiscard]] ScopedAddress split_scope(std::string_view text);

// Whether it may name an interface: 1 to 15 visible ASCII characters (IFNAMSIZ, dev_valid_name() in
// net/core/dev.c), but none that ends it in a target.
[[nodiscard]] bool is_scope(std::string_view scope);

// The index of an interface by its name, or by that number; none where this host has no such interface.
// ioctl(2) of a socket of its own.
[[nodiscard]] std::optional<uint32_t> interface_index(std::string_view scope);

}  // namespace kitty::http
