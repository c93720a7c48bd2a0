// Under which names the agent may be asked. A page of somebody else's may let its own name lead to this
// host's address (DNS rebinding); the browser then hands that page what the agent answers, but says in the
// request which name it asked. So only such names are answered that no stranger can give out: an address
// itself, localhost, this host's own name, and what the user allows.
//
// Of a longer name it is not enough that it begins with this host's: anybody may register n7.example. The
// domains that may follow are those that this host itself would try: of its own name, of the search list in
// /etc/resolv.conf, and on its lines in /etc/hosts.
//
// Reading the names is pure; HostNames reads the files, once for each name that this host has had. One
// thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace kitty::http {

inline constexpr size_t kMaxAllowedHosts = 64;

// NAME, or .DOMAIN for every name below it; without a port.
[[nodiscard]] Status check_allowed_host(std::string_view name);

// The names of a host that calls itself `nodename`, by its hosts(5) and resolv.conf(5).
[[nodiscard]] std::vector<std::string> names_of_host(std::string_view nodename, std::string_view hosts,
                                                     std::string_view resolv_conf);

class HostNames {
 public:
  // `allowed`: names that have passed check_allowed_host().
  explicit HostNames(std::vector<std::string> allowed = {});

  // `host`: without its port, an IPv6 address in brackets; empty where a request names nobody.
  [[nodiscard]] bool knows(std::string_view host);

 private:
  void learn_own();

  std::vector<std::string> allowed_;
  std::string nodename_;
  std::vector<std::string> own_;  // of nodename_
};

}  // namespace kitty::http
