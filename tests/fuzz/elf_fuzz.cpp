// Any bytes as an object file: parsed, and every program linked against a small kernel's BTF that has some of
// the names the fixtures use. Seeds: the compiled fixtures.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "loader/btf.h"
#include "loader/object.h"
#include "tests/btf_builder.h"

namespace {

std::vector<std::byte> kernel_types() {
  kitty::BtfBuilder b;
  const uint32_t u8 = b.integer("unsigned char", 1);
  const uint32_t u32 = b.integer("unsigned int", 4);
  const uint32_t u64 = b.integer("unsigned long long", 8);
  const uint32_t s64 = b.integer("long long", 8, BTF_INT_SIGNED);
  const uint32_t leaf = b.structure("leaf", 24, {{"added", u32, 0}, {"value", u64, 64}, {"tag", u8, 128}});
  const uint32_t inner = b.structure("", 8, {{"filler", u32, 0}, {"deep", u32, 32}});
  b.structure("outer", 200,
              {{"leaf", leaf, 320},
               {"", inner, 512},
               {"leaves", b.array(leaf, 5), 576},
               {"widened", u64, 1536},
               {"widened_signed", s64, 1600},
               {"pointer", b.pointer(0), 1664},
               {"flexible", b.array(u8, 0), 1728}});
  b.structure("packet", 16, {{"moved", u32, 3, 5}, {"was_bits", u8, 64}, {"was_plain", u32, 72, 9}});
  b.structure("present", 8, {{"here", u32, 0}});
  b.structure("node", 40, {{"filler", u64, 0}, {"value", u64, 192}, {"weight", u32, 256}});
  b.structure("multi___one", 8, {{"a", u32, 0}, {"shared", u32, 32}});
  b.structure("multi___two", 8, {{"b", u32, 0}, {"shared", u32, 32}});
  b.structure("dup", 8, {{"a", u32, 0}, {"b", u32, 32}});
  b.structure("dup", 8, {{"b", u32, 0}, {"a", u32, 32}});
  b.enumeration("small", {{"SMALL_A", 10}, {"SMALL_B", -20}}, true);
  b.enumeration64("large", {{"LARGE_A", uint64_t{1} << 44}});
  const uint32_t prototype = b.add(BTF_KIND_FUNC_PROTO, "", 2, false, s64, {0, u32, 0, b.pointer(leaf)});
  b.reference(BTF_KIND_TYPEDEF, "function_t", b.pointer(prototype));
  b.structure("tcp_sock", 2000, {{"segs_out", u32, 8000}, {"chrono_type", u8, 8002, 2}});
  return b.bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::byte> types = kernel_types();
  static const auto kernel = kitty::loader::Btf::parse(types);
  if (!kernel) std::abort();
  const auto object = kitty::loader::Object::parse(std::as_bytes(std::span(data, size)));
  if (!object) return 0;
  for (const auto& program : object->programs()) {
    const auto linked = object->link(program.name, &*kernel);
    if (!linked) continue;
    // What the loader will index without asking.
    for (const auto& use : linked->maps) {
      if (use.insn + 1 >= linked->insns.size() || use.map >= object->maps().size()) std::abort();
    }
    for (const auto& access : linked->poisoned) {
      if (access.insn >= linked->insns.size() || access.what.empty()) std::abort();
    }
  }
  return 0;
}
