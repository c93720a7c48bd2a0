// CO-RE: what a field, type or enumerator that the program was compiled against is called, is sized and lies
// at in the kernel it runs on, and the instruction rewritten accordingly. Pure: BTF and instructions in,
// instructions out. Ownership: a CoreResolver refers to two Btf that must outlive it. One thread at a time;
// it learns from each relocation. Format: Documentation/bpf/llvm_reloc.rst, "CO-RE Relocations"; struct
// bpf_core_relo and enum bpf_core_relo_kind in <linux/bpf.h>.
#pragma once

#include <linux/bpf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "loader/btf.h"

namespace kitty::loader {

// Accessors in one relocation (libbpf's BPF_CORE_SPEC_MAX_LEN) and levels of anonymous members followed.
inline constexpr size_t kMaxAccessors = 64;
// Types of one name in the target; kernels have a handful.
inline constexpr size_t kMaxCandidates = 256;
// Members, enumerators and parameters looked at while linking one program: malformed BTF can nest anonymous
// members so that a search takes exponential time. A real program needs some thousands.
inline constexpr uint64_t kMaxCoreSteps = 4'000'000;

// What one relocation asks for, in the terms of the object's own BTF.
struct CoreRelocation {
  uint32_t type = 0;    // root type id
  uint32_t access = 0;  // string offset of "0:1:2"
  uint32_t kind = 0;    // enum bpf_core_relo_kind
};

// What to put into the instruction.
struct CoreValue {
  bool poison = false;   // the target lacks it
  bool validate = true;  // the instruction must hold `original` now
  bool unfit_resize =
      false;              // loads and stores: the two fields' sizes differ, and not so that a resize is safe
  uint64_t original = 0;  // as the compiler computed it
  uint64_t value = 0;     // on the target
  uint32_t original_bytes = 0;  // access sizes; 0 where none applies
  uint32_t value_bytes = 0;
};

class CoreResolver {
 public:
  // Searches `target` once for every type that `relocations` name. Errors name a malformed root type.
  static Result<CoreResolver> create(const Btf& local, const Btf& target,
                                     std::span<const CoreRelocation> relocations);

  // Only relocations given to create(). Candidates that lack what an earlier relocation of the same root
  // found in others are dropped, so that one root never mixes two layouts; those left must agree, else it is
  // an error.
  [[nodiscard]] Result<CoreValue> resolve(const CoreRelocation& relocation);

 private:
  struct Step {
    uint32_t type = 0;           // the struct, union or enum; for an array element, the element's type
    uint32_t index = 0;          // of the member, enumerator or element
    const char* name = nullptr;  // null: an array element
  };
  // A path from a root type to what is accessed, without anonymous members.
  struct Path {
    uint32_t root = 0;
    size_t length = 0;
    std::array<Step, kMaxAccessors> steps;
    uint64_t bit_offset = 0;
  };
  struct Root {
    uint32_t type = 0;
    std::vector<uint32_t> candidates;
  };
  struct FieldValue;

  CoreResolver(const Btf& local, const Btf& target) : local_(&local), target_(&target) {}

  Status find_candidates();
  [[nodiscard]] Result<Path> local_path(const CoreRelocation& relocation) const;
  // Fills `path` and says whether the candidate has what `wanted` names.
  [[nodiscard]] Result<bool> match(const CoreRelocation& relocation, const Path& wanted, uint32_t candidate,
                                   Path& path);
  [[nodiscard]] Result<bool> match_member(const Step& wanted, uint32_t type, size_t depth, Path& path,
                                          uint32_t& next);
  [[nodiscard]] Result<bool> fields_compatible(uint32_t local, uint32_t target) const;
  [[nodiscard]] Result<bool> types_compatible(uint32_t local, uint32_t target, int depth);
  // `found` is null where the target has no match.
  [[nodiscard]] Result<CoreValue> evaluate(const CoreRelocation& relocation, const Path& wanted,
                                           const Path* found) const;
  [[nodiscard]] Result<FieldValue> field_value(const CoreRelocation& relocation, const Btf& btf,
                                               const Path& path) const;
  [[nodiscard]] static bool is_flexible(const Btf& btf, const Step& holder, const Btf::Array& array);
  [[nodiscard]] Status spend(uint64_t steps);

  const Btf* local_;
  const Btf* target_;
  std::vector<Root> roots_;  // sorted by type
  uint64_t steps_ = 0;
};

// "struct tcp_sock.bytes_sent", "enum bpf_map_type::BPF_MAP_TYPE_HASH", "struct sock"; whatever the
// relocation holds.
[[nodiscard]] std::string describe(const Btf& local, const CoreRelocation& relocation);

// Rewrites the instruction insns[at] (and the second slot of an ldimm64). Where the value is poisoned, or a
// load or store cannot be resized, the instruction becomes a call of the unknown helper `poison_call`
// instead, and the answer is true. Errors where the instruction is not what the relocation expects or the
// value does not fit.
[[nodiscard]] Result<bool> apply(const CoreValue& value, int32_t poison_call, std::span<bpf_insn> insns,
                                 size_t at);

}  // namespace kitty::loader
