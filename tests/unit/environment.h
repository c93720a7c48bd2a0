// Labels of an environment that a test writes down.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "collector/identity.h"
#include "procfs/environ.h"

namespace kitty::collector {

inline std::string entries(std::span<const std::string_view> list) {
  std::string text;
  for (const std::string_view entry : list) {
    text += entry;
    text += '\0';
  }
  return text;
}

inline RankLabels labels_of(std::span<const std::string_view> environment) {
  std::vector<procfs::EnvironVariable> variables = identity_variables();
  procfs::EnvironScan scan(variables);
  scan.feed(entries(environment));
  scan.finish();
  return rank_labels(variables);
}

}  // namespace kitty::collector
