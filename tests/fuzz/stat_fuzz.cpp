// Any bytes as /proc/PID/stat, status and cgroup: no read outside the input, and what comes out lies inside
// it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "procfs/cgroup.h"
#include "procfs/fd_links.h"
#include "procfs/net_namespace.h"
#include "procfs/pids.h"
#include "procfs/stat.h"
#include "procfs/status.h"

namespace {

void expect_inside(std::string_view part, std::string_view whole) {
  if (part.empty()) return;
  if (part.data() < whole.data() || part.size() > whole.size() ||
      static_cast<size_t>(part.data() - whole.data()) > whole.size() - part.size()) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kitty::procfs;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto stat = parse_stat(text)) {
    expect_inside(stat->comm, text);
    if (stat->pid < 0 || stat->ppid < 0) std::abort();
    // What a cut file still gives must be what the whole file gives.
    const auto cut = parse_stat(text.substr(0, size - 1));
    if (cut && cut->comm == stat->comm && cut->start_time_ticks != stat->start_time_ticks) std::abort();
  }
  // As above: a cut file gives no other user.
  const auto uid = parse_real_uid(text);
  if (const auto cut = parse_real_uid(text.substr(0, size - (size > 0 ? 1 : 0))); cut && cut != uid)
    std::abort();
  const Cgroup cgroup = parse_cgroup(text);
  expect_inside(cgroup.container_id, text);
  if (!cgroup.container_id.empty() && cgroup.container_id.size() != kContainerIdBytes) std::abort();
  if (cgroup.pod_uid_size != 0 && cgroup.pod_uid_size != kPodUidBytes &&
      cgroup.pod_uid_size != kStaticPodUidBytes) {
    std::abort();
  }
  if (parse_socket_link(text) && !text.starts_with("socket:[")) std::abort();
  if (parse_net_link(text) && !text.starts_with("net:[")) std::abort();
  if (const auto pid = parse_pid(text); pid && *pid <= 0) std::abort();
  return 0;
}
