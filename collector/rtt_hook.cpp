#include "collector/rtt_hook.h"

#include <algorithm>
#include <array>
#include <utility>

#include "collector/self_test.h"
#include "loader/kernel_btf.h"
#include "loader/sys.h"

namespace kitty::collector {

namespace {

struct Rung {
  std::string_view hook;
  std::string_view program;  // function in kprobe.bpf.c
};

constexpr std::array kRungs = {
    Rung{"kprobe/tcp_rtt_estimator", "kprobe_estimator"},
    Rung{"fentry/tcp_rtt_estimator", "fentry_estimator"},
    Rung{"fentry/tcp_ack_update_rtt", "fentry_ack"},
    Rung{"kprobe/tcp_ack_update_rtt", "kprobe_ack"},
    Rung{"tp_btf/tcp_probe", "probe_rack"},
};

constexpr std::array kTracepoints = {
    Rung{"raw_tp/tcp_retransmit_skb", "on_retransmit"},
    Rung{"raw_tp/sched_process_exec", "on_exec"},
    Rung{"tp_btf/tcp_probe for time", "time_receive"},
    Rung{"tp_btf/tcp_rcv_space_adjust", "time_read"},
};

Result<AttachedProgram> load_and_attach(const loader::Object& object, const FlowMaps& maps,
                                        const loader::Btf& kernel, std::string_view name) {
  Result<loader::LinkedProgram> linked = object.link(name, &kernel);
  if (!linked) return std::unexpected(linked.error());
  Result<loader::Program> program = loader::Program::load(
      *linked, {.maps = maps.maps(), .license = object.license(), .kernel_btf = &kernel});
  if (!program) return std::unexpected(program.error());
  Result<loader::Link> link = loader::Link::attach(*program);
  if (!link) return std::unexpected(link.error());
  return AttachedProgram{std::move(*program), std::move(*link)};
}

RttHook climb(const loader::Object& object, FlowMaps& maps, const loader::Btf& kernel,
              std::string_view wanted) {
  RttHook hook;
  for (const Rung& rung : kRungs) {
    if (wanted != kHookAuto && wanted != rung.hook) continue;
    Result<AttachedProgram> attached = load_and_attach(object, maps, kernel, rung.program);
    const Result<uint32_t> works = attached ? run_self_test(maps) : std::unexpected(attached.error());
    if (!works) {
      hook.refusals.push_back({std::string(rung.hook), works.error().message()});
      continue;
    }
    hook.name = rung.hook;
    hook.have = *works;
    hook.attached.push_back(std::move(*attached));
    break;
  }
  if (hook.attached.empty()) return hook;
  for (const Rung& tracepoint : kTracepoints) {
    Result<AttachedProgram> attached = load_and_attach(object, maps, kernel, tracepoint.program);
    if (attached) {
      hook.attached.push_back(std::move(*attached));
    } else {
      hook.missing.push_back({std::string(tracepoint.hook), attached.error().message()});
    }
  }
  return hook;
}

// What every hook stands on.
struct Ground {
  loader::Object object;
  loader::KernelBtf kernel;
};

Result<Ground> read_ground(std::span<const std::byte> object_bytes, const std::string& btf_path) {
  Result<loader::Object> object = loader::Object::parse(object_bytes);
  if (!object) return std::unexpected(object.error());
  Result<loader::KernelBtf> kernel =
      btf_path.empty() ? loader::KernelBtf::of_running_kernel() : loader::KernelBtf::from_file(btf_path);
  if (!kernel) return std::unexpected(kernel.error());
  loader::sys::raise_memlock();  // before 5.11 maps count against it, and its default holds none of ours
  return Ground{std::move(*object), std::move(*kernel)};
}

// What stands in the way of every rung.
RttSource refuse_all(std::string_view wanted, const Error& error) {
  RttSource source;
  source.hook.refusals.push_back({std::string(wanted), error.message()});
  source.rows_refusal = error.message();
  return source;
}

HookTrial refused(std::string_view hook, const Error& error) { return {hook, error.message(), error.err}; }

// The program, which only repeats the hook, left out.
HookTrial without_program(std::string_view hook, Error error) {
  error.object.clear();
  return refused(hook, error);
}

}  // namespace

std::span<const std::string_view> rtt_hook_names() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, kRungs.size()> names;
    std::ranges::transform(kRungs, names.begin(), &Rung::hook);
    return names;
  }();
  return kNames;
}

bool is_rtt_hook(std::string_view name) {
  return name == kHookAuto || name == kHookNone || std::ranges::count(rtt_hook_names(), name) != 0;
}

bool is_degraded(std::string_view hook) { return hook == "tp_btf/tcp_probe"; }

RttSource open_rtt_source(std::span<const std::byte> object_bytes, const std::string& btf_path,
                          std::string_view wanted) {
  if (wanted == kHookNone) return {};
  const Result<Ground> ground = read_ground(object_bytes, btf_path);
  if (!ground) return refuse_all(wanted, ground.error());
  const loader::Object& object = ground->object;
  const loader::Btf& kernel = ground->kernel.btf();
  Result<FlowMaps> maps = FlowMaps::create(object);
  if (!maps) return refuse_all(wanted, maps.error());

  RttSource source;
  source.maps = std::make_unique<FlowMaps>(std::move(*maps));
  source.hook = climb(object, *source.maps, kernel, wanted);
  if (source.hook.attached.empty()) source.maps.reset();
  if (Result<SocketRows> rows = SocketRows::open(object, kernel)) {
    source.rows = std::make_unique<SocketRows>(std::move(*rows));
  } else {
    source.rows_refusal = rows.error().message();
  }
  return source;
}

HookTrials try_hooks(std::span<const std::byte> object_bytes, const std::string& btf_path) {
  HookTrials trials;
  const Result<Ground> ground = read_ground(object_bytes, btf_path);
  trials.has_btf = ground.has_value();
  if (!ground) {
    trials.obstacle = refused({}, ground.error());
    return trials;
  }
  const loader::Object& object = ground->object;
  const loader::Btf& kernel = ground->kernel.btf();
  Result<FlowMaps> maps = FlowMaps::create(object);
  if (!maps) {
    trials.obstacle = refused({}, maps.error());
    return trials;
  }
  const auto try_one = [&](const Rung& hook, bool is_rung) {
    const Result<AttachedProgram> attached = load_and_attach(object, *maps, kernel, hook.program);
    Status works = attached ? Status() : std::unexpected(attached.error());
    if (attached && is_rung) {
      if (const auto tested = run_self_test(*maps); !tested) works = std::unexpected(tested.error());
    }
    trials.hooks.push_back(works ? HookTrial{hook.hook, {}, 0} : without_program(hook.hook, works.error()));
  };
  for (const Rung& rung : kRungs) try_one(rung, true);
  for (const Rung& tracepoint : kTracepoints) try_one(tracepoint, false);
  constexpr std::string_view kSockets = "iter/task_file";
  const Result<SocketRows> rows = SocketRows::open(object, kernel);
  trials.hooks.push_back(rows ? HookTrial{kSockets, {}, 0} : without_program(kSockets, rows.error()));
  return trials;
}

}  // namespace kitty::collector
