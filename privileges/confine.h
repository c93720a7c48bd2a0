// What the agent gives up once its hooks are attached, so that whoever takes it over gains little: every
// capability but those that reading other processes takes, and every system call that serving does not need.
// Irreversible.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "privileges/capabilities.h"

namespace kitty::privileges {

// What other users' processes take: their environment and descriptors (ptrace(2), "Ptrace access mode
// checking"), and the directories that these are in.
inline constexpr CapabilitySet kForProcfs = {Capability::sys_ptrace, Capability::dac_read_search};

struct Confinement {
  CapabilitySet kept;
  std::string problem;  // what could not be given up, in one line; empty when all was
};

// Called on the main thread before others exist: they inherit it. `maps_work`: whether BPF maps can be read
// with what is held now; kernels before 5.19 want CAP_BPF, before 5.8 CAP_SYS_ADMIN, for each access where
// kernel.unprivileged_bpf_disabled is set, and the kernel is asked rather than its version. Where even these
// do not help they are given up. Empty function: no maps.
[[nodiscard]] Confinement confine(const std::function<bool()>& maps_work);

}  // namespace kitty::privileges
