#include "collector/scanner.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <tuple>

#include "base/log.h"
#include "collector/clock.h"

namespace kitty::collector {

namespace {

// Forks between a worker and its rank; more than are ever seen.
constexpr int kMaxGenerations = 16;

void say(std::string_view what, const WatchedProcess& process) {
  log::debug(what, {{"pid", std::to_string(process.id.pid)},
                    {"rank", process.labels.rank},
                    {"job", process.labels.job},
                    {"comm", process.comm}});
}

// When an environment that has been read so often may be read again.
uint64_t next_reading_ns(unsigned readings) {
  if (readings < kFreeReadings) return 0;
  const auto pause = std::min<std::chrono::nanoseconds>(
      kFirstRereadPause * (1U << std::min(readings - kFreeReadings, 20U)), kLastRereadPause);
  return monotonic_ns() + static_cast<uint64_t>(pause.count());
}

unsigned weight(const procfs::ReadResult& result) {
  return result.status == procfs::ReadStatus::too_long ? kTooLongReadings : 1;
}

}  // namespace

void Unreadable::count(const procfs::ReadResult& result) {
  if (result.status == procfs::ReadStatus::denied) {
    ++permission;
  } else if (result.status == procfs::ReadStatus::too_long) {
    ++too_long;
  } else if (result.status == procfs::ReadStatus::stuck) {
    ++stuck;
  } else if (result.err == EMFILE || result.err == ENFILE) {
    ++open_files;
  } else {
    ++other;
  }
}

Scanner::Scanner(int procfs_root, SocketRows* rows, size_t max_processes)
    : root_(std::make_shared<const Fd>(::fcntl(procfs_root, F_DUPFD_CLOEXEC, 0))),
      max_processes_(std::min(max_processes, kMaxWatchedProcesses)),
      agent_start_ticks_(boot_ticks()),
      reads_(std::make_unique<Expendable>(Expendable::Limits{})),
      owners_(agent_start_ticks_, rows, *reads_),
      cgroups_(root_, *reads_),
      given_scan_(std::make_unique<LabelScan>()),
      places_(max_processes_) {}

bool Scanner::is_young(uint64_t start_time_ticks, std::chrono::seconds limit) {
  const uint64_t young_ticks =
      static_cast<uint64_t>(limit.count()) * static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return start_time_ticks + young_ticks >= boot_ticks();
}

bool Scanner::has_room_for(const Known& known) const {
  return places_.ask(known.uid, known.inherits).granted;
}

bool Scanner::make_room_for(const Known& known) {
  const Places::Answer answer = places_.ask(known.uid, known.inherits);
  if (answer.from) give_up_one(*answer.from);
  if (answer.granted) places_.take(known.uid, known.inherits);
  return answer.granted;
}

// What is least missed: a worker, then a process that never had a socket, then the one that started last. So
// a rank that trains stays, and who comes in a crowd goes.
void Scanner::give_up_one(uid_t uid) {
  const auto worth = [](const Watched& watched) {
    const auto& id = watched.process.id;
    return std::tuple(watched.member, !watched.process.is_worker, UINT64_MAX - id.start_time_ticks, -id.pid);
  };
  auto least = watched_.end();
  for (auto it = watched_.begin(); it != watched_.end(); ++it) {
    if (it->second.process.uid != uid) continue;
    if (least == watched_.end() || worth(it->second) < worth(least->second)) least = it;
  }
  if (least == watched_.end()) return;
  const Watched& watched = least->second;
  say("process given up: its user has more than a fair share", watched.process);
  places_.give_up(uid, watched.process.is_worker);
  Known& known = known_[least->first];
  known.program = watched.program;
  known.read = known.dropped = true;
  known.environment = known.result = {};
  known.uid = uid;
  known.inherits = watched.inherits;
  watched_.erase(least);
}

void Scanner::count_places() {
  places_.clear();
  for (const auto& [pid, watched] : watched_) places_.take(watched.process.uid, watched.process.is_worker);
}

bool Scanner::inherits(const RankLabels& labels, pid_t parent, uint64_t start_time_ticks) const {
  for (int i = 0; i < kMaxGenerations; ++i) {
    const auto found = watched_.find(parent);
    // A parent started first; anything else has the number of a parent that is gone.
    if (found == watched_.end() || found->second.process.id.start_time_ticks > start_time_ticks) return false;
    const RankLabels& theirs = found->second.process.labels;
    if (labels.rank == theirs.rank && labels.job == theirs.job) return true;
    parent = found->second.parent;
    start_time_ticks = found->second.process.id.start_time_ticks;
  }
  return false;
}

// Whether it has a socket of its own. One that inherits may be listed before its parent's new sockets are: it
// is believed once all ancestors that may hold them have been listed after it.
bool Scanner::owns(Watched& watched) const {
  if (!owners_.has_sockets(watched.process.id)) {
    watched.owner_ns = 0;
    return false;
  }
  if (!watched.inherits) return true;
  if (watched.owner_ns == 0) watched.owner_ns = owners_.listed_ns(watched.process.id);
  pid_t parent = watched.parent;
  for (int i = 0; i < kMaxGenerations; ++i) {
    const auto found = watched_.find(parent);
    if (found == watched_.end()) break;
    const WatchedProcess& ancestor = found->second.process;
    if (!ancestor.is_worker && owners_.listed_ns(ancestor.id) < watched.owner_ns) return false;
    parent = found->second.parent;
  }
  return true;
}

// Once a member, always one: what its sockets did is in its sums. Of an orphan it stays known whose it was.
void Scanner::tell_workers() {
  for (auto& [pid, watched] : watched_) {
    WatchedProcess& process = watched.process;
    watched.inherits =
        watched.inherits || inherits(process.labels, watched.parent, process.id.start_time_ticks);
    watched.member = watched.member || owns(watched);
    process.is_worker = watched.inherits && !watched.member;
  }
}

procfs::ReadResult Scanner::list() {
  if (listing_hang_.forbids(monotonic_ns())) return {procfs::ReadStatus::stuck, 0};
  const auto batch = std::make_shared<ReadBatch<ListingReader>>();
  batch->requests.push_back(root_);
  batch->answers.resize(1);
  reads_->run(batch, outcome_);
  if (outcome_.ends.front() != ReadEnd::read) {
    for (const Expendable::Left& left : outcome_.left) listing_hang_.begin(left.read, monotonic_ns());
    return {procfs::ReadStatus::stuck, 0};
  }
  listing_hang_.end();
  listing_ = std::move(batch->answers.front().entries);
  for (const ListingReader::Entry& entry : listing_) {
    Known& known = known_[entry.pid];
    // The directory of a process that hangs is held open by the thread that hangs: this is another process.
    if (known.hang && known.hang->is_on() && known.inode != 0 && known.inode != entry.inode) known = Known();
    known.seen = generation_;
    known.inode = entry.inode;
  }
  return batch->answers.front().result;
}

// What hangs there, for the log and for people.
void Scanner::name_the_stuck(const std::vector<pid_t>& pids) {
  if (pids.empty()) return;
  const auto batch = std::make_shared<ReadBatch<NameReader>>();
  for (const pid_t pid : pids) batch->requests.push_back({root_, pid});
  batch->answers.resize(pids.size());
  reads_->run(batch, outcome_);
  for (size_t i = 0; i < pids.size(); ++i) {
    Known& known = known_[pids[i]];
    if (known.comm.empty() && outcome_.ends[i] == ReadEnd::read) known.comm = batch->answers[i];
    if (i >= kMaxStuckLogged) continue;
    log::warn("reading of this process under /proc does not come back; it is skipped until that does",
              {{"pid", std::to_string(pids[i])},
               {"comm", known.comm},
               {"uid", known.owner ? std::to_string(*known.owner) : "unknown"},
               {"watched", watched_.contains(pids[i]) ? "yes" : "no"}});
  }
  if (pids.size() > kMaxStuckLogged)
    log::warn("reading of more processes does not come back",
              {{"processes", std::to_string(pids.size() - kMaxStuckLogged)}});
}

void Scanner::say_refused(size_t refused) {
  if (refused != 0 && !refused_before_) {
    log::warn("too many reads of processes hang: others are read by turns, as these come back",
              {{"hung_reads", std::to_string(reads_->hung())}, {"waiting", std::to_string(refused)}});
  }
  refused_before_ = refused != 0;
}

bool Scanner::is_wanted(const Watched& watched, Which which) const {
  switch (which) {
    case Which::all:
      return true;
    case Which::but_workers:
      return !watched.process.is_worker;
    case Which::young_workers:
      return watched.process.is_worker && is_young(watched.process.id.start_time_ticks, kYoungWorker);
  }
  return true;
}

bool Scanner::look_at_watched(Which which) {
  std::vector<pid_t> pids;
  for (const auto& [pid, watched] : watched_) {
    if (is_wanted(watched, which)) pids.push_back(pid);
  }
  return look_at_watched(pids, which == Which::all);
}

// True if one has ended, begun to hang or got other labels.
bool Scanner::look_at_watched(const std::vector<pid_t>& pids, bool with_uid) {
  const auto batch = std::make_shared<Processes>();
  std::vector<pid_t> asked;
  const uint64_t now_ns = monotonic_ns();
  for (const pid_t pid : pids) {
    const Watched& watched = watched_.at(pid);
    if (watched.hang.forbids(now_ns)) continue;
    asked.push_back(pid);
    const auto given = given_to(pid);
    batch->requests.push_back({.root = root_,
                               .pid = pid,
                               .held = watched.process.handle,
                               .known = given ? std::nullopt : std::optional(watched.program),
                               .owner = watched.owner,
                               .environment_allowed = (given && given->whole) || now_ns >= watched.reread_ns,
                               .given = given,
                               .is_worker = watched.process.is_worker,
                               .with_uid = with_uid && !watched.process.is_worker});
  }
  batch->answers.resize(asked.size());
  reads_->run(batch, outcome_);
  bool changed = false;
  std::vector<pid_t> stuck;
  for (const Expendable::Left& left : outcome_.left) {
    Watched& watched = watched_.at(asked[left.item]);
    watched.hang.begin(left.read, monotonic_ns());
    watched.process.stuck = true;
    Known& known = known_[asked[left.item]];
    known.comm = watched.process.comm;
    known.owner = watched.owner;
    stuck.push_back(asked[left.item]);
    changed = true;
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    Watched& watched = watched_.at(asked[i]);
    watched.condition = {};
    if (outcome_.ends[i] != ReadEnd::read) continue;
    watched.condition = batch->answers[i].condition;
    watched.hang.end();
    forget_given(asked[i], batch->requests[i], batch->answers[i]);
    changed = std::exchange(watched.process.stuck, false) || changed;
    if (batch->answers[i].result.status == procfs::ReadStatus::gone) {
      say("watched process ended", watched.process);
      watched_.erase(asked[i]);
      changed = true;
    } else {
      changed = take_watched(watched, batch->answers[i]) || changed;
    }
  }
  name_the_stuck(stuck);
  return changed;
}

// The environment is read again only when another program has been executed: one that was overwritten since
// (setproctitle), wholly or up to some entry, says less than what was seen first. True if that changed
// anything; `watched` may be no more.
bool Scanner::take_watched(Watched& watched, ProcessReader::Answer& answer) {
  if (!answer.details) return false;
  WatchedProcess& process = watched.process;
  if (answer.details->handle) process.handle = std::move(answer.details->handle);
  if (!process.handle->is_of_thread()) process.comm = std::move(answer.details->comm);
  // It may have moved to another one (setns, unshare): ip netns exec does, once it has begun.
  if (answer.details->netns != 0) process.netns = answer.details->netns;
  if (auto& cgroup = answer.details->cgroup) watched.cgroup = std::move(*cgroup);
  // A launcher may become another user after the fork (setuid), and only then the program.
  if (answer.details->uid != kUnknownUid) process.uid = answer.details->uid;
  if (!answer.environment_read) return false;
  if (!answer.as_given) {
    watched.readings += weight(answer.environment);
    watched.reread_ns = next_reading_ns(watched.readings);
  }
  const bool too_long = answer.environment.status == procfs::ReadStatus::too_long;
  // An empty one may be one that is yet to be laid out.
  if (!too_long && (!answer.environment.ok() || answer.empty)) return false;
  watched.program = answer.program;
  if (too_long || answer.overwritten) return false;
  process.labels = std::move(answer.details->labels);
  watched.inherits = false;  // tell_workers() looks again
  say(answer.wanted ? "watched process executed a program" : "process executed a program that is not watched",
      process);
  if (!answer.wanted) watched_.erase(process.id.pid);
  return true;
}

// Those that are known first, for these rarely hang; then the others, the one that has waited longest first.
std::vector<pid_t> Scanner::due(Depth depth) const {
  std::vector<pid_t> pids;
  const uint64_t now_ns = monotonic_ns();
  for (const ListingReader::Entry& entry : listing_) {
    const Known& known = known_.at(entry.pid);
    if (known.tried != 0 && !known.young && depth == Depth::new_and_young) continue;
    if (watched_.contains(entry.pid) || (known.hang && known.hang->forbids(now_ns))) continue;
    pids.push_back(entry.pid);
  }
  std::ranges::sort(pids, {}, [this](pid_t pid) {
    const Known& known = known_.at(pid);
    return std::tuple(!known.read, known.read ? 0 : known.tried, pid);
  });
  return pids;
}

// True when a process to watch was found.
bool Scanner::look_at_others(const std::vector<pid_t>& pids) {
  const auto batch = std::make_shared<Processes>();
  batch->requests.reserve(pids.size());
  const uint64_t now_ns = monotonic_ns();
  for (const pid_t pid : pids) {
    const Known& known = known_.at(pid);
    const auto given = given_to(pid);
    const bool again = given || !known.read || (known.dropped && has_room_for(known));
    batch->requests.push_back({.root = root_,
                               .pid = pid,
                               .held = {},
                               .known = again ? std::nullopt : std::optional(known.program),
                               .owner = known.owner,
                               .environment_allowed = (given && given->whole) || now_ns >= known.reread_ns,
                               .given = given});
  }
  batch->answers.resize(pids.size());
  reads_->run(batch, outcome_);
  std::vector<pid_t> stuck;
  for (const Expendable::Left& left : outcome_.left) {
    const pid_t pid = pids[left.item];
    Known& known = known_.at(pid);
    if (!known.hang) known.hang = std::make_unique<Hang>();
    known.hang->begin(left.read, monotonic_ns());
    known.comm = left.subject.comm.data();
    if (left.subject.owner != UINT32_MAX) known.owner = left.subject.owner;
    known.tried = generation_;
    known.result = {procfs::ReadStatus::stuck, 0};
    known.waiting = false;
    stuck.push_back(pid);
  }
  bool found = false;
  size_t waiting = 0;
  for (size_t i = 0; i < pids.size(); ++i) {
    if (outcome_.ends[i] == ReadEnd::read) {
      forget_given(pids[i], batch->requests[i], batch->answers[i]);
      found = take(pids[i], batch->answers[i]) || found;
    } else if (outcome_.ends[i] == ReadEnd::refused) {
      Known& known = known_.at(pids[i]);
      known.waiting = !known.read;
      waiting += known.waiting ? 1 : 0;
    }
  }
  refused_ = waiting;
  name_the_stuck(stuck);
  return found;
}

bool Scanner::take(pid_t pid, ProcessReader::Answer& answer) {
  Known& known = known_.at(pid);
  if (known.hang) known.hang->end();
  known.waiting = false;
  known.tried = generation_;
  known.result = answer.result;
  if (!answer.result.ok()) {
    if (answer.result.status == procfs::ReadStatus::malformed) ++report_.stat_parse_errors;
    return false;
  }
  known.owner = answer.owner;
  known.young = is_young(answer.program.start_time_ticks, kYoung);
  if (known.program.start_time_ticks != answer.program.start_time_ticks) {
    known.readings = 0;
    known.hang.reset();
  }
  if (!answer.environment_read) {
    known.result = known.environment;
    return false;
  }
  known.program = answer.program;
  known.environment = known.result = answer.environment;
  if (!answer.as_given) {
    known.readings += weight(answer.environment);
    known.reread_ns = next_reading_ns(known.readings);
  }
  // Whatever else stood in the way may be over next time. A kernel thread's is gone, as a zombie's.
  known.read = answer.environment.status != procfs::ReadStatus::failed;
  known.dropped = known.overwritten = false;
  if (!answer.wanted && answer.overwritten) {
    answer.wanted = take_after_parent(answer.program, *answer.details);
    known.overwritten = !answer.wanted;
  }
  if (!answer.wanted) return false;
  const ProcessReader::Details& details = *answer.details;
  known.inherits = inherits(details.labels, details.parent, answer.program.start_time_ticks);
  known.uid = details.uid;
  known.dropped = !make_room_for(known);
  if (known.dropped) return false;
  start_watching(pid, known, answer);
  return true;
}

// What a process is by its parent, where its own environment no longer tells. A fork is what its parent is;
// what has executed a program is of the parent's job, and which rank is not known.
bool Scanner::take_after_parent(const Program& program, ProcessReader::Details& details) const {
  const auto found = watched_.find(details.parent);
  if (found == watched_.end()) return false;
  const Watched& parent = found->second;
  if (parent.process.id.start_time_ticks > program.start_time_ticks)
    return false;  // its number's owner is gone
  const RankLabels& labels = parent.process.labels;
  if (parent.program.layout == program.layout) {
    details.labels = labels;
  } else {
    details.labels = {};
    details.labels.job = labels.job;
    details.labels.node_rank = labels.node_rank;
  }
  return true;
}

std::shared_ptr<const GivenEnvironment> Scanner::given_to(pid_t pid) const {
  const auto found = given_.find(pid);
  return found == given_.end() ? nullptr : found->second;
}

// Once it has served, and unless another program has been executed meanwhile.
void Scanner::forget_given(pid_t pid, const ProcessReader::Request& request,
                           const ProcessReader::Answer& answer) {
  const auto found = given_.find(pid);
  if (found != given_.end() && answer.environment_read && found->second == request.given) given_.erase(found);
}

void Scanner::executed(const ExecutedProgram& program) {
  given_scan_->take(program.environment);
  given_[program.id.pid] = std::make_shared<const GivenEnvironment>(
      GivenEnvironment{.start_time_ticks = program.id.start_time_ticks,
                       .whole = program.whole,
                       .watched = given_scan_->watched(),
                       .labels = given_scan_->watched() ? given_scan_->labels() : RankLabels()});
  executed_.push_back(program.id.pid);
}

bool Scanner::look_at_executed() {
  std::vector<pid_t> watched;
  std::vector<pid_t> others;
  std::ranges::sort(executed_);
  const auto doubles = std::ranges::unique(executed_);
  executed_.erase(doubles.begin(), doubles.end());
  std::ranges::copy_if(executed_, std::back_inserter(watched),
                       [this](pid_t pid) { return watched_.contains(pid) && given_.contains(pid); });
  bool changed = !watched.empty() && look_at_watched(watched, false);
  const uint64_t now_ns = monotonic_ns();
  for (const pid_t pid : executed_) {
    const auto given = given_to(pid);
    if (!given || watched_.contains(pid) || (given->whole && !given->watched)) continue;
    Known& known = known_[pid];
    known.seen = std::max(known.seen, generation_);
    if (!known.hang || !known.hang->forbids(now_ns)) others.push_back(pid);
  }
  executed_.clear();
  if (!others.empty()) changed = look_at_others(others) || changed;
  if (!changed) return false;
  tell_workers();
  owners_.list(holders(), SocketOwners::Which::unlisted);
  tell_workers();
  return true;
}

void Scanner::start_watching(pid_t pid, const Known& known, ProcessReader::Answer& answer) {
  ProcessReader::Details& details = *answer.details;
  Watched watched;
  watched.program = answer.program;
  watched.parent = watched.process.parent = details.parent;
  watched.inode = details.inode;
  watched.owner = known.owner;
  watched.inherits = watched.process.is_worker = known.inherits;
  WatchedProcess& process = watched.process;
  process.id = details.handle->id();
  process.uid = known.uid;
  process.labels = std::move(details.labels);
  process.comm = std::move(details.comm);
  process.container_id = std::move(details.container_id);
  process.pod_uid = std::move(details.pod_uid);
  process.netns = details.netns;
  if (details.cgroup) watched.cgroup = std::move(*details.cgroup);
  process.handle = std::move(details.handle);
  say("process watched", process);
  watched_.insert_or_assign(pid, std::move(watched));
}

// A watched process that hangs is not asked whether it lives: it does as long as it is listed.
void Scanner::forget_the_unlisted() {
  std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != generation_; });
  std::erase_if(given_, [this](const auto& entry) { return !known_.contains(entry.first); });
  std::erase_if(watched_, [this](const auto& entry) {
    const auto& [pid, watched] = entry;
    if (!watched.process.stuck) return false;
    const auto known = known_.find(pid);
    if (known != known_.end() && known->second.inode == watched.inode) return false;
    say("watched process ended", watched.process);
    return true;
  });
}

bool Scanner::drop_dead() {
  if (!look_at_watched(Which::but_workers)) return false;
  owners_.list(holders(), SocketOwners::Which::unlisted);
  tell_workers();
  return true;
}

std::shared_ptr<const Conditions> Scanner::conditions() {
  auto conditions = std::make_shared<Conditions>();
  for (const auto& [pid, watched] : watched_) {
    if (!watched.process.is_worker) conditions->processes.push_back({watched.process.id, watched.condition});
  }
  std::ranges::sort(conditions->processes, {}, &Conditions::Of::id);
  std::vector<Cgroups::Member> members;
  members.reserve(conditions->processes.size());
  for (Conditions::Of& of : conditions->processes) {
    const Watched& watched = watched_.at(of.id.pid);
    const bool was_read = of.condition.state != 0;
    members.push_back({.id = of.id,
                       .uid = watched.process.uid,
                       .paths = was_read ? &watched.cgroup : nullptr,
                       .condition = &of.condition});
  }
  cgroups_.read(members);
  conditions->cgroups_dropped = cgroups_.dropped();
  conditions->read_ns = monotonic_ns();
  return conditions;
}

std::vector<SocketOwners::Holder> Scanner::holders() const {
  std::vector<SocketOwners::Holder> holders;
  holders.reserve(watched_.size());
  for (const auto& [pid, watched] : watched_) {
    const WatchedProcess& process = watched.process;
    holders.push_back({.id = process.id,
                       .parent = watched.parent,
                       .netns = process.netns,
                       .uid = process.uid,
                       .is_worker = process.is_worker,
                       .handle = process.handle,
                       .hangs = process.stuck});
  }
  return holders;
}

void Scanner::discover(Depth depth) {
  const uint64_t start_ns = monotonic_ns();
  ++generation_;
  const procfs::ReadResult listed = list();
  bool found = false;
  if (listed.ok()) {
    if (depth == Depth::all) forget_the_unlisted();
    found = look_at_watched(depth == Depth::all ? Which::all : Which::young_workers);
    count_places();
    found = look_at_others(due(depth)) || found;
    if (depth == Depth::all) say_refused(refused_);
    report_.discovered_ns = monotonic_ns();
  }
  if (depth == Depth::all || found) {
    tell_workers();
    owners_.list(holders(), depth == Depth::all ? SocketOwners::Which::all : SocketOwners::Which::unlisted);
    tell_workers();
  }
  report_.discovery_ok = listed.ok();
  report_.discovery_seconds = seconds_since(start_ns);
}

void Scanner::pass_sockets() {
  owners_.pass(holders());
  tell_workers();
}

std::shared_ptr<const ProcessState> Scanner::snapshot() {
  auto state = std::make_shared<ProcessState>();
  ScanReport& report = state->report;
  report = report_;
  report.few_descriptors = max_processes_ < kMaxWatchedProcesses;
  LeftOutByUser left_out;
  for (const auto& [pid, known] : known_) {
    if (watched_.contains(pid)) continue;
    if (known.dropped) {
      ++report.dropped_processes;
      ++left_out[known.uid].processes;
    }
    report.unreadable.waiting += known.waiting ? 1 : 0;
    if (known.hang && known.hang->is_on())
      report.stuck.push_back({pid, known.comm, known.owner.value_or(0), false});
    else if (!known.result.ok() && known.result.status != procfs::ReadStatus::gone)
      report.unreadable.count(known.result);
    else if (known.overwritten)
      ++report.unreadable.overwritten;
  }
  state->processes.reserve(watched_.size());
  for (const auto& [pid, watched] : watched_) {
    const WatchedProcess& process = watched.process;
    state->processes.push_back(process);
    if (process.stuck) report.stuck.push_back({pid, process.comm, watched.owner.value_or(0), true});
  }
  report.unreadable.stuck += report.stuck.size();
  std::ranges::sort(report.stuck, {}, &StuckProcess::pid);
  std::ranges::sort(state->processes, {}, [](const WatchedProcess& process) { return process.id.pid; });
  owners_.describe(*state, left_out);
  report.left_out = who_left_out_most(left_out);
  roles_.assign(state->processes);
  return state;
}

std::vector<StuckProcess> Scanner::waited_for() const {
  std::vector<StuckProcess> found;
  if (listing_hang_.holds_a_thread()) found.push_back({.pid = 0, .comm = "the listing of processes"});
  if (cgroups_.holds_a_thread()) found.push_back({.pid = 0, .comm = "the files of a cgroup"});
  for (const auto& [pid, known] : known_) {
    if (known.hang && known.hang->holds_a_thread())
      found.push_back({pid, known.comm, known.owner.value_or(0), false});
  }
  for (const auto& [pid, watched] : watched_) {
    if (watched.hang.holds_a_thread())
      found.push_back({pid, watched.process.comm, watched.owner.value_or(0), true});
  }
  return found;
}

}  // namespace kitty::collector
