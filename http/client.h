// Fetches one text by HTTP/1.1 GET. One deadline covers resolving, connecting and every byte, so that a peer
// that drips costs its deadline and no more; the size is bounded. Plain HTTP only.
//
// Names: as http/resolve.h finds them.
//
// Thread-safe; owns nothing between calls. SIGPIPE does not occur.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace kitty::http {

struct Url {
  std::string host;  // without brackets; fe80::1%eth0 with its interface
  uint16_t port = 9100;
  std::string path = "/metrics";  // with its query
};

// HOST:PORT, [IPV6]:PORT, or http://HOST[:PORT][/PATH], whose default port is 80 as everywhere. An interface
// may stand behind an IPv6 address: [fe80::1%eth0]:9100; behind http:// also as %25eth0 (RFC 6874).
[[nodiscard]] Result<Url> parse_url(std::string_view text);

// The body of a 200 answer, at most kMaxTextBytes. `timeout` is for the whole.
[[nodiscard]] Result<std::string> get(const Url& url, std::chrono::milliseconds timeout);

}  // namespace kitty::http
