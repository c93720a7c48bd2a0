// What the agent gives up once it listens and its hooks are attached, so that whoever takes it over gains
// little: uid 0, every capability but those that reading other processes takes, and every system call that
// serving does not need. Irreversible.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "privileges/capabilities.h"
#include "privileges/user.h"

namespace kitty::privileges {

struct Confinement {
  CapabilitySet kept;
  uid_t uid = 0;        // the effective one that is left
  std::string problem;  // what could not be given up, in one line; empty when all was
};

// Called on the main thread before others exist: they inherit it. Where it is root it becomes `user`; another
// user it stays. `maps_work`: whether BPF maps can be read with what is held now; kernels before 5.19 want
// CAP_BPF, before 5.8 CAP_SYS_ADMIN, for each access where kernel.unprivileged_bpf_disabled is set, and the
// kernel is asked rather than its version. Where even these do not help they are given up. Empty function: no
// maps.
//
// From a change of user on the process is not dumpable (prctl(2), PR_SET_DUMPABLE): it leaves no core, its
// own files in /proc are root's, and no program of the same user may trace or read it.
[[nodiscard]] Confinement confine(const std::function<bool()>& maps_work, const User& user = kOwnUser);

}  // namespace kitty::privileges
