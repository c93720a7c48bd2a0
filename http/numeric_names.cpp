// The C library's functions for names and addresses (netdb.h, ifaddrs.h), for numeric addresses only.
//
// kitty finds names by itself (http/resolve.h), but httplib refers to these functions. In a static binary
// glibc's own would bring in 150 KB of resolver that then loads shared objects of exactly its version at run
// time (the linker warns of it), and /etc/nsswitch.conf, /etc/hosts and /etc/resolv.conf, none of which a
// scratch image has. These definitions are found first. Thread-safe; no state.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

namespace {

// One result and the address it points to, freed as one.
struct NumericResult {
  addrinfo info;
  union {
    sockaddr_in v4;
    sockaddr_in6 v6;
  } address;
};

bool parse_port(const char* service, in_port_t& port) {
  const std::string_view text = service == nullptr ? "0" : service;
  uint16_t value = 0;
  const auto [ptr, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  port = htons(value);
  return ec == std::errc() && ptr == text.data() + text.size();
}

bool copy_text(std::string_view text, char* to, socklen_t bytes) {
  if (to == nullptr || bytes == 0) return true;
  if (text.size() >= bytes) return false;
  memcpy(to, text.data(), text.size());
  to[text.size()] = '\0';
  return true;
}

}  // namespace

extern "C" {

// As getaddrinfo(3) with AI_NUMERICHOST and AI_NUMERICSERV; a null node is the wildcard address with
// AI_PASSIVE and loopback without.
int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  const int flags = hints == nullptr ? 0 : hints->ai_flags;
  const int family = hints == nullptr ? AF_UNSPEC : hints->ai_family;
  in_port_t port = 0;
  if (!parse_port(service, port)) return EAI_SERVICE;

  in6_addr v6 = (flags & AI_PASSIVE) != 0 ? in6addr_any : in6addr_loopback;
  in_addr v4{htonl((flags & AI_PASSIVE) != 0 ? INADDR_ANY : INADDR_LOOPBACK)};
  bool is_v6 = family == AF_INET6;
  if (node != nullptr) {
    if (family != AF_INET6 && inet_pton(AF_INET, node, &v4) == 1) {
      is_v6 = false;
    } else if (family != AF_INET && inet_pton(AF_INET6, node, &v6) == 1) {
      is_v6 = true;
    } else {
      return EAI_NONAME;
    }
  }

  std::unique_ptr<NumericResult> one(new (std::nothrow) NumericResult());
  if (!one) return EAI_MEMORY;
  if (is_v6) {
    one->address.v6.sin6_family = AF_INET6;
    one->address.v6.sin6_port = port;
    one->address.v6.sin6_addr = v6;
    one->info.ai_addr = reinterpret_cast<sockaddr*>(&one->address.v6);
    one->info.ai_addrlen = sizeof one->address.v6;
  } else {
    one->address.v4.sin_family = AF_INET;
    one->address.v4.sin_port = port;
    one->address.v4.sin_addr = v4;
    one->info.ai_addr = reinterpret_cast<sockaddr*>(&one->address.v4);
    one->info.ai_addrlen = sizeof one->address.v4;
  }
  one->info.ai_family = is_v6 ? AF_INET6 : AF_INET;
  one->info.ai_socktype = hints == nullptr || hints->ai_socktype == 0 ? SOCK_STREAM : hints->ai_socktype;
  one->info.ai_protocol = hints == nullptr ? 0 : hints->ai_protocol;
  *result = &one.release()->info;
  return 0;
}

void freeaddrinfo(addrinfo* list) noexcept {
  // `info` is NumericResult's first member, so both begin at one address.
  delete reinterpret_cast<NumericResult*>(list);
}

// As getnameinfo(3) with NI_NUMERICHOST and NI_NUMERICSERV.
int getnameinfo(const sockaddr* address, socklen_t address_bytes, char* host, socklen_t host_bytes,
                char* service, socklen_t service_bytes, int) {
  char text[INET6_ADDRSTRLEN];
  in_port_t port = 0;
  if (address->sa_family == AF_INET && address_bytes >= sizeof(sockaddr_in)) {
    sockaddr_in v4{};
    memcpy(&v4, address, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = v4.sin_port;
  } else if (address->sa_family == AF_INET6 && address_bytes >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6{};
    memcpy(&v6, address, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = v6.sin6_port;
  } else {
    return EAI_FAMILY;
  }
  char digits[8];
  const char* const end = std::to_chars(digits, digits + sizeof digits, ntohs(port)).ptr;
  const bool fits = copy_text(text, host, host_bytes) &&
                    copy_text({digits, static_cast<size_t>(end - digits)}, service, service_bytes);
  return fits ? 0 : EAI_OVERFLOW;
}

// httplib's client asks for an interface's address only where it was given an interface's name.
int getifaddrs(ifaddrs**) noexcept {
  errno = ENOSYS;
  return -1;
}
void freeifaddrs(ifaddrs*) noexcept {}
}
