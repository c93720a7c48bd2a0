#include "loader/sys.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <type_traits>

namespace kitty::loader::sys {

namespace {

constexpr int kFirstOwnFd = 3;

// Each struct is the part of union bpf_attr that one command reads; padding is spelled out, so that {} zeroes
// all of it.
struct MapCreateAttr {
  uint32_t map_type;
  uint32_t key_size;
  uint32_t value_size;
  uint32_t max_entries;
  uint32_t map_flags;
  uint32_t inner_map_fd;
  uint32_t numa_node;
  ObjectName map_name;
};

struct ElementAttr {
  uint32_t map_fd;
  uint32_t padding;
  uint64_t key;
  uint64_t value;  // next_key in BPF_MAP_GET_NEXT_KEY
  uint64_t flags;
};

struct ProgramLoadAttr {
  uint32_t prog_type;
  uint32_t insn_cnt;
  uint64_t insns;
  uint64_t license;
  uint32_t log_level;
  uint32_t log_size;
  uint64_t log_buf;
  uint32_t kern_version;
  uint32_t prog_flags;
  ObjectName prog_name;
  uint32_t prog_ifindex;
  uint32_t expected_attach_type;
  uint32_t prog_btf_fd;
  uint32_t func_info_rec_size;
  uint64_t func_info;
  uint32_t func_info_cnt;
  uint32_t line_info_rec_size;
  uint64_t line_info;
  uint32_t line_info_cnt;
  uint32_t attach_btf_id;
  uint32_t attach_btf_obj_fd;
  uint32_t core_relo_cnt;
  uint64_t fd_array;
  uint64_t core_relos;
  uint32_t core_relo_rec_size;
  uint32_t log_true_size;  // written by the kernel since 6.4 (47a71c1f9af0)
};

struct LinkCreateAttr {
  uint32_t prog_fd;
  uint32_t target_fd;
  uint32_t attach_type;
  uint32_t flags;
  uint64_t iter_info;  // of iterators; the same bytes are zero for all else
  uint32_t iter_info_len;
  uint32_t padding;
};

// The member `task` of union bpf_iter_link_info.
struct TaskIteratorInfo {
  uint32_t tid;
  uint32_t pid;
  uint32_t pid_fd;
};

struct IteratorAttr {
  uint32_t link_fd;
  uint32_t flags;
};

struct RawTracepointAttr {
  uint64_t name;
  uint32_t prog_fd;
  uint32_t padding;
};

struct InfoAttr {
  uint32_t bpf_fd;
  uint32_t info_len;
  uint64_t info;
};

struct EnableStatsAttr {
  uint32_t type;
};

static_assert(offsetof(MapCreateAttr, map_name) == offsetof(bpf_attr, map_name));
static_assert(offsetof(ElementAttr, key) == offsetof(bpf_attr, key));
static_assert(offsetof(ElementAttr, value) == offsetof(bpf_attr, value));
static_assert(offsetof(ElementAttr, flags) == offsetof(bpf_attr, flags));
static_assert(offsetof(ProgramLoadAttr, log_buf) == offsetof(bpf_attr, log_buf));
static_assert(offsetof(ProgramLoadAttr, prog_name) == offsetof(bpf_attr, prog_name));
static_assert(offsetof(ProgramLoadAttr, expected_attach_type) == offsetof(bpf_attr, expected_attach_type));
static_assert(offsetof(ProgramLoadAttr, attach_btf_id) == offsetof(bpf_attr, attach_btf_id));
static_assert(offsetof(ProgramLoadAttr, core_relo_rec_size) == offsetof(bpf_attr, core_relo_rec_size));
static_assert(offsetof(ProgramLoadAttr, log_true_size) == offsetof(bpf_attr, core_relo_rec_size) + 4);
static_assert(offsetof(LinkCreateAttr, attach_type) == offsetof(bpf_attr, link_create.attach_type));
static_assert(offsetof(LinkCreateAttr, iter_info) == offsetof(bpf_attr, link_create.iter_info));
static_assert(offsetof(LinkCreateAttr, iter_info_len) == offsetof(bpf_attr, link_create.iter_info_len));
static_assert(offsetof(TaskIteratorInfo, pid) == offsetof(bpf_iter_link_info, task.pid));
static_assert(sizeof(TaskIteratorInfo) == sizeof(bpf_iter_link_info::task));
static_assert(offsetof(RawTracepointAttr, prog_fd) == offsetof(bpf_attr, raw_tracepoint.prog_fd));
static_assert(offsetof(InfoAttr, info) == offsetof(bpf_attr, info.info));

// The result of the call: >= 0, or -errno.
template <class Attr>
int bpf(bpf_cmd command, Attr& attr) {
  static_assert(std::has_unique_object_representations_v<Attr>, "padding would not be zeroed");
  for (int attempt = 1;; ++attempt) {
    const long result = syscall(SYS_bpf, command, &attr, sizeof attr);
    if (result >= 0) return static_cast<int>(result);
    if (errno != EAGAIN || attempt == kMaxAttempts) return -errno;
  }
}

uint64_t address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

uint32_t raw(int fd) { return static_cast<uint32_t>(fd); }

// `result` as bpf() returns it. Moves the descriptor above the standard streams.
Outcome<Fd> own(int result) {
  if (result < 0) return std::unexpected(-result);
  Fd fd(result);
  if (fd.get() >= kFirstOwnFd) return fd;
  Fd moved(fcntl(fd.get(), F_DUPFD_CLOEXEC, kFirstOwnFd));
  if (!moved) return std::unexpected(errno);
  return moved;
}

int status(int result) { return result < 0 ? -result : 0; }

}  // namespace

ObjectName object_name(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('.'), name.size()));
  ObjectName out{};
  const size_t length = std::min(name.size(), out.size() - 1);
  std::transform(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(length), out.begin(), [](char c) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return allowed ? c : '_';
  });
  return out;
}

Outcome<Fd> create_map(const MapCreation& map) {
  MapCreateAttr attr{};
  attr.map_type = map.type;
  attr.key_size = map.key_size;
  attr.value_size = map.value_size;
  attr.max_entries = map.max_entries;
  attr.map_flags = map.flags;
  attr.map_name = object_name(map.name);
  return own(bpf(BPF_MAP_CREATE, attr));
}

int lookup_element(int map_fd, const void* key, void* value) {
  ElementAttr attr{};
  attr.map_fd = raw(map_fd);
  attr.key = address(key);
  attr.value = address(value);
  return status(bpf(BPF_MAP_LOOKUP_ELEM, attr));
}

int update_element(int map_fd, const void* key, const void* value, uint64_t flags) {
  ElementAttr attr{};
  attr.map_fd = raw(map_fd);
  attr.key = address(key);
  attr.value = address(value);
  attr.flags = flags;
  return status(bpf(BPF_MAP_UPDATE_ELEM, attr));
}

int delete_element(int map_fd, const void* key) {
  ElementAttr attr{};
  attr.map_fd = raw(map_fd);
  attr.key = address(key);
  return status(bpf(BPF_MAP_DELETE_ELEM, attr));
}

int next_key(int map_fd, const void* previous, void* next) {
  ElementAttr attr{};
  attr.map_fd = raw(map_fd);
  attr.key = address(previous);
  attr.value = address(next);
  return status(bpf(BPF_MAP_GET_NEXT_KEY, attr));
}

int freeze_map(int map_fd) {
  ElementAttr attr{};
  attr.map_fd = raw(map_fd);
  return status(bpf(BPF_MAP_FREEZE, attr));
}

Outcome<Fd> load_program(const ProgramLoad& program, std::span<char> log, uint32_t& log_true_size) {
  log_true_size = 0;
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  if (program.insns.size() > kMost || log.size() > kMost) return std::unexpected(E2BIG);
  ProgramLoadAttr attr{};
  attr.prog_type = program.type;
  attr.insn_cnt = static_cast<uint32_t>(program.insns.size());
  attr.insns = address(program.insns.data());
  attr.license = address(program.license);
  attr.prog_name = object_name(program.name);
  attr.expected_attach_type = program.expected_attach_type;
  attr.attach_btf_id = program.attach_btf_id;
  if (!log.empty()) {
    log.front() = '\0';
    attr.log_level = 1;
    attr.log_size = static_cast<uint32_t>(log.size());
    attr.log_buf = address(log.data());
  }
  const int result = bpf(BPF_PROG_LOAD, attr);
  log_true_size = attr.log_true_size;
  return own(result);
}

Outcome<Fd> create_link(const LinkCreation& link) {
  LinkCreateAttr attr{};
  attr.prog_fd = raw(link.program_fd);
  attr.target_fd = raw(link.target_fd);
  attr.attach_type = link.attach_type;
  // By `pid`, never by `tid`: kernels from 5.9 to 6.0 know of this union its first word only and refuse
  // whatever else is not zero (kernel/bpf/bpf_iter.c, bpf_iter_link_attach: E2BIG), but would take a `tid`
  // there for another iterator's parameter, ignore it, and visit every task. 5.8 knows none of it (EINVAL).
  TaskIteratorInfo info{};
  if (link.iterated_pid != 0) {
    info.pid = link.iterated_pid;
    attr.iter_info = address(&info);
    attr.iter_info_len = sizeof info;
  }
  return own(bpf(BPF_LINK_CREATE, attr));
}

Outcome<uint32_t> iterated_pid(int link_fd) {
  bpf_link_info info{};
  InfoAttr attr{};
  attr.bpf_fd = raw(link_fd);
  attr.info_len = sizeof info;
  attr.info = address(&info);
  if (const int err = status(bpf(BPF_OBJ_GET_INFO_BY_FD, attr))) return std::unexpected(err);
  return info.iter.task.pid;
}

Outcome<Fd> create_iterator(int link_fd) {
  IteratorAttr attr{};
  attr.link_fd = raw(link_fd);
  return own(bpf(BPF_ITER_CREATE, attr));
}

Outcome<size_t> read_iterator(int iterator_fd, std::span<std::byte> buffer) {
  for (int attempt = 1;; ++attempt) {
    const ssize_t count = read(iterator_fd, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<size_t>(count);
    // EAGAIN: a million objects passed and the program had nothing to say of them (MAX_ITER_OBJECTS); the
    // next read goes on from there.
    if (errno != EINTR && (errno != EAGAIN || attempt == kMaxAttempts)) return std::unexpected(errno);
  }
}

Outcome<Fd> open_raw_tracepoint(const char* name, int program_fd) {
  RawTracepointAttr attr{};
  attr.name = address(name);
  attr.prog_fd = raw(program_fd);
  return own(bpf(BPF_RAW_TRACEPOINT_OPEN, attr));
}

Outcome<Fd> enable_run_stats() {
  EnableStatsAttr attr{};
  attr.type = BPF_STATS_RUN_TIME;
  return own(bpf(BPF_ENABLE_STATS, attr));
}

Outcome<ProgramInfo> program_info(int program_fd) {
  ProgramInfo out{};
  InfoAttr attr{};
  attr.bpf_fd = raw(program_fd);
  attr.info_len = sizeof out.info;
  attr.info = address(&out.info);
  if (const int err = status(bpf(BPF_OBJ_GET_INFO_BY_FD, attr))) return std::unexpected(err);
  out.known_bytes = std::min<size_t>(attr.info_len, sizeof out.info);
  return out;
}

Outcome<Fd> open_kprobe(const KprobeEvent& event) {
  perf_event_attr attr{};
  attr.type = event.pmu_type;
  attr.size = sizeof attr;
  attr.config1 = address(event.function);  // kprobe_func; config 0: entry, not return
  constexpr int kAnyProcess = -1;
  constexpr int kCpu = 0;
  constexpr int kNoGroup = -1;
  const long result = syscall(SYS_perf_event_open, &attr, kAnyProcess, kCpu, kNoGroup, PERF_FLAG_FD_CLOEXEC);
  return own(result < 0 ? -errno : static_cast<int>(result));
}

int set_event_program(int perf_fd, int program_fd) {
  return ioctl(perf_fd, PERF_EVENT_IOC_SET_BPF, program_fd) < 0 ? errno : 0;
}

int enable_event(int perf_fd) { return ioctl(perf_fd, PERF_EVENT_IOC_ENABLE, 0) < 0 ? errno : 0; }

void raise_memlock() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const rlimit unlimited{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  if (setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_MEMLOCK, &limit);
}

Outcome<std::string> read_file(const char* path, size_t limit_bytes) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return std::unexpected(errno);
  std::string text;
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t count = read(fd.get(), chunk.data(), chunk.size());
    if (count == 0) return text;
    if (count < 0) {
      if (errno == EINTR) continue;
      return std::unexpected(errno);
    }
    const size_t bytes = static_cast<size_t>(count);
    if (bytes > limit_bytes - text.size()) return std::unexpected(EFBIG);
    text.append(chunk.data(), bytes);
  }
}

}  // namespace kitty::loader::sys
