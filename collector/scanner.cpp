#include "collector/scanner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <iterator>
#include <tuple>

#include "base/log.h"
#include "base/utf8.h"
#include "collector/clock.h"
#include "collector/identity.h"
#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/pids.h"

namespace kitty::collector {

namespace {

// Forks between a worker and its rank; more than are ever seen.
constexpr int kMaxGenerations = 16;

constexpr size_t kReadBufferBytes = std::max({procfs::kEnvironBufferBytes, procfs::kCgroupBufferBytes,
                                              procfs::kStatBufferBytes, procfs::kStatusBufferBytes});

void say(std::string_view what, const WatchedProcess& process) {
  log::debug(what, {{"pid", std::to_string(process.id.pid)},
                    {"rank", process.labels.rank},
                    {"job", process.labels.job},
                    {"comm", process.comm}});
}

// Of a process whose directory is not held: one file, by path, in place of three system calls more.
procfs::ReadExpected<procfs::ProcessStat> read_stat_of(int root, pid_t pid, std::span<char> buffer) {
  std::array<char, 32> path{};
  const auto end = std::to_chars(path.data(), path.data() + path.size() - sizeof "/stat", pid).ptr;
  std::ranges::copy(std::string_view("/stat"), end);
  const auto text = procfs::read_text_at(root, path.data(), buffer);
  if (!text) return std::unexpected(text.error());
  const auto stat = procfs::parse_stat(*text);
  if (!stat) return std::unexpected(procfs::ReadResult{procfs::ReadStatus::malformed});
  return *stat;
}

}  // namespace

void Unreadable::count(const procfs::ReadResult& result) {
  if (result.status == procfs::ReadStatus::denied) {
    ++permission;
  } else if (result.err == EMFILE || result.err == ENFILE) {
    ++open_files;
  } else {
    ++other;
  }
}

Scanner::Scanner(int procfs_root, SocketRows* rows, size_t max_processes)
    : root_(procfs_root),
      max_processes_(std::min(max_processes, kMaxWatchedProcesses)),
      agent_start_ticks_(boot_ticks()),
      owners_(agent_start_ticks_, rows),
      places_(max_processes_),
      variables_(identity_variables()),
      environ_(variables_),
      pid_buffer_(procfs::kDirectoryBufferBytes),
      read_buffer_(kReadBufferBytes) {}

bool Scanner::is_young(uint64_t start_time_ticks, std::chrono::seconds limit) {
  const uint64_t young_ticks =
      static_cast<uint64_t>(limit.count()) * static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return start_time_ticks + young_ticks >= boot_ticks();
}

Scanner::Layout Scanner::layout_of(const procfs::ProcessStat& stat) {
  return {stat.arg_start.value_or(0), stat.env_start.value_or(0)};
}

// True when a process to watch was found, or a watched one has executed another program.
bool Scanner::look_at(pid_t pid, Depth depth) {
  auto [entry, added] = known_.try_emplace(pid);
  Known& known = entry->second;
  known.seen = generation_;
  if (!added && !known.young && depth == Depth::new_and_young) return false;

  const auto stat = read_stat_of(root_, pid, read_buffer_);
  if (!stat) {
    known.result = stat.error();
    if (stat.error().status == procfs::ReadStatus::malformed) ++report_.stat_parse_errors;
    return false;
  }
  const auto watched = watched_.find(pid);
  const bool worker = watched != watched_.end() && watched->second.process.is_worker;
  known.young = is_young(stat->start_time_ticks, worker ? kYoungWorker : kYoung);
  if (watched != watched_.end() && watched->second.process.id.start_time_ticks == stat->start_time_ticks) {
    Watched& found = watched->second;
    found.executed = found.layout != layout_of(*stat);
    if (!found.executed && !stat->is_dead()) found.confirmed = generation_;
    found.process.comm = stat->comm;
    return found.executed;
  }
  if (watched != watched_.end()) {  // another process's number by now
    places_.give_up(watched->second.process.uid, watched->second.process.is_worker);
    watched_.erase(watched);
  }

  const bool same =
      known.read && known.start_time_ticks == stat->start_time_ticks && known.layout == layout_of(*stat);
  const bool due = (generation_ + static_cast<uint64_t>(pid)) % kRecheckDiscoveries == 0;
  if (same && !due && !(known.dropped && has_room_for(known))) return false;
  known.start_time_ticks = stat->start_time_ticks;
  known.layout = layout_of(*stat);
  const pid_t parent = stat->ppid;

  auto handle = procfs::ProcessHandle::open(root_, pid);
  known.result = handle ? handle->read_environ(read_buffer_, environ_) : handle.error();
  // Whatever else stood in the way may be over next time.
  known.read = known.result.ok() || known.result.status == procfs::ReadStatus::denied;
  const bool wanted = known.result.ok() && environ_.watched();
  known.dropped = false;
  if (!wanted) return false;
  known.inherits = inherits(rank_labels(variables_), parent, known.start_time_ticks);
  known.uid = handle->read_real_uid(read_buffer_).value_or(kUnknownUid);
  known.dropped = !make_room_for(known);
  if (known.dropped) return false;
  start_watching(std::move(*handle), known);
  return true;
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
  Watched& watched = least->second;
  say("process given up: its user has more than a fair share", watched.process);
  places_.give_up(uid, watched.process.is_worker);
  Known& known = known_[least->first];
  known.start_time_ticks = watched.process.id.start_time_ticks;
  known.layout = watched.layout;
  known.read = known.dropped = true;
  known.result = {};
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

// `environ_` and `variables_` hold the process's environment.
void Scanner::start_watching(procfs::ProcessHandle handle, const Known& known) {
  const pid_t pid = handle.id().pid;
  Watched watched;
  watched.layout = known.layout;
  watched.inherits = watched.process.is_worker = known.inherits;
  watched.process.uid = known.uid;
  watched.process.id = handle.id();
  watched.process.labels = rank_labels(variables_);
  if (const auto stat = handle.read_stat(read_buffer_)) {
    watched.parent = stat->ppid;
    watched.process.comm = printable_text(stat->comm);
  }
  if (const auto cgroup = handle.read_cgroup(read_buffer_)) {
    watched.process.container_id = cgroup->container_id;
    watched.process.pod_uid = cgroup->pod_uid();
  }
  say("process watched", watched.process);
  watched.process.handle = std::make_shared<const procfs::ProcessHandle>(std::move(handle));
  watched_.insert_or_assign(pid, std::move(watched));
}

// The environment is read again only when another program has been executed: one that was overwritten since
// (setproctitle), wholly or up to some entry, says less than what was seen first. False if the process is not
// to be watched any more.
bool Scanner::refresh(Watched& watched) {
  WatchedProcess& process = watched.process;
  const auto stat = process.handle->read_stat(read_buffer_);
  if (!stat) return true;  // erase_dead() sees to it
  process.comm = printable_text(stat->comm);
  const Layout layout = layout_of(*stat);
  // A launcher may become another user after the fork (setuid), and only then the program.
  if (const auto uid = process.handle->read_real_uid(read_buffer_)) process.uid = *uid;
  if (layout == watched.layout) return true;
  // An empty environment may be one that is yet to be laid out.
  if (!process.handle->read_environ(read_buffer_, environ_).ok() || environ_.bytes() == 0) return true;
  watched.layout = layout;
  if (environ_.overwritten()) return true;
  process.labels = rank_labels(variables_);
  watched.inherits = false;  // tell_workers() looks again
  say(environ_.watched() ? "watched process executed a program"
                         : "process executed a program that is not watched",
      process);
  return environ_.watched();
}

void Scanner::forget_the_unlisted() {
  std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != generation_; });
}

// A worker that discovery has just seen needs no second look; and between full discoveries none at all, for
// nobody waits for what it holds.
bool Scanner::rests(const Watched& watched, Depth depth) const {
  return watched.process.is_worker && !watched.executed &&
         (depth != Depth::all || watched.confirmed == generation_);
}

bool Scanner::erase_dead(Depth depth) {
  return std::erase_if(watched_, [this, depth](const auto& entry) {
           const WatchedProcess& process = entry.second.process;
           if (rests(entry.second, depth) || process.handle->alive()) return false;
           say("watched process ended", process);
           return true;
         }) != 0;
}

bool Scanner::drop_dead() {
  if (!erase_dead(Depth::new_and_young)) return false;
  owners_.list(holders(), SocketOwners::Which::unlisted);
  tell_workers();
  return true;
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
                       .handle = process.handle.get()});
  }
  return holders;
}

void Scanner::discover(Depth depth) {
  const uint64_t start_ns = monotonic_ns();
  ++generation_;
  bool found = false;
  count_places();
  const procfs::ReadResult listed =
      procfs::walk_pids(root_, pid_buffer_, [&](pid_t pid) { found = look_at(pid, depth) || found; });
  if (depth == Depth::all || found) {
    if (listed.ok()) forget_the_unlisted();
    erase_dead(depth);
    for (auto it = watched_.begin(); it != watched_.end();) {
      it = rests(it->second, depth) || refresh(it->second) ? std::next(it) : watched_.erase(it);
    }
    read_namespaces();
    tell_workers();
    owners_.list(holders(), depth == Depth::all ? SocketOwners::Which::all : SocketOwners::Which::unlisted);
    tell_workers();
  }
  report_.discovery_ok = listed.ok();
  report_.discovery_seconds = seconds_since(start_ns);
}

// A process may have moved to another one since (setns, unshare): ip netns exec does, once it has begun.
// A worker's is what it was when it was found.
void Scanner::read_namespaces() {
  for (auto& [pid, watched] : watched_) {
    if (watched.process.is_worker && watched.process.netns != 0) continue;
    if (const auto netns = watched.process.handle->read_net_namespace())
      watched.process.netns = static_cast<uint32_t>(*netns);
  }
}

void Scanner::pass_sockets() {
  read_namespaces();
  owners_.pass(holders());
  tell_workers();
}

std::shared_ptr<const ProcessState> Scanner::snapshot() const {
  auto state = std::make_shared<ProcessState>();
  state->report = report_;
  state->report.few_descriptors = max_processes_ < kMaxWatchedProcesses;
  LeftOutByUser left_out;
  for (const auto& [pid, known] : known_) {
    if (known.dropped) {
      ++state->report.dropped_processes;
      ++left_out[known.uid].processes;
    }
    if (!known.result.ok() && known.result.status != procfs::ReadStatus::gone)
      state->report.unreadable.count(known.result);
  }
  state->processes.reserve(watched_.size());
  for (const auto& [pid, watched] : watched_) state->processes.push_back(watched.process);
  std::ranges::sort(state->processes, {}, [](const WatchedProcess& process) { return process.id.pid; });
  owners_.describe(*state, left_out);
  state->report.left_out = who_left_out_most(left_out);
  return state;
}

}  // namespace kitty::collector
