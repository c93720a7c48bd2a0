#include "privileges/capabilities.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace kitty::privileges {

namespace {

constexpr std::array kUsed = {Capability::bpf,
                              Capability::perfmon,
                              Capability::sys_ptrace,
                              Capability::dac_read_search,
                              Capability::sys_admin,
                              Capability::sys_resource,
                              Capability::net_bind_service,
                              Capability::setuid,
                              Capability::setgid};
constexpr unsigned kBits = 64;  // of a set; the kernel says EINVAL behind its last one

struct Sets {
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> words{};

  void set(uint32_t __user_cap_data_struct::* which, uint64_t bits) {
    words[0].*which = static_cast<uint32_t>(bits);
    words[1].*which = static_cast<uint32_t>(bits >> 32);
  }
  [[nodiscard]] uint64_t get(uint32_t __user_cap_data_struct::* which) const {
    return words[0].*which | uint64_t{words[1].*which} << 32;
  }
};

__user_cap_header_struct calling_thread() { return {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0}; }

Result<Sets> read_sets() {
  __user_cap_header_struct header = calling_thread();
  Sets sets;
  if (syscall(SYS_capget, &header, sets.words.data()) != 0) return fail("read capabilities", {}, errno);
  return sets;
}

Status write_sets(const Sets& sets) {
  __user_cap_header_struct header = calling_thread();
  if (syscall(SYS_capset, &header, sets.words.data()) != 0) return fail("set capabilities", {}, errno);
  return {};
}

}  // namespace

std::string_view name(Capability capability) {
  switch (capability) {
    case Capability::dac_read_search:
      return "CAP_DAC_READ_SEARCH";
    case Capability::setgid:
      return "CAP_SETGID";
    case Capability::setuid:
      return "CAP_SETUID";
    case Capability::net_bind_service:
      return "CAP_NET_BIND_SERVICE";
    case Capability::sys_ptrace:
      return "CAP_SYS_PTRACE";
    case Capability::sys_admin:
      return "CAP_SYS_ADMIN";
    case Capability::sys_resource:
      return "CAP_SYS_RESOURCE";
    case Capability::perfmon:
      return "CAP_PERFMON";
    case Capability::bpf:
      return "CAP_BPF";
  }
  return "";
}

std::span<const Capability> all_used() { return kUsed; }

std::string CapabilitySet::names() const {
  std::string text;
  for (const Capability one : kUsed) {
    if (!has(one)) continue;
    if (!text.empty()) text += ", ";
    text += name(one);
  }
  return text.empty() ? "none" : text;
}

Result<CapabilitySet> permitted() {
  const Result<Sets> sets = read_sets();
  if (!sets) return std::unexpected(sets.error());
  return CapabilitySet(sets->get(&__user_cap_data_struct::permitted));
}

Status use_only(CapabilitySet set) {
  Result<Sets> sets = read_sets();
  if (!sets) return std::unexpected(sets.error());
  sets->set(&__user_cap_data_struct::effective, set.bits());
  return write_sets(*sets);
}

Status keep_only(CapabilitySet kept) {
  // Lowering the bounding set takes CAP_SETPCAP in use, so it goes first; refused, it stays as it was.
  if (const Result<CapabilitySet> all = permitted(); all) (void)use_only(*all);
  for (unsigned number = 0; number < kBits; ++number) {
    if ((kept.bits() >> number & 1) == 0 && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0) break;
  }
  Sets sets;
  sets.set(&__user_cap_data_struct::effective, kept.bits());
  sets.set(&__user_cap_data_struct::permitted, kept.bits());
  // What is ambient must be inheritable: with that set empty, so is the ambient one.
  return write_sets(sets);
}

}  // namespace kitty::privileges
