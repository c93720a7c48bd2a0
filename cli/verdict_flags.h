// The command lines of `kitty diagnose` and `kitty top`, which share most flags, parsed into plain values.
// Pure: the caller prints and exits.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "verdict/thresholds.h"

namespace kitty::cli {

// One thread and a few hundred kilobytes of scrapes each.
inline constexpr size_t kMaxTargets = 1024;

enum class VerdictCommand { diagnose, top };

struct VerdictFlags {
  std::vector<std::string> targets;         // none: the agent on this host
  std::chrono::milliseconds window{10000};  // of diagnose
  std::chrono::milliseconds interval{1000};
  std::string job;    // empty: all
  std::string uid;    // likewise
  bool json = false;  // of diagnose
  bool show_help = false;
  verdict::Thresholds thresholds;
};

// `arguments` behind the command's word. Errors name the flag and what it accepts.
[[nodiscard]] Result<VerdictFlags> parse_verdict_flags(VerdictCommand command,
                                                       std::span<const std::string_view> arguments);

// The page that --help prints.
[[nodiscard]] std::string verdict_help_text(VerdictCommand command);

}  // namespace kitty::cli
