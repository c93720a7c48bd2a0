#include "http/resolve.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "http/ascii.h"
#include "http/name_files.h"
#include "http/scope.h"

namespace kitty::http {

namespace {

bool numeric_endpoint(const std::string& host, uint16_t port, Endpoint& to) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const ScopedAddress scoped = split_scope(host);
  const std::string address(scoped.address);
  if (!scoped.scope && inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    memcpy(&to.address, &v4, sizeof v4);
    to.bytes = sizeof v4;
  } else if (inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr) == 1) {
    if (scoped.scope) {
      const auto index = interface_index(*scoped.scope);
      if (!index) return false;
      v6.sin6_scope_id = *index;
    }
    memcpy(&to.address, &v6, sizeof v6);
    to.bytes = sizeof v6;
  } else {
    return false;
  }
  return true;
}

// hosts(5): an address, then its names.
std::vector<Endpoint> find_in_hosts(std::string_view text, std::string_view name, uint16_t port) {
  std::vector<Endpoint> found;
  for_each_line(text, [&](std::string_view line) {
    const std::string address(take_word(line));
    Endpoint endpoint;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      if (equals_ignoring_case(word, name) && numeric_endpoint(address, port, endpoint))
        found.push_back(endpoint);
    }
  });
  return found;
}

// One of the servers' answers after another; owns glibc's state of them.
class Dns {
 public:
  Dns() : works_(res_ninit(&state_) == 0) {
    // A second for each of the three servers that resolv.conf(5) allows.
    state_.retrans = 1;
    state_.retry = 1;
    static_assert(std::chrono::seconds(MAXNS) <= kMaxFirstQuestion);
  }
  Dns(const Dns&) = delete;
  Dns& operator=(const Dns&) = delete;
  ~Dns() {
    if (works_) res_nclose(&state_);
  }

  // The addresses of a type, T_A or T_AAAA, that a name has; with the search list of resolv.conf.
  std::vector<Endpoint> find(const std::string& name, int type, uint16_t port) {
    std::vector<Endpoint> found;
    std::array<unsigned char, NS_MAXMSG> answer;
    const int bytes =
        works_ ? res_nsearch(&state_, name.c_str(), C_IN, type, answer.data(), answer.size()) : -1;
    ns_msg message;
    const bool is_whole = bytes > 0 && static_cast<size_t>(bytes) <= answer.size();
    if (!is_whole || ns_initparse(answer.data(), bytes, &message) != 0) return found;
    for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
      ns_rr record;
      if (ns_parserr(&message, ns_s_an, i, &record) != 0) break;
      std::array<char, INET6_ADDRSTRLEN> text;
      const int family = type == T_A ? AF_INET : AF_INET6;
      const size_t wanted_bytes = type == T_A ? sizeof(in_addr) : sizeof(in6_addr);
      Endpoint endpoint;
      if (ns_rr_type(record) == type && ns_rr_rdlen(record) == wanted_bytes &&
          inet_ntop(family, ns_rr_rdata(record), text.data(), text.size()) != nullptr &&
          numeric_endpoint(text.data(), port, endpoint)) {
        found.push_back(endpoint);
      }
    }
    return found;
  }
  // Whether it was for want of a server's answer, or because it failed (SERVFAIL), that the latest find()
  // found nothing.
  [[nodiscard]] bool has_failed() const {
    return !works_ || state_.res_h_errno == TRY_AGAIN || state_.res_h_errno == NETDB_INTERNAL;
  }

 private:
  struct __res_state state_{};
  bool works_;
};

}  // namespace

Result<std::vector<Endpoint>> resolve(const std::string& host, uint16_t port) {
  Endpoint numeric;
  if (numeric_endpoint(host, port, numeric)) return std::vector{numeric};
  if (host.contains('%'))
    return fail("resolve", host, 0,
                "no IPv6 address, or this host has no interface of the name behind the '%'");
  std::vector<Endpoint> found = find_in_hosts(read_name_file("/etc/hosts"), host, port);
  if (found.empty() && equals_ignoring_case(host, "localhost") &&
      numeric_endpoint("127.0.0.1", port, numeric)) {
    found.push_back(numeric);
  }
  if (!found.empty()) return found;
  Dns dns;
  const auto asked = std::chrono::steady_clock::now();
  found = dns.find(host, T_A, port);
  bool failed = found.empty() && dns.has_failed();
  // A server that fails for one type may well answer for the other (RFC 4074, 4.2 to 4.5).
  if (found.empty() && (!failed || std::chrono::steady_clock::now() - asked < kMaxFirstQuestion)) {
    found = dns.find(host, T_AAAA, port);
    failed = failed || dns.has_failed();
  }
  if (!found.empty()) return found;
  return fail(
      "resolve", host, 0,
      failed ? "not in /etc/hosts, and no server of /etc/resolv.conf answers, or it fails: use the address"
             : "not in /etc/hosts, and no name of the DNS");
}

}  // namespace kitty::http
