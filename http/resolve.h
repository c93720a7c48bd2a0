// Where a host is: a numeric address (fe80::1%eth0 included), localhost, a name of /etc/hosts (hosts(5)),
// else of the DNS as /etc/resolv.conf says (resolver(3)). Not through the C library's getaddrinfo(): in a
// static binary that would load shared objects of exactly its own version. Thread-safe: no state.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace kitty::http {

// An address to connect to, with its port.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;
};

// At least one endpoint, in the order of their sources. Each server of resolv.conf(5) has a second for each
// question: for IPv4 addresses, and where there are none, or the servers fail, for IPv6 ones; for these not
// once kMaxFirstQuestion is over, for then nobody answers.
inline constexpr std::chrono::seconds kMaxFirstQuestion{3};
[[nodiscard]] Result<std::vector<Endpoint>> resolve(const std::string& host, uint16_t port);

}  // namespace kitty::http
