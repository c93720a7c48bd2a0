// Any bytes as BTF: parsed, every type looked at in every way there is, then used both as an object's and as
// a kernel's types for CO-RE. Seeds: the .BTF sections of the compiled fixtures.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "loader/btf.h"
#include "loader/core.h"

namespace {

using kitty::loader::Btf;

// Keeps one run in the milliseconds.
constexpr size_t kMaxAccesses = 8;
constexpr uint32_t kMaxSearchedBytes = 8192;
constexpr uint32_t kMaxRoots = 16;

// Reads what a type holds; the sanitizers watch.
uint64_t read_all(const Btf& btf, uint32_t id) {
  const Btf::Type type = btf.type(id);
  uint64_t sum =
      std::string(btf.name(id)).size() + btf.size_bytes(id).value_or(0) + btf.skip_modifiers(id).value_or(0);
  if (type.kind == BTF_KIND_INT) sum += btf.int_encoding(type) + btf.int_offset_bits(type);
  if (type.kind == BTF_KIND_ARRAY) sum += btf.array(type).type + btf.array(type).count;
  if (type.kind == BTF_KIND_VAR) sum += btf.linkage(type);
  for (uint32_t i = 0; i < type.count; ++i) {
    switch (type.kind) {
      case BTF_KIND_STRUCT:
      case BTF_KIND_UNION:
        sum += btf.string_at(btf.member(type, i).name).value_or("").size();
        break;
      case BTF_KIND_ENUM:
      case BTF_KIND_ENUM64:
        sum +=
            btf.string_at(btf.enumerator(type, i).name).value_or("").size() + btf.enumerator(type, i).value;
        break;
      case BTF_KIND_FUNC_PROTO:
        sum += btf.parameter(type, i);
        break;
      case BTF_KIND_DATASEC:
        sum += btf.variable(type, i).type;
        break;
      default:
        break;
    }
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto btf = Btf::parse(std::as_bytes(std::span(data, size)));
  if (!btf) return 0;
  volatile uint64_t sum = 0;
  for (uint32_t id = 0; id <= btf->type_count() + 1; ++id) sum = sum + read_all(*btf, id);

  // The input's own access strings ("0:1:2"), of every kind, on its first types.
  std::vector<uint32_t> accesses;
  for (uint32_t offset = 1; accesses.size() < kMaxAccesses; ++offset) {
    const auto text = btf->string_at(offset);
    if (!text || offset > kMaxSearchedBytes) break;
    if (!text->empty() && text->front() >= '0' && text->front() <= '9') accesses.push_back(offset);
  }
  const uint32_t roots = std::min(btf->type_count(), kMaxRoots);
  for (uint32_t root = 1; root <= roots; ++root) {
    std::vector<kitty::loader::CoreRelocation> relocations;
    for (uint32_t kind = 0; kind <= BPF_CORE_ENUMVAL_VALUE; ++kind) {
      for (const uint32_t access : accesses) relocations.push_back({root, access, kind});
    }
    auto resolver = kitty::loader::CoreResolver::create(*btf, *btf, relocations);
    if (!resolver) continue;
    for (const auto& relocation : relocations) {
      if (kitty::loader::describe(*btf, relocation).empty()) std::abort();
      if (const auto value = resolver->resolve(relocation)) sum = sum + value->value;
    }
  }
  return 0;
}
