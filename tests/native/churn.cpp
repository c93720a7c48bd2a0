// The traffic of crowd_test.py that an interpreter would be too slow for: connections and processes by the
// thousand.
//
//   churn serve PORT                        answers each read on any number of connections with one byte
//   churn connect PORT COUNT SECONDS        opens and closes up to COUNT connections; prints what they sent
//   churn spawn PORT COUNT SECONDS          starts up to COUNT watched processes that live 10 ms to 3 s
//   churn visit PORT MILLISECONDS           such a process: one connection, a message each 20 ms
//   churn hold PAIRS                        holds so many idle connections to itself until stdin ends
//   churn peers PORT COUNT                  a message to each of 127.1.0.1..COUNT in turn, until stdin ends
//
// Connects to 127.0.0.1 and the addresses after it, whatever the namespace. One thread; everything it opens
// is its own and goes with it. A line on stdout says when a mode is ready or what it did.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace {

using kitty::Fd;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kLoopback = 0x7f000001;  // 127.0.0.1
constexpr size_t kMessageBytes = 1000;
// One address has 28,000 ports, which connections that wait in TIME_WAIT use up.
constexpr uint32_t kServerAddresses = 16;
constexpr uint32_t kPeerNet = 0x7f010000;  // 127.1.0.0

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "churn: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

sockaddr_in address_of(uint32_t ip, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ip);
  address.sin_port = htons(port);
  return address;
}

Fd listen_on(uint32_t ip, uint16_t port) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = address_of(ip, port);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) give_up("bind");
  if (listen(listener.get(), 4096) != 0) give_up("listen");
  return listener;
}

Fd connect_to(uint32_t ip, uint16_t port) {
  Fd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection) give_up("socket");
  const sockaddr_in address = address_of(ip, port);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    give_up("connect");
  const int on = 1;
  setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connection;
}

// One message and its answer.
void exchange(const Fd& connection) {
  static constexpr char kMessage[kMessageBytes] = {};
  char answer = 0;
  if (send(connection.get(), kMessage, sizeof kMessage, MSG_NOSIGNAL) != ssize_t{sizeof kMessage} ||
      recv(connection.get(), &answer, 1, 0) != 1) {
    give_up("exchange");
  }
}

bool stdin_ended(milliseconds wait) {
  pollfd in{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&in, 1, static_cast<int>(wait.count())) != 0;
}

int serve(uint16_t port) {
  const Fd listener = listen_on(INADDR_ANY, port);
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  const auto add = [&](int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) give_up("epoll_ctl");
  };
  add(listener.get());
  say("ready");
  for (;;) {
    epoll_event events[256];
    const int count = epoll_wait(epoll.get(), events, 256, -1);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener.get()) {
        if (const int peer = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC); peer >= 0) add(peer);
        continue;
      }
      static char buffer[65536];
      if (recv(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0 && send(fd, "k", 1, MSG_NOSIGNAL) == 1) continue;
      close(fd);  // of a connection that its client ended, which is also the end of its place in `epoll`
    }
  }
}

struct Sent {
  uint64_t connections = 0, bytes = 0, segments = 0;

  // Of the socket's whole life but its closing segments.
  void add(const Fd& connection) {
    tcp_info info{};
    socklen_t size = sizeof info;
    getsockopt(connection.get(), IPPROTO_TCP, TCP_INFO, &info, &size);
    ++connections;
    segments += info.tcpi_segs_out;
  }
};

// Every 500th connection lives for seconds, so that it is found and measured; the others are gone at once. Of
// these every second one is reset instead of closed, so that the kernel's table of TIME_WAIT sockets does not
// overflow.
int churn(uint16_t port, uint64_t limit, seconds duration) {
  constexpr uint64_t kKeepEach = 500;
  constexpr size_t kKept = 100;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  std::deque<Fd> kept;
  Sent sent;
  uint64_t opened = 0;
  const auto end = Clock::now() + duration;
  for (; opened < limit && Clock::now() < end; ++opened) {
    Fd connection = connect_to(kLoopback + static_cast<uint32_t>(opened % kServerAddresses), port);
    exchange(connection);
    sent.bytes += kMessageBytes;
    if (opened % kKeepEach == 0) {
      kept.push_back(std::move(connection));
      if (kept.size() <= kKept) continue;
      connection = std::move(kept.front());
      kept.pop_front();
    }
    if (opened % 2 == 0) setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    sent.add(connection);
    if (opened % 20 == 0 && !kept.empty()) {
      exchange(kept[opened / 20 % kept.size()]);
      sent.bytes += kMessageBytes;
    }
  }
  for (const Fd& connection : kept) sent.add(connection);
  kept.clear();
  say("connections " + std::to_string(sent.connections) + " bytes " + std::to_string(sent.bytes) +
      " segments " + std::to_string(sent.segments));
  while (!stdin_ended(seconds(1))) {
  }
  return 0;
}

int spawn(const char* self, const char* port, uint64_t limit, seconds duration) {
  constexpr size_t kAtOnce = 100;
  std::minstd_rand random(1);
  std::uniform_int_distribution<int> life_ms(10, 3000);
  uint64_t started = 0;
  size_t alive = 0;
  const auto end = Clock::now() + duration;
  while (started < limit && Clock::now() < end) {
    const std::string rank = "RANK=" + std::to_string(started), life = std::to_string(life_ms(random));
    const pid_t child = fork();
    if (child < 0) give_up("fork");
    if (child == 0) {
      const char* environment[] = {"KITTY_WATCH=1", rank.c_str(), "JOB_NAME=churn", nullptr};
      execle(self, self, "visit", port, life.c_str(), nullptr, environment);
      _exit(127);
    }
    ++started;
    ++alive;
    while (alive > 0 && waitpid(-1, nullptr, alive < kAtOnce ? WNOHANG : 0) > 0) --alive;
    usleep(5000);
  }
  while (waitpid(-1, nullptr, 0) > 0) {
  }
  say("processes " + std::to_string(started));
  return 0;
}

int visit(uint16_t port, milliseconds life) {
  const Fd connection = connect_to(kLoopback, port);
  const auto end = Clock::now() + life;
  while (Clock::now() < end) {
    exchange(connection);
    usleep(20'000);
  }
  return 0;
}

int hold(uint64_t pairs) {
  Fd listener = listen_on(kLoopback, 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  std::deque<Fd> held;
  for (uint64_t i = 0; i < pairs; ++i) {
    held.push_back(connect_to(kLoopback, ntohs(address.sin_port)));
    held.emplace_back(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!held.back()) give_up("accept");
  }
  say("ready");
  while (!stdin_ended(seconds(1))) {
  }
  return 0;
}

int fan(uint16_t port, uint32_t peers) {
  std::deque<Fd> connections;
  for (uint32_t peer = 1; peer <= peers; ++peer) connections.push_back(connect_to(kPeerNet + peer, port));
  say("ready");
  for (size_t next = 0; !stdin_ended(milliseconds(1)); next = (next + 1) % connections.size())
    exchange(connections[next]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 2 ? argv[1] : "";
  const auto number = [&](int index) { return index < argc ? std::strtoull(argv[index], nullptr, 10) : 0; };
  const auto port = static_cast<uint16_t>(number(2));
  if (mode == "serve") return serve(port);
  if (mode == "connect") return churn(port, number(3), seconds(number(4)));
  if (mode == "spawn") return spawn("/proc/self/exe", argv[2], number(3), seconds(number(4)));
  if (mode == "visit") return visit(port, milliseconds(number(3)));
  if (mode == "hold") return hold(number(2));
  if (mode == "peers") return fan(port, static_cast<uint32_t>(number(3)));
  std::fputs("usage: churn serve|connect|spawn|visit|hold|peers ARGUMENTS, see churn.cpp\n", stderr);
  return 3;
}
