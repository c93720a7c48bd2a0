#include "cli/verdict_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace kitty::cli {

namespace {

using std::chrono::milliseconds;
using verdict::Thresholds;

constexpr milliseconds kMinInterval{500};  // the agent's tick: asking more often shows nothing new
constexpr milliseconds kMinWindow{1000};
constexpr milliseconds kMaxWindow{3600 * 1000};
constexpr milliseconds kMaxTopInterval{3000};  // a window of 3 s needs two scrapes

struct Threshold {
  std::string_view name;
  double Thresholds::* field;
};

constexpr std::array kThresholds = {
    Threshold{"active_segments_per_s", &Thresholds::active_segments_per_s},
    Threshold{"min_rtt_samples", &Thresholds::min_rtt_samples},
    Threshold{"segments_per_sample", &Thresholds::segments_per_sample},
    Threshold{"rtt_ratio", &Thresholds::rtt_ratio},
    Threshold{"rtt_floor_s", &Thresholds::rtt_floor_s},
    Threshold{"runner_up_share", &Thresholds::runner_up_share},
    Threshold{"job_wide_rtt_s", &Thresholds::job_wide_rtt_s},
    Threshold{"delayed_ack_s", &Thresholds::delayed_ack_s},
    Threshold{"convincing_busy_share", &Thresholds::convincing_busy_share},
    Threshold{"throttle_busy_share", &Thresholds::throttle_busy_share},
    Threshold{"throttle_queue_ratio", &Thresholds::throttle_queue_ratio},
    Threshold{"throttle_queue_floor_bytes", &Thresholds::throttle_queue_floor_bytes},
    Threshold{"path_min_share", &Thresholds::path_min_share},
    Threshold{"queue_min_share", &Thresholds::queue_min_share},
    Threshold{"path_like_share", &Thresholds::path_like_share},
    Threshold{"path_spread_s", &Thresholds::path_spread_s},
    Threshold{"loss_share", &Thresholds::loss_share},
    Threshold{"loss_ratio", &Thresholds::loss_ratio},
    Threshold{"loss_floor", &Thresholds::loss_floor},
    Threshold{"min_retransmits", &Thresholds::min_retransmits},
    Threshold{"min_lasting_retransmits", &Thresholds::min_lasting_retransmits},
    Threshold{"busy_share", &Thresholds::busy_share},
    Threshold{"busy_ratio", &Thresholds::busy_ratio},
    Threshold{"far_busy_share", &Thresholds::far_busy_share},
    Threshold{"far_busy_ratio", &Thresholds::far_busy_ratio},
    Threshold{"slower_ratio", &Thresholds::slower_ratio},
    Threshold{"same_work_ratio", &Thresholds::same_work_ratio},
    Threshold{"stall_s", &Thresholds::stall_s},
    Threshold{"max_named_links", &Thresholds::max_named_links},
    Threshold{"stale_s", &Thresholds::stale_s},
};

std::optional<double> parse_number(std::string_view text) {
  const std::string terminated(text);
  char* end = nullptr;
  const double value = strtod(terminated.c_str(), &end);
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.eE-+") == std::string_view::npos;
  if (!plain || end != terminated.c_str() + terminated.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

// "10" or "10s".
Status set_duration(milliseconds& to, std::string_view name, std::string_view value, milliseconds least,
                    milliseconds most) {
  if (value.ends_with('s')) value.remove_suffix(1);
  const auto seconds = parse_number(value);
  const auto in_seconds = [](milliseconds one) { return std::chrono::duration<double>(one).count(); };
  if (!seconds || *seconds > in_seconds(most) || *seconds < in_seconds(least)) {
    return fail("read flag", name, 0,
                "seconds, as in 10 or 2.5s; from " + std::to_string(least.count()) + " ms to " +
                    (most == kMaxWindow ? "one hour" : std::to_string(most.count() / 1000) + " s"));
  }
  to = milliseconds(std::llround(*seconds * 1000));
  return {};
}

Status set_threshold(Thresholds& thresholds, std::string_view setting) {
  const size_t equals = setting.find('=');
  const auto found = std::ranges::find(kThresholds, setting.substr(0, equals), &Threshold::name);
  if (found == kThresholds.end()) {
    return fail("read flag", "--threshold", 0, "NAME=VALUE, with a name of kitty diagnose --help");
  }
  const auto value =
      equals == std::string_view::npos ? std::nullopt : parse_number(setting.substr(equals + 1));
  if (!value)
    return fail("read flag", "--threshold=" + std::string(setting), 0, "a number from 0 on is needed");
  thresholds.*found->field = *value;
  return {};
}

constexpr std::string_view kDiagnoseHelp =
    R"(kitty diagnose says which rank's network slows a training job, why, and since when.

usage: kitty diagnose [flags] [TARGET...]

A target is an agent of one of the job's nodes, HOST:PORT or http://HOST:PORT/PATH, or a saved scrape. Name the agents
of all nodes. Without a target it asks 127.0.0.1:9100. Hosts are addresses or names. Saved scrapes: two or more files
of each node, taken some seconds apart and with their times kept (curl -so n0-1.txt http://n0:9100/metrics; cp -p);
files belong together that show the same processes.

  --window=10s            how long to watch live targets
  --interval=1s           how often to ask them
  --job=NAME              judge this job only
  --uid=NUMBER            judge this user's jobs only: anybody may give a job another's name
  --json                  one JSON object for scripts
  --threshold=NAME=VALUE  a limit of the rules; may be repeated
  --help                  print this and exit

RTT is the mean of a rank's best active link, xMED that over the median of the ranks, LEAST the least RTT of that link;
RETR% the segments sent again, TXQ the bytes queued, BUSY the time with data in flight or queued: all towards ranks of
the job on other nodes, or in other network namespaces where the job is on one node.

exit status: 0 healthy, 1 a rank or link was named, 2 could not tell, 3 wrong usage

thresholds and their defaults:
)";

constexpr std::string_view kTopHelp =
    R"(kitty top shows live which rank's network slows a training job, as kitty diagnose would say it.

usage: kitty top [flags] [TARGET...]

A target is an agent of one of the job's nodes, HOST:PORT or http://HOST:PORT/PATH. Name the agents of all nodes.
Without a target it asks 127.0.0.1:9100. Hosts are addresses or names. Whoever two windows of 3 s in a row agree on
is named, and cleared once two in a row are healthy. Most suspicious ranks first: * culprit, v victim.
The columns are those of kitty diagnose; TREND is the RTT of the last 20 s: lowest 0.1 ms, each step three times it.
q or Ctrl-C ends it. Into a pipe or a file it writes a line for each change, and one every 10 s.

  --interval=1s           how often to ask the targets
  --job=NAME              show this job only
  --uid=NUMBER            show this user's jobs only: anybody may give a job another's name
  --threshold=NAME=VALUE  a limit of the rules (kitty diagnose --help lists them); may be repeated
  --help                  print this and exit

NO_COLOR or TERM=dumb: no colour; TERM=dumb: lines, as into a pipe.

exit status: 0 ended by q, Ctrl-C, SIGTERM or SIGHUP, 3 wrong usage
)";

}  // namespace

Result<VerdictFlags> parse_verdict_flags(VerdictCommand command,
                                         std::span<const std::string_view> arguments) {
  const bool diagnose = command == VerdictCommand::diagnose;
  VerdictFlags flags;
  bool only_targets = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (only_targets || !argument.starts_with('-')) {
      if (argument.empty()) return fail("read target", {}, 0, "it is empty");
      flags.targets.emplace_back(argument);
      if (flags.targets.size() > kMaxTargets) return fail("read targets", {}, 0, "more than 1024");
      continue;
    }
    if (argument == "--") {
      only_targets = true;
      continue;
    }
    if (argument == "--help" || argument == "-h" || (diagnose && argument == "--json")) {
      (argument == "--json" ? flags.json : flags.show_help) = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    if (!(diagnose && name == "--window") && name != "--interval" && name != "--job" && name != "--uid" &&
        name != "--threshold") {
      return fail("read flag", argument, 0,
                  diagnose ? "unknown; see kitty diagnose --help" : "unknown; see kitty top --help");
    }
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (value.empty()) return fail("read flag", name, 0, "it needs a value");
    Status set;
    if (name == "--window") set = set_duration(flags.window, name, value, kMinWindow, kMaxWindow);
    if (name == "--interval")
      set = set_duration(flags.interval, name, value, kMinInterval, diagnose ? kMaxWindow : kMaxTopInterval);
    if (name == "--job") flags.job = value;
    if (name == "--uid") {
      if (value.find_first_not_of("0123456789") != std::string_view::npos)
        return fail("read flag", "--uid", 0, "a user's number, as in --uid=1000");
      flags.uid = value;
    }
    if (name == "--threshold") set = set_threshold(flags.thresholds, value);
    if (!set) return std::unexpected(set.error());
  }
  if (flags.interval > flags.window) return fail("read flag", "--interval", 0, "longer than the window");
  return flags;
}

std::string verdict_help_text(VerdictCommand command) {
  if (command == VerdictCommand::top) return std::string(kTopHelp);
  std::string text(kDiagnoseHelp);
  const Thresholds defaults;
  for (const Threshold& one : kThresholds) {
    char value[32];
    std::snprintf(value, sizeof value, "=%.6g\n", defaults.*one.field);
    text += "  ";
    text += one.name;
    text += value;
  }
  return text;
}

}  // namespace kitty::cli
