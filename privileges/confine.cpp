#include "privileges/confine.h"

#include "privileges/syscall_filter.h"

namespace kitty::privileges {

namespace {

// The least that leaves the maps readable, of what is held.
Result<CapabilitySet> least(CapabilitySet held, const std::function<bool()>& maps_work) {
  const CapabilitySet procfs = held & kForProcfs;
  if (!maps_work) return procfs;
  for (const CapabilitySet more :
       {CapabilitySet{}, CapabilitySet{Capability::bpf}, CapabilitySet{Capability::sys_admin}}) {
    const CapabilitySet tried((procfs.bits() | more.bits()) & held.bits());
    if (Status used = use_only(tried); !used) return std::unexpected(used.error());
    if (maps_work()) return tried;
  }
  return procfs;
}

}  // namespace

Confinement confine(const std::function<bool()>& maps_work) {
  Confinement result;
  const Result<CapabilitySet> held = permitted();
  const Result<CapabilitySet> kept = held ? least(*held, maps_work) : held;
  Status given_up = kept ? keep_only(*kept) : std::unexpected(kept.error());
  if (given_up) {
    result.kept = *kept;
  } else {
    result.kept = held.value_or(CapabilitySet());
    result.problem = given_up.error().message();
  }
  if (Status filtered = install_syscall_filter(); !filtered) {
    result.problem += (result.problem.empty() ? "" : "; ") + filtered.error().message();
  }
  return result;
}

}  // namespace kitty::privileges
