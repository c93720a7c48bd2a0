// Linux capabilities of the calling thread: which it holds, and giving them up for good. Facts:
// capabilities(7), capget(2), include/uapi/linux/capability.h. Thread-safe: no state; threads made afterwards
// inherit what is left.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace kitty::privileges {

// Those that kitty has a use for, by their numbers in the kernel's interface.
enum class Capability : uint8_t {
  dac_read_search = 2,
  setgid = 6,
  setuid = 7,
  net_bind_service = 10,
  sys_ptrace = 19,
  sys_admin = 21,
  sys_resource = 24,
  perfmon = 38,  // since 5.8; until then sys_admin, as with the next
  bpf = 39,
};

[[nodiscard]] std::string_view name(Capability capability);  // "CAP_SYS_PTRACE"
[[nodiscard]] std::span<const Capability> all_used();

class CapabilitySet {
 public:
  constexpr CapabilitySet() = default;
  constexpr explicit CapabilitySet(uint64_t bits) : bits_(bits) {}
  constexpr CapabilitySet(std::initializer_list<Capability> list) {
    for (const Capability one : list) add(one);
  }
  constexpr void add(Capability one) { bits_ |= uint64_t{1} << static_cast<unsigned>(one); }
  [[nodiscard]] constexpr bool has(Capability one) const {
    return (bits_ >> static_cast<unsigned>(one) & 1) != 0;
  }
  [[nodiscard]] constexpr uint64_t bits() const { return bits_; }
  [[nodiscard]] constexpr CapabilitySet operator&(CapabilitySet other) const {
    return CapabilitySet(bits_ & other.bits_);
  }
  [[nodiscard]] constexpr CapabilitySet without(CapabilitySet other) const {
    return CapabilitySet(bits_ & ~other.bits_);
  }
  bool operator==(const CapabilitySet&) const = default;

  // "CAP_SYS_PTRACE, CAP_BPF": those of all_used(); "none".
  [[nodiscard]] std::string names() const;

 private:
  uint64_t bits_ = 0;
};

// What other users' processes take: their environment and descriptors (ptrace(2), "Ptrace access mode
// checking"), and the directories that these are in.
inline constexpr CapabilitySet kForProcfs = {Capability::sys_ptrace, Capability::dac_read_search};

// The permitted set: what the thread may use, or raise again.
[[nodiscard]] Result<CapabilitySet> permitted();

// Uses `set` and no other from now on; what else is permitted can be raised again. `set` must be permitted.
[[nodiscard]] Status use_only(CapabilitySet set);

// Gives up all but `kept`, for good: permitted, effective, inheritable and ambient sets, and the bounding set
// where CAP_SETPCAP is held (without it no program that is executed could gain from it any more once
// no_new_privs is set). `kept` must be permitted.
[[nodiscard]] Status keep_only(CapabilitySet kept);

}  // namespace kitty::privileges
