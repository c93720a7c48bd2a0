// Which network namespace a process lives in. Two kinds of number tell namespaces apart, and they must not be
// mixed. Both are reused once a namespace is gone. Nothing is held open, so no namespace is pinned.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// `net:[N]` as a whole (namespaces(7)).
[[nodiscard]] std::optional<uint64_t> parse_net_link(std::string_view link);

// The namespace's own inode, from the link ns/net: what lsns(8) prints and what the kernel calls
// net->ns.inum. denied for other users' processes without CAP_SYS_PTRACE.
[[nodiscard]] ReadExpected<uint64_t> read_net_namespace(int pid_dirfd);

// The inode of net/snmp, which each namespace has its own of: tells namespaces apart without any privilege,
// and means nothing else.
[[nodiscard]] ReadExpected<uint64_t> read_net_files_inode(int pid_dirfd);

}  // namespace kitty::procfs
