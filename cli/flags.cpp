#include "cli/flags.h"

#include <algorithm>
#include <array>

#include "collector/rtt_hook.h"
#include "http/host_names.h"

namespace kitty::cli {

namespace {

struct ValueFlag {
  std::string_view name;
  std::string Flags::* text;  // null: not kept as text
};

constexpr std::array kValueFlags = {
    ValueFlag{"--web.listen-address", &Flags::listen_address},
    ValueFlag{"--web.telemetry-path", &Flags::telemetry_path},
    ValueFlag{"--web.allowed-host", nullptr},
    ValueFlag{"--path.procfs", &Flags::procfs_path},
    ValueFlag{"--rtt-hook", &Flags::rtt_hook},
    ValueFlag{"--btf", &Flags::btf_path},
    ValueFlag{"--user", nullptr},
    ValueFlag{"--log.level", nullptr},
};

Status set_flag(Flags& flags, const ValueFlag& flag, std::string_view value) {
  if (value.empty()) return fail("read flag", flag.name, 0, "it needs a value");
  if (flag.name == "--web.telemetry-path" && !value.starts_with('/')) {
    return fail("read flag", flag.name, 0, "the path must start with a slash, as in /metrics");
  }
  if (flag.name == "--web.allowed-host") {
    if (Status good = http::check_allowed_host(value); !good) return good;
    if (flags.allowed_hosts.size() >= http::kMaxAllowedHosts)
      return fail("read flag", flag.name, 0, "given more than 64 times");
    flags.allowed_hosts.emplace_back(value);
  }
  if (flag.name == "--rtt-hook" && !collector::is_rtt_hook(value)) {
    std::string accepted = "unknown hook '" + std::string(value) + "'; one of auto, none";
    for (const std::string_view hook : collector::rtt_hook_names()) accepted += ", " + std::string(hook);
    return fail("read flag", flag.name, 0, accepted);
  }
  if (flag.name == "--user") {
    const Result<privileges::User> user = privileges::parse_user(value);
    if (!user) return fail("read flag", flag.name, 0, user.error().detail);
    flags.user = *user;
  }
  if (flag.name == "--log.level") {
    const auto level = log::parse_level(value);
    if (!level) return fail("read flag", flag.name, 0, "one of debug, info, warn, error");
    flags.log_level = *level;
  }
  if (flag.text) flags.*flag.text = value;
  return {};
}

}  // namespace

Result<Flags> parse_flags(std::span<const std::string_view> arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "--version") {
      flags.show_version = true;
      continue;
    }
    if (argument == "--keep-privileges") {
      flags.keep_privileges = true;
      continue;
    }
    if (argument == "--help" || argument == "-h") {
      flags.show_help = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const auto flag = std::ranges::find(kValueFlags, name, &ValueFlag::name);
    if (flag == kValueFlags.end()) return fail("read flag", argument, 0, "unknown; see kitty --help");
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (Status set = set_flag(flags, *flag, value); !set) return std::unexpected(set.error());
  }
  return flags;
}

std::string_view help_text() {
  return R"(kitty finds the rank whose network slows a distributed training job down.

usage: kitty [flags]
       kitty check [flags]                   says what works on this host: see kitty check --help
       kitty diagnose [flags] [TARGET...]    says which rank is slow, and why: see kitty diagnose --help
       kitty top [flags] [TARGET...]         shows that live: see kitty top --help

Watches every process that has KITTY_WATCH=1 in its environment and serves its TCP round-trip times, retransmits,
segments sent and bytes queued as Prometheus metrics.

  --web.listen-address=:9100   numeric address and port to serve on; :PORT is every address
  --web.telemetry-path=/metrics
  --web.allowed-host=NAME      also answer requests for this name (.DOMAIN: for all names below it); may be repeated.
                               Without it only for addresses, localhost, and this host's name, alone or with a domain
                               of /etc/resolv.conf's search list or as in /etc/hosts: any other is a 403, so that no
                               other site's page can read the metrics (DNS rebinding)
  --path.procfs=/proc          where procfs is mounted (/host/proc in some containers)
  --rtt-hook=auto              the kernel hook for round-trip times: auto takes the first of
                               kprobe/tcp_rtt_estimator, fentry/tcp_rtt_estimator, fentry/tcp_ack_update_rtt,
                               kprobe/tcp_ack_update_rtt, tp_btf/tcp_probe that works; none does without
  --btf=FILE                   kernel type information, for kernels without /sys/kernel/btf/vmlinux
  --user=65525                 UID or UID:GID that it becomes, once the hooks are attached, where it is started as
                               root; numbers
  --keep-privileges            do not give up, once the hooks are attached, what serving does not need
  --log.level=info             debug, info, warn or error
  --version                    print the version and exit
  --help                       print this and exit

exit status: 0 stopped by SIGTERM or SIGINT, 1 nothing useful can be served, 3 wrong usage
)";
}

}  // namespace kitty::cli
