// A program attached to its hook, for as long as the Link lives. Owns the link's descriptor and, for kprobes,
// the perf event under it, and closes them in that order: a perf event that goes first leaves the program
// attached to nothing while the link still names it. Move-only; not thread-safe. Nothing survives the
// process: no tracefs events, no pinning. Facts: kernel/bpf/syscall.c (link_create, bpf_raw_tracepoint_open),
// kernel/events/core.c (the kprobe PMU, 4.17).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "loader/program.h"

namespace kitty::loader {

// Which of the kernel's interfaces took the program.
enum class AttachMethod { link, perf_ioctl, raw_tracepoint };

// The number in /sys/bus/event_source/devices/kprobe/type, as "8\n"; it differs between kernels.
[[nodiscard]] Result<uint32_t> parse_pmu_type(std::string_view text);

class Link {
 public:
  // What to attach to comes from the program's section. On kernels without perf links (before 5.15) or
  // tracing links (before 5.19) the older calls attach. Success proves that the hook exists, not that it
  // fires. Before 5.13 a fentry program can be attached once only: load it again. Errors name the section and
  // say why (explain.h); kallsyms is not read (kallsyms.h).
  static Result<Link> attach(const Program& program);

  // Takes over what attaches a program already: `link`, and the perf event under it where there is one.
  Link(Fd link, Fd perf_event, AttachMethod method)
      : perf_event_(std::move(perf_event)), link_(std::move(link)), method_(method) {}
  Link(Link&&) noexcept = default;
  Link& operator=(Link&& other) noexcept {
    if (this != &other) {
      detach();
      link_ = std::move(other.link_);
      perf_event_ = std::move(other.perf_event_);
      method_ = other.method_;
    }
    return *this;
  }
  ~Link() { detach(); }

  // Detaches now; later calls do nothing.
  void detach() {
    link_.reset();
    perf_event_.reset();
  }
  [[nodiscard]] bool attached() const { return link_ || perf_event_; }
  [[nodiscard]] AttachMethod method() const { return method_; }

 private:
  Fd perf_event_;  // kprobes only
  Fd link_;        // empty where the program hangs on the perf event itself
  AttachMethod method_ = AttachMethod::link;
};

}  // namespace kitty::loader
