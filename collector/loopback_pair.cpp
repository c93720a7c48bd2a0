#include "collector/loopback_pair.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace kitty::collector {

namespace {

constexpr timeval kTimeout = {.tv_sec = 1, .tv_usec = 0};

void set_options(const Fd& end) {
  const int on = 1;
  setsockopt(end.get(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof kTimeout);
  setsockopt(end.get(), SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof kTimeout);
  setsockopt(end.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool loopback_is_down(const Fd& any_socket) {
  ifreq request{};
  constexpr std::string_view kLoopback = "lo";
  std::ranges::copy(kLoopback, request.ifr_name);
  return ioctl(any_socket.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
}

}  // namespace

Result<LoopbackPair> connect_loopback_pair(std::string_view operation) {
  const auto failed = [operation](std::string_view step) { return fail(operation, step, errno); };
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  LoopbackPair pair{.client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), .server = {}};
  if (!listener || !pair.client) return failed("socket");
  set_options(listener);  // accept() obeys the timeout too
  set_options(pair.client);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, size) != 0) return failed("bind 127.0.0.1");
  if (listen(listener.get(), 1) != 0) return failed("listen");
  if (getsockname(listener.get(), generic, &size) != 0) return failed("getsockname");
  if (connect(pair.client.get(), generic, size) != 0) {
    const int err = errno;
    const bool down = loopback_is_down(pair.client);
    return fail(operation, "connect 127.0.0.1", err,
                down ? "the interface lo is down in this network namespace: ip link set lo up" : "");
  }
  pair.server = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!pair.server) return failed("accept");
  set_options(pair.server);
  return pair;
}

}  // namespace kitty::collector
