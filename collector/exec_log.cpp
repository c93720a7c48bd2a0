#include "collector/exec_log.h"

#include <unistd.h>

#include <algorithm>
#include <span>

namespace kitty::collector {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

// The process's number in that pid namespace; 0 where it is not seen from there.
pid_t number_in(const kitty_exec& exec, uint64_t pid_namespace) {
  for (const auto& seen : std::span(exec.seen_from).first(std::min<size_t>(exec.levels, KITTY_EXEC_LEVELS))) {
    if (seen.pid_namespace == pid_namespace) return static_cast<pid_t>(seen.pid);
  }
  return 0;
}

}  // namespace

ExecLog::ExecLog(const FlowMaps* maps, uint64_t pid_namespace)
    : maps_(maps),
      pid_namespace_(pid_namespace),
      ns_per_tick_(kSecondNs / static_cast<uint64_t>(sysconf(_SC_CLK_TCK))),
      taken_(maps ? maps->execs() : 0),
      record_(std::make_unique<kitty_exec>()) {}

uint64_t ExecLog::take(procfs::FunctionRef<void(const ExecutedProgram&)> on_program) {
  if (!maps_) return 0;
  const uint64_t executed = maps_->execs();
  uint64_t lost = 0;
  if (executed - taken_ > KITTY_EXEC_SLOTS) {
    lost = executed - taken_ - KITTY_EXEC_SLOTS;
    taken_ += lost;
  }
  for (; taken_ != executed; ++taken_) {
    kitty_exec& record = *record_;
    if (!maps_->read_exec(taken_, record)) {
      ++lost;
      continue;
    }
    const pid_t pid = number_in(record, pid_namespace_);
    if (pid == 0) {
      lost += pid_namespace_ == 0 || record.levels == KITTY_EXEC_LEVELS ? 1 : 0;
      continue;
    }
    const size_t kept = std::min<size_t>(record.kept_bytes, sizeof record.environ);
    on_program({.id = {pid, record.start_boottime_ns / ns_per_tick_},
                .environment = {record.environ, kept},
                .whole = kept == record.environ_bytes});
  }
  return lost;
}

}  // namespace kitty::collector
