#include "privileges/confine.h"

#include <unistd.h>

#include "privileges/syscall_filter.h"

namespace kitty::privileges {

namespace {

// Leaves capabilities permitted, whether in use or not.
Status give_up_root(CapabilitySet held, const User& user) {
  if (!is_root()) return {};
  if (const std::string reason = why_root_stays(held); !reason.empty())
    return fail("give up uid 0", {}, 0, reason);
  if (Status used = use_only(held); !used) return used;
  return become(user);
}

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

void note(std::string& problem, const Status& status) {
  if (status) return;
  if (!problem.empty()) problem += "; ";
  problem += status.error().message();
}

}  // namespace

Confinement confine(const std::function<bool()>& maps_work, const User& user) {
  Confinement result;
  const Result<CapabilitySet> held = permitted();
  if (held) note(result.problem, give_up_root(*held, user));
  const Result<CapabilitySet> kept = held ? least(*held, maps_work) : held;
  const Status given_up = kept ? keep_only(*kept) : std::unexpected(kept.error());
  note(result.problem, given_up);
  result.kept = given_up ? *kept : held.value_or(CapabilitySet());
  result.uid = geteuid();
  note(result.problem, install_syscall_filter());
  return result;
}

}  // namespace kitty::privileges
