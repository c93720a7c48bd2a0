#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "procfs/address.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

std::string text_of(const IpAddress& address) {
  std::array<char, kMaxAddressBytes> buffer;
  return std::string(format_address(address, buffer));
}

struct Case {
  const char* name;
  const char* input;  // any spelling that inet_pton knows
  const char* text;
};

const Case kCases[] = {
    {"V4Mapped", "::ffff:192.0.2.235", "192.0.2.235"},
    {"V4MappedShort", "::ffff:1.20.0.9", "1.20.0.9"},
    {"V4MappedZero", "::ffff:0.0.0.0", "0.0.0.0"},
    {"V4MappedFull", "::ffff:255.255.255.255", "255.255.255.255"},
    {"V4CompatibleIsNotMapped", "::192.0.2.1", "::c000:201"},
    {"NearlyMapped", "::1:ffff:c000:201", "::1:ffff:c000:201"},
    {"Unspecified", "::", "::"},
    {"Loopback", "::1", "::1"},
    {"ZerosAtTheEnd", "2001:db8::", "2001:db8::"},
    {"LinkLocal", "fe80::56e1:adff:fe7c:6609", "fe80::56e1:adff:fe7c:6609"},
    {"LeadingZerosDropped", "2001:0db8:0000:0001:0010:0100:1000:0001", "2001:db8:0:1:10:100:1000:1"},
    {"SingleZeroGroupStays", "2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"},
    {"FirstOfEqualRuns", "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"},
    {"LongestRun", "2001:0:0:1:0:0:0:1", "2001:0:0:1::1"},
    {"LowerCase", "2001:DB8::ABCD", "2001:db8::abcd"},
    {"Longest", "abcd:abcd:abcd:abcd:abcd:abcd:abcd:abcd", "abcd:abcd:abcd:abcd:abcd:abcd:abcd:abcd"},
};

class AddressTest : public testing::TestWithParam<Case> {};

TEST_P(AddressTest, Formats) {
  IpAddress address;
  ASSERT_EQ(inet_pton(AF_INET6, GetParam().input, address.data()), 1);
  EXPECT_EQ(text_of(address), GetParam().text);
}

INSTANTIATE_TEST_SUITE_P(Address, AddressTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(Address, AgreesWithTheSystem) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    IpAddress address{};
    // Each group is zero with a probability that differs by round, so that all shapes of runs come up.
    for (size_t group = 0; group < 8; ++group) {
      if (random() % 8 < static_cast<unsigned>(round % 8)) continue;
      const auto value = static_cast<uint16_t>(random() >> (random() % 16 + 16));
      address[2 * group] = static_cast<uint8_t>(value >> 8);
      address[2 * group + 1] = static_cast<uint8_t>(value);
    }
    char expected[INET6_ADDRSTRLEN];
    ASSERT_NE(inet_ntop(AF_INET6, address.data(), expected, sizeof expected), nullptr);
    // inet_ntop writes the deprecated v4-compatible addresses and the mapped ones with a dotted end.
    if (std::string_view(expected).find('.') != std::string_view::npos) continue;
    ASSERT_EQ(text_of(address), expected);
  }
}

TEST(Address, StaysInItsBuffer) {
  GuardPage page(std::string_view("                                       "));
  IpAddress address;
  address.fill(0xab);
  const std::span<char, kMaxAddressBytes> buffer(reinterpret_cast<char*>(page.writable().data()),
                                                 kMaxAddressBytes);
  EXPECT_EQ(format_address(address, buffer).size(), kMaxAddressBytes);
}

}  // namespace
}  // namespace kitty::procfs
