// http/numeric_names.cpp replaces functions of the C library; these tests call them by their own names.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <memory>
#include <string>

namespace {

struct Case {
  const char* name;
  const char* node;  // null: none given
  const char* service;
  int family;
  int flags;
  int error;
  const char* host;  // as getnameinfo() writes the result
  const char* port;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class NumericNames : public testing::TestWithParam<Case> {};

TEST_P(NumericNames, ThereAndBack) {
  const Case& c = GetParam();
  addrinfo hints{};
  hints.ai_family = c.family;
  hints.ai_flags = c.flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* result = nullptr;
  ASSERT_EQ(getaddrinfo(c.node, c.service, &hints, &result), c.error);
  if (c.error != 0) return;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(result, freeaddrinfo);
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->ai_next, nullptr);
  EXPECT_EQ(result->ai_socktype, SOCK_STREAM);
  EXPECT_EQ(result->ai_family, result->ai_addr->sa_family);
  char host[64];
  char port[8];
  ASSERT_EQ(getnameinfo(result->ai_addr, result->ai_addrlen, host, sizeof host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV),
            0);
  EXPECT_STREQ(host, c.host);
  EXPECT_STREQ(port, c.port);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, NumericNames,
    testing::Values(Case{"ipv4", "127.0.0.1", "9100", AF_UNSPEC, 0, 0, "127.0.0.1", "9100"},
                    Case{"ipv6", "2001:db8::1", "80", AF_UNSPEC, 0, 0, "2001:db8::1", "80"},
                    Case{"no_service", "10.0.0.1", nullptr, AF_INET, 0, 0, "10.0.0.1", "0"},
                    Case{"passive", nullptr, "1", AF_UNSPEC, AI_PASSIVE, 0, "0.0.0.0", "1"},
                    Case{"passive_ipv6", nullptr, "1", AF_INET6, AI_PASSIVE, 0, "::", "1"},
                    Case{"loopback", nullptr, "1", AF_UNSPEC, 0, 0, "127.0.0.1", "1"},
                    Case{"loopback_ipv6", nullptr, "1", AF_INET6, 0, 0, "::1", "1"},
                    Case{"name", "localhost", "1", AF_UNSPEC, 0, EAI_NONAME, nullptr, nullptr},
                    Case{"empty_name", "", "1", AF_UNSPEC, 0, EAI_NONAME, nullptr, nullptr},
                    Case{"other_family", "::1", "1", AF_INET, 0, EAI_NONAME, nullptr, nullptr},
                    Case{"service_name", "127.0.0.1", "http", AF_UNSPEC, 0, EAI_SERVICE, nullptr, nullptr},
                    Case{"port_too_large", "127.0.0.1", "65536", AF_UNSPEC, 0, EAI_SERVICE, nullptr,
                         nullptr}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(NumericNames, ShortBuffersAreRefused) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* sa = reinterpret_cast<const sockaddr*>(&address);
  char host[10];
  EXPECT_EQ(getnameinfo(sa, sizeof address, host, 9, nullptr, 0, NI_NUMERICHOST), EAI_OVERFLOW);
  EXPECT_EQ(getnameinfo(sa, sizeof address, host, 10, nullptr, 0, NI_NUMERICHOST), 0);
  EXPECT_STREQ(host, "127.0.0.1");
  EXPECT_EQ(getnameinfo(sa, sizeof address - 1, host, sizeof host, nullptr, 0, NI_NUMERICHOST), EAI_FAMILY);
}

TEST(NumericNames, ThereIsNoListOfInterfaces) {
  ifaddrs* list = nullptr;
  EXPECT_EQ(getifaddrs(&list), -1);
  EXPECT_EQ(errno, ENOSYS);
}

}  // namespace
