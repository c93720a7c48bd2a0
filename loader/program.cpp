#include "loader/program.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "loader/explain.h"
#include "loader/sys.h"

namespace kitty::loader {

namespace {

constexpr std::string_view kOperation = "load program";

// The instructions with the maps' descriptors in place.
Result<std::vector<bpf_insn>> with_map_fds(const LinkedProgram& linked, std::span<const Map> maps) {
  std::vector<bpf_insn> insns = linked.insns;
  for (const MapReference& reference : linked.maps) {
    const std::string where = "reference to map " + std::to_string(reference.map) + " at instruction " +
                              std::to_string(reference.insn);
    if (reference.map >= maps.size())
      return fail(kOperation, linked.name, 0, where + ": no such map was given");
    if (insns.size() < 2 || reference.insn > insns.size() - 2) {
      return fail(kOperation, linked.name, 0, where + ": outside the program");
    }
    bpf_insn& insn = insns[reference.insn];
    const bool is_load = insn.code == (BPF_LD | BPF_IMM | BPF_DW);
    if (!is_load || (insn.src_reg != BPF_PSEUDO_MAP_FD && insn.src_reg != BPF_PSEUDO_MAP_VALUE)) {
      return fail(kOperation, linked.name, 0, where + ": not a load of a map's address");
    }
    insn.imm = maps[reference.map].fd();
  }
  return insns;
}

// What the kernel's BTF calls a hook's target, and what to say where it has none.
struct AttachType {
  uint32_t kind = 0;  // BTF_KIND_*
  std::string name;
  std::string absent;
};
std::optional<AttachType> attach_type(const Hook& hook) {
  switch (hook.kind) {
    case HookKind::fentry:
      return AttachType{BTF_KIND_FUNC, hook.target,
                        "function " + hook.target + " is not in the kernel's BTF: inlined or absent"};
    case HookKind::tp_btf:
      return AttachType{BTF_KIND_TYPEDEF, "btf_trace_" + hook.target,
                        "tracepoint " + hook.target + " is not in the kernel's BTF: this kernel lacks it"};
    case HookKind::iter:  // include/linux/bpf.h, BPF_ITER_FUNC_PREFIX
      return AttachType{BTF_KIND_FUNC, "bpf_iter_" + hook.target,
                        "iterator " + hook.target + " is not in the kernel's BTF: this kernel lacks it"};
    case HookKind::kprobe:
    case HookKind::raw_tp:
      break;
  }
  return std::nullopt;
}

// The BTF type that a program of this kind is verified against; 0 for kinds that need none.
Result<uint32_t> attach_type_id(const LinkedProgram& linked, const Hook& hook, const Btf* kernel_btf) {
  const std::optional<AttachType> type = attach_type(hook);
  if (!type) return 0;
  if (kernel_btf == nullptr) {
    return fail(kOperation, linked.name, 0,
                linked.section + " needs the kernel's BTF (/sys/kernel/btf/vmlinux)");
  }
  if (const auto id = kernel_btf->find(type->kind, type->name)) return *id;
  return fail(kOperation, linked.name, 0, type->absent);
}

// Loads once more, for the log. Grows it as the kernel asks (log_true_size), else fourfold, within
// kMaxLogBytes: a log that is still too long is cut, at its front by kernels since 6.4. The program is
// accepted on rare second tries.
struct LoggedAttempt {
  sys::Outcome<Fd> fd;
  std::string log;
};
LoggedAttempt load_with_log(const sys::ProgramLoad& load) {
  std::string log;
  for (size_t size = kFirstLogBytes;;) {
    log.assign(size, '\0');
    uint32_t true_size = 0;
    auto fd = sys::load_program(load, log, true_size);
    const bool too_small = !fd && fd.error() == ENOSPC;
    if (!too_small || size == kMaxLogBytes) {
      log.resize(strnlen(log.data(), log.size()));
      return {std::move(fd), std::move(log)};
    }
    size = std::min(std::max<size_t>(size * 4, true_size), kMaxLogBytes);
  }
}

}  // namespace

std::optional<std::string> find_poisoned_access(const LinkedProgram& program, std::string_view log) {
  constexpr std::string_view kCall = "unknown#";  // kernel/bpf/disasm.c, __func_get_name()
  for (size_t at = log.find(kCall); at != log.npos; at = log.find(kCall, at + kCall.size())) {
    const char* const begin = log.data() + at + kCall.size();
    int32_t helper = 0;
    const auto parsed = std::from_chars(begin, log.data() + log.size(), helper);
    if (parsed.ec != std::errc{}) continue;
    for (const PoisonedAccess& access : program.poisoned) {
      if (access.insn >= program.insns.size()) continue;
      const bpf_insn& insn = program.insns[access.insn];
      if (insn.code != (BPF_JMP | BPF_CALL) || insn.imm != helper) continue;
      return access.what;
    }
  }
  return std::nullopt;
}

Result<Program> Program::load(const LinkedProgram& linked, const ProgramOptions& options) {
  auto hook = parse_section(linked.section);
  if (!hook) return std::unexpected(std::move(hook.error()));
  if (linked.insns.empty() || linked.insns.size() > kMaxInstructions) {
    return fail(kOperation, linked.name, 0, std::to_string(linked.insns.size()) + " instructions");
  }
  const auto attach_btf_id = attach_type_id(linked, *hook, options.kernel_btf);
  if (!attach_btf_id) return std::unexpected(attach_btf_id.error());
  const auto insns = with_map_fds(linked, options.maps);
  if (!insns) return std::unexpected(insns.error());

  const auto [type, expected_attach_type] = program_type(hook->kind);
  const std::string license(options.license);
  const sys::ProgramLoad load{.type = type,
                              .expected_attach_type = expected_attach_type,
                              .attach_btf_id = *attach_btf_id,
                              .insns = *insns,
                              .license = license.c_str(),
                              .name = linked.name};
  uint32_t log_true_size = 0;
  auto fd = sys::load_program(load, {}, log_true_size);
  if (!fd) {
    const int err = fd.error();
    LoggedAttempt logged = load_with_log(load);
    if (!logged.fd) {
      std::string detail;
      if (const auto missing = find_poisoned_access(linked, logged.log)) {
        detail = "needs " + *missing + ", which this kernel's BTF lacks";
      } else {
        const Refusal refusal{.step = Step::load_program,
                              .err = err,
                              .kind = hook->kind,
                              .target = hook->target,
                              .log = logged.log};
        detail = explain(refusal, read_host_facts());
      }
      if (options.verifier_log != nullptr) *options.verifier_log = std::move(logged.log);
      return fail(kOperation, linked.name, err, detail);
    }
    fd = std::move(logged.fd);
  }

  Program program;
  program.fd_ = std::move(*fd);
  program.name_ = linked.name;
  program.section_ = linked.section;
  program.hook_ = std::move(*hook);
  return program;
}

Result<RunStats> Program::run_stats() const {
  const auto reply = sys::program_info(fd());
  if (!reply) return fail("read program statistics", name_, reply.error());
  constexpr size_t kNeeded = offsetof(bpf_prog_info, run_cnt) + sizeof reply->info.run_cnt;  // Linux 5.1
  if (reply->known_bytes < kNeeded) return fail("read program statistics", name_, EOPNOTSUPP);
  return RunStats{.run_count = reply->info.run_cnt, .run_time_ns = reply->info.run_time_ns};
}

Result<uint64_t> Program::memlock_bytes() const { return object_memlock_bytes(fd()); }

Result<Fd> enable_run_stats() {
  auto fd = sys::enable_run_stats();
  if (!fd) {
    const Refusal refusal{.step = Step::enable_stats, .err = fd.error()};
    return fail("enable program statistics", "", fd.error(), explain(refusal, read_host_facts()));
  }
  return std::move(*fd);
}

}  // namespace kitty::loader
