// A view of a relocatable BPF ELF file: sections, symbols, relocations, each checked before it is handed out.
// Ownership: views into the caller's bytes, which must outlive it. Immutable after parse(), readable from any
// thread. Format: System V gABI chapters 4 and 5 (<elf.h>), 64-bit little endian, ET_REL, EM_BPF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace kitty::loader {

// Larger files are refused; kitty's own object has some 100 kB.
inline constexpr size_t kMaxElfBytes = size_t{64} << 20;

class Elf {
 public:
  struct Section {
    std::string_view name;
    uint32_t type = 0;                // SHT_*
    uint64_t flags = 0;               // SHF_*
    uint32_t link = 0;                // meaning depends on type
    uint32_t info = 0;                // SHT_REL: the section whose bytes are relocated
    uint64_t size_bytes = 0;          // sh_size; for SHT_NOBITS the only size there is
    std::span<const std::byte> data;  // inside the file; empty for SHT_NOBITS and SHT_NULL
  };

  struct Symbol {
    std::string_view name;
    uint8_t type = 0;      // STT_*
    uint8_t binding = 0;   // STB_*
    uint16_t section = 0;  // index into sections(), SHN_UNDEF, SHN_ABS or SHN_COMMON
    uint64_t value = 0;    // offset in the section
    uint64_t size_bytes = 0;
  };

  struct Relocation {
    uint64_t offset = 0;  // in the relocated section
    uint32_t type = 0;    // R_BPF_*
    uint32_t symbol = 0;  // index into symbols()
  };

  // Checks the file header, every section's place and name, and every symbol. Errors name what is wrong and
  // where.
  static Result<Elf> parse(std::span<const std::byte> bytes);

  // Index 0 is the null section.
  [[nodiscard]] std::span<const Section> sections() const { return sections_; }
  // Index 0 is the null symbol. Empty where the file has no symbol table.
  [[nodiscard]] std::span<const Symbol> symbols() const { return symbols_; }
  // The entries of the SHT_REL section with that index, in file order; every symbol index is valid. Errors
  // where the section is not SHT_REL or is malformed. Whether `offset` lies in the relocated section is for
  // the reader to check.
  [[nodiscard]] Result<std::vector<Relocation>> relocations(size_t section) const;

 private:
  Status read_sections(std::span<const std::byte> bytes);
  Status read_symbols();

  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
  size_t symbol_table_ = 0;  // section index; 0 where there is none
};

}  // namespace kitty::loader
