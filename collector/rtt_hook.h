// The ladder of hooks that give raw RTT samples (design: the first rung that loads, attaches *and* shows data
// ACKs on a loopback pair is taken; every refusal keeps its reason). Also attaches the two tracepoints that
// go with any rung. Owns programs and links: when it goes, nothing of kitty stays attached.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "collector/flow_maps.h"
#include "collector/socket_rows.h"
#include "loader/link.h"
#include "loader/object.h"
#include "loader/program.h"

namespace kitty::collector {

struct Refusal {
  std::string hook;    // "fentry/tcp_rtt_estimator"
  std::string reason;  // one line
};

inline constexpr std::string_view kHookAuto = "auto";
inline constexpr std::string_view kHookNone = "none";

// Rungs in the order they are tried, as --rtt-hook and kitty_rtt_hook_info name them; without "auto" and
// "none".
[[nodiscard]] std::span<const std::string_view> rtt_hook_names();
// What --rtt-hook accepts: a rung, "auto" or "none".
[[nodiscard]] bool is_rtt_hook(std::string_view name);
// A hook that gives every sample, as against tcp_probe, which is late by a packet.
[[nodiscard]] bool is_degraded(std::string_view hook);

struct AttachedProgram {
  loader::Program program;
  loader::Link link;
};

struct RttHook {
  std::string name{kHookNone};  // a rung, or "none"
  uint32_t have = 0;            // enum kitty_have: the kernel's counters that come with its samples
  std::vector<Refusal> refusals;
  std::vector<Refusal> missing;  // accompanying tracepoints that could not be had
  std::vector<AttachedProgram> attached;
};

// The maps and what fills them, and beside them the list of a process's sockets. The maps outlive the hook's
// programs in the kernel, never the other way round.
struct RttSource {
  std::unique_ptr<FlowMaps> maps;  // null when the hook is "none"
  RttHook hook;
  std::unique_ptr<SocketRows> rows;  // null where the kernel cannot, or was not asked; needs no hook
  std::string rows_refusal;          // why it cannot, in one line
};

// `object`: the compiled kprobe.bpf.c. `btf_path`: a file of kernel type information, empty for the kernel's
// own. `wanted`: kHookAuto, kHookNone or one rung. Never fails: with nothing to be had the hook is "none" and
// the refusals say why. Needs CAP_BPF and CAP_PERFMON (bpf(2)); makes one loopback TCP connection per rung
// tried, and one to see that sockets can be listed.
[[nodiscard]] RttSource open_rtt_source(std::span<const std::byte> object, const std::string& btf_path,
                                        std::string_view wanted);

struct HookTrial {
  std::string_view hook;  // "fentry/tcp_rtt_estimator"
  std::string reason;     // why not, in one line; empty: it loads and attaches, and a rung shows data
  int err = 0;            // the errno value behind the reason, or 0
};

// What each hook would do, the ones behind the first that works included.
struct HookTrials {
  bool has_btf = false;  // kernel type information could be read
  HookTrial obstacle;    // with a reason where something stands in the way of all
  std::vector<HookTrial>
      hooks;  // where nothing does: as in rtt_hook_names(), then tracepoints, then iter/task_file
};

// As open_rtt_source, but tries everything, one after another, and detaches each before the next: when it
// returns nothing is attached. One loopback connection per rung, so a few seconds where loopback traffic is
// dropped.
[[nodiscard]] HookTrials try_hooks(std::span<const std::byte> object, const std::string& btf_path);

}  // namespace kitty::collector
