#include "http/connection.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace kitty::http {

ssize_t Connection::send() const {
  // In one call: the head and the text lie in two places.
  std::array<iovec, 2> parts{};
  size_t count = 0;
  size_t skip = sent;
  for (std::string_view part : {std::string_view(answer.head), answer.body.view()}) {
    const size_t dropped = std::min(skip, part.size());
    skip -= dropped;
    part.remove_prefix(dropped);
    // iovec is not const-correct; sendmsg() only reads.
    if (!part.empty()) parts[count++] = {const_cast<char*>(part.data()), part.size()};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  return sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Connection::is_taken() const {
  tcp_info info{};  // what an older kernel does not fill in stays 0
  socklen_t size = sizeof info;
  return getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
         (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0);
}

void Connection::close() {
  socket.reset();  // leaves the epoll set with it: nothing else refers to the socket
  state = State::idle;
  in.clear();
  searched = 0;
  answer.head.clear();
  answer.body.reset();
  sent = 0;
  requests = 0;
  runnable = false;
  only_taking = false;
}

void Connection::abort() {
  if (!is_taken()) {
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  close();
}

uint64_t client_of(const sockaddr_storage& address) {
  uint64_t client = 0;
  if (address.ss_family == AF_INET) {
    client = reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
  } else {
    const in6_addr& host = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&host);
    memcpy(&client, host.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 8);
  }
  return client;
}

}  // namespace kitty::http
