// A read-only view of BTF: the kernel's own (/sys/kernel/btf/vmlinux) or an object's.
// Ownership: the view does not own the bytes; they must outlive it. Immutable, so readable from any thread.
// Format: kernel Documentation/bpf/btf.rst, kinds 1..19.
#pragma once

#include <linux/btf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace kitty::loader {

class Btf {
 public:
  // Walks all types once and keeps their offsets. Errors name the offset, the type id and an unknown kind by number.
  static Result<Btf> parse(std::span<const std::byte> bytes);

  // Highest valid type id; id 0 is void.
  [[nodiscard]] uint32_t type_count() const;
  // The first type of that kind (BTF_KIND_*) and exact name; e.g. (BTF_KIND_FUNC, "tcp_ack_update_rtt") for fentry,
  // (BTF_KIND_TYPEDEF, "btf_trace_tcp_probe") for tp_btf.
  [[nodiscard]] std::optional<uint32_t> find(uint32_t kind, std::string_view name) const;
};

}  // namespace kitty::loader
