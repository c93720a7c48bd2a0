// An environment, scanned for what kitty wants of it: whether its process is to be watched, and who it says
// it is. Read from /proc, or given as a text. One thread uses it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "collector/process_state.h"
#include "procfs/environ.h"

namespace kitty::collector {

class LabelScan {
 public:
  LabelScan();
  LabelScan(const LabelScan&) = delete;
  LabelScan& operator=(const LabelScan&) = delete;

  // As procfs::read_environ.
  procfs::ReadResult read(int pid_dirfd, std::span<char> buffer);
  // NUL-separated, as /proc/PID/environ.
  void take(std::string_view environment);

  // Of the latest environment; see EnvironScan.
  [[nodiscard]] bool watched() const { return scan_.watched(); }
  [[nodiscard]] bool empty() const { return scan_.bytes() == 0; }
  [[nodiscard]] bool overwritten() const { return scan_.overwritten(); }
  [[nodiscard]] RankLabels labels() const;

 private:
  std::vector<procfs::EnvironVariable> variables_;
  procfs::EnvironScan scan_;
};

}  // namespace kitty::collector
