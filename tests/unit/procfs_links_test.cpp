#include <gtest/gtest.h>

#include <optional>

#include "procfs/fd_links.h"
#include "procfs/net_namespace.h"
#include "procfs/pids.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

struct Case {
  const char* name;
  std::string_view text;
  std::optional<uint64_t> number;
};

class SocketLinkTest : public testing::TestWithParam<Case> {};

TEST_P(SocketLinkTest, Parses) {
  const GuardPage page(GetParam().text);
  EXPECT_EQ(parse_socket_link(page.text()), GetParam().number);
}

INSTANTIATE_TEST_SUITE_P(
    Links, SocketLinkTest,
    testing::Values(Case{"Socket", "socket:[316847]", 316847},
                    Case{"Largest", "socket:[18446744073709551615]", 18446744073709551615u},
                    Case{"TooLarge", "socket:[18446744073709551616]", {}}, Case{"NoNumber", "socket:[]", {}},
                    Case{"NotClosed", "socket:[316847", {}}, Case{"OnlyBracket", "socket:[", {}},
                    Case{"Prefix", "socket:", {}}, Case{"MoreBehind", "socket:[316847] ", {}},
                    Case{"MoreBefore", "/socket:[316847]", {}}, Case{"Negative", "socket:[-1]", {}},
                    Case{"Hex", "socket:[a]", {}}, Case{"Deleted", "/tmp/socket:[1] (deleted)", {}},
                    Case{"Pipe", "pipe:[316847]", {}}, Case{"Empty", "", {}}),
    [](const auto& each) { return each.param.name; });

class NetLinkTest : public testing::TestWithParam<Case> {};

TEST_P(NetLinkTest, Parses) {
  const GuardPage page(GetParam().text);
  EXPECT_EQ(parse_net_link(page.text()), GetParam().number);
}

INSTANTIATE_TEST_SUITE_P(Links, NetLinkTest,
                         testing::Values(Case{"Net", "net:[4026531840]", 4026531840},
                                         Case{"Other", "mnt:[4026531840]", {}}, Case{"Empty", "", {}}),
                         [](const auto& each) { return each.param.name; });

struct PidCase {
  const char* name;
  std::string_view text;
  std::optional<pid_t> pid;
};

class PidTest : public testing::TestWithParam<PidCase> {};

TEST_P(PidTest, Parses) {
  const GuardPage page(GetParam().text);
  EXPECT_EQ(parse_pid(page.text()), GetParam().pid);
}

INSTANTIATE_TEST_SUITE_P(Links, PidTest,
                         testing::Values(PidCase{"One", "1", 1}, PidCase{"Largest", "2147483647", 2147483647},
                                         PidCase{"TooLarge", "2147483648", {}}, PidCase{"Zero", "0", {}},
                                         PidCase{"LeadingZero", "01", {}}, PidCase{"Word", "self", {}},
                                         PidCase{"Mixed", "12a", {}}, PidCase{"Sign", "-1", {}},
                                         PidCase{"Empty", "", {}}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kitty::procfs
