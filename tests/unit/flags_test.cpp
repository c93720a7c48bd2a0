#include "cli/flags.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kitty::cli {
namespace {

Result<Flags> parse(std::initializer_list<std::string_view> arguments) {
  return parse_flags(std::vector<std::string_view>(arguments));
}

TEST(Flags, Defaults) {
  const Result<Flags> flags = parse({});
  ASSERT_TRUE(flags);
  EXPECT_EQ(flags->listen_address, ":9100");
  EXPECT_EQ(flags->telemetry_path, "/metrics");
  EXPECT_EQ(flags->procfs_path, "/proc");
  EXPECT_EQ(flags->rtt_hook, "auto");
  EXPECT_EQ(flags->btf_path, "");
  EXPECT_TRUE(flags->allowed_hosts.empty());
  EXPECT_EQ(flags->log_level, log::Level::info);
}

TEST(Flags, ValuesAfterEqualsOrSpace) {
  const Result<Flags> flags =
      parse({"--web.listen-address=127.0.0.1:1", "--path.procfs", "/host/proc",
             "--rtt-hook=fentry/tcp_ack_update_rtt", "--log.level", "debug", "--btf=/a=b"});
  ASSERT_TRUE(flags);
  EXPECT_EQ(flags->listen_address, "127.0.0.1:1");
  EXPECT_EQ(flags->procfs_path, "/host/proc");
  EXPECT_EQ(flags->rtt_hook, "fentry/tcp_ack_update_rtt");
  EXPECT_EQ(flags->log_level, log::Level::debug);
  EXPECT_EQ(flags->btf_path, "/a=b");
  EXPECT_EQ(flags->user, privileges::kOwnUser);
}

TEST(Flags, AUserIsNumbersAndNotRoot) {
  const auto user = [](std::string_view value) { return parse({"--user", value}); };
  EXPECT_EQ(user("70000")->user, (privileges::User{70000, 70000}));
  EXPECT_EQ(user("70000:1")->user, (privileges::User{70000, 1}));
  for (const std::string_view wrong :
       {"", "0", "0:1", "1:0", "nobody", "1:", ":1", "-1", "1:2:3", " 1", "4294967295", "4294967296"})
    EXPECT_FALSE(user(wrong)) << wrong;
  EXPECT_EQ(user("nobody").error().message(),
            "read flag '--user': write UID or UID:GID, numbers above 0 and below 2^32 - 1");
}

TEST(Flags, EveryAllowedHostCounts) {
  const Result<Flags> flags =
      parse({"--web.allowed-host=n7.example", "--web.allowed-host", ".train.example"});
  ASSERT_TRUE(flags);
  EXPECT_EQ(flags->allowed_hosts, (std::vector<std::string>{"n7.example", ".train.example"}));
  EXPECT_TRUE(parse_flags(std::vector<std::string_view>(64, "--web.allowed-host=n7")));
  EXPECT_FALSE(parse_flags(std::vector<std::string_view>(65, "--web.allowed-host=n7")));
}

TEST(Flags, RefusalsNameTheFlagAndWhatItAccepts) {
  struct Case {
    const char* name;
    std::vector<std::string_view> arguments;
    const char* says;
  };
  const Case cases[] = {
      {"unknown", {"--nope"}, "'--nope': unknown"},
      {"unknown with value", {"--nope=1"}, "'--nope=1': unknown"},
      {"a word", {"run"}, "'run': unknown"},
      {"no value left", {"--btf"}, "'--btf': it needs a value"},
      {"empty value", {"--btf="}, "'--btf': it needs a value"},
      {"hook",
       {"--rtt-hook=kprobe/x"},
       "unknown hook 'kprobe/x'; one of auto, none, kprobe/tcp_rtt_estimator"},
      {"level", {"--log.level=loud"}, "one of debug, info, warn, error"},
      {"path", {"--web.telemetry-path=metrics"}, "must start with a slash"},
      {"host with a port", {"--web.allowed-host=n7:9100"}, "allowed host 'n7:9100': a name without a port"},
  };
  for (const Case& c : cases) {
    const Result<Flags> flags = parse_flags(c.arguments);
    ASSERT_FALSE(flags) << c.name;
    EXPECT_NE(flags.error().message().find(c.says), std::string::npos)
        << c.name << ": " << flags.error().message();
  }
}

TEST(Flags, HelpNamesTheSubcommands) {
  EXPECT_NE(help_text().find("kitty diagnose [flags] [TARGET...]"), std::string_view::npos);
}

TEST(Flags, HelpNamesEveryFlag) {
  for (const char* flag : {"--web.listen-address", "--web.telemetry-path", "--web.allowed-host",
                           "--path.procfs", "--rtt-hook", "--btf", "--log.level", "--version", "--help"}) {
    EXPECT_NE(help_text().find(flag), std::string_view::npos) << flag;
  }
}

}  // namespace
}  // namespace kitty::cli
