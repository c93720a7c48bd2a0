// The TCP sockets of one process, straight from the kernel (list_sockets of kprobe.bpf.c): each with its
// queue and counters, at a cost that follows the process's descriptors alone, where net/tcp's follows every
// socket of the host. For kernels that can visit one process (Linux 6.1, with BTF). Owns the loaded program;
// move-only; one thread uses it at a time.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"
#include "kprobe.h"
#include "loader/btf.h"
#include "loader/object.h"
#include "loader/program.h"
#include "procfs/function_ref.h"
#include "procfs/process.h"

namespace kitty::collector {

class SocketRows {
 public:
  using OnRow = procfs::FunctionRef<void(const kitty_socket_row&)>;

  // Loads the program, or where the kernel refuses that the one that lists no MPTCP subflows, and lists a
  // loopback connection of this very process: what cannot see that is refused, with the reason. Needs CAP_BPF
  // and CAP_PERFMON; list() needs neither.
  static Result<SocketRows> open(const loader::Object& object, const loader::Btf& kernel);

  // Calls back for each descriptor of the process that is a TCP socket, and for each subflow of an MPTCP one
  // or with KITTY_ROW_UNSEEN; a socket with two descriptors comes twice, one that is neither bound nor
  // connected (state 7, CLOSE) comes too. `gone` where no process of that number and start time is to be
  // found: it ended, or the number is of another pid namespace than this agent's, or the start time of
  // another time namespace. Rows already reported stand then: they were that process's. Takes nothing from
  // the heap unless it fails.
  [[nodiscard]] procfs::ReadResult list(const procfs::ProcessId& process, OnRow on_row);

 private:
  explicit SocketRows(loader::Program program);
  static Result<SocketRows> open_program(const loader::Object& object, const loader::Btf& kernel,
                                         std::string_view name);
  [[nodiscard]] Status test_on_this_process();

  loader::Program program_;
  uint64_t ns_per_tick_;
  std::vector<kitty_socket_row> buffer_;
};

}  // namespace kitty::collector
