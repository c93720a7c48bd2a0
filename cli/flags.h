// The command line of the agent, parsed into plain values. Pure: the caller prints and exits.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "privileges/user.h"

namespace kitty::cli {

struct Flags {
  std::string listen_address = ":9100";
  std::string telemetry_path = "/metrics";
  std::vector<std::string> allowed_hosts;  // each given once more; see http/host_names.h
  std::string procfs_path = "/proc";
  std::string rtt_hook = "auto";
  std::string btf_path;  // empty: the running kernel's own
  log::Level log_level = log::Level::info;
  privileges::User user = privileges::kOwnUser;  // that the agent becomes where it is started as root
  bool keep_privileges = false;
  bool show_version = false;
  bool show_help = false;
};

// `--name=value` or `--name value`; the last of a repeated flag wins, but every --web.allowed-host counts.
// `arguments` without the program's name. Errors name the flag and what it accepts.
[[nodiscard]] Result<Flags> parse_flags(std::span<const std::string_view> arguments);

[[nodiscard]] std::string_view help_text();

}  // namespace kitty::cli
