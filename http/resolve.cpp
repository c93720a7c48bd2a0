#include "http/resolve.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "http/ascii.h"

namespace kitty::http {

namespace {

constexpr size_t kMaxHostsBytes = size_t{1} << 20;

bool numeric_endpoint(const std::string& host, uint16_t port, Endpoint& to) {
  sockaddr_in v4{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    memcpy(&to.address, &v4, sizeof v4);
    to.bytes = sizeof v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    memcpy(&to.address, &v6, sizeof v6);
    to.bytes = sizeof v6;
  } else {
    return false;
  }
  return true;
}

std::string read_hosts() {
  const Fd file(open("/etc/hosts", O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> block;
  while (file && text.size() < kMaxHostsBytes) {
    const ssize_t n = read(file.get(), block.data(), block.size());
    if (n <= 0) break;
    text.append(block.data(), static_cast<size_t>(n));
  }
  return text;
}

std::string_view take_word(std::string_view& line) {
  const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

// hosts(5): an address, then its names.
std::vector<Endpoint> find_in_hosts(std::string_view text, std::string_view name, uint16_t port) {
  std::vector<Endpoint> found;
  while (!text.empty()) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, std::min(newline, text.find('#')));
    text.remove_prefix(std::min(newline + 1, text.size()));
    const std::string address(take_word(line));
    Endpoint endpoint;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      if (equals_ignoring_case(word, name) && numeric_endpoint(address, port, endpoint))
        found.push_back(endpoint);
    }
  }
  return found;
}

// One of the servers' answers after another; owns glibc's state of them.
class Dns {
 public:
  Dns() : works_(res_ninit(&state_) == 0) {
    // A second for each of the three servers that resolv.conf(5) allows.
    state_.retrans = 1;
    state_.retry = 1;
    static_assert(MAXNS <= kMaxResolveS);
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
  // Whether it was for want of a server's answer that the latest find() found nothing.
  [[nodiscard]] bool is_silent() const {
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
  std::vector<Endpoint> found = find_in_hosts(read_hosts(), host, port);
  if (found.empty() && equals_ignoring_case(host, "localhost") &&
      numeric_endpoint("127.0.0.1", port, numeric)) {
    found.push_back(numeric);
  }
  if (!found.empty()) return found;
  Dns dns;
  found = dns.find(host, T_A, port);
  if (found.empty() && !dns.is_silent()) found = dns.find(host, T_AAAA, port);
  if (!found.empty()) return found;
  return fail("resolve", host, 0,
              dns.is_silent()
                  ? "not in /etc/hosts, and no server of /etc/resolv.conf answers: use the address"
                  : "not in /etc/hosts, and no name of the DNS");
}

}  // namespace kitty::http
