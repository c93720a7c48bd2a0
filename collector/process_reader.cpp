#include "collector/process_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "base/utf8.h"
#include "procfs/file.h"
#include "procfs/pids.h"

namespace kitty::collector {

namespace {

// FNV-1a
class Mark {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      value_ ^= static_cast<unsigned char>(c);
      value_ *= 0x100000001b3;
    }
  }
  void add(const std::optional<uint64_t>& number) {
    const uint64_t value = number.value_or(0);
    add({reinterpret_cast<const char*>(&value), sizeof value});
  }
  [[nodiscard]] uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// "PID" or "PID/NAME"
class Path {
 public:
  explicit Path(pid_t pid, std::string_view below = {}) {
    char* end = std::to_chars(text_.data(), text_.data() + text_.size() - below.size() - 1, pid).ptr;
    std::ranges::copy(below, end);
  }
  [[nodiscard]] const char* text() const { return text_.data(); }

 private:
  std::array<char, 32> text_{};
};

procfs::ReadExpected<procfs::ProcessStat> read_stat_at(int root, pid_t pid, std::span<char> buffer) {
  const auto text = procfs::read_text_at(root, Path(pid, "/stat").text(), buffer);
  if (!text) return std::unexpected(text.error());
  const auto stat = procfs::parse_stat(*text);
  if (!stat || stat->pid != pid) return std::unexpected(procfs::ReadResult{procfs::ReadStatus::malformed});
  return *stat;
}

// Null where none lives.
Handle hold_living_thread(int directory, const procfs::ProcessId& id, std::span<char> buffer) {
  auto thread = procfs::open_living_thread(directory, buffer);
  if (!thread) return nullptr;
  const auto stat = procfs::read_stat(thread->get(), buffer);
  if (!stat || stat->is_dead()) return nullptr;
  return std::make_shared<const procfs::ProcessHandle>(
      procfs::ProcessHandle::hold_thread(std::move(*thread), id, {stat->pid, stat->start_time_ticks}));
}

CgroupPaths paths_of(const procfs::Cgroup& cgroup) {
  return {.unified = std::string(cgroup.unified_path), .cpu = std::string(cgroup.cpu_path)};
}

uint32_t net_namespace(int directory) {
  return static_cast<uint32_t>(procfs::read_net_namespace(directory).value_or(0));
}

}  // namespace

Program program_of(const procfs::ProcessStat& stat) {
  Mark mark;
  for (const auto& place :
       {stat.arg_start, stat.arg_end, stat.env_start, stat.env_end, stat.start_code, stat.start_stack})
    mark.add(place);
  const uint64_t layout = mark.value();
  mark.add(stat.comm);
  return {stat.start_time_ticks, mark.value(), layout};
}

ListingReader::Answer ListingReader::read(const Request& root, Turns& turns) {
  Answer answer;
  answer.result = procfs::walk_pids(root->get(), buffer_, [&](pid_t pid, uint64_t inode) {
    answer.entries.push_back({pid, inode});
    if (answer.entries.size() % 1024 == 0) turns.goes_on();
  });
  return answer;
}

ProcessReader::Answer ProcessReader::read(const Request& request, Turns& turns) {
  return request.held ? read_held(request, turns) : read_listed(request, turns);
}

RankLabels ProcessReader::read_environment(const Request& request, int directory, Answer& answer) {
  answer.environment_read = true;
  const GivenEnvironment* given = request.given.get();
  if (given && given->start_time_ticks != answer.program.start_time_ticks) given = nullptr;
  const auto as_given = [&answer](const GivenEnvironment& environment) {
    answer.environment = {};
    answer.as_given = true;
    answer.wanted = environment.watched;
    return environment.labels;
  };
  if (given && given->whole) return as_given(*given);
  answer.environment = environment_.read(directory, buffer_);
  const bool tells = answer.environment.ok() && !environment_.empty() && !environment_.overwritten();
  if (!tells && given && given->watched) return as_given(*given);
  if (!answer.environment.ok()) return {};
  answer.wanted = environment_.watched();
  answer.empty = environment_.empty();
  answer.overwritten = environment_.overwritten();
  return answer.wanted ? environment_.labels() : RankLabels();
}

ProcessReader::Answer ProcessReader::read_held(const Request& request, Turns& turns) {
  Answer answer;
  answer.owner = request.owner.value_or(0);
  const procfs::ProcessId& id = request.held->id();
  const Subject subject{.owner = answer.owner, .start_time_ticks = id.start_time_ticks};
  if (!turns.may_hang(subject, 2 * kMaxHungReadsOfUser)) return answer;
  Handle held = request.held;
  auto stat = held->read_stat(buffer_);
  const bool ended = stat ? !held->is_shown_alive(*stat) : stat.error().status == procfs::ReadStatus::gone;
  if (ended) {
    held = find_again(request.root->get(), id);
    if (!held) {
      answer.result = {procfs::ReadStatus::gone, 0};
      return answer;
    }
    stat = held->read_stat(buffer_);
  }
  if (!stat) {
    answer.result = stat.error();
    return answer;
  }
  answer.program = program_of(*stat);
  answer.program.start_time_ticks = id.start_time_ticks;
  answer.details = std::make_unique<Details>();
  answer.details->comm = printable_text(stat->comm);
  answer.details->parent = stat->ppid;
  if (held != request.held) answer.details->handle = held;
  const int directory = held->dirfd();
  if (!request.is_worker) {
    answer.condition = condition_of(request.root->get(), *held, *stat);
    answer.details->netns = net_namespace(directory);
  }
  if (request.with_uid) {
    answer.details->uid = procfs::read_real_uid(directory, buffer_).value_or(kUnknownUid);
    if (const auto cgroup = procfs::read_cgroup(directory, buffer_))
      answer.details->cgroup = paths_of(*cgroup);
  }
  if (request.known == answer.program || !request.environment_allowed) return answer;
  answer.details->labels = read_environment(request, directory, answer);
  return answer;
}

// A thread's own stat has the thread's CPU time. That of all is in the main one's, also once that has ended:
// the kernel adds up the whole group's (do_task_stat of fs/proc/array.c). `stat` points into the buffer no
// more.
Condition ProcessReader::condition_of(int root, const procfs::ProcessHandle& held,
                                      const procfs::ProcessStat& stat) {
  Condition condition;
  condition.state = stat.state;
  if (!held.is_of_thread()) {
    condition.cpu_ticks = stat.utime_ticks + stat.stime_ticks;
    return condition;
  }
  const auto whole = read_stat_at(root, held.id().pid, buffer_);
  if (whole && whole->start_time_ticks == held.id().start_time_ticks)
    condition.cpu_ticks = whole->utime_ticks + whole->stime_ticks;
  return condition;
}

// The process by what still shows it, once what it was held by has ended: a thread, where the main one has
// ended before the others; the process itself again after an execve(2) by another thread than the main one.
Handle ProcessReader::find_again(int root, const procfs::ProcessId& id) {
  auto directory = procfs::open_at(root, Path(id.pid).text(), O_DIRECTORY);
  if (!directory) return nullptr;
  const auto leader = procfs::read_stat(directory->get(), buffer_);
  if (!leader || leader->pid != id.pid || leader->start_time_ticks != id.start_time_ticks) return nullptr;
  if (!leader->is_dead()) {
    return std::make_shared<const procfs::ProcessHandle>(
        procfs::ProcessHandle::hold(std::move(*directory), id));
  }
  return leader->lives_by_other_threads() ? hold_living_thread(directory->get(), id, buffer_) : nullptr;
}

ProcessReader::Answer ProcessReader::read_listed(const Request& request, Turns& turns) {
  Answer answer;
  const int root = request.root->get();
  Subject subject{.owner = request.owner.value_or(UINT32_MAX)};
  if (request.known) subject.start_time_ticks = request.known->start_time_ticks;
  if (request.owner) {
    // By path, in place of three system calls more: most have been seen before and run what they ran then.
    answer.owner = *request.owner;
    if (!turns.may_hang(subject, kMaxHungReadsOfUser)) return answer;
    const auto stat = read_stat_at(root, request.pid, buffer_);
    answer.result = stat ? procfs::ReadResult{} : stat.error();
    if (!stat) return answer;
    answer.program = program_of(*stat);
    if (request.known == answer.program || !request.environment_allowed) return answer;
  }
  auto directory = procfs::open_at(root, Path(request.pid).text(), O_DIRECTORY);
  struct stat status;
  if (!directory || ::fstat(directory->get(), &status) != 0) {
    answer.result = directory ? procfs::read_failure(errno) : directory.error();
    return answer;
  }
  // The directory's own owner is the effective user also where a process is not dumpable (task_dump_owner in
  // fs/proc/base.c).
  subject.owner = answer.owner = status.st_uid;
  if (!turns.may_hang(subject, kMaxHungReadsOfUser)) return answer;
  auto stat = procfs::read_stat(directory->get(), buffer_);
  answer.result = stat ? procfs::ReadResult{} : stat.error();
  if (stat && stat->pid != request.pid) answer.result = {procfs::ReadStatus::malformed, 0};
  if (!answer.result.ok()) return answer;
  const procfs::ProcessId id{request.pid, stat->start_time_ticks};
  Handle thread;
  if (stat->lives_by_other_threads()) {
    thread = hold_living_thread(directory->get(), id, buffer_);
    stat = thread ? thread->read_stat(buffer_)
                  : std::unexpected(procfs::ReadResult{procfs::ReadStatus::gone, 0});
    answer.result = stat ? procfs::ReadResult{} : stat.error();
    if (!stat) return answer;
  }
  const int files = thread ? thread->dirfd() : directory->get();
  answer.program = program_of(*stat);
  answer.program.start_time_ticks = id.start_time_ticks;
  if (request.known == answer.program || !request.environment_allowed) return answer;
  if (stat->is_dead()) {
    answer.environment_read = true;
    answer.environment = {procfs::ReadStatus::gone, 0};
    return answer;
  }
  subject.start_time_ticks = id.start_time_ticks;
  subject.set_comm(stat->comm);
  auto details = std::make_unique<Details>();
  details->comm = printable_text(stat->comm);
  details->parent = stat->ppid;
  details->inode = status.st_ino;
  if (!turns.may_hang(subject, kMaxHungReadsOfUser)) return answer;
  details->labels = read_environment(request, files, answer);
  if (!answer.wanted && !answer.overwritten) return answer;
  if (const auto cgroup = procfs::read_cgroup(files, buffer_)) {
    details->container_id = cgroup->container_id;
    details->pod_uid = cgroup->pod_uid();
    details->cgroup = paths_of(*cgroup);
  }
  details->netns = net_namespace(files);
  details->uid = procfs::read_real_uid(files, buffer_).value_or(kUnknownUid);
  details->handle = thread ? std::move(thread)
                           : std::make_shared<const procfs::ProcessHandle>(
                                 procfs::ProcessHandle::hold(std::move(*directory), id));
  answer.details = std::move(details);
  return answer;
}

NameReader::Answer NameReader::read(const Request& request, Turns& turns) {
  if (!turns.may_hang({}, kMaxHungReadsOfUser)) return {};
  std::array<char, 128> buffer;
  const auto text = procfs::read_text_at(request.root->get(), Path(request.pid, "/comm").text(), buffer);
  return text ? std::string(text->substr(0, text->find('\n'))) : std::string();
}

}  // namespace kitty::collector
