// `kitty diagnose [TARGET...]`: fetches or reads the scrapes of a job's nodes, judges them and prints the
// verdict. Targets are fetched by a thread each, so that one that drips or is gone holds up nobody.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/report.h"
#include "verdict/scrape.h"
#include "verdict/thresholds.h"

namespace kitty::cli {

// One thread and a few hundred kilobytes of scrapes each.
inline constexpr size_t kMaxTargets = 1024;

struct DiagnoseFlags {
  std::vector<std::string> targets;  // none: the agent on this host
  std::chrono::milliseconds window{10000};
  std::chrono::milliseconds interval{1000};
  std::string job;  // empty: all
  bool json = false;
  bool show_help = false;
  verdict::Thresholds thresholds;
};

// `arguments` behind the word "diagnose". Errors name the flag and what it accepts.
[[nodiscard]] Result<DiagnoseFlags> parse_diagnose_flags(std::span<const std::string_view> arguments);

[[nodiscard]] std::string diagnose_help_text();

// Judges scrapes of any number of nodes: live ones by windows that slide, saved ones whole. Pure.
[[nodiscard]] Report report_on(std::span<const verdict::Scrape> scrapes, std::vector<TargetProblem> problems,
                               const DiagnoseFlags& flags);

// The whole command. Returns the exit status: 0 healthy, 1 somebody was named, 2 could not tell, 3 wrong
// usage.
[[nodiscard]] int diagnose(std::span<const std::string_view> arguments);

}  // namespace kitty::cli
