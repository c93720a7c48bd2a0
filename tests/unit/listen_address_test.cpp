#include "http/listen_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

namespace kitty::http {
namespace {

struct Case {
  const char* name;
  std::string text;
  std::string host;   // empty: all
  int port;           // -1: an error
  std::string error;  // its detail, up to the advice
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class ParseListenAddress : public testing::TestWithParam<Case> {};

TEST_P(ParseListenAddress, Parses) {
  const Case& want = GetParam();
  const auto address = parse_listen_address(want.text);
  if (want.port < 0) {
    ASSERT_FALSE(address);
    EXPECT_EQ(address.error().object, want.text);
    EXPECT_EQ(address.error().detail, want.error + "; write :9100, 127.0.0.1:9100 or [::1]:9100");
    return;
  }
  ASSERT_TRUE(address) << address.error().message();
  EXPECT_EQ(address->host, want.host);
  EXPECT_EQ(address->port, want.port);
  char text[INET6_ADDRSTRLEN] = "";
  if (address->address.ss_family == AF_INET) {
    sockaddr_in v4{};
    ASSERT_EQ(address->address_bytes, sizeof v4);
    memcpy(&v4, &address->address, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    EXPECT_EQ(ntohs(v4.sin_port), want.port);
  } else {
    sockaddr_in6 v6{};
    ASSERT_EQ(address->address_bytes, sizeof v6);
    memcpy(&v6, &address->address, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    EXPECT_EQ(ntohs(v6.sin6_port), want.port);
  }
  EXPECT_EQ(text, want.host.empty() ? "::" : want.host);
}

const char kNoAddress[] = "the host is no numeric address";
const char kNoPort[] = "the port is no number from 0 to 65535";

INSTANTIATE_TEST_SUITE_P(
    Cases, ParseListenAddress,
    testing::Values(
        Case{"port_only", ":9100", "", 9100, ""}, Case{"any_port", "127.0.0.1:0", "127.0.0.1", 0, ""},
        Case{"ipv6", "[::1]:9100", "::1", 9100, ""}, Case{"ipv6_any", "[::]:65535", "::", 65535, ""},
        Case{"ipv4_any", "0.0.0.0:1", "0.0.0.0", 1, ""}, Case{"empty", "", "", -1, "no port"},
        Case{"no_colon", "9100", "", -1, "no port"}, Case{"no_port", "127.0.0.1:", "", -1, kNoPort},
        Case{"port_too_large", ":65536", "", -1, kNoPort}, Case{"negative_port", ":-1", "", -1, kNoPort},
        Case{"plus_port", ":+1", "", -1, kNoPort}, Case{"port_with_tail", ":9100/", "", -1, kNoPort},
        Case{"name", "localhost:9100", "", -1, kNoAddress}, Case{"star", "*:9100", "", -1, kNoAddress},
        Case{"short_ipv4", "127.1:9100", "", -1, kNoAddress},
        Case{"ipv4_in_brackets", "[127.0.0.1]:9100", "", -1, kNoAddress},
        Case{"no_closing_bracket", "[::1:9100", "", -1, kNoAddress},
        Case{"scope", "[fe80::1%eth0]:9100", "fe80::1", 9100, ""},
        Case{"empty_scope", "[fe80::1%]:9100", "", -1, "no interface's name behind the '%'"},
        Case{"two_scopes", "[fe80::1%a%b]:9100", "", -1, "no interface's name behind the '%'"},
        Case{"scope_of_ipv4", "127.0.0.1%lo:9100", "", -1, kNoAddress},
        Case{"empty_brackets", "[]:9100", "", -1, kNoAddress},
        Case{"ipv6_without_brackets", "::1:9100", "", -1, "an IPv6 address needs brackets"},
        Case{"url", "http://127.0.0.1:9100", "", -1, kNoAddress}),
    [](const auto& c) { return std::string(c.param.name); });

Result<Fd> listen_text(const std::string& text) {
  const auto address = parse_listen_address(text);
  if (!address) return std::unexpected(address.error());
  return listen_on(*address, text);
}

TEST(ListenOn, AnyFreePort) {
  const auto socket = listen_text("127.0.0.1:0");
  ASSERT_TRUE(socket) << socket.error().message();
  const auto port = bound_port(*socket);
  ASSERT_TRUE(port);
  EXPECT_NE(*port, 0);
}

TEST(ListenOn, ATakenPortIsAnErrorThatSaysWhatToDo) {
  const auto first = listen_text("127.0.0.1:0");
  ASSERT_TRUE(first) << first.error().message();
  const int port = *bound_port(*first);
  const std::string text = "127.0.0.1:" + std::to_string(port);
  const auto second = listen_text(text);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().err, EADDRINUSE);
  const std::string next = "127.0.0.1:" + std::to_string(port == 65535 ? 9101 : port + 1);
  EXPECT_EQ(second.error().message(), "listen on '" + text +
                                          "': Address already in use: choose another with " +
                                          "--web.listen-address=" + next);
}

// Taken for every address of the host, whichever family the other program listens on.
TEST(ListenOn, EveryAddressCollidesWithOneOfThem) {
  const auto first = listen_text("127.0.0.1:0");
  ASSERT_TRUE(first) << first.error().message();
  const auto second = listen_text(":" + std::to_string(*bound_port(*first)));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().err, EADDRINUSE);
}

TEST(ListenOn, TheUsualPortNamesTheUsualSuspect) {
  const auto first = listen_text("127.0.0.1:9100");  // ours, or somebody else's: taken in either case
  const auto second = listen_text("127.0.0.1:9100");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().message(),
            "listen on '127.0.0.1:9100': Address already in use: node_exporter uses port 9100 too; choose "
            "another with "
            "--web.listen-address=127.0.0.1:9101");
}

TEST(ListenOn, AnInterfaceBehindTheAddress) {
  const auto address = parse_listen_address("[::1%lo]:0");
  ASSERT_TRUE(address) << address.error().message();
  EXPECT_EQ(address->scope, "lo");
  const auto socket = listen_on(*address, "[::1%lo]:0");
  ASSERT_TRUE(socket) << socket.error().message();
  const auto missing = listen_text("[fe80::1%kitty-none]:0");
  ASSERT_FALSE(missing);
  EXPECT_EQ(
      missing.error().message(),
      "listen on '[fe80::1%kitty-none]:0': No such device: no interface of this host is called 'kitty-none'");
  const auto unsaid = listen_text("[fe80::1]:0");
  ASSERT_FALSE(unsaid);
  EXPECT_EQ(unsaid.error().message(),
            "listen on '[fe80::1]:0': Invalid argument: a link-local address needs its interface, as in "
            "[fe80::1%eth0]:9100");
}

TEST(ListenOn, AnAddressOfAnotherHost) {
  const auto socket = listen_text("192.0.2.1:0");  // RFC 5737: nobody's
  ASSERT_FALSE(socket);
  EXPECT_EQ(
      socket.error().message(),
      "listen on '192.0.2.1:0': Cannot assign requested address: no interface of this host has that address; "
      "choose one with --web.listen-address");
}

}  // namespace
}  // namespace kitty::http
