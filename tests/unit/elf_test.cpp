#include "loader/elf.h"

#include <gtest/gtest.h>

#include "tests/elf_builder.h"
#include "tests/guard_page.h"

namespace kitty::loader {
namespace {

struct Sample {
  ElfBuilder elf;
  size_t code, relocations, bss;
  Sample() {
    code = elf.section(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, std::vector<std::byte>(16));
    bss = elf.section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE, {});
    elf.sections[bss].header.sh_size = uint64_t{1} << 40;
    const size_t symbol = elf.symbol("function", STT_FUNC, STB_GLOBAL, code, 0, 16);
    elf.symbol("constant", STT_NOTYPE, STB_LOCAL, SHN_ABS, 7, 0);
    relocations = elf.relocations(".rel.text", code, {ElfBuilder::relocation(8, 10, symbol)});
  }
};

TEST(Elf, ReadsSectionsSymbolsAndRelocations) {
  Sample sample;
  const GuardPage page(sample.elf.bytes());
  const auto elf = Elf::parse(page.bytes());
  ASSERT_TRUE(elf) << elf.error().message();
  ASSERT_EQ(elf->sections().size(), sample.elf.sections.size());
  EXPECT_EQ(elf->sections()[sample.code].name, ".text");
  EXPECT_EQ(elf->sections()[sample.code].data.size(), 16U);
  EXPECT_EQ(elf->sections()[sample.bss].data.size(), 0U);
  EXPECT_EQ(elf->sections()[sample.bss].size_bytes, uint64_t{1} << 40);
  ASSERT_EQ(elf->symbols().size(), 3U);
  EXPECT_EQ(elf->symbols()[1].name, "function");
  EXPECT_EQ(elf->symbols()[1].type, STT_FUNC);
  EXPECT_EQ(elf->symbols()[1].binding, STB_GLOBAL);
  EXPECT_EQ(elf->symbols()[1].section, sample.code);
  EXPECT_EQ(elf->symbols()[2].section, SHN_ABS);
  const auto relocations = elf->relocations(sample.relocations);
  ASSERT_TRUE(relocations) << relocations.error().message();
  ASSERT_EQ(relocations->size(), 1U);
  EXPECT_EQ((*relocations)[0].offset, 8U);
  EXPECT_EQ((*relocations)[0].type, 10U);
  EXPECT_EQ((*relocations)[0].symbol, 1U);
  EXPECT_FALSE(elf->relocations(sample.code));
  EXPECT_FALSE(elf->relocations(elf->sections().size()));
}

TEST(Elf, TruncatedAtEveryByte) {
  Sample sample;
  const std::vector<std::byte> whole = sample.elf.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const GuardPage cut{std::span(whole).first(size)};
    EXPECT_FALSE(Elf::parse(cut.bytes())) << size;
  }
}

struct BadElf {
  const char* name;
  ElfBuilder::Tamper tamper;
  const char* error;
};

using Headers = std::vector<Elf64_Shdr>;
constexpr size_t kCode = 3;         // in a Sample
constexpr size_t kRelocations = 5;  // in a Sample

const BadElf kBadElfs[] = {
    {"magic", [](Elf64_Ehdr& h, Headers&) { h.e_ident[0] = 0; }, "not an ELF file"},
    {"class32", [](Elf64_Ehdr& h, Headers&) { h.e_ident[EI_CLASS] = ELFCLASS32; }, "64-bit"},
    {"big_endian", [](Elf64_Ehdr& h, Headers&) { h.e_ident[EI_DATA] = ELFDATA2MSB; }, "big endian"},
    {"byte_order", [](Elf64_Ehdr& h, Headers&) { h.e_ident[EI_DATA] = 9; }, "byte order"},
    {"version", [](Elf64_Ehdr& h, Headers&) { h.e_ident[EI_VERSION] = 2; }, "version"},
    {"executable", [](Elf64_Ehdr& h, Headers&) { h.e_type = ET_EXEC; }, "relocatable"},
    {"machine", [](Elf64_Ehdr& h, Headers&) { h.e_machine = EM_X86_64; }, "machine 62 is not BPF"},
    {"shentsize", [](Elf64_Ehdr& h, Headers&) { h.e_shentsize = 63; }, "section header"},
    {"no_sections", [](Elf64_Ehdr& h, Headers&) { h.e_shnum = 0; }, "no sections"},
    {"too_many_sections", [](Elf64_Ehdr& h, Headers&) { h.e_shnum = 60000; }, "section headers lie outside"},
    {"shoff_past_end", [](Elf64_Ehdr& h, Headers&) { h.e_shoff = 1 << 20; }, "section headers lie outside"},
    {"shoff_overflow", [](Elf64_Ehdr& h, Headers&) { h.e_shoff = UINT64_MAX - 8; },
     "section headers lie outside"},
    {"shstrndx_none", [](Elf64_Ehdr& h, Headers&) { h.e_shstrndx = 0; }, "name table's index"},
    {"shstrndx_past_end", [](Elf64_Ehdr& h, Headers&) { h.e_shstrndx = 999; }, "name table's index"},
    {"shstrndx_wrong_type", [](Elf64_Ehdr& h, Headers&) { h.e_shstrndx = kCode; }, "not a string table"},
    {"name_past_end", [](Elf64_Ehdr&, Headers& s) { s[kCode].sh_name = 1 << 20; }, "section 3"},
    {"offset_past_end", [](Elf64_Ehdr&, Headers& s) { s[kCode].sh_offset = 1 << 20; },
     "'.text': section lies outside"},
    {"offset_overflow", [](Elf64_Ehdr&, Headers& s) { s[kCode].sh_offset = UINT64_MAX - 7; },
     "'.text': section lies"},
    {"size_overflow", [](Elf64_Ehdr&, Headers& s) { s[kCode].sh_size = UINT64_MAX; },
     "'.text': section lies"},
    {"unterminated_names", [](Elf64_Ehdr&, Headers& s) { s[ElfBuilder::kStrings].sh_size -= 1; },
     "unterminated"},
    {"names_outside", [](Elf64_Ehdr&, Headers& s) { s[ElfBuilder::kStrings].sh_offset = 1 << 20; },
     "name table lies"},
    {"symbol_entsize", [](Elf64_Ehdr&, Headers& s) { s[ElfBuilder::kSymbols].sh_entsize = 16; },
     "size of an entry"},
    {"symbol_size", [](Elf64_Ehdr&, Headers& s) { s[ElfBuilder::kSymbols].sh_size -= 1; }, "whole number"},
    {"symbol_strings", [](Elf64_Ehdr&, Headers& s) { s[ElfBuilder::kSymbols].sh_link = kCode; },
     "string table"},
    {"symbol_strings_past_end", [](Elf64_Ehdr&, Headers& s) { s[ElfBuilder::kSymbols].sh_link = 99; },
     "string table"},
    {"second_symbol_table",
     [](Elf64_Ehdr&, Headers& s) {
       s[kCode].sh_type = SHT_SYMTAB;
       s[kCode].sh_entsize = sizeof(Elf64_Sym);
       s[kCode].sh_size = 0;
     },
     "second symbol table"},
    {"relocation_entsize", [](Elf64_Ehdr&, Headers& s) { s[kRelocations].sh_entsize = 24; },
     "size of an entry"},
    {"relocation_size", [](Elf64_Ehdr&, Headers& s) { s[kRelocations].sh_size = 8; }, "whole number"},
};

TEST(Elf, RefusesBadHeaders) {
  for (const BadElf& bad : kBadElfs) {
    SCOPED_TRACE(bad.name);
    Sample sample;
    const GuardPage page(sample.elf.bytes(bad.tamper));
    const auto elf = Elf::parse(page.bytes());
    ASSERT_FALSE(elf);
    EXPECT_NE(elf.error().message().find(bad.error), std::string::npos) << elf.error().message();
  }
}

struct BadSymbol {
  const char* name;
  void (*tamper)(Elf64_Sym&);
  const char* error;
};

const BadSymbol kBadSymbols[] = {
    {"name", [](Elf64_Sym& s) { s.st_name = 1 << 20; }, "symbol 1"},
    {"section", [](Elf64_Sym& s) { s.st_shndx = 999; }, "'function': its section index 999"},
    {"extended_index", [](Elf64_Sym& s) { s.st_shndx = SHN_XINDEX; }, "section index 65535"},
};

TEST(Elf, RefusesBadSymbols) {
  for (const BadSymbol& bad : kBadSymbols) {
    SCOPED_TRACE(bad.name);
    Sample sample;
    bad.tamper(sample.elf.symbols[1]);
    const GuardPage page(sample.elf.bytes());
    const auto elf = Elf::parse(page.bytes());
    ASSERT_FALSE(elf);
    EXPECT_NE(elf.error().message().find(bad.error), std::string::npos) << elf.error().message();
  }
}

TEST(Elf, RefusesBadRelocations) {
  const struct {
    const char* name;
    size_t symbol;
    uint32_t link, info;
  } cases[] = {
      {"no_symbol", 0, ElfBuilder::kSymbols, kCode},
      {"symbol_past_end", 3, ElfBuilder::kSymbols, kCode},
      {"symbol_table", 1, kCode, kCode},
      {"no_target", 1, ElfBuilder::kSymbols, 0},
      {"target_past_end", 1, ElfBuilder::kSymbols, 99},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    Sample sample;
    const size_t added =
        sample.elf.relocations(".rel.bad", bad.info, {ElfBuilder::relocation(0, 10, bad.symbol)});
    sample.elf.sections[added].header.sh_link = bad.link;
    const GuardPage page(sample.elf.bytes());
    const auto elf = Elf::parse(page.bytes());
    ASSERT_TRUE(elf) << elf.error().message();
    const auto relocations = elf->relocations(added);
    ASSERT_FALSE(relocations);
    EXPECT_EQ(relocations.error().object, ".rel.bad");
  }
}

TEST(Elf, RefusesOversizedFile) {
  const std::vector<std::byte> big(kMaxElfBytes + 1);
  EXPECT_FALSE(Elf::parse(big));
}

}  // namespace
}  // namespace kitty::loader
