// A BPF program in the kernel. Owns its descriptor; the program lives on while a Link holds it. Move-only;
// immutable once loaded, so any number of threads may read it. Facts: kernel/bpf/syscall.c (bpf_prog_load),
// kernel/bpf/log.c (the verifier's log), bpf_prog_info in uapi/linux/bpf.h.
#pragma once

#include <linux/bpf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "loader/btf.h"
#include "loader/hook.h"
#include "loader/map.h"
#include "loader/object.h"

namespace kitty::loader {

// The verifier's own limit on one program (BPF_COMPLEXITY_LIMIT_INSNS of include/linux/bpf.h).
inline constexpr size_t kMaxInstructions = 1'000'000;
// The log grows up to this; older kernels refuse more (kernel/bpf/verifier.c before 5.16: UINT_MAX >> 8).
inline constexpr size_t kFirstLogBytes = size_t{64} << 10;
inline constexpr size_t kMaxLogBytes = (size_t{1} << 24) - 1;

struct ProgramOptions {
  std::span<const Map> maps;            // in the order of Object::maps()
  std::string_view license;             // "GPL" for the tracing helpers
  const Btf* kernel_btf = nullptr;      // the running kernel's; needed by fentry/, tp_btf/ and iter/ only
  std::string* verifier_log = nullptr;  // receives the whole log of a refused program; may be null
};

// Times the program ran, and how long in total, since it was loaded; counted only while statistics are on.
struct RunStats {
  uint64_t run_count = 0;
  uint64_t run_time_ns = 0;
};

class Program {
 public:
  // Loads without a log; when refused, once more with one, and the error says why: the kernel field that the
  // program needs and the kernel lacks, the missing capability, or the end of the verifier's log.
  static Result<Program> load(const LinkedProgram& linked, const ProgramOptions& options);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& section() const { return section_; }
  [[nodiscard]] const Hook& hook() const { return hook_; }

  [[nodiscard]] Result<RunStats> run_stats() const;
  // Kernel memory of the program in bytes, from /proc/self/fdinfo; maps not included.
  [[nodiscard]] Result<uint64_t> memlock_bytes() const;

 private:
  Program() = default;

  Fd fd_;
  std::string name_;
  std::string section_;
  Hook hook_;
};

// Turns the kernel's counting of runs and times on for every program while the Fd lives (about 20-50 ns a
// run). Needs CAP_SYS_ADMIN, Linux 5.8.
[[nodiscard]] Result<Fd> enable_run_stats();

// The access behind the call to an unknown helper that made the verifier refuse `program`; absent when the
// log names none.
[[nodiscard]] std::optional<std::string> find_poisoned_access(const LinkedProgram& program,
                                                              std::string_view log);

}  // namespace kitty::loader
