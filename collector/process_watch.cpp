#include "collector/process_watch.h"

#include <algorithm>
#include <utility>

#include "collector/clock.h"

namespace kitty::collector {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

uint64_t in_ns(std::chrono::nanoseconds duration) { return static_cast<uint64_t>(duration.count()); }

}  // namespace

std::chrono::nanoseconds socket_pass_interval(std::chrono::nanoseconds cost) {
  return std::clamp<std::chrono::nanoseconds>(cost * kSocketPassShare, kMinSocketPassInterval,
                                              kMaxSocketPassInterval);
}

bool is_fresh(const ScanReport& report, uint64_t now_ns) {
  return report.discovered_ns != 0 && now_ns < report.discovered_ns + in_ns(kStaleAfter);
}

ProcessWatch::ProcessWatch(Scanner scanner, ExecLog execs, OnFirst on_first)
    : scanner_(std::move(scanner)),
      execs_(std::move(execs)),
      on_first_(std::move(on_first)),
      state_(std::make_shared<const ProcessState>()),
      conditions_(std::make_shared<const Conditions>()) {
  thread_ = std::make_unique<Periodic>(std::chrono::nanoseconds(0), [this] { return run_due(); });
}

bool ProcessWatch::fresh() const { return is_fresh(state()->report, monotonic_ns()); }

std::vector<StuckProcess> ProcessWatch::stop() {
  scanner_.cancel();
  thread_.reset();
  return scanner_.waited_for();
}

std::shared_ptr<const ProcessState> ProcessWatch::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

std::shared_ptr<const Conditions> ProcessWatch::conditions() const {
  const std::scoped_lock lock(mutex_);
  return conditions_;
}

void ProcessWatch::publish_conditions() {
  auto next = scanner_.conditions();
  const std::scoped_lock lock(mutex_);
  conditions_ = std::move(next);
}

void ProcessWatch::publish() {
  auto next = scanner_.snapshot();
  {
    const std::scoped_lock lock(mutex_);
    state_ = next;
  }
  if (on_first_) std::exchange(on_first_, {})(*next);
}

std::chrono::nanoseconds ProcessWatch::run_due() {
  const uint64_t start_ns = monotonic_ns();
  const uint64_t missed = execs_.take([this](const ExecutedProgram& program) { scanner_.executed(program); });
  bool changed = false;
  if (start_ns >= next_discovery_ns_) {
    scanner_.discover(Scanner::Depth::all);
    next_discovery_ns_ = start_ns + in_ns(kDiscoveryInterval);
    changed = true;
  } else {
    changed = scanner_.drop_dead();
    changed = scanner_.look_at_executed() || changed;
    if (missed != 0) {
      scanner_.discover(Scanner::Depth::new_and_young);
      changed = true;
    }
  }
  publish_conditions();
  if (const uint64_t pass_start_ns = monotonic_ns(); pass_start_ns >= next_pass_ns_) {
    scanner_.pass_sockets();
    const uint64_t end_ns = monotonic_ns();
    next_pass_ns_ = end_ns + in_ns(socket_pass_interval(std::chrono::nanoseconds(end_ns - pass_start_ns)));
    changed = true;
  }
  if (changed) publish();

  const uint64_t now_ns = monotonic_ns();
  const uint64_t due_ns = std::min({next_discovery_ns_, next_pass_ns_, now_ns + kSecondNs});
  return std::chrono::nanoseconds(std::max(due_ns, now_ns) - now_ns);
}

}  // namespace kitty::collector
