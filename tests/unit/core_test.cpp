#include "loader/core.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tests/btf_builder.h"
#include "tests/guard_page.h"

namespace kitty::loader {
namespace {

// Adds the object's types, or the kernel's; the former returns the root type.
using Local = std::function<uint32_t(BtfBuilder&)>;
using Target = std::function<void(BtfBuilder&)>;

struct Outcome {
  std::optional<CoreValue> value;
  std::string error;
  std::string what;
};

Outcome resolve(const Local& local, const Target& target, const char* access, uint32_t kind) {
  BtfBuilder mine;
  CoreRelocation relocation;
  relocation.type = local(mine);
  relocation.access = mine.string(access);
  relocation.kind = kind;
  BtfBuilder theirs;
  theirs.integer("filler_so_that_ids_differ", 4);
  target(theirs);
  const GuardPage my_page(mine.bytes());
  const GuardPage their_page(theirs.bytes());
  const auto my_btf = Btf::parse(my_page.bytes());
  const auto their_btf = Btf::parse(their_page.bytes());
  EXPECT_TRUE(my_btf && their_btf);

  Outcome outcome;
  outcome.what = describe(*my_btf, relocation);
  auto resolver = CoreResolver::create(*my_btf, *their_btf, std::span(&relocation, 1));
  if (!resolver) {
    outcome.error = resolver.error().message();
    return outcome;
  }
  const auto value = resolver->resolve(relocation);
  if (value) {
    outcome.value = *value;
  } else {
    outcome.error = value.error().message();
  }
  return outcome;
}

uint32_t u8_type(BtfBuilder& b) { return b.integer("unsigned char", 1); }
uint32_t u32_type(BtfBuilder& b) { return b.integer("unsigned int", 4); }

// struct s { u32 a; u32 b; }, the field asked for being b: "0:1".
uint32_t plain(BtfBuilder& b) {
  const uint32_t u32 = u32_type(b);
  return b.structure("s", 8, {{"a", u32, 0}, {"b", u32, 32}});
}

struct ValueCase {
  const char* name;
  Local local;
  Target target;
  const char* access;
  uint32_t kind;
  uint64_t original;
  uint64_t value;
  bool validate = true;
};

const ValueCase kValues[] = {
    {"moved", plain, [](BtfBuilder& b) { b.structure("s", 64, {{"b", u32_type(b), 256}}); }, "0:1",
     BPF_CORE_FIELD_BYTE_OFFSET, 4, 32},
    {"through_anonymous_members", plain,
     [](BtfBuilder& b) {
       const uint32_t inner = b.structure("", 8, {{"b", u32_type(b), 32}});
       const uint32_t either =
           b.composite(BTF_KIND_UNION, "", 8, {{"other", u32_type(b), 0}, {"", inner, 0}});
       b.structure("s", 64, {{"a", u32_type(b), 0}, {"", either, 128}});
     },
     "0:1", BPF_CORE_FIELD_BYTE_OFFSET, 4, 20},
    {"element_of_root", plain, [](BtfBuilder& b) { b.structure("s", 64, {{"b", u32_type(b), 256}}); }, "2:1",
     BPF_CORE_FIELD_BYTE_OFFSET, 20, 160},
    {"through_typedef_and_const",
     [](BtfBuilder& b) {
       return b.reference(BTF_KIND_TYPEDEF, "s_t", b.reference(BTF_KIND_CONST, "", plain(b)));
     },
     [](BtfBuilder& b) {
       b.reference(BTF_KIND_TYPEDEF, "s_t", b.structure("anything", 8, {{"b", u32_type(b), 128}}));
     },
     "0:1", BPF_CORE_FIELD_BYTE_OFFSET, 4, 16},
    // chrono_type of struct tcp_sock: two bits up to Linux 6.12, a whole byte later.
    {"bitfield_became_plain_offset",
     [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u8_type(b), 8, 2}}); },
     [](BtfBuilder& b) { b.structure("s", 8, {{"x", u8_type(b), 40}}); }, "0:0", BPF_CORE_FIELD_BYTE_OFFSET,
     1, 5, false},
    {"bitfield_became_plain_lshift",
     [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u8_type(b), 8, 2}}); },
     [](BtfBuilder& b) { b.structure("s", 8, {{"x", u8_type(b), 40}}); }, "0:0", BPF_CORE_FIELD_LSHIFT_U64,
     62, 56, false},
    {"bitfield_became_plain_rshift",
     [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u8_type(b), 8, 2}}); },
     [](BtfBuilder& b) { b.structure("s", 8, {{"x", u8_type(b), 40}}); }, "0:0", BPF_CORE_FIELD_RSHIFT_U64,
     62, 56},
    {"plain_became_bitfield_lshift",
     [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u8_type(b), 8}}); },
     [](BtfBuilder& b) { b.structure("s", 8, {{"x", u8_type(b), 43, 2}}); }, "0:0", BPF_CORE_FIELD_LSHIFT_U64,
     56, 59},
    {"plain_became_bitfield_size", [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u32_type(b), 0}}); },
     [](BtfBuilder& b) { b.structure("s", 8, {{"x", u8_type(b), 43, 2}}); }, "0:0", BPF_CORE_FIELD_BYTE_SIZE,
     4, 1},
    {"bitfield_over_a_byte_boundary",
     [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u8_type(b), 0, 4}}); },
     [](BtfBuilder& b) { b.structure("s", 4, {{"x", u8_type(b), 6, 4}}); }, "0:0", BPF_CORE_FIELD_BYTE_SIZE,
     1, 2, false},
    {"signedness", [](BtfBuilder& b) { return b.structure("s", 4, {{"x", u32_type(b), 0, 4}}); },
     [](BtfBuilder& b) { b.structure("s", 4, {{"x", b.integer("int", 4, BTF_INT_SIGNED), 0}}); }, "0:0",
     BPF_CORE_FIELD_SIGNED, 0, 1},
    {"exists", plain, [](BtfBuilder& b) { b.structure("s", 4, {{"b", u32_type(b), 0}}); }, "0:1",
     BPF_CORE_FIELD_EXISTS, 1, 1},
    {"exists_not", plain, [](BtfBuilder& b) { b.structure("s", 4, {{"a", u32_type(b), 0}}); }, "0:1",
     BPF_CORE_FIELD_EXISTS, 1, 0},
    {"exists_with_another_type", plain, [](BtfBuilder& b) { b.structure("s", 8, {{"b", b.pointer(0), 0}}); },
     "0:1", BPF_CORE_FIELD_EXISTS, 1, 0},
    {"exists_not_in_a_union_of_that_name", plain,
     [](BtfBuilder& b) { b.composite(BTF_KIND_UNION, "s", 8, {{"b", u32_type(b), 0}}); }, "0:1",
     BPF_CORE_FIELD_EXISTS, 1, 0},
    // A function and a struct of one name.
    {"beside_a_function_of_that_name", plain,
     [](BtfBuilder& b) {
       b.add(BTF_KIND_FUNC, "s", 1, false, b.add(BTF_KIND_FUNC_PROTO, "", 0, false, 0));
       b.structure("s", 64, {{"b", u32_type(b), 64}});
     },
     "0:1", BPF_CORE_FIELD_BYTE_OFFSET, 4, 8},
    {"type_exists", plain, [](BtfBuilder& b) { b.structure("s", 0, {}); }, "0", BPF_CORE_TYPE_EXISTS, 1, 1},
    {"type_exists_not", plain, [](BtfBuilder& b) { b.structure("t", 0, {}); }, "0", BPF_CORE_TYPE_EXISTS, 1,
     0},
    {"type_size", plain, [](BtfBuilder& b) { b.structure("s", 40, {}); }, "0", BPF_CORE_TYPE_SIZE, 8, 40},
    {"type_size_of_none", plain, [](BtfBuilder&) {}, "0", BPF_CORE_TYPE_SIZE, 8, 0},
    {"type_id_local", plain, [](BtfBuilder&) {}, "0", BPF_CORE_TYPE_ID_LOCAL, 2, 2, false},
    {"type_id_target", plain, [](BtfBuilder& b) { b.structure("s", 40, {}); }, "0", BPF_CORE_TYPE_ID_TARGET,
     2, 2, false},
    {"type_id_target_of_none", plain, [](BtfBuilder&) {}, "0", BPF_CORE_TYPE_ID_TARGET, 2, 0, false},
    {"enum_value", [](BtfBuilder& b) { return b.enumeration("e", {{"A", 1}, {"B", 2}}); },
     [](BtfBuilder& b) { b.enumeration("e", {{"B", 77}}); }, "1", BPF_CORE_ENUMVAL_VALUE, 2, 77},
    {"enum_value_negative", [](BtfBuilder& b) { return b.enumeration("e", {{"A", -1}}, true); },
     [](BtfBuilder& b) { b.enumeration("e", {{"A", -5}}); }, "0", BPF_CORE_ENUMVAL_VALUE, UINT64_MAX,
     UINT64_MAX - 4},
    {"enum_value_unsigned_highest_bit", [](BtfBuilder& b) { return b.enumeration("e", {{"A", -1}}); },
     [](BtfBuilder& b) { b.enumeration("e", {{"A", -5}}); }, "0", BPF_CORE_ENUMVAL_VALUE, UINT32_MAX,
     UINT32_MAX - 4},
    {"enum_value_grown_to_64_bits", [](BtfBuilder& b) { return b.enumeration("e", {{"A", 1}}); },
     [](BtfBuilder& b) { b.enumeration64("e", {{"A", uint64_t{1} << 40}}); }, "0", BPF_CORE_ENUMVAL_VALUE, 1,
     uint64_t{1} << 40},
    {"enum_exists", [](BtfBuilder& b) { return b.enumeration("e", {{"A", 1}}); },
     [](BtfBuilder& b) { b.enumeration64("e", {{"A", 1}}); }, "0", BPF_CORE_ENUMVAL_EXISTS, 1, 1},
    {"enum_exists_not", [](BtfBuilder& b) { return b.enumeration("e", {{"A", 1}}); },
     [](BtfBuilder& b) { b.enumeration("e", {{"AB", 1}}); }, "0", BPF_CORE_ENUMVAL_EXISTS, 1, 0},
    {"flavor_of_the_object", [](BtfBuilder& b) { return b.structure("s___v2", 4, {{"b", u32_type(b), 0}}); },
     [](BtfBuilder& b) { b.structure("s", 8, {{"b", u32_type(b), 32}}); }, "0:0", BPF_CORE_FIELD_BYTE_OFFSET,
     0, 4},
    {"flavor_of_the_kernel", plain,
     [](BtfBuilder& b) { b.structure("s___old", 16, {{"b", u32_type(b), 64}}); }, "0:1",
     BPF_CORE_FIELD_BYTE_OFFSET, 4, 8},
    {"duplicates_that_agree", plain,
     [](BtfBuilder& b) {
       b.structure("s", 64, {{"b", u32_type(b), 64}});
       b.structure("s", 99, {{"b", u32_type(b), 64}});
       b.structure("s", 99, {{"c", u32_type(b), 64}});
     },
     "0:1", BPF_CORE_FIELD_BYTE_OFFSET, 4, 8},
    {"flexible_array",
     [](BtfBuilder& b) { return b.structure("s", 4, {{"f", b.array(u32_type(b), 0), 32}}); },
     [](BtfBuilder& b) { b.structure("s", 4, {{"f", b.array(u32_type(b), 0), 64}}); }, "0:0:9",
     BPF_CORE_FIELD_BYTE_OFFSET, 40, 44},
    {"shorter_array", [](BtfBuilder& b) { return b.structure("s", 4, {{"f", b.array(u32_type(b), 9), 0}}); },
     [](BtfBuilder& b) { b.structure("s", 4, {{"f", b.array(u32_type(b), 3), 0}}); }, "0:0:3",
     BPF_CORE_FIELD_EXISTS, 1, 0},
};

TEST(Core, Values) {
  for (const ValueCase& one : kValues) {
    SCOPED_TRACE(one.name);
    const Outcome outcome = resolve(one.local, one.target, one.access, one.kind);
    ASSERT_TRUE(outcome.value) << outcome.error;
    EXPECT_FALSE(outcome.value->poison);
    EXPECT_EQ(outcome.value->original, one.original);
    EXPECT_EQ(outcome.value->value, one.value);
    EXPECT_EQ(outcome.value->validate, one.validate);
  }
}

TEST(Core, PoisonsWhatIsMissing) {
  const struct {
    const char* name;
    Local local;
    Target target;
    const char* access;
    uint32_t kind;
    const char* what;
  } cases[] = {
      {"field", plain, [](BtfBuilder& b) { b.structure("s", 4, {{"a", u32_type(b), 0}}); }, "0:1",
       BPF_CORE_FIELD_BYTE_OFFSET, "struct s.b"},
      {"type", plain, [](BtfBuilder&) {}, "0:1", BPF_CORE_FIELD_BYTE_OFFSET, "struct s.b"},
      {"size", plain, [](BtfBuilder&) {}, "0:1", BPF_CORE_FIELD_BYTE_SIZE, "struct s.b"},
      {"enumerator", [](BtfBuilder& b) { return b.enumeration("e", {{"A", 1}}); },
       [](BtfBuilder& b) { b.enumeration("e", {{"B", 1}}); }, "0", BPF_CORE_ENUMVAL_VALUE, "enum e::A"},
      {"element", [](BtfBuilder& b) { return b.structure("s", 4, {{"f", b.array(u32_type(b), 9), 0}}); },
       [](BtfBuilder& b) { b.structure("s", 4, {{"f", b.array(u32_type(b), 3), 0}}); }, "1:0:3",
       BPF_CORE_FIELD_BYTE_OFFSET, "struct s[1].f[3]"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const Outcome outcome = resolve(one.local, one.target, one.access, one.kind);
    ASSERT_TRUE(outcome.value) << outcome.error;
    EXPECT_TRUE(outcome.value->poison);
    EXPECT_EQ(outcome.what, one.what);
  }
}

// Level n holds two anonymous members of level n - 1: 2^n paths to look for a name that is not there.
void exponential(BtfBuilder& b) {
  uint32_t level = b.structure("", 4, {{"x", u32_type(b), 0}});
  for (int i = 0; i < 40; ++i) level = b.structure("", 4, {{"", level, 0}, {"", level, 0}});
  b.structure("s", 4, {{"", level, 0}});
}

TEST(Core, Refuses) {
  const struct {
    const char* name;
    Local local;
    Target target;
    const char* access;
    uint32_t kind;
    const char* error;
  } cases[] = {
      {"type_matches", plain, [](BtfBuilder&) {}, "0", 12, "'struct s': type_matches"},
      {"unknown_kind", plain, [](BtfBuilder&) {}, "0", 13, "unknown CO-RE kind 13"},
      {"no_such_type", [](BtfBuilder&) { return 9U; }, [](BtfBuilder&) {}, "0:0", 0,
       "'type id 9': no such type"},
      {"void_type", [](BtfBuilder&) { return 0U; }, [](BtfBuilder&) {}, "0:0", 0, "no such type"},
      {"anonymous_root", [](BtfBuilder& b) { return b.structure("", 0, {}); }, [](BtfBuilder&) {}, "0", 8,
       "anonymous"},
      {"no_access_string", plain, [](BtfBuilder&) {}, "", 0, "access string is missing"},
      {"letters", plain, [](BtfBuilder&) {}, "0:x", 0, "malformed"},
      {"negative", plain, [](BtfBuilder&) {}, "-1", 0, "malformed"},
      {"trailing_colon", plain, [](BtfBuilder&) {}, "0:1:", 0, "malformed"},
      {"leading_colon", plain, [](BtfBuilder&) {}, ":1", 0, "malformed"},
      {"number_too_large", plain, [](BtfBuilder&) {}, "0:99999999999", 0, "malformed"},
      {"type_with_path", plain, [](BtfBuilder&) {}, "0:1", BPF_CORE_TYPE_SIZE, "access string \"0\""},
      {"no_such_member", plain, [](BtfBuilder&) {}, "0:2", 0, "no such member"},
      {"through_an_integer", plain, [](BtfBuilder&) {}, "0:1:0", 0, "no struct, union or array"},
      {"index_past_array",
       [](BtfBuilder& b) { return b.structure("s", 8, {{"f", b.array(u32_type(b), 2), 0}}); },
       [](BtfBuilder&) {}, "0:0:2", 0, "out of range"},
      {"root_index_overflow",
       [](BtfBuilder& b) { return b.structure("s", UINT32_MAX, {{"a", u32_type(b), 0}}); },
       [](BtfBuilder&) {}, "2147483647:0", 0, "no size"},
      {"no_such_enumerator", [](BtfBuilder& b) { return b.enumeration("e", {{"A", 1}}); }, [](BtfBuilder&) {},
       "1", BPF_CORE_ENUMVAL_VALUE, "no such enumerator"},
      {"enumerator_of_a_struct", plain, [](BtfBuilder&) {}, "0", BPF_CORE_ENUMVAL_VALUE,
       "no such enumerator"},
      {"bitfield_of_nine_bytes",
       [](BtfBuilder& b) { return b.structure("s", 16, {{"x", b.integer("u64", 8), 63, 60}}); },
       [](BtfBuilder&) {}, "0:0", BPF_CORE_FIELD_BYTE_OFFSET, "cannot be read with one load"},
      {"bitfield_of_a_struct",
       [](BtfBuilder& b) { return b.structure("s", 16, {{"x", b.structure("t", 12, {}), 0, 3}}); },
       [](BtfBuilder&) {}, "0:0", BPF_CORE_FIELD_BYTE_OFFSET, "no integer's size"},
      {"shift_of_a_large_field",
       [](BtfBuilder& b) { return b.structure("s", 16, {{"x", b.structure("t", 12, {}), 0}}); },
       [](BtfBuilder&) {}, "0:0", BPF_CORE_FIELD_LSHIFT_U64, "too large"},
      {"signedness_of_an_element",
       [](BtfBuilder& b) { return b.structure("s", 8, {{"f", b.array(u32_type(b), 2), 0}}); },
       [](BtfBuilder&) {}, "0:0:1", BPF_CORE_FIELD_SIGNED, "does not apply to an array element"},
      {"ambiguous_offset", plain,
       [](BtfBuilder& b) {
         b.structure("s", 64, {{"b", u32_type(b), 64}});
         b.structure("s", 64, {{"b", u32_type(b), 96}});
       },
       "0:1", BPF_CORE_FIELD_BYTE_OFFSET,
       "ambiguous: the kernel's BTF has it as struct s (id 3) and differently as struct s"},
      {"ambiguous_type_id", plain,
       [](BtfBuilder& b) {
         b.structure("s", 64, {});
         b.structure("s", 64, {});
       },
       "0", BPF_CORE_TYPE_ID_TARGET, "ambiguous"},
      {"too_many_candidates", plain,
       [](BtfBuilder& b) {
         for (size_t i = 0; i <= kMaxCandidates; ++i) b.structure("s", 8, {});
       },
       "0:1", BPF_CORE_FIELD_BYTE_OFFSET, "more than 256 types of that name"},
      {"struct_inside_itself", plain, [](BtfBuilder& b) { b.structure("s", 8, {{"", 2, 0}}); }, "0:1",
       BPF_CORE_FIELD_BYTE_OFFSET, "'struct s.b': the kernel's BTF is malformed: members nest"},
      {"exponential_nesting", plain, exponential, "0:1", BPF_CORE_FIELD_BYTE_OFFSET, "too many steps"},
      {"typedef_of_itself", [](BtfBuilder& b) { return b.reference(BTF_KIND_TYPEDEF, "t", 1); },
       [](BtfBuilder&) {}, "0:0", BPF_CORE_FIELD_BYTE_OFFSET, "too many typedefs"},
      {"member_name_outside", plain,
       [](BtfBuilder& b) { b.add(BTF_KIND_STRUCT, "s", 1, false, 8, {1 << 20, 1, 0}); }, "0:1",
       BPF_CORE_FIELD_BYTE_OFFSET, "name is out of range"},
      {"endless_pointers", [](BtfBuilder& b) { return b.reference(BTF_KIND_TYPEDEF, "p", b.pointer(1)); },
       [](BtfBuilder& b) { b.reference(BTF_KIND_TYPEDEF, "p", b.pointer(2)); }, "0", BPF_CORE_TYPE_EXISTS,
       "types nest too deeply"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    const Outcome outcome = resolve(bad.local, bad.target, bad.access, bad.kind);
    ASSERT_FALSE(outcome.value);
    EXPECT_NE(outcome.error.find(bad.error), std::string::npos) << outcome.error;
  }
}

// aya 1727: two layouts of one struct must never be mixed. What one access rules out stays ruled out.
TEST(Core, OneRootKeepsOneLayout) {
  BtfBuilder mine;
  const uint32_t u32 = u32_type(mine);
  const uint32_t root = mine.structure("s", 8, {{"only_first", u32, 0}, {"both", u32, 32}});
  const CoreRelocation relocations[] = {{root, mine.string("0:0"), BPF_CORE_FIELD_BYTE_OFFSET},
                                        {root, mine.string("0:1"), BPF_CORE_FIELD_BYTE_OFFSET}};
  BtfBuilder theirs;
  const uint32_t number = u32_type(theirs);
  theirs.structure("s", 8, {{"both", number, 0}});
  theirs.structure("s", 8, {{"both", number, 64}, {"only_first", number, 96}});
  const GuardPage my_page(mine.bytes());
  const GuardPage their_page(theirs.bytes());
  const auto local = Btf::parse(my_page.bytes());
  const auto target = Btf::parse(their_page.bytes());
  ASSERT_TRUE(local && target);

  auto resolver = CoreResolver::create(*local, *target, relocations);
  ASSERT_TRUE(resolver) << resolver.error().message();
  const auto first = resolver->resolve(relocations[0]);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->value, 12U);
  const auto both = resolver->resolve(relocations[1]);
  ASSERT_TRUE(both) << both.error().message();
  EXPECT_EQ(both->value, 8U);

  auto alone = CoreResolver::create(*local, *target, relocations);
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_FALSE(alone->resolve(relocations[1]));
}

TEST(Core, ResizesOnlyPointersAndUnsignedIntegers) {
  const struct {
    const char* name;
    Local local;
    Target target;
    bool unfit;
  } cases[] = {
      {"unsigned", plain, [](BtfBuilder& b) { b.structure("s", 8, {{"b", b.integer("u64", 8), 0}}); }, false},
      {"signed", plain,
       [](BtfBuilder& b) { b.structure("s", 8, {{"b", b.integer("s64", 8, BTF_INT_SIGNED), 0}}); }, true},
      {"same_size_signed", plain,
       [](BtfBuilder& b) { b.structure("s", 8, {{"b", b.integer("int", 4, BTF_INT_SIGNED), 0}}); }, false},
      {"to_bitfield", plain, [](BtfBuilder& b) { b.structure("s", 8, {{"b", u32_type(b), 0, 4}}); }, true},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const Outcome outcome = resolve(one.local, one.target, "0:1", BPF_CORE_FIELD_BYTE_OFFSET);
    ASSERT_TRUE(outcome.value) << outcome.error;
    EXPECT_EQ(outcome.value->unfit_resize, one.unfit);
  }
}

bpf_insn insn(uint8_t code, int16_t off, int32_t imm) {
  bpf_insn made{};
  made.code = code;
  made.off = off;
  made.imm = imm;
  return made;
}

constexpr uint8_t kLoad32 = BPF_LDX | BPF_MEM | BPF_W;
constexpr uint8_t kLoad64 = BPF_LDX | BPF_MEM | BPF_DW;
constexpr uint8_t kStore32 = BPF_STX | BPF_MEM | BPF_W;
constexpr uint8_t kMove = BPF_ALU64 | BPF_MOV | BPF_K;
constexpr uint8_t kWide = BPF_LD | BPF_IMM | BPF_DW;
constexpr uint8_t kCall = BPF_JMP | BPF_CALL;

CoreValue value_of(uint64_t original, uint64_t value, uint32_t original_bytes = 0, uint32_t value_bytes = 0) {
  CoreValue made;
  made.original = original;
  made.value = value;
  made.original_bytes = original_bytes;
  made.value_bytes = value_bytes;
  return made;
}

TEST(CoreApply, RewritesInstructions) {
  const struct {
    const char* name;
    CoreValue value;
    std::vector<bpf_insn> before, after;
  } cases[] = {
      {"move", value_of(4, 99), {insn(kMove, 0, 4)}, {insn(kMove, 0, 99)}},
      {"move_negative", value_of(UINT64_MAX, UINT64_MAX - 1), {insn(kMove, 0, -1)}, {insn(kMove, 0, -2)}},
      {"move_unsigned", value_of(UINT32_MAX, UINT32_MAX - 1), {insn(kMove, 0, -1)}, {insn(kMove, 0, -2)}},
      {"load", value_of(4, 32767, 4, 4), {insn(kLoad32, 4, 0)}, {insn(kLoad32, 32767, 0)}},
      {"load_grows", value_of(4, 8, 4, 8), {insn(kLoad32, 4, 0)}, {insn(kLoad64, 8, 0)}},
      {"load_shrinks", value_of(4, 8, 8, 4), {insn(kLoad64, 4, 0)}, {insn(kLoad32, 8, 0)}},
      {"store", value_of(4, 8, 4, 4), {insn(kStore32, 4, 0)}, {insn(kStore32, 8, 0)}},
      {"wide",
       value_of(5, 0x1122334455667788),
       {insn(kWide, 0, 5), insn(0, 0, 0)},
       {insn(kWide, 0, 0x55667788), insn(0, 0, 0x11223344)}},
      {"wide_from_large",
       value_of(0xfffffff0fffffff0, 1),
       {insn(kWide, 0, -16), insn(0, 0, -16)},
       {insn(kWide, 0, 1), insn(0, 0, 0)}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    std::vector<bpf_insn> insns = one.before;
    const auto poisoned = apply(one.value, 1234, insns, 0);
    ASSERT_TRUE(poisoned) << poisoned.error().message();
    EXPECT_FALSE(*poisoned);
    for (size_t i = 0; i < insns.size(); ++i) {
      EXPECT_EQ(insns[i].code, one.after[i].code) << i;
      EXPECT_EQ(insns[i].off, one.after[i].off) << i;
      EXPECT_EQ(insns[i].imm, one.after[i].imm) << i;
    }
  }
}

TEST(CoreApply, Poisons) {
  CoreValue missing;
  missing.poison = true;
  CoreValue unfit = value_of(4, 8, 4, 8);
  unfit.unfit_resize = true;
  const struct {
    const char* name;
    CoreValue value;
    std::vector<bpf_insn> before;
  } cases[] = {
      {"move", missing, {insn(kMove, 0, 4)}},
      {"load", missing, {insn(kLoad32, 4, 0)}},
      {"both_halves", missing, {insn(kWide, 0, 4), insn(0, 0, 0)}},
      {"unfit", unfit, {insn(kLoad32, 4, 0)}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    std::vector<bpf_insn> insns = one.before;
    insns[0].dst_reg = 3;
    const auto poisoned = apply(one.value, 1234, insns, 0);
    ASSERT_TRUE(poisoned) << poisoned.error().message();
    EXPECT_TRUE(*poisoned);
    for (const bpf_insn& after : insns) {
      EXPECT_EQ(after.code, kCall);
      EXPECT_EQ(after.dst_reg, 0);
      EXPECT_EQ(after.off, 0);
      EXPECT_EQ(after.imm, 1234);
    }
  }
}

TEST(CoreApply, Refuses) {
  const struct {
    const char* name;
    CoreValue value;
    std::vector<bpf_insn> before;
    const char* error;
  } cases[] = {
      {"past_end", value_of(0, 0), {}, "past the program's end"},
      {"half_a_wide_load", value_of(0, 0), {insn(kWide, 0, 0)}, "second half"},
      {"wide_with_code", value_of(0, 0), {insn(kWide, 0, 0), insn(kMove, 0, 0)}, "malformed 64-bit load"},
      {"wide_holds_another",
       value_of(1, 0),
       {insn(kWide, 0, 0), insn(0, 0, 0)},
       "it holds 0 where the object's BTF says 1"},
      {"move_of_register", value_of(0, 0), {insn(BPF_ALU64 | BPF_MOV | BPF_X, 0, 0)}, "immediate"},
      {"move_holds_another", value_of(4, 8), {insn(kMove, 0, 5)}, "it holds 5"},
      {"move_too_large", value_of(4, uint64_t{1} << 32), {insn(kMove, 0, 4)}, "does not fit into 32 bits"},
      {"load_holds_another", value_of(4, 8, 4, 4), {insn(kLoad32, 8, 0)}, "it holds 8"},
      {"load_too_far", value_of(4, 32768, 4, 4), {insn(kLoad32, 4, 0)}, "32768 does not fit into 16 bits"},
      {"load_of_another_size",
       value_of(4, 8, 4, 8),
       {insn(kLoad64, 4, 0)},
       "accesses 8 bytes where the object's BTF says 4"},
      {"load_to_odd_size", value_of(4, 8, 4, 3), {insn(kLoad32, 4, 0)}, "no load or store has 3 bytes"},
      {"jump", value_of(0, 0), {insn(BPF_JMP | BPF_JA, 0, 0)}, "neither"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    std::vector<bpf_insn> insns = bad.before;
    const auto poisoned = apply(bad.value, 1234, insns, 0);
    ASSERT_FALSE(poisoned);
    EXPECT_NE(poisoned.error().message().find(bad.error), std::string::npos) << poisoned.error().message();
  }
}

}  // namespace
}  // namespace kitty::loader
