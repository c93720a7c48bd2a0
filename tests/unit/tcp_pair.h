// A TCP connection on 127.0.0.1, both ends in this process and close-on-exec.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace kitty::testing {

struct TcpPair {
  Fd listener, client, server;

  // `protocol`: of both sockets, as socket(2) takes it.
  explicit TcpPair(int protocol = 0) {
    listener = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), 4) != 0 ||
        getsockname(listener.get(), generic, &size) != 0) {
      return;
    }
    client = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol));
    if (connect(client.get(), generic, size) != 0) return;
    server = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  // Where the listener accepts, host byte order.
  [[nodiscard]] uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }

  // Sends until nothing more fits: the receiver's window is full and bytes wait in the sender.
  void fill() const {
    const std::string block(65536, 'k');
    while (send(client.get(), block.data(), block.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
};

inline uint64_t inode_of(const Fd& fd) {
  struct stat status{};
  return fstat(fd.get(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace kitty::testing
