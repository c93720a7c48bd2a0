#include "loader/link.h"

#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>

#include "loader/explain.h"
#include "loader/sys.h"

namespace kitty::loader {

namespace {

constexpr std::string_view kOperation = "attach";
constexpr const char* kPmusPath = "/sys/bus/event_source/devices";
constexpr const char* kKprobePmuPath = "/sys/bus/event_source/devices/kprobe/type";
constexpr size_t kMaxPmuTypeBytes = 64;

std::unexpected<Error> refused(const Program& program, Step step, int err) {
  const Refusal refusal{
      .step = step, .err = err, .kind = program.hook().kind, .target = program.hook().target};
  return fail(kOperation, program.section(), err, explain(refusal, read_host_facts()));
}

Result<uint32_t> read_kprobe_pmu(const Program& program) {
  const auto text = sys::read_file(kKprobePmuPath, kMaxPmuTypeBytes);
  if (text) return parse_pmu_type(*text);
  if (text.error() != ENOENT) return fail("read", kKprobePmuPath, text.error());
  const bool has_sysfs = access(kPmusPath, F_OK) == 0;
  return fail(kOperation, program.section(), 0,
              has_sysfs ? "this kernel has no kprobes (CONFIG_KPROBE_EVENTS): " +
                              std::string(kKprobePmuPath) + " is missing"
                        : "/sys is not mounted, so the kprobe PMU cannot be found");
}

Result<Link> attach_kprobe(const Program& program) {
  const auto pmu_type = read_kprobe_pmu(program);
  if (!pmu_type) return std::unexpected(pmu_type.error());
  auto event = sys::open_kprobe({.pmu_type = *pmu_type, .function = program.hook().target.c_str()});
  if (!event) return refused(program, Step::open_kprobe, event.error());
  const int perf_fd = event->get();
  auto fd =
      sys::create_link({.program_fd = program.fd(), .target_fd = perf_fd, .attach_type = BPF_PERF_EVENT});
  // EINVAL before 5.15; the older call works there, and fails with the true reason where there is another.
  const AttachMethod method = fd ? AttachMethod::link : AttachMethod::perf_ioctl;
  if (!fd) {
    if (const int err = sys::set_event_program(perf_fd, program.fd()))
      return refused(program, Step::attach, err);
  }
  Link link(fd ? std::move(*fd) : Fd(), std::move(*event), method);
  if (const int err = sys::enable_event(perf_fd)) return refused(program, Step::attach, err);
  return link;
}

Result<Link> attach_tracing(const Program& program) {
  const uint32_t type = program_type(program.hook().kind).expected_attach_type;
  if (auto fd = sys::create_link({.program_fd = program.fd(), .attach_type = type})) {
    return Link(std::move(*fd), Fd(), AttachMethod::link);
  }
  // EINVAL before 5.19. The older call attaches in the same way, so its errno is the true one.
  auto fd = sys::open_raw_tracepoint(nullptr, program.fd());
  if (!fd) return refused(program, Step::attach, fd.error());
  return Link(std::move(*fd), Fd(), AttachMethod::raw_tracepoint);
}

Result<Link> attach_raw_tracepoint(const Program& program) {
  auto fd = sys::open_raw_tracepoint(program.hook().target.c_str(), program.fd());
  if (!fd) return refused(program, Step::attach, fd.error());
  return Link(std::move(*fd), Fd(), AttachMethod::raw_tracepoint);
}

}  // namespace

Result<uint32_t> parse_pmu_type(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  uint32_t type = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), type);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return fail("read", kKprobePmuPath, 0, "not a number");
  }
  return type;
}

Result<Link> Link::attach(const Program& program) {
  switch (program.hook().kind) {
    case HookKind::kprobe:
      return attach_kprobe(program);
    case HookKind::fentry:
    case HookKind::tp_btf:
      return attach_tracing(program);
    case HookKind::raw_tp:
      return attach_raw_tracepoint(program);
    case HookKind::iter:
      return fail(kOperation, program.section(), EINVAL, "an iterator runs when it is read (iterator.h)");
  }
  return fail(kOperation, program.section(), EINVAL);
}

}  // namespace kitty::loader
