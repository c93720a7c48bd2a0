// A read-only view of BTF: the kernel's own (/sys/kernel/btf/vmlinux) or an object's.
// Ownership: the view does not own the bytes; they must outlive it. Immutable, so readable from any thread.
// Format: kernel Documentation/bpf/btf.rst, kinds 1..19. Kinds that came later are passed over where the
// BTF's layout section (Linux 7.1) tells their length: nothing that kitty asks for is of such a kind.
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

// Larger BTF is refused; a distribution kernel's has some 5 MB.
inline constexpr size_t kMaxBtfBytes = size_t{128} << 20;
// Longest chain of typedefs, qualifiers or array dimensions followed before the BTF counts as malformed; the
// kernel's own limit (MAX_RESOLVE_DEPTH, kernel/bpf/btf.c).
inline constexpr int kMaxTypeChain = 32;
// What Btf::kind() says of every type whose kind it does not know.
inline constexpr uint32_t kUnknownBtfKind = 31;

class Btf {
 public:
  // The fixed part of a type. `extra` is where its members, enumerators, ... start; parse() saw that they are
  // all there.
  struct Type {
    uint32_t kind = BTF_KIND_UNKN;
    uint32_t count = 0;  // members, enumerators, parameters or variables; FUNC: linkage
    bool flag = false;   // struct, union: some member is a bitfield; enum: values are signed
    uint32_t size_or_type = 0;
    size_t extra = 0;
  };
  struct Member {
    uint32_t name = 0;  // string offset; 0 is no name
    uint32_t type = 0;
    uint32_t bit_offset = 0;
    uint32_t bitfield_bits = 0;  // 0: not a bitfield
  };
  struct Array {
    uint32_t type = 0;
    uint32_t count = 0;
  };
  struct Enumerator {
    uint32_t name = 0;
    uint64_t value =
        0;  // ENUM: the low 32 bits, not extended (compilers before 2022 did not say whether signed)
  };
  struct Variable {
    uint32_t type = 0;  // of kind VAR
    uint32_t offset_bytes = 0;
    uint32_t size_bytes = 0;
  };

  // Walks all types once and keeps their offsets. Errors name the offset, the type id and by number a kind
  // that is neither known nor described by the layout section.
  static Result<Btf> parse(std::span<const std::byte> bytes);

  // Highest valid type id; id 0 is void.
  [[nodiscard]] uint32_t type_count() const { return static_cast<uint32_t>(index_.size() - 1); }
  // The first type of that kind (BTF_KIND_*) and exact name; e.g. (BTF_KIND_FUNC, "tcp_ack_update_rtt") for
  // fentry, (BTF_KIND_TYPEDEF, "btf_trace_tcp_probe") for tp_btf.
  [[nodiscard]] std::optional<uint32_t> find(uint32_t kind, std::string_view name) const;

  // BTF_KIND_UNKN for void and for ids out of range; kUnknownBtfKind for what was passed over.
  [[nodiscard]] uint32_t kind(uint32_t id) const { return id < index_.size() ? index_[id] & kKindMask : 0; }
  // A Type of kind BTF_KIND_UNKN for void and for ids out of range; of what was passed over the kind only.
  [[nodiscard]] Type type(uint32_t id) const;
  // NUL-terminated, never null; "" for unnamed types, void and ids out of range.
  [[nodiscard]] const char* name(uint32_t id) const;
  // The string at an offset found in a member, enumerator or .BTF.ext record; nothing where it is out of
  // range.
  [[nodiscard]] std::optional<std::string_view> string_at(uint32_t offset) const;

  // Each wants a type of the fitting kind and index < type.count.
  [[nodiscard]] Member member(const Type& type, uint32_t index) const;          // STRUCT, UNION
  [[nodiscard]] Enumerator enumerator(const Type& type, uint32_t index) const;  // ENUM, ENUM64
  [[nodiscard]] uint32_t parameter(const Type& type, uint32_t index) const;     // FUNC_PROTO: its type id
  [[nodiscard]] Variable variable(const Type& type, uint32_t index) const;      // DATASEC
  // Each wants a type of the fitting kind.
  [[nodiscard]] Array array(const Type& type) const;            // ARRAY
  [[nodiscard]] uint32_t int_encoding(const Type& type) const;  // INT: BTF_INT_SIGNED, ...
  [[nodiscard]] uint32_t int_offset_bits(
      const Type& type) const;                             // INT: non-zero only in bitfields of old compilers
  [[nodiscard]] uint32_t linkage(const Type& type) const;  // VAR: BTF_VAR_*

  // The id behind typedefs, qualifiers and type tags; nothing where the chain is longer than kMaxTypeChain.
  [[nodiscard]] std::optional<uint32_t> skip_modifiers(uint32_t id) const;
  // In bytes, pointers 8; nothing for types without a size, chains that are too long, and sizes past 4 GiB.
  [[nodiscard]] std::optional<uint32_t> size_bytes(uint32_t id) const;

 private:
  static constexpr uint32_t kKindBits = 5;
  static constexpr uint32_t kKindMask = (1U << kKindBits) - 1;

  [[nodiscard]] size_t offset(uint32_t id) const { return size_t{index_[id] >> kKindBits} * 4; }
  // Wants an offset that parse() has checked.
  [[nodiscard]] uint32_t word(size_t offset) const;

  std::span<const std::byte> types_;
  std::span<const std::byte> strings_;
  // By type id: offset / 4 in the upper 27 bits, kind in the lower 5, so that a search by kind never touches
  // types_.
  std::vector<uint32_t> index_;
};

}  // namespace kitty::loader
