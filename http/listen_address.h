// Where kitty listens: `:9100`, `127.0.0.1:9100`, `[::1]:9100`, `[fe80::1%eth0]:9100`. Numeric only: names
// need files and libraries that a scratch image lacks. Parsing is pure; listening returns an owned socket.
// Thread-safe.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace kitty::http {

struct ListenAddress {
  std::string host;               // "127.0.0.1", "::1"; empty: every address of this host
  std::string scope;              // "eth0", of fe80::1%eth0; looked up when it listens
  uint16_t port = 0;              // 0: any free one
  sockaddr_storage address = {};  // of `host` and `port`; `::` where host is empty
  socklen_t address_bytes = 0;
};

// HOST:PORT; an IPv6 address in brackets. Errors name the text and what is wrong with it.
[[nodiscard]] Result<ListenAddress> parse_listen_address(std::string_view text);

// A listening TCP socket, non-blocking and close-on-exec. Without a host it serves IPv6 and IPv4, or IPv4
// alone where the kernel has no IPv6. Without SO_REUSEPORT: a second kitty on the same port must fail, not
// take half of the scrapes. `text` is the address as the user wrote it, for the error, which says what to do.
[[nodiscard]] Result<Fd> listen_on(const ListenAddress& address, std::string_view text);

// The port a socket is bound to.
[[nodiscard]] Result<uint16_t> bound_port(const Fd& socket);

}  // namespace kitty::http
