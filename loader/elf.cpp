#include "loader/elf.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string>

#include "loader/bytes.h"

namespace kitty::loader {

namespace {

std::unexpected<Error> malformed(std::string_view object, std::string_view detail) {
  return fail("read ELF", object, 0, detail);
}

std::string numbered(std::string_view what, size_t index) {
  return std::string(what) + " " + std::to_string(index);
}

Status check_header(const Elf64_Ehdr& header) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return malformed("", "not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return malformed("", "not a 64-bit file");
  if (header.e_ident[EI_DATA] == ELFDATA2MSB) return malformed("", "big endian is not supported");
  if (header.e_ident[EI_DATA] != ELFDATA2LSB) return malformed("", "unknown byte order");
  if (header.e_ident[EI_VERSION] != EV_CURRENT) return malformed("", "unknown ELF version");
  if (header.e_type != ET_REL) return malformed("", "not a relocatable file");
  if (header.e_machine != EM_BPF) {
    return malformed("", "machine " + std::to_string(header.e_machine) + " is not BPF");
  }
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return malformed("", "unknown size of a section header");
  // e_shnum 0 with more than 0xff00 sections uses section 0's sh_size instead; no BPF object has that many.
  if (header.e_shnum == 0) return malformed("", "no sections");
  if (header.e_shstrndx == SHN_UNDEF || header.e_shstrndx >= header.e_shnum) {
    return malformed("", "the section name table's index is out of range");
  }
  return {};
}

}  // namespace

Result<Elf> Elf::parse(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxElfBytes) return malformed("", "file is larger than 64 MiB");
  Elf elf;
  if (Status status = elf.read_sections(bytes); !status) return std::unexpected(status.error());
  if (Status status = elf.read_symbols(); !status) return std::unexpected(status.error());
  return elf;
}

Status Elf::read_sections(std::span<const std::byte> bytes) {
  const auto header = load<Elf64_Ehdr>(bytes, 0);
  if (!header) return malformed("", "file is shorter than an ELF header");
  if (Status status = check_header(*header); !status) return status;

  const size_t count = header->e_shnum;
  const auto table = slice(bytes, header->e_shoff, count * sizeof(Elf64_Shdr));
  if (!table) return malformed("", "section headers lie outside the file");

  const auto raw = load_records<Elf64_Shdr>(*table);
  const Elf64_Shdr& names_header = raw[header->e_shstrndx];
  if (names_header.sh_type != SHT_STRTAB)
    return malformed("", "the section name table is not a string table");
  const auto names = slice(bytes, names_header.sh_offset, names_header.sh_size);
  if (!names) return malformed("", "the section name table lies outside the file");

  sections_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Elf64_Shdr& entry = raw[i];
    Section section;
    if (i != 0) {
      const auto name = terminated_string(*names, entry.sh_name);
      if (!name)
        return malformed(numbered("section", i), "its name lies outside the name table or is unterminated");
      section.name = *name;
    }
    section.type = entry.sh_type;
    section.flags = entry.sh_flags;
    section.link = entry.sh_link;
    section.info = entry.sh_info;
    if (entry.sh_type != SHT_NULL) section.size_bytes = entry.sh_size;
    if (entry.sh_type != SHT_NULL && entry.sh_type != SHT_NOBITS) {
      const auto data = slice(bytes, entry.sh_offset, entry.sh_size);
      if (!data) return malformed(section.name, "section lies outside the file");
      section.data = *data;
    }
    if (entry.sh_type == SHT_SYMTAB || entry.sh_type == SHT_REL) {
      const size_t entry_bytes = entry.sh_type == SHT_SYMTAB ? sizeof(Elf64_Sym) : sizeof(Elf64_Rel);
      if (entry.sh_entsize != entry_bytes) return malformed(section.name, "unknown size of an entry");
      if (entry.sh_size % entry_bytes != 0)
        return malformed(section.name, "size is not a whole number of entries");
    }
    if (entry.sh_type == SHT_SYMTAB) {
      if (symbol_table_ != 0) return malformed(section.name, "a second symbol table");
      symbol_table_ = i;
    }
    sections_.push_back(section);
  }
  return {};
}

Status Elf::read_symbols() {
  if (symbol_table_ == 0) return {};
  const Section& table = sections_[symbol_table_];
  if (table.link >= sections_.size() || sections_[table.link].type != SHT_STRTAB) {
    return malformed(table.name, "its string table is missing");
  }
  const std::span<const std::byte> names = sections_[table.link].data;

  const auto entries = load_records<Elf64_Sym>(table.data);
  symbols_.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Elf64_Sym& raw = entries[i];
    Symbol symbol;
    // Name 0 is "no name" even where the string table is empty (gABI, "Symbol Table").
    if (raw.st_name != 0) {
      const auto name = terminated_string(names, raw.st_name);
      if (!name)
        return malformed(numbered("symbol", i), "its name lies outside the string table or is unterminated");
      symbol.name = *name;
    }
    symbol.type = ELF64_ST_TYPE(raw.st_info);
    symbol.binding = ELF64_ST_BIND(raw.st_info);
    symbol.section = raw.st_shndx;
    symbol.value = raw.st_value;
    symbol.size_bytes = raw.st_size;
    if (symbol.section >= sections_.size() && symbol.section != SHN_ABS && symbol.section != SHN_COMMON) {
      return malformed(symbol.name.empty() ? numbered("symbol", i) : std::string(symbol.name),
                       "its section index " + std::to_string(symbol.section) + " is out of range");
    }
    symbols_.push_back(symbol);
  }
  return {};
}

Result<std::vector<Elf::Relocation>> Elf::relocations(size_t section) const {
  if (section >= sections_.size() || sections_[section].type != SHT_REL) {
    return malformed(numbered("section", section), "not a relocation section");
  }
  const Section& table = sections_[section];
  if (symbol_table_ == 0 || table.link != symbol_table_)
    return malformed(table.name, "its symbol table is missing");
  if (table.info == 0 || table.info >= sections_.size()) {
    return malformed(table.name, "the section it relocates is out of range");
  }

  const auto entries = load_records<Elf64_Rel>(table.data);
  std::vector<Relocation> relocations;
  relocations.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto symbol = static_cast<uint32_t>(ELF64_R_SYM(entries[i].r_info));
    if (symbol == 0 || symbol >= symbols_.size()) {
      return malformed(table.name, numbered("relocation", i) + " names symbol " + std::to_string(symbol) +
                                       ", which is out of range");
    }
    relocations.push_back(
        {entries[i].r_offset, static_cast<uint32_t>(ELF64_R_TYPE(entries[i].r_info)), symbol});
  }
  return relocations;
}

}  // namespace kitty::loader
