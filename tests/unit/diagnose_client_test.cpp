// http/client against servers that misbehave, on loopback.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/fd.h"
#include "http/client.h"
#include "http/exposition.h"

namespace kitty::http {
namespace {

using std::chrono::milliseconds;

// Answers one connection: each piece of `pieces` after `pause`, over and over where `forever`.
struct Behaviour {
  std::string answer;
  bool byte_by_byte = false;  // 20 ms apart, and the answer again when it ends
  bool silent = false;        // accepts, says nothing, stays
};

class BadServer {
 public:
  explicit BadServer(Behaviour behaviour) : behaviour_(std::move(behaviour)) {
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~BadServer() {
    stop_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  [[nodiscard]] Url url(std::string host = "127.0.0.1") const {
    return {.host = std::move(host), .port = port_};
  }
  [[nodiscard]] const std::string& request() const { return request_; }

 private:
  void serve() {
    const Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return;
    char head[4096];
    const ssize_t n = recv(peer.get(), head, sizeof head, 0);
    if (n > 0) request_.assign(head, static_cast<size_t>(n));
    const auto pause = [] { std::this_thread::sleep_for(milliseconds(20)); };
    if (behaviour_.silent) {
      while (!stop_) pause();
    } else if (behaviour_.byte_by_byte) {
      for (size_t i = 0; !stop_; i = (i + 1) % behaviour_.answer.size()) {
        if (send(peer.get(), &behaviour_.answer[i], 1, MSG_NOSIGNAL) != 1) return;
        pause();
      }
    } else {
      std::string_view rest = behaviour_.answer;
      while (!rest.empty()) {
        const ssize_t sent = send(peer.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) return;
        rest.remove_prefix(static_cast<size_t>(sent));
      }
    }
  }

  Behaviour behaviour_;
  Fd listener_;
  uint16_t port_ = 0;
  std::string request_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(Client, ReadsBodiesOfEveryForm) {
  const std::string forms[] = {
      "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc 1\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\n 1\n\r\n0\r\n\r\n",
      "HTTP/1.0 200 OK\r\n\r\nabc 1\n",
  };
  for (const std::string& form : forms) {
    std::string request;
    {
      BadServer server({.answer = form});
      const auto body = get(server.url(), milliseconds(10000));
      ASSERT_TRUE(body) << form << body.error().message();
      EXPECT_EQ(*body, "abc 1\n");
      request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server.url().port) + "\r\n";
      EXPECT_TRUE(server.request().starts_with(request)) << server.request();
    }
  }
}

TEST(Client, NamesOfThisHostsHostsFile) {
  BadServer server({.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx\n"});
  const auto body = get(server.url("LOCALHOST"), milliseconds(10000));
  ASSERT_TRUE(body) << body.error().message();
  const auto unknown = get({.host = "no-such-host.invalid", .port = 1}, milliseconds(10000));
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("not in /etc/hosts, and no"), std::string::npos);
}

TEST(Client, BadAnswersAreErrors) {
  struct Case {
    const char* name;
    std::string answer;
    const char* says;
  };
  const Case cases[] = {
      {"no HTTP", "SSH-2.0-OpenSSH_9.2\r\n", "no HTTP, or is cut off"},
      {"nothing", "", "no HTTP, or is cut off"},
      {"half a status line", "HTTP/1.1 20", "no HTTP, or is cut off"},
      {"half a header", "HTTP/1.1 200 OK\r\nContent-Le", "cut off"},
      {"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "cut off"},
      {"half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc", "cut off"},
      {"bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc", "cut off"},
      {"not found", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "the server answers 404"},
      {"moved", "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "the server answers 302"},
      {"too large",
       "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + std::string(kMaxTextBytes + 1, 'x'),
       "more than 4 MiB"},
      {"too large, without a length", "HTTP/1.1 200 OK\r\n\r\n" + std::string(kMaxTextBytes + 1, 'x'),
       "more than 4 MiB"},
      {"endless headers", "HTTP/1.1 200 OK\r\n" + std::string(6 << 20, 'x'), "cut off"},
  };
  for (const Case& c : cases) {
    BadServer server({.answer = c.answer});
    const auto body = get(server.url(), milliseconds(20000));
    ASSERT_FALSE(body) << c.name;
    EXPECT_NE(body.error().message().find(c.says), std::string::npos)
        << c.name << ": " << body.error().message();
  }
}

// Whatever drips, the deadline is of the whole. Were it of each read, these would take minutes.
TEST(Client, OneDeadlineForTheWhole) {
  const Behaviour slow[] = {
      {.answer = "HTTP/1.1 200 OK\r\n" + std::string(10000, 'x'), .byte_by_byte = true},
      {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + std::string(10000, 'x'),
       .byte_by_byte = true},
      {.answer = {}, .silent = true},
  };
  for (const Behaviour& behaviour : slow) {
    BadServer server(behaviour);
    const auto start = std::chrono::steady_clock::now();
    const auto body = get(server.url(), milliseconds(1500));
    const auto took = std::chrono::steady_clock::now() - start;
    ASSERT_FALSE(body);
    EXPECT_NE(body.error().message().find("timed out"), std::string::npos) << body.error().message();
    EXPECT_LT(took, std::chrono::seconds(10));
  }
}

// An interface's name is of use to this host only (RFC 6874, 1), and no server would know itself by it.
TEST(Client, TheHostHeaderDoesNotNameTheInterface) {
  BadServer server({.answer = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"});
  const auto body = get({.host = "::ffff:127.0.0.1%lo", .port = server.url().port}, milliseconds(10000));
  ASSERT_TRUE(body) << body.error().message();
  EXPECT_NE(server.request().find("\r\nHost: [::ffff:127.0.0.1]:"), std::string::npos) << server.request();
  const auto nowhere = get({.host = "fe80::1%kitty-none", .port = 1}, milliseconds(10000));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message(),
            "resolve 'fe80::1%kitty-none': no IPv6 address, or this host has no interface of the name behind "
            "the '%'");
}

TEST(Client, NobodyListens) {
  uint16_t port = 0;
  {
    BadServer server({.answer = "x"});
    port = server.url().port;
    (void)get(server.url(), milliseconds(10000));
  }
  const auto body = get({.host = "127.0.0.1", .port = port}, milliseconds(10000));
  ASSERT_FALSE(body);
  EXPECT_EQ(body.error().message(), "connect '127.0.0.1:" + std::to_string(port) + "': Connection refused");
}

TEST(Client, Urls) {
  struct Case {
    const char* text;
    const char* host;
    uint16_t port;
    const char* path;
  };
  const Case good[] = {
      {"10.0.0.1:9100", "10.0.0.1", 9100, "/metrics"},
      {"n0:1", "n0", 1, "/metrics"},
      {"[::1]:9100", "::1", 9100, "/metrics"},
      {"http://n0/", "n0", 80, "/metrics"},
      {"http://n0:9100/a/b?c=d", "n0", 9100, "/a/b?c=d"},
      {"http://[fe80::1]", "fe80::1", 80, "/metrics"},
      {"[fe80::1%eth0]:9100", "fe80::1%eth0", 9100, "/metrics"},
      {"http://[fe80::1%eth0.5]:9100/x", "fe80::1%eth0.5", 9100, "/x"},
      {"http://[fe80::1%25eth0]:9100/x", "fe80::1%eth0", 9100, "/x"},
      {"http://[fe80::1%25]:9100/x", "fe80::1%25", 9100, "/x"},
  };
  for (const Case& c : good) {
    const auto url = parse_url(c.text);
    ASSERT_TRUE(url) << c.text << ": " << url.error().message();
    EXPECT_EQ(url->host, c.host) << c.text;
    EXPECT_EQ(url->port, c.port) << c.text;
    EXPECT_EQ(url->path, c.path) << c.text;
  }
  for (const char* bad : {"",
                          "n0",
                          "n0:",
                          "n0:x",
                          "n0:70000",
                          ":9100",
                          "::1",
                          "[::1",
                          "http://",
                          "https://n0",
                          "n0/x",
                          "http://n0/\r\nHost: x",
                          "n 0:1",
                          "http://u@n0:1/",
                          "http://n0:1/#f",
                          "n0%eth0:1",
                          "[fe80::1%]:1",
                          "[fe80::1%a b]:1",
                          "[fe80::1%a%b]:1",
                          "[fe80::1%0123456789abcdef]:1",
                          "10.0.0.1%eth0:1"}) {
    EXPECT_FALSE(parse_url(bad)) << bad;
  }
}

}  // namespace
}  // namespace kitty::http
