#include "collector/scanner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "collector/clock.h"
#include "collector/identity.h"
#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/pids.h"

namespace kitty::collector {

namespace {

constexpr size_t kReadBufferBytes =
    std::max({procfs::kDirectoryBufferBytes, procfs::kEnvironBufferBytes, procfs::kTcpTableBufferBytes,
              procfs::kCgroupBufferBytes, procfs::kStatBufferBytes});

// Now, on the clock of ProcessStat::start_time_ticks.
uint64_t boot_ticks() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
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

Scanner::Scanner(int procfs_root)
    : root_(procfs_root),
      agent_start_ticks_(boot_ticks()),
      variables_(identity_variables()),
      environ_(variables_),
      pid_buffer_(procfs::kDirectoryBufferBytes),
      read_buffer_(kReadBufferBytes) {}

bool Scanner::is_young(uint64_t start_time_ticks) const {
  const uint64_t young_ticks =
      static_cast<uint64_t>(kYoung.count()) * static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return start_time_ticks + young_ticks >= boot_ticks();
}

// True when a process to watch was found.
bool Scanner::look_at(pid_t pid, Depth depth) {
  auto [entry, added] = known_.try_emplace(pid);
  Known& known = entry->second;
  known.seen = generation_;
  if (!added && !known.young && depth == Depth::new_and_young) return false;

  const auto stat = read_stat_of(root_, pid, read_buffer_);
  if (!stat) {
    if (stat.error().status == procfs::ReadStatus::malformed) ++report_.parse_errors;
    return false;
  }
  known.young = is_young(stat->start_time_ticks);
  const auto watched = watched_.find(pid);
  if (watched != watched_.end() && watched->second.process.id.start_time_ticks == stat->start_time_ticks)
    return false;

  const bool same = known.read && known.start_time_ticks == stat->start_time_ticks &&
                    known.arg_start == stat->arg_start.value_or(0) &&
                    known.env_start == stat->env_start.value_or(0);
  const bool due = (generation_ + static_cast<uint64_t>(pid)) % kRecheckDiscoveries == 0;
  if (same && !due) return false;
  known.start_time_ticks = stat->start_time_ticks;
  known.arg_start = stat->arg_start.value_or(0);
  known.env_start = stat->env_start.value_or(0);
  known.read = false;
  known.denied = false;

  auto handle = procfs::ProcessHandle::open(root_, pid);
  const procfs::ReadResult result = handle ? handle->read_environ(read_buffer_, environ_) : handle.error();
  known.denied = result.status == procfs::ReadStatus::denied;
  known.read = result.ok() || known.denied;  // whatever else stood in the way may be over next time
  return result.ok() && environ_.watched() && start_watching(std::move(*handle));
}

bool Scanner::start_watching(procfs::ProcessHandle handle) {
  const pid_t pid = handle.id().pid;
  if (!watched_.contains(pid) && watched_.size() >= kMaxWatchedProcesses) {
    ++report_.dropped_processes;
    return false;
  }
  Watched watched;
  watched.process.id = handle.id();
  watched.process.handle = std::make_shared<const procfs::ProcessHandle>(std::move(handle));
  if (const auto cgroup = watched.process.handle->read_cgroup(read_buffer_)) {
    watched.process.container_id = cgroup->container_id;
    watched.process.pod_uid = cgroup->pod_uid();
  }
  watched_.insert_or_assign(pid, std::move(watched));
  return true;
}

// The environment is read again each time, because a launcher's child is seen before its exec; a process that
// has wiped it since (setproctitle) keeps what was seen first.
void Scanner::read_identity(Watched& watched) {
  WatchedProcess& process = watched.process;
  if (process.handle->read_environ(read_buffer_, environ_).ok() && environ_.watched()) {
    process.labels = rank_labels(variables_);
  }
  if (const auto stat = process.handle->read_stat(read_buffer_)) process.comm = stat->comm;
  if (const auto netns = process.handle->read_net_namespace()) process.netns = static_cast<uint32_t>(*netns);
}

void Scanner::forget_the_dead() {
  std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != generation_; });
  std::erase_if(watched_, [](const auto& entry) { return !entry.second.process.handle->alive(); });
}

// Each socket goes to the holder that started first: children inherit sockets, parents do not.
void Scanner::claim_sockets() {
  std::vector<Watched*> eldest_first;
  eldest_first.reserve(watched_.size());
  for (auto& [pid, watched] : watched_) eldest_first.push_back(&watched);
  std::ranges::sort(eldest_first, {}, [](const Watched* watched) {
    return std::pair(watched->process.id.start_time_ticks, watched->process.id.pid);
  });

  ++claim_;
  report_.dropped_sockets = 0;
  unlisted_processes_ = 0;
  for (Watched* watched : eldest_first) {
    const procfs::ProcessId id = watched->process.id;
    const bool older = !watched->walked && id.start_time_ticks < agent_start_ticks_;
    const auto claim = [&](uint64_t inode) {
      auto found = sockets_.find(inode);
      if (found == sockets_.end()) {
        if (sockets_.size() >= kMaxOwnedSockets) {
          ++report_.dropped_sockets;
          return;
        }
        found = sockets_.try_emplace(inode, Socket{.owner = id, .older_than_agent = older}).first;
      }
      Socket& socket = found->second;
      if (socket.claimed == claim_) return;  // an elder holds it
      socket.claimed = claim_;
      socket.owner = id;
    };
    const procfs::FdWalk walk = watched->process.handle->walk_socket_fds(read_buffer_, claim);
    watched->walked = true;
    if (!walk.result.ok() && walk.result.status != procfs::ReadStatus::gone) ++unlisted_processes_;
  }
  std::erase_if(sockets_, [this](const auto& entry) { return entry.second.claimed != claim_; });
}

void Scanner::discover(Depth depth) {
  const uint64_t start_ns = monotonic_ns();
  ++generation_;
  if (depth == Depth::all) report_.dropped_processes = 0;
  bool found = false;
  const procfs::ReadResult listed =
      procfs::walk_pids(root_, pid_buffer_, [&](pid_t pid) { found = look_at(pid, depth) || found; });
  if (depth == Depth::all || found) {
    if (listed.ok()) forget_the_dead();
    for (auto& [pid, watched] : watched_) read_identity(watched);
    claim_sockets();
  }
  report_.discovery_ok = listed.ok();
  report_.discovery_seconds = seconds_since(start_ns);
}

bool Scanner::read_tables(const Watched& watched) {
  bool complete = true;
  for (const procfs::TcpTable table : {procfs::TcpTable::tcp, procfs::TcpTable::tcp6}) {
    const procfs::TcpTableRead read =
        watched.process.handle->read_tcp_table(table, read_buffer_, [this](const procfs::TcpRow& row) {
          if (row.inode == 0) return;
          const uint64_t queued_bytes = procfs::queued_tx_bytes(row);
          const auto found = sockets_.find(row.inode);
          if (found == sockets_.end()) {
            unowned_rows_.push_back({row.inode, queued_bytes});
            return;
          }
          found->second.tx_queue_bytes = queued_bytes;
          found->second.counted = pass_;
        });
    report_.parse_errors += read.errors;
    complete = complete && read.result.ok();
  }
  return complete;
}

void Scanner::look_for_unknown_rows() {
  const auto known = [this](const Row& row) { return std::ranges::binary_search(foreign_, row.inode); };
  if (!std::ranges::all_of(unowned_rows_, known)) claim_sockets();
  foreign_.clear();
  for (const Row& row : unowned_rows_) {
    const auto found = sockets_.find(row.inode);
    if (found == sockets_.end()) {
      foreign_.push_back(row.inode);
      continue;
    }
    found->second.tx_queue_bytes = row.tx_queue_bytes;
    found->second.counted = pass_;
  }
  std::ranges::sort(foreign_);
}

void Scanner::pass_sockets() {
  const uint64_t start_ns = monotonic_ns();
  ++pass_;
  unowned_rows_.clear();
  std::unordered_map<uint32_t, bool> namespaces;  // read in this pass, and whether that went well
  bool all_read = true;
  for (auto& [pid, watched] : watched_) {
    const uint32_t netns = watched.process.netns;
    auto done = namespaces.find(netns);
    // A namespace without a number cannot be told from another, and one whose reader died is read through the
    // next.
    if (done == namespaces.end() || netns == 0 || !done->second) {
      done = namespaces.insert_or_assign(netns, read_tables(watched)).first;
      if (!done->second && watched.process.handle->alive()) all_read = false;
    }
    if (done->second) watched.tables_read = pass_;
  }
  look_for_unknown_rows();
  report_.socket_pass_ok = all_read;
  report_.socket_pass_seconds = seconds_since(start_ns);
}

std::shared_ptr<const ProcessState> Scanner::snapshot() const {
  auto state = std::make_shared<ProcessState>();
  state->report = report_;
  state->report.unreadable_processes =
      unlisted_processes_ + static_cast<uint64_t>(std::ranges::count_if(
                                known_, [](const auto& entry) { return entry.second.denied; }));
  state->processes.reserve(watched_.size());
  for (const auto& [pid, watched] : watched_) {
    state->processes.push_back(watched.process);
    state->processes.back().tx_queue_known = pass_ != 0 && watched.tables_read == pass_;
  }
  std::ranges::sort(state->processes, {}, [](const WatchedProcess& process) { return process.id.pid; });
  for (const auto& [inode, socket] : sockets_) {
    const auto owner = std::ranges::lower_bound(state->processes, socket.owner, {}, &WatchedProcess::id);
    if (owner == state->processes.end() || owner->id != socket.owner) continue;
    owner->sockets.push_back({.inode = inode,
                              .older_than_agent = socket.older_than_agent,
                              .tx_queue_bytes = socket.counted == pass_ ? socket.tx_queue_bytes : 0});
  }
  return state;
}

}  // namespace kitty::collector
