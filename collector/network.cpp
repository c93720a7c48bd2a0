#include "collector/network.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "collector/clock.h"
#include "procfs/file.h"

namespace kitty::collector {

namespace {

using std::chrono::milliseconds;

constexpr Expendable::Limits kLimits{
    .late_after = milliseconds(50), .stuck_after = milliseconds(50), .hung_reads = 64};
constexpr size_t kMaxHungOfUser = 16;

}  // namespace

// Neither the opening of a FIFO nor the reading of anything but a file is waited for: a false procfs may hold
// both.
procfs::ReadResult CountersReader::read_file(int directory, Reading& reading) {
  const auto file = procfs::open_at(directory, "net/snmp", O_NONBLOCK);
  if (!file) return file.error();
  struct stat status;
  if (::fstat(file->get(), &status) != 0) return procfs::read_failure(errno);
  if (!S_ISREG(status.st_mode)) return {procfs::ReadStatus::malformed, 0};
  const auto text = procfs::read_text(file->get(), buffer_);
  if (!text) return text.error();
  if (procfs::parse_snmp(*text, reading.tcp) != procfs::SnmpError::none)
    return {procfs::ReadStatus::malformed, 0};
  reading.inode = status.st_ino;
  return {};
}

CountersReader::Answer CountersReader::read(const Request& request, Turns& turns) {
  Answer answer;
  const procfs::ProcessHandle& process = *request.handle;
  if (!turns.may_hang({.owner = request.uid, .start_time_ticks = process.id().start_time_ticks},
                      kMaxHungOfUser))
    return answer;
  const auto inode = process.read_net_files_inode();
  if (!inode) {
    answer.result = inode.error();
    return answer;
  }
  const auto known =
      std::ranges::find(readings_.begin(), readings_.begin() + count_, *inode, &Reading::inode);
  if (known != readings_.begin() + count_) {
    answer.tcp = known->tcp;
    return answer;
  }
  Reading reading;
  answer.result = read_file(process.dirfd(), reading);
  answer.tcp = reading.tcp;
  if (answer.result.ok() && count_ < readings_.size()) readings_[count_++] = reading;
  return answer;
}

NetworkCollector::NetworkCollector() : reads_(std::make_unique<Expendable>(kLimits)) {}

// Both lists ascend by pid; what is remembered of those that stay goes along.
void NetworkCollector::follow(const ProcessState& state) {
  std::vector<Of> next;
  next.reserve(state.processes.size());
  auto old = processes_.begin();
  for (const WatchedProcess& process : state.processes) {
    while (old != processes_.end() && old->id.pid < process.id.pid) ++old;
    if (old != processes_.end() && old->id == process.id) {
      next.push_back(std::move(*old));
    } else {
      next.emplace_back().id = process.id;
    }
  }
  processes_ = std::move(next);
  ask_again_ = true;
}

void NetworkCollector::ask(uint64_t now_ns) {
  batch_ = std::make_shared<ReadBatch<CountersReader>>();
  asked_.clear();
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (state_->processes[i].is_worker || processes_[i].hang.forbids(now_ns)) continue;
    asked_.push_back(i);
    batch_->requests.push_back({state_->processes[i].handle, state_->processes[i].uid});
  }
  batch_->answers.resize(asked_.size());
  ask_again_ = std::ranges::any_of(processes_, [](const Of& of) { return of.hang.is_on(); });
}

void NetworkCollector::take(size_t item, uint64_t now_ns) {
  Of& of = processes_[asked_[item]];
  const CountersReader::Answer& answer = batch_->answers[item];
  of.hang.end();
  of.read_ns = 0;
  if (!answer.result.ok()) {
    if (answer.result.status == procfs::ReadStatus::gone) return;  // the next discovery drops it
    all_read_ = false;
    if (answer.result.status == procfs::ReadStatus::malformed) ++parse_errors_;
    return;
  }
  of.read_ns = now_ns;
  of.retransmits = answer.tcp.retrans_segs;
  of.out_segs = answer.tcp.out_segs;
}

void NetworkCollector::tick(Metrics& metrics) {
  const uint64_t now_ns = monotonic_ns();
  if (state_ != metrics.state) {
    state_ = metrics.state;
    follow(*state_);
  }
  if (ask_again_) ask(now_ns);
  all_read_ = true;
  reads_->run(batch_, outcome_, kNetworkWait);
  for (const Expendable::Left& left : outcome_.left)
    processes_[asked_[left.item]].hang.begin(left.read, now_ns);
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (outcome_.ends[i] == ReadEnd::read) take(i, now_ns);
  }
  if (!outcome_.left.empty()) ask_again_ = true;
  constexpr auto kept_ns = static_cast<uint64_t>(std::chrono::nanoseconds(kCountersKept).count());
  for (size_t i = 0; i < processes_.size(); ++i) {
    const Of& of = processes_[i];
    ProcessMetrics& out = metrics.processes[i];
    out.retransmits.reset();
    out.out_segs.reset();
    if (state_->processes[i].is_worker) continue;
    const bool known = of.read_ns != 0 && now_ns - of.read_ns <= kept_ns;
    if (of.hang.is_on() && !known) all_read_ = false;
    if (!known) continue;
    out.retransmits = of.retransmits;
    out.out_segs = of.out_segs;
  }
  metrics.agent.network.success = all_read_ && outcome_.refused == 0;
  metrics.agent.snmp_parse_errors = parse_errors_;
}

}  // namespace kitty::collector
