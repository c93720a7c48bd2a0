// A seccomp filter that leaves this program what it does once it serves: files, sockets, threads, memory,
// time and access to BPF maps. Other processes, executing programs, tracing, mounting, loading BPF programs
// and all else is refused with EPERM; system calls of a foreign architecture kill. Facts: seccomp(2),
// Documentation/userspace-api/ seccomp_filter.rst. Linux 3.17 or newer.
#pragma once

#include "base/error.h"

namespace kitty::privileges {

// For every thread of the process, and those to come. Cannot be undone. Sets no_new_privs, which an
// unprivileged filter needs.
[[nodiscard]] Status install_syscall_filter();

}  // namespace kitty::privileges
