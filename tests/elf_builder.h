// A relocatable BPF ELF file put together by hand, right or wrong, for tests only.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/btf_builder.h"

namespace kitty {

class ElfBuilder {
 public:
  struct Section {
    std::string name;
    Elf64_Shdr header{};  // sh_name, sh_offset and, but for SHT_NOBITS, sh_size are filled in by bytes()
    std::vector<std::byte> data;
  };
  using Tamper = std::function<void(Elf64_Ehdr&, std::vector<Elf64_Shdr>&)>;

  static constexpr size_t kStrings = 1;
  static constexpr size_t kSymbols = 2;

  ElfBuilder() {
    section("", SHT_NULL, 0, {});
    section(".strtab", SHT_STRTAB, 0, {});
    section(".symtab", SHT_SYMTAB, 0, {});
    sections[kSymbols].header.sh_link = kStrings;
    sections[kSymbols].header.sh_entsize = sizeof(Elf64_Sym);
    symbols.emplace_back();
  }

  size_t section(std::string_view name, uint32_t type, uint64_t flags, std::vector<std::byte> data) {
    Section added;
    added.name = name;
    added.header.sh_type = type;
    added.header.sh_flags = flags;
    added.data = std::move(data);
    sections.push_back(std::move(added));
    return sections.size() - 1;
  }

  uint32_t string(std::string_view text) {
    if (text.empty()) return 0;
    const auto offset = static_cast<uint32_t>(strings.size());
    strings += text;
    strings += '\0';
    return offset;
  }

  size_t symbol(std::string_view name, uint8_t type, uint8_t binding, size_t section, uint64_t value,
                uint64_t size) {
    Elf64_Sym added{};
    added.st_name = string(name);
    added.st_info = static_cast<uint8_t>(binding << 4 | type);
    added.st_shndx = static_cast<uint16_t>(section);
    added.st_value = value;
    added.st_size = size;
    symbols.push_back(added);
    return symbols.size() - 1;
  }

  size_t relocations(std::string_view name, size_t target, const std::vector<Elf64_Rel>& entries) {
    std::vector<std::byte> data;
    for (const Elf64_Rel& entry : entries) append(data, entry);
    const size_t added = section(name, SHT_REL, 0, std::move(data));
    sections[added].header.sh_entsize = sizeof(Elf64_Rel);
    sections[added].header.sh_link = kSymbols;
    sections[added].header.sh_info = static_cast<uint32_t>(target);
    return added;
  }

  static Elf64_Rel relocation(uint64_t offset, uint32_t type, size_t symbol) {
    return {offset, ELF64_R_INFO(symbol, type)};
  }

  // Header, sections in order, section headers last. `tamper` may change headers before they are written.
  [[nodiscard]] std::vector<std::byte> bytes(const Tamper& tamper = nullptr) {
    for (Section& one : sections) one.header.sh_name = string(one.name);
    sections[kStrings].data.clear();
    for (const char letter : strings) append(sections[kStrings].data, letter);
    sections[kSymbols].data.clear();
    for (const Elf64_Sym& one : symbols) append(sections[kSymbols].data, one);

    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = EM_BPF;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(sections.size());
    header.e_shstrndx = kStrings;

    uint64_t offset = sizeof header;
    std::vector<Elf64_Shdr> headers;
    for (Section& one : sections) {
      if (one.header.sh_type != SHT_NULL) one.header.sh_offset = offset;
      if (one.header.sh_type != SHT_NOBITS) one.header.sh_size = one.data.size();
      offset += one.data.size();
      headers.push_back(one.header);
    }
    header.e_shoff = offset;
    if (tamper) tamper(header, headers);

    std::vector<std::byte> all;
    append(all, header);
    for (const Section& one : sections) all.insert(all.end(), one.data.begin(), one.data.end());
    for (const Elf64_Shdr& one : headers) append(all, one);
    return all;
  }

  std::vector<Section> sections;
  std::vector<Elf64_Sym> symbols;
  std::string strings = std::string(1, '\0');
};

}  // namespace kitty
