// From the ranks of a window to one job's units, the links between them, and what could not be seen. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "verdict/job.h"
#include "verdict/thresholds.h"
#include "verdict/window.h"

namespace kitty::verdict {

struct Assembly {
  Job job;
  size_t ranks = 0;                      // seen, those without a window of their own included
  bool has_window = false;               // at least one rank was there from the window's begin to its end
  std::string problem;                   // else why: a node's reason, or that the ranks came or went
  bool any_hook = false;                 // some node of the job measures round-trip times
  std::string foreign_address;           // one that gets data and is no rank's; empty where there is none
  std::vector<std::string> blind_spots;  // of JobVerdict
  bool incomplete = false;               // of JobVerdict
};

// The job called `name` of the user `uid`. `limits` must outlive what is returned.
[[nodiscard]] Assembly assemble(const Window& window, std::string_view name, std::string_view uid,
                                const Thresholds& limits);

}  // namespace kitty::verdict
