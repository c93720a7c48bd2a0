#include "loader/object.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/elf_builder.h"
#include "tests/guard_page.h"

namespace kitty::loader {
namespace {

constexpr uint8_t kMove = BPF_ALU64 | BPF_MOV | BPF_K;
constexpr uint8_t kWide = BPF_LD | BPF_IMM | BPF_DW;
constexpr uint8_t kCall = BPF_JMP | BPF_CALL;
constexpr uint8_t kLoad32 = BPF_LDX | BPF_MEM | BPF_W;
constexpr uint8_t kExit = BPF_JMP | BPF_EXIT;
constexpr uint64_t kInsn = sizeof(bpf_insn);
constexpr uint32_t kRelocation64 = 1;
constexpr uint32_t kRelocationCall = 10;

bpf_insn insn(uint8_t code, int32_t imm = 0, uint8_t src = 0, int16_t off = 0) {
  bpf_insn made{};
  made.code = code;
  made.imm = imm;
  made.src_reg = src & 0xf;
  made.off = off;
  return made;
}

std::vector<std::byte> bytes_of(const std::vector<bpf_insn>& insns) {
  std::vector<std::byte> bytes;
  for (const bpf_insn& one : insns) append(bytes, one);
  return bytes;
}

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes;
  for (const char letter : text) append(bytes, letter);
  return bytes;
}

struct CoreRecord {
  uint32_t insn_offset, type, access, kind;
};

// An object with one of everything; tests change what they want to see refused, then parse it.
//   SEC("raw_tp/x") prog: r1 = &table, r2 = &counter (in .data, at 8), load s.b, call helper, call
//   global_helper, exit .text: helper (static), global_helper: calls helper
struct Sample {
  ElfBuilder elf;
  BtfBuilder btf;
  std::vector<bpf_insn> program = {insn(kWide),
                                   insn(0),
                                   insn(kWide, 8),
                                   insn(0),
                                   insn(kLoad32, 0, 1, 4),
                                   insn(kCall, -1, BPF_PSEUDO_CALL),
                                   insn(kCall, -1, BPF_PSEUDO_CALL),
                                   insn(kExit)};
  std::vector<bpf_insn> text = {insn(kMove, 1), insn(kExit), insn(kCall, -3, BPF_PSEUDO_CALL), insn(kMove, 7),
                                insn(kExit)};
  std::vector<CoreRecord> records;
  std::string core_section = "raw_tp/x";
  std::vector<BtfBuilder::Member> map_members;
  std::string license_text = std::string("GPL", 4);
  uint32_t number = 0, root = 0, map_linkage = BTF_VAR_GLOBAL_ALLOCATED;
  uint32_t record_bytes = sizeof(CoreRecord);
  std::function<void(std::vector<std::byte>&)> tamper_ext;
  std::vector<Elf64_Rel> relocations, text_relocations;
  size_t text_section, program_section, maps_section, data_section, bss_section, rodata_section;
  size_t text_symbol, program_symbol, helper_symbol, global_symbol, map_symbol, data_symbol;

  // __uint(name, value), __type(name, type)
  uint32_t attribute(uint32_t value) { return btf.pointer(btf.array(number, value)); }

  Sample() {
    number = btf.integer("unsigned int", 4);
    root = btf.structure("s", 8, {{"a", number, 0}, {"b", number, 32}});
    map_members = {{"type", attribute(BPF_MAP_TYPE_HASH)},
                   {"max_entries", attribute(64)},
                   {"map_flags", attribute(BPF_F_NO_PREALLOC)},
                   {"key", btf.pointer(number)},
                   {"value", btf.pointer(root)}};
    records = {{4 * kInsn, root, btf.string("0:1"), BPF_CORE_FIELD_BYTE_OFFSET}};

    text_section = elf.section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, {});
    program_section = elf.section("raw_tp/x", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, {});
    maps_section = elf.section(".maps", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, std::vector<std::byte>(40));
    data_section = elf.section(".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, bytes_of("0123456789abcdef"));
    rodata_section = elf.section(".rodata", SHT_PROGBITS, SHF_ALLOC, bytes_of("constant"));
    bss_section = elf.section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, {});
    elf.sections[bss_section].header.sh_size = 24;

    text_symbol = elf.symbol("", STT_SECTION, STB_LOCAL, text_section, 0, 0);
    data_symbol = elf.symbol("", STT_SECTION, STB_LOCAL, data_section, 0, 0);
    helper_symbol = elf.symbol("helper", STT_FUNC, STB_LOCAL, text_section, 0, 2 * kInsn);
    global_symbol = elf.symbol("global_helper", STT_FUNC, STB_GLOBAL, text_section, 2 * kInsn, 3 * kInsn);
    program_symbol = elf.symbol("prog", STT_FUNC, STB_GLOBAL, program_section, 0, program.size() * kInsn);
    map_symbol = elf.symbol("table", STT_OBJECT, STB_GLOBAL, maps_section, 8, 32);
    relocations = {ElfBuilder::relocation(0, kRelocation64, map_symbol),
                   ElfBuilder::relocation(2 * kInsn, kRelocation64, data_symbol),
                   ElfBuilder::relocation(5 * kInsn, kRelocationCall, text_symbol),
                   ElfBuilder::relocation(6 * kInsn, kRelocationCall, global_symbol)};
  }

  std::vector<std::byte> bytes(const ElfBuilder::Tamper& tamper = nullptr) {
    const uint32_t map_type = btf.structure("", 40, map_members);
    btf.section(".maps", {btf.variable("table", map_type, map_linkage)});
    std::vector<std::byte> core;
    append(core, record_bytes);
    append(core, btf.string(core_section));
    append(core, static_cast<uint32_t>(records.size()));
    for (const CoreRecord& record : records) append(core, record);
    std::vector<std::byte> ext;
    append(ext, uint16_t{0xeb9f});
    append(ext, uint16_t{1});
    for (const uint32_t word : {32U, 0U, 0U, 0U, 0U, 0U, static_cast<uint32_t>(core.size())})
      append(ext, word);
    ext.insert(ext.end(), core.begin(), core.end());
    if (tamper_ext) tamper_ext(ext);

    elf.sections[text_section].data = bytes_of(text);
    elf.sections[program_section].data = bytes_of(program);
    if (!license_text.empty()) elf.section("license", SHT_PROGBITS, SHF_ALLOC, bytes_of(license_text));
    elf.relocations(".relraw_tp/x", program_section, relocations);
    if (!text_relocations.empty()) elf.relocations(".rel.text", text_section, text_relocations);
    elf.section(".BTF", SHT_PROGBITS, 0, btf.bytes());
    elf.section(".BTF.ext", SHT_PROGBITS, 0, std::move(ext));
    return elf.bytes(tamper);
  }
};

std::vector<std::byte> kernel_btf() {
  BtfBuilder b;
  const uint32_t number = b.integer("unsigned int", 4);
  b.structure("s", 64, {{"a", number, 0}, {"b", number, 320}});
  return b.bytes();
}

TEST(Object, ReadsMapsProgramsAndLicense) {
  Sample sample;
  std::optional<Object> object;
  {
    const GuardPage page(sample.bytes());
    auto parsed = Object::parse(page.bytes());
    ASSERT_TRUE(parsed) << parsed.error().message();
    object = std::move(*parsed);
  }  // the file is gone; the object must not mind
  EXPECT_EQ(object->license(), "GPL");
  ASSERT_EQ(object->programs().size(), 1U);
  EXPECT_EQ(object->programs()[0].name, "prog");
  EXPECT_EQ(object->programs()[0].section, "raw_tp/x");
  EXPECT_EQ(object->find_program("prog"), &object->programs()[0]);
  EXPECT_EQ(object->find_program("global_helper"), nullptr);

  ASSERT_EQ(object->maps().size(), 4U);
  const MapSpec& table = object->maps()[object->find_map("table")];
  EXPECT_EQ(table.type, uint32_t{BPF_MAP_TYPE_HASH});
  EXPECT_EQ(table.max_entries, 64U);
  EXPECT_EQ(table.flags, uint32_t{BPF_F_NO_PREALLOC});
  EXPECT_EQ(table.key_size, 4U);
  EXPECT_EQ(table.value_size, 8U);
  EXPECT_TRUE(table.initial.empty());
  EXPECT_FALSE(table.freeze);
  const MapSpec& data = object->maps()[object->find_map(".data")];
  EXPECT_EQ(data.type, uint32_t{BPF_MAP_TYPE_ARRAY});
  EXPECT_EQ(data.key_size, 4U);
  EXPECT_EQ(data.value_size, 16U);
  EXPECT_EQ(data.max_entries, 1U);
  EXPECT_EQ(data.flags, 0U);
  EXPECT_EQ(data.initial, bytes_of("0123456789abcdef"));
  const MapSpec& bss = object->maps()[object->find_map(".bss")];
  EXPECT_EQ(bss.initial, std::vector<std::byte>(24));
  const MapSpec& rodata = object->maps()[object->find_map(".rodata")];
  EXPECT_EQ(rodata.flags, uint32_t{BPF_F_RDONLY_PROG});
  EXPECT_TRUE(rodata.freeze);
  EXPECT_EQ(object->find_map("absent"), object->maps().size());
}

TEST(Object, LinksSubprogramsMapsAndFields) {
  Sample sample;
  const GuardPage page(sample.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_TRUE(object) << object.error().message();
  const GuardPage kernel_page(kernel_btf());
  const auto kernel = Btf::parse(kernel_page.bytes());
  ASSERT_TRUE(kernel);
  const auto linked = object->link("prog", &*kernel);
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(linked->name, "prog");
  EXPECT_EQ(linked->section, "raw_tp/x");
  EXPECT_TRUE(linked->poisoned.empty());
  // prog is 0..7, helper 8..9, global_helper 10..12: callees in the order of their first call.
  ASSERT_EQ(linked->insns.size(), 13U);
  EXPECT_EQ(linked->insns[0].src_reg, BPF_PSEUDO_MAP_FD);
  EXPECT_EQ(linked->insns[1].imm, 0);
  EXPECT_EQ(linked->insns[2].src_reg, BPF_PSEUDO_MAP_VALUE);
  EXPECT_EQ(linked->insns[2].imm, 0);
  EXPECT_EQ(linked->insns[3].imm, 8);
  EXPECT_EQ(linked->insns[4].off, 40);
  EXPECT_EQ(linked->insns[5].imm, 8 - 5 - 1);
  EXPECT_EQ(linked->insns[6].imm, 10 - 6 - 1);
  EXPECT_EQ(linked->insns[10].imm, 8 - 10 - 1);
  ASSERT_EQ(linked->maps.size(), 2U);
  EXPECT_EQ(linked->maps[0].insn, 0U);
  EXPECT_EQ(linked->maps[0].map, object->find_map("table"));
  EXPECT_EQ(linked->maps[1].insn, 2U);
  EXPECT_EQ(linked->maps[1].map, object->find_map(".data"));
}

// aya 601: a relocation inside a subprogram counts from that subprogram, wherever it ends up.
TEST(Object, RelocatesInsideSubprograms) {
  Sample sample;
  sample.text[3] = insn(kLoad32, 0, 1, 4);
  sample.core_section = ".text";
  sample.records[0].insn_offset = 3 * kInsn;
  const GuardPage page(sample.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_TRUE(object) << object.error().message();
  const GuardPage kernel_page(kernel_btf());
  const auto kernel = Btf::parse(kernel_page.bytes());
  const auto linked = object->link("prog", &*kernel);
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(linked->insns[4].off, 4);
  EXPECT_EQ(linked->insns[11].off, 40);
}

TEST(Object, PoisonsWhatTheKernelLacks) {
  Sample sample;
  const GuardPage page(sample.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_TRUE(object) << object.error().message();
  const GuardPage kernel_page(BtfBuilder().bytes());
  const auto kernel = Btf::parse(kernel_page.bytes());
  const auto linked = object->link("prog", &*kernel);
  ASSERT_TRUE(linked) << linked.error().message();
  ASSERT_EQ(linked->poisoned.size(), 1U);
  EXPECT_EQ(linked->poisoned[0].insn, 4U);
  EXPECT_EQ(linked->poisoned[0].what, "struct s.b");
  EXPECT_EQ(linked->insns[4].code, kCall);
  EXPECT_EQ(linked->insns[4].imm, kPoisonCall);
}

TEST(Object, NeedsNoKernelBtfWithoutCore) {
  Sample sample;
  sample.records.clear();
  const GuardPage page(sample.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_TRUE(object) << object.error().message();
  EXPECT_TRUE(object->link("prog", nullptr));
}

TEST(Object, LinkErrors) {
  const struct {
    const char* name;
    void (*change)(Sample&);
    const char* program;
    bool with_kernel;
    const char* error;
  } cases[] = {
      {"no_such_program", [](Sample&) {}, "absent", true, "'absent': the object has no program of that name"},
      {"subprogram", [](Sample&) {}, "global_helper", true, "no program of that name"},
      {"no_kernel_btf", [](Sample&) {}, "prog", false, "'prog': it reads struct s.b"},
      {"type_matches", [](Sample& s) { s.records[0].kind = 12; }, "prog", true, "struct s: type_matches"},
      {"bad_access_string", [](Sample& s) { s.records[0].access = 1 << 20; }, "prog", true,
       "access string is missing"},
      {"type_outside", [](Sample& s) { s.records[0].type = 999; }, "prog", true, "no such type"},
      {"other_instruction", [](Sample& s) { s.records[0].insn_offset = 7 * kInsn; }, "prog", true,
       "prog insn 7, struct s.b"},
      {"another_value", [](Sample& s) { s.program[4].off = 5; }, "prog", true,
       "it holds 5 where the object's BTF says 4"},
      {"poisoned_map",
       [](Sample& s) {
         s.records[0].insn_offset = 0;
         s.records[0].access = s.btf.string("0:0");
         s.records[0].type = s.btf.structure("absent", 8, {{"a", s.number, 0}});
       },
       "prog", true, "relocations of two sorts"},
      {"poisoned_call",
       [](Sample& s) {
         s.records[0].insn_offset = 5 * kInsn;
         s.records[0].access = s.btf.string("0:0");
         s.records[0].type = s.btf.structure("absent", 8, {{"a", s.number, 0}});
       },
       "prog", true, "relocations of two sorts"},
  };
  const GuardPage kernel_page(kernel_btf());
  const auto kernel = Btf::parse(kernel_page.bytes());
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    Sample sample;
    bad.change(sample);
    const GuardPage page(sample.bytes());
    const auto object = Object::parse(page.bytes());
    ASSERT_TRUE(object) << object.error().message();
    const auto linked = object->link(bad.program, bad.with_kernel ? &*kernel : nullptr);
    ASSERT_FALSE(linked);
    EXPECT_NE(linked.error().message().find(bad.error), std::string::npos) << linked.error().message();
  }
}

TEST(Object, TruncatedAtEveryByte) {
  Sample sample;
  const std::vector<std::byte> whole = sample.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const GuardPage cut{std::span(whole).first(size)};
    EXPECT_FALSE(Object::parse(cut.bytes())) << size;
  }
}

// Whatever a section's end cuts off, nothing behind it is read.
TEST(Object, SectionsTruncatedAtEveryByte) {
  Sample whole;
  (void)whole.bytes();
  const GuardPage kernel_page(kernel_btf());
  const auto kernel = Btf::parse(kernel_page.bytes());
  for (size_t section = 1; section < whole.elf.sections.size(); ++section) {
    for (size_t size = 0; size < whole.elf.sections[section].data.size(); ++size) {
      Sample sample;
      const GuardPage page(sample.bytes(
          [&](Elf64_Ehdr&, std::vector<Elf64_Shdr>& headers) { headers[section].sh_size = size; }));
      const auto object = Object::parse(page.bytes());
      if (!object) continue;
      for (const ProgramSpec& program : object->programs()) (void)object->link(program.name, &*kernel);
    }
  }
}

struct BadObject {
  const char* name;
  void (*change)(Sample&);
  const char* error;
};

void unsupported(Sample& s, std::string_view name) {
  s.elf.section(name, SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, std::vector<std::byte>(8));
}

const BadObject kBadObjects[] = {
    {"legacy_maps", [](Sample& s) { unsupported(s, "maps"); }, "'maps': legacy map definitions"},
    {"kconfig", [](Sample& s) { unsupported(s, ".kconfig"); }, "'.kconfig': kconfig"},
    {"ksyms", [](Sample& s) { unsupported(s, ".ksyms"); }, "'.ksyms': ksyms"},
    {"struct_ops", [](Sample& s) { unsupported(s, ".struct_ops"); }, "'.struct_ops': struct_ops"},
    {"struct_ops_link", [](Sample& s) { unsupported(s, ".struct_ops.link"); },
     "'.struct_ops.link': struct_ops"},
    {"arena", [](Sample& s) { unsupported(s, ".arena.1"); }, "'.arena.1': arena"},
    {"address_space", [](Sample& s) { unsupported(s, ".addr_space.1"); }, "arena"},
    {"jump_tables", [](Sample& s) { unsupported(s, ".jumptables"); }, "jump tables"},
    {"extern", [](Sample& s) { s.elf.symbol("LINUX_KERNEL_VERSION", STT_NOTYPE, STB_WEAK, SHN_UNDEF, 0, 0); },
     "'LINUX_KERNEL_VERSION': undefined"},
    {"common", [](Sample& s) { s.elf.symbol("shared", STT_OBJECT, STB_GLOBAL, SHN_COMMON, 8, 8); },
     "'shared': common"},
    {"two_licenses", [](Sample& s) { s.elf.section("license", SHT_PROGBITS, 0, bytes_of("GPL")); },
     "second section"},
    {"unterminated_license", [](Sample& s) { s.license_text = "GPL"; }, "'license': not a terminated string"},
    {"two_code_sections",
     [](Sample& s) {
       s.elf.section("raw_tp/x", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, bytes_of(std::vector{insn(kExit)}));
     },
     "'raw_tp/x': a second section"},
    {"two_data_sections", [](Sample& s) { unsupported(s, ".data"); }, "'.data': a second section"},
    {"compressed", [](Sample& s) { s.elf.sections[s.data_section].header.sh_flags |= SHF_COMPRESSED; },
     "compressed"},
    {"bss_too_large", [](Sample& s) { s.elf.sections[s.bss_section].header.sh_size = uint64_t{1} << 60; },
     "'.bss': more than 4 MiB"},

    {"map_attribute_unknown", [](Sample& s) { s.map_members.push_back({"pinning", s.attribute(1)}); },
     "'table': map attribute 'pinning' is not supported"},
    {"map_attribute_inner", [](Sample& s) { s.map_members.push_back({"values", s.attribute(1)}); },
     "'values'"},
    {"map_attribute_unnamed", [](Sample& s) { s.map_members.push_back({"", s.attribute(1)}); },
     "map attribute ''"},
    {"map_number_is_no_array", [](Sample& s) { s.map_members[0].type = s.btf.pointer(s.number); },
     "'type' is not a pointer to an array"},
    {"map_number_is_no_pointer", [](Sample& s) { s.map_members[0].type = s.number; },
     "'type' is not a pointer"},
    {"map_key_is_no_pointer", [](Sample& s) { s.map_members[3].type = s.number; }, "'key' is not a pointer"},
    {"map_key_without_size", [](Sample& s) { s.map_members[3].type = s.btf.pointer(0); },
     "'key' is not a pointer"},
    {"map_without_type", [](Sample& s) { s.map_members.erase(s.map_members.begin()); },
     "'table': the map has no type"},
    {"map_key_sizes_differ", [](Sample& s) { s.map_members.push_back({"key_size", s.attribute(8)}); },
     "key and key_size differ"},
    {"map_value_sizes_differ", [](Sample& s) { s.map_members.push_back({"value_size", s.attribute(4)}); },
     "value and value_size differ"},
    {"map_static", [](Sample& s) { s.map_linkage = BTF_VAR_STATIC; }, "must not be static"},
    {"map_without_symbol", [](Sample& s) { s.elf.symbols[s.map_symbol].st_name = s.elf.string("other"); },
     "'table': the map has no symbol"},
    {"map_reference_elsewhere",
     [](Sample& s) {
       s.relocations[0] = ElfBuilder::relocation(
           0, kRelocation64, s.elf.symbol("odd", STT_OBJECT, STB_GLOBAL, s.maps_section, 0, 8));
     },
     "'odd' is no map"},
    {"map_reference_with_offset", [](Sample& s) { s.program[0].imm = 4; }, "an offset from map 'table'"},

    {"function_outside", [](Sample& s) { s.elf.symbols[s.program_symbol].st_size += kInsn; },
     "'prog': the function does not fit"},
    {"function_overflow", [](Sample& s) { s.elf.symbols[s.program_symbol].st_size = UINT64_MAX - 7; },
     "does not fit"},
    {"function_value_outside", [](Sample& s) { s.elf.symbols[s.program_symbol].st_value = UINT64_MAX - 7; },
     "does not fit"},
    {"function_misaligned", [](Sample& s) { s.elf.symbols[s.program_symbol].st_size -= 1; }, "whole number"},
    {"function_empty", [](Sample& s) { s.elf.symbols[s.program_symbol].st_size = 0; }, "whole number"},
    {"function_unnamed", [](Sample& s) { s.elf.symbols[s.program_symbol].st_name = 0; },
     "a function has no name"},
    {"function_in_data",
     [](Sample& s) { s.elf.symbols[s.program_symbol].st_shndx = static_cast<uint16_t>(s.data_section); },
     "'prog': the function lies in no code section"},
    {"functions_overlap", [](Sample& s) { s.elf.symbols[s.helper_symbol].st_size += kInsn; },
     "overlaps 'helper'"},
    {"two_programs_of_one_name",
     [](Sample& s) {
       const size_t other = s.elf.section("raw_tp/y", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR,
                                          bytes_of(std::vector{insn(kExit)}));
       s.elf.symbol("prog", STT_FUNC, STB_GLOBAL, other, 0, kInsn);
     },
     "'prog': a second program"},
    {"ldimm64_in_last_slot", [](Sample& s) { s.program.back() = insn(kWide); },
     "prog insn 7': the second half"},
    {"ldimm64_second_half", [](Sample& s) { s.program[1].code = kMove; }, "prog insn 0': the second half"},
    {"ldimm64_source", [](Sample& s) { s.program[0].src_reg = BPF_PSEUDO_MAP_FD; }, "a source register"},
    {"kfunc", [](Sample& s) { s.program[4] = insn(kCall, 3, BPF_PSEUDO_KFUNC_CALL); },
     "calls of kernel functions"},

    {"relocation_misaligned", [](Sample& s) { s.relocations[0].r_offset = 4; },
     "offset 4 is not at an instruction"},
    {"relocation_outside", [](Sample& s) { s.relocations[0].r_offset = 8 * kInsn; },
     "offset 64 is in no function"},
    {"relocation_far_outside", [](Sample& s) { s.relocations[0].r_offset = UINT64_MAX - 7; },
     "is in no function"},
    {"relocation_type", [](Sample& s) { s.relocations[0] = ElfBuilder::relocation(0, 3, s.map_symbol); },
     "relocation type 3 is not supported"},
    {"relocation_twice", [](Sample& s) { s.relocations.push_back(s.relocations[0]); },
     "two relocations of one"},
    {"relocated_call_twice", [](Sample& s) { s.relocations.push_back(s.relocations[2]); },
     "two relocations of one"},
    {"relocation_of_second_half", [](Sample& s) { s.relocations[0].r_offset = kInsn; }, "no 64-bit load"},
    {"relocation_of_no_load", [](Sample& s) { s.relocations[0].r_offset = 4 * kInsn; }, "no 64-bit load"},
    {"relocation_of_no_call", [](Sample& s) { s.relocations[2].r_offset = 4 * kInsn; },
     "no call of a function"},
    {"relocation_to_helper_call", [](Sample& s) { s.program[5].src_reg = 0; }, "no call of a function"},
    {"relocation_in_data",
     [](Sample& s) { s.elf.relocations(".rel.data", s.data_section, {ElfBuilder::relocation(0, 2, 1)}); },
     "'.data': relocations in a section that holds no code"},
    {"relocation_with_addends",
     [](Sample& s) {
       const size_t added = s.elf.section(".rela.text", SHT_RELA, 0, std::vector<std::byte>(24));
       s.elf.sections[added].header.sh_info = static_cast<uint32_t>(s.text_section);
     },
     "addends"},
    {"callback",
     [](Sample& s) { s.relocations[0] = ElfBuilder::relocation(0, kRelocation64, s.global_symbol); },
     "address of function 'global_helper'"},
    {"absolute_symbol",
     [](Sample& s) {
       s.relocations[0] = ElfBuilder::relocation(
           0, kRelocation64, s.elf.symbol("fixed", STT_NOTYPE, STB_GLOBAL, SHN_ABS, 0, 0));
     },
     "'fixed' is no variable"},
    {"strange_section",
     [](Sample& s) {
       const size_t odd = s.elf.section(".odd", SHT_PROGBITS, SHF_ALLOC, std::vector<std::byte>(8));
       s.relocations[0] =
           ElfBuilder::relocation(0, kRelocation64, s.elf.symbol("thing", STT_OBJECT, STB_GLOBAL, odd, 0, 8));
     },
     "'thing' lies in section '.odd'"},
    {"empty_data_section",
     [](Sample& s) {
       const size_t empty = s.elf.section(".data.empty", SHT_PROGBITS, SHF_ALLOC, {});
       s.relocations[0] = ElfBuilder::relocation(0, kRelocation64,
                                                 s.elf.symbol("none", STT_OBJECT, STB_GLOBAL, empty, 0, 8));
     },
     "'none' lies in section '.data.empty'"},
    {"data_past_end", [](Sample& s) { s.program[2].imm = 16; }, "points outside section '.data'"},
    {"data_before_start", [](Sample& s) { s.program[2].imm = -1; }, "points outside section '.data'"},
    {"data_symbol_outside", [](Sample& s) { s.elf.symbols[s.data_symbol].st_value = UINT64_MAX; },
     "points outside"},
    {"call_between_functions", [](Sample& s) { s.program[5].imm = 0; }, "where no function starts"},
    {"call_before_section", [](Sample& s) { s.program[5].imm = -2; }, "where no function starts"},
    {"call_past_section", [](Sample& s) { s.program[5].imm = INT32_MAX; }, "where no function starts"},
    {"call_of_data",
     [](Sample& s) { s.relocations[2] = ElfBuilder::relocation(5 * kInsn, kRelocationCall, s.data_symbol); },
     "no function of this object"},
    {"static_call_nowhere", [](Sample& s) { s.text[2].imm = 1000; },
     "'global_helper insn 0': it calls a place"},
    {"static_call_before_section", [](Sample& s) { s.text[2].imm = -1000; }, "it calls a place"},

    {"core_misaligned", [](Sample& s) { s.records[0].insn_offset = 3; }, "CO-RE relocation at offset 3"},
    {"core_outside", [](Sample& s) { s.records[0].insn_offset = 8 * kInsn; }, "offset 64 is in no function"},
    {"core_section_unknown", [](Sample& s) { s.core_section = "raw_tp/z"; }, "'raw_tp/z': CO-RE relocations"},
    {"core_section_of_data", [](Sample& s) { s.core_section = ".data"; }, "'.data': CO-RE relocations"},
    {"core_record_size", [](Sample& s) { s.record_bytes = 12; }, "unknown size of a CO-RE relocation"},
    {"core_record_size_odd", [](Sample& s) { s.record_bytes = 17; }, "unknown size of a CO-RE relocation"},
    {"core_record_size_huge", [](Sample& s) { s.record_bytes = UINT32_MAX - 3; }, "cut short"},
    {"ext_magic", [](Sample& s) { s.tamper_ext = [](auto& ext) { ext[0] = std::byte{0}; }; },
     "'.BTF.ext': wrong magic"},
    {"ext_big_endian", [](Sample& s) { s.tamper_ext = [](auto& ext) { std::swap(ext[0], ext[1]); }; },
     "big endian"},
    {"ext_version", [](Sample& s) { s.tamper_ext = [](auto& ext) { ext[2] = std::byte{2}; }; },
     "unknown version"},
    {"ext_header_long", [](Sample& s) { s.tamper_ext = [](auto& ext) { ext[7] = std::byte{1}; }; },
     "header length"},
    {"ext_core_outside", [](Sample& s) { s.tamper_ext = [](auto& ext) { ext[27] = std::byte{0xff}; }; },
     "lie outside"},
    {"ext_core_cut", [](Sample& s) { s.tamper_ext = [](auto& ext) { ext[28] = std::byte{24}; }; },
     "cut short"},
};

TEST(Object, Refuses) {
  for (const BadObject& bad : kBadObjects) {
    SCOPED_TRACE(bad.name);
    Sample sample;
    bad.change(sample);
    const GuardPage page(sample.bytes());
    const auto object = Object::parse(page.bytes());
    ASSERT_FALSE(object);
    EXPECT_NE(object.error().message().find(bad.error), std::string::npos) << object.error().message();
  }
}

TEST(Object, RefusesTooManyMaps) {
  Sample sample;
  for (int i = 0; i < 64; ++i) unsupported(sample, ".data." + std::to_string(i));
  const GuardPage page(sample.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_FALSE(object);
  EXPECT_NE(object.error().message().find("more than 64 maps"), std::string::npos)
      << object.error().message();
}

// A chain of 300 functions, each calling the next: neither a stack overflow nor a program the kernel cannot
// take.
TEST(Object, RefusesTooManySubprograms) {
  ElfBuilder elf;
  std::vector<bpf_insn> text;
  for (int i = 0; i < 300; ++i)
    text.insert(text.end(), {insn(kCall, i < 299 ? 1 : -1, BPF_PSEUDO_CALL), insn(kExit)});
  const size_t section = elf.section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, bytes_of(text));
  for (uint64_t i = 0; i < 300; ++i) {
    elf.symbol("f" + std::to_string(i), STT_FUNC, STB_LOCAL, section, i * 2 * kInsn, 2 * kInsn);
  }
  const size_t program = elf.section("raw_tp/x", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR,
                                     bytes_of(std::vector{insn(kCall, -1, BPF_PSEUDO_CALL), insn(kExit)}));
  elf.symbol("prog", STT_FUNC, STB_GLOBAL, program, 0, 2 * kInsn);
  elf.relocations(".relraw_tp/x", program, {ElfBuilder::relocation(0, kRelocationCall, 1)});
  const GuardPage page(elf.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_TRUE(object) << object.error().message();
  const auto linked = object->link("prog", nullptr);
  ASSERT_FALSE(linked);
  EXPECT_NE(linked.error().message().find("more than 256 functions"), std::string::npos)
      << linked.error().message();
}

// Recursion is the verifier's to refuse; linking it must end.
TEST(Object, LinksRecursion) {
  Sample sample;
  sample.text[0] = insn(kCall, -1, BPF_PSEUDO_CALL);
  const GuardPage page(sample.bytes());
  const auto object = Object::parse(page.bytes());
  ASSERT_TRUE(object) << object.error().message();
  const GuardPage kernel_page(kernel_btf());
  const auto kernel = Btf::parse(kernel_page.bytes());
  const auto linked = object->link("prog", &*kernel);
  ASSERT_TRUE(linked) << linked.error().message();
  EXPECT_EQ(linked->insns[8].imm, -1);
}

}  // namespace
}  // namespace kitty::loader
