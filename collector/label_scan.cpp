#include "collector/label_scan.h"

#include "collector/identity.h"

namespace kitty::collector {

LabelScan::LabelScan() : variables_(identity_variables()), scan_(variables_) {}

procfs::ReadResult LabelScan::read(int pid_dirfd, std::span<char> buffer) {
  return procfs::read_environ(pid_dirfd, buffer, scan_);
}

void LabelScan::take(std::string_view environment) {
  scan_.reset();
  scan_.feed(environment);
  scan_.finish();
}

RankLabels LabelScan::labels() const { return rank_labels(variables_); }

}  // namespace kitty::collector
