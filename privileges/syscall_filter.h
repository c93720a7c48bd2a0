// A seccomp filter that leaves this program what it does once it serves: reading files, answering those who
// connect to a listener that is there, threads, memory that holds no code, time, and access to BPF maps.
// Refused with EPERM is all else: opening for writing, new sockets, other processes, executing, tracing,
// mounting, loading BPF programs. System calls of a foreign architecture kill. What is allowed by its
// arguments is compared where the kernel will take them from: in registers, never behind a pointer. Facts:
// seccomp(2), Documentation/userspace-api/seccomp_filter.rst. Linux 4.14 or newer.
#pragma once

#include "base/error.h"

namespace kitty::privileges {

// For every thread of the process, and those to come. Cannot be undone. Sets no_new_privs, which an
// unprivileged filter needs. A child that is forked before has another pid: it calls this itself.
[[nodiscard]] Status install_syscall_filter();

}  // namespace kitty::privileges
