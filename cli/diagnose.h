// `kitty diagnose [TARGET...]`: fetches or reads the scrapes of a job's nodes, judges them and prints the
// verdict.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cli/report.h"
#include "cli/verdict_flags.h"
#include "verdict/scrape.h"

namespace kitty::cli {

// Judges scrapes of any number of nodes: live ones by windows that slide, saved ones whole. Pure.
[[nodiscard]] Report report_on(std::span<const verdict::Scrape> scrapes, std::vector<TargetProblem> problems,
                               const VerdictFlags& flags);

// The whole command. Returns the exit status: 0 healthy, 1 somebody was named, 2 could not tell, 3 wrong
// usage.
[[nodiscard]] int diagnose(std::span<const std::string_view> arguments);

}  // namespace kitty::cli
