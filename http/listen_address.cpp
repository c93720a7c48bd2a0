#include "http/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "http/scope.h"

namespace kitty::http {

namespace {

constexpr uint16_t kNodeExporterPort = 9100;
constexpr int kBacklog = SOMAXCONN;
// Of each accepted connection, before the kernel doubles it (socket(7)): left to itself it would hold up to 4
// MiB (tcp_wmem, tcp(7)) for every client that does not read.
constexpr int kSendBufferBytes = 256 * 1024;

void set_address(ListenAddress& to, const in6_addr& host) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = host;
  address.sin6_port = htons(to.port);
  memcpy(&to.address, &address, sizeof address);
  to.address_bytes = sizeof address;
}

void set_address(ListenAddress& to, const in_addr& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = host;
  address.sin_port = htons(to.port);
  memcpy(&to.address, &address, sizeof address);
  to.address_bytes = sizeof address;
}

// Who connects is handed to the server with its first bytes, so that silent connections cost the kernel a
// hundred bytes each and the server nothing; without them after so many seconds, when the kernel has asked
// once more (tcp_check_req() in net/ipv4/tcp_minisocks.c). A port that is only looked at (kubelet's
// tcpSocket) is open at once.
constexpr int kDeferAcceptS = 1;

// An invalid Fd and errno where it cannot be done.
Fd try_listen(const ListenAddress& address) {
  const int family = address.address.ss_family;
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return {};
  const int on = 1;
  const int off = 0;
  const auto* sa = reinterpret_cast<const sockaddr*>(&address.address);
  // Where the kernel has no such option the server tells the silent ones by itself.
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &kDeferAcceptS, sizeof kDeferAcceptS);
  // SO_REUSEADDR: a restart must not wait for the old connections' TIME_WAIT (socket(7)).
  if (setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes) != 0 ||
      (family == AF_INET6 && setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
      bind(socket.get(), sa, address.address_bytes) != 0 || listen(socket.get(), kBacklog) != 0) {
    const int err = errno;
    socket.reset();
    errno = err;
  }
  return socket;
}

// False where this host has no such interface.
bool set_scope(ListenAddress& address) {
  const auto index = interface_index(address.scope);
  if (!index) return false;
  sockaddr_in6 v6{};
  memcpy(&v6, &address.address, sizeof v6);
  v6.sin6_scope_id = *index;
  memcpy(&address.address, &v6, sizeof v6);
  return true;
}

bool is_link_local(const ListenAddress& address) {
  sockaddr_in6 v6{};
  memcpy(&v6, &address.address, sizeof v6);
  return v6.sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

std::string remedy(const ListenAddress& address, std::string_view text, int err) {
  if (err == EADDRINUSE) {
    std::string out = address.port == kNodeExporterPort ? "node_exporter uses port 9100 too; " : "";
    out += "choose another with --web.listen-address=";
    out += text.substr(0, text.rfind(':') + 1);
    out += std::to_string(address.port == UINT16_MAX ? kNodeExporterPort + 1 : address.port + 1);
    return out;
  }
  if (err == EACCES)
    return "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one with --web.listen-address";
  if (err == EADDRNOTAVAIL)
    return "no interface of this host has that address; choose one with --web.listen-address";
  if (err == EINVAL && address.scope.empty() && is_link_local(address))
    return "a link-local address needs its interface, as in [fe80::1%eth0]:9100";
  return "choose another address with --web.listen-address";
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  auto bad = [text](std::string_view why) {
    return fail("parse listen address", text, 0,
                std::string(why) + "; write :9100, 127.0.0.1:9100 or [::1]:9100");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("no port");
  ListenAddress out;
  const std::string_view port = text.substr(colon + 1);
  const auto [ptr, ec] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (ec != std::errc() || ptr != port.data() + port.size())
    return bad("the port is no number from 0 to 65535");

  std::string_view host = text.substr(0, colon);
  if (host.empty()) {
    set_address(out, in6addr_any);
    return out;
  }
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const ScopedAddress scoped = split_scope(host);
  out.host = scoped.address;
  if (scoped.scope && !is_scope(*scoped.scope)) return bad("no interface's name behind the '%'");
  out.scope = scoped.scope.value_or("");
  if (host.find('\0') != std::string_view::npos) return bad("the host is no numeric address");
  in6_addr v6{};
  in_addr v4{};
  if (inet_pton(AF_INET6, out.host.c_str(), &v6) == 1) {
    if (!bracketed) return bad("an IPv6 address needs brackets");
    set_address(out, v6);
  } else if (!bracketed && !scoped.scope && inet_pton(AF_INET, out.host.c_str(), &v4) == 1) {
    set_address(out, v4);
  } else {
    return bad("the host is no numeric address");
  }
  return out;
}

Result<Fd> listen_on(const ListenAddress& address, std::string_view text) {
  ListenAddress scoped = address;
  if (!address.scope.empty() && !set_scope(scoped))
    return fail("listen on", text, ENODEV, "no interface of this host is called '" + address.scope + '\'');
  Fd socket = try_listen(scoped);
  if (!socket && address.host.empty() && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) {
    ListenAddress v4 =
        address;  // booted with ipv6.disable=1: no such family; with disable_ipv6=1: no such address
    set_address(v4, in_addr{htonl(INADDR_ANY)});
    socket = try_listen(v4);
  }
  if (!socket) {
    const int err = errno;
    return fail("listen on", text, err, remedy(address, text, err));
  }
  return socket;
}

Result<uint16_t> bound_port(const Fd& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return fail("read bound address", {}, errno);
  }
  if (address.ss_family == AF_INET) {
    sockaddr_in v4{};
    memcpy(&v4, &address, sizeof v4);
    return ntohs(v4.sin_port);
  }
  sockaddr_in6 v6{};
  memcpy(&v6, &address, sizeof v6);
  return ntohs(v6.sin6_port);
}

}  // namespace kitty::http
