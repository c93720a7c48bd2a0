#include "loader/object.h"

#include <elf.h>
#include <linux/btf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "loader/bytes.h"
#include "loader/core.h"
#include "loader/elf.h"

namespace kitty::loader {

namespace {

// Documentation/bpf/llvm_reloc.rst.
constexpr uint32_t kRelocation64 = 1;     // R_BPF_64_64: an ldimm64 of a map's or variable's address
constexpr uint32_t kRelocationCall = 10;  // R_BPF_64_32: a call
constexpr uint8_t kCode64 = BPF_LD | BPF_IMM | BPF_DW;
constexpr uint8_t kCodeCall = BPF_JMP | BPF_CALL;
constexpr uint16_t kExtMagic = 0xeb9f;  // of .BTF.ext, the same as BTF_MAGIC
constexpr uint8_t kExtVersion = 1;

// The verifier takes at most 64 maps a program (MAX_USED_MAPS) and 256 functions (BPF_MAX_SUBPROGS),
// include/linux/bpf.h and kernel/bpf/verifier.c, and a million instructions (BPF_COMPLEXITY_LIMIT_INSNS).
constexpr size_t kMaxMaps = 64;
constexpr size_t kMaxLinkedFunctions = 256;
constexpr size_t kMaxLinkedInsns = 1'000'000;
// Global variables of one section; .bss takes no room in the file, so the file's size does not bound it.
constexpr uint64_t kMaxDataBytes = uint64_t{4} << 20;

std::unexpected<Error> refuse(std::string_view object, std::string_view detail) {
  return fail("read BPF object", object, 0, detail);
}

bool is_or_in(std::string_view name, std::string_view prefix) {
  return name == prefix || (name.starts_with(prefix) && name[prefix.size()] == '.');
}

bool is_data_section(const Elf::Section& section) {
  if (section.type == SHT_NOBITS) return is_or_in(section.name, ".bss");
  if (section.type != SHT_PROGBITS) return false;
  return is_or_in(section.name, ".rodata") || is_or_in(section.name, ".data");
}

bool is_code_section(const Elf::Section& section) {
  return section.type == SHT_PROGBITS && (section.flags & SHF_EXECINSTR) != 0 && section.size_bytes != 0;
}

// Relocations of these only matter to debuggers and static linkers.
bool is_debug_section(std::string_view name) {
  return name.starts_with(".debug") || name == ".BTF" || name == ".BTF.ext" || name == ".eh_frame";
}

// What a section of that name would need that kitty does not do; empty where it is fine.
std::string_view unsupported_section(std::string_view name) {
  if (name == "maps") return "legacy map definitions are not supported, only BTF-defined ones in .maps";
  if (is_or_in(name, ".kconfig")) return "kconfig variables are not supported";
  if (is_or_in(name, ".ksyms")) return "ksyms are not supported";
  if (is_or_in(name, ".struct_ops") || is_or_in(name, "?.struct_ops")) return "struct_ops is not supported";
  if (is_or_in(name, ".arena") || is_or_in(name, ".addr_space")) return "arena variables are not supported";
  if (name == ".jumptables") return "jump tables are not supported";
  return {};
}

// `insn` counts from the function's start in all three.
struct MapUse {
  size_t insn = 0;
  size_t map = 0;
  bool value = false;  // the address of a variable, not the map
  int32_t offset = 0;  // of the variable
};
struct Call {
  size_t insn = 0;
  size_t function = 0;
};
struct CoreUse {
  size_t function = 0;
  size_t insn = 0;
  CoreRelocation relocation;
};

struct Function {
  std::string name;
  size_t section = 0;
  size_t start = 0;  // in instructions from the section's start
  bool global = false;
  std::vector<bpf_insn> insns;
  std::vector<MapUse> map_uses;
  std::vector<Call> calls;  // by insn
};

// struct bpf_core_relo, its kind not yet known to be one of the enum's.
struct CoreRecord {
  uint32_t insn_offset;  // in bytes from the section's start
  CoreRelocation relocation;
};
static_assert(sizeof(CoreRecord) == sizeof(bpf_core_relo));

// All an Object knows.
struct Parts {
  std::string license;
  std::vector<MapSpec> maps;
  std::vector<ProgramSpec> programs;
  std::vector<size_t> program_functions;  // parallel to programs
  std::vector<Function> functions;        // by section and start
  std::vector<CoreUse> core_uses;         // in file order
  std::vector<std::byte> btf_bytes;
  std::unique_ptr<const Btf> btf;  // a view of btf_bytes; null where the object has none

  // functions.size() where no function holds that instruction.
  [[nodiscard]] size_t function_at(size_t section, size_t insn) const;
};

size_t Parts::function_at(size_t section, size_t insn) const {
  const auto after = std::ranges::upper_bound(
      functions, std::pair(section, insn), {},
      [](const Function& function) { return std::pair(function.section, function.start); });
  if (after == functions.begin()) return functions.size();
  const auto found = std::prev(after);
  if (found->section != section || insn - found->start >= found->insns.size()) return functions.size();
  return static_cast<size_t>(found - functions.begin());
}

// Fills a Parts from a file. Both must outlive it.
class Parser {
 public:
  Parser(const Elf& elf, Parts& parts) : elf_(elf), parts_(parts), data_maps_(elf.sections().size(), kNone) {}

  Status run() {
    for (const auto step :
         {&Parser::sort_sections, &Parser::check_symbols, &Parser::read_license, &Parser::read_btf,
          &Parser::read_maps, &Parser::read_data, &Parser::read_functions, &Parser::read_relocations,
          &Parser::resolve_static_calls, &Parser::read_core, &Parser::list_programs}) {
      if (Status status = (this->*step)(); !status) return status;
    }
    return {};
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  Status sort_sections();
  Status check_symbols();
  Status read_license();
  Status read_btf();
  Status read_maps();
  Status read_map(uint32_t variable);
  [[nodiscard]] Result<uint32_t> map_number(const std::string& map, std::string_view attribute,
                                            uint32_t type) const;
  [[nodiscard]] Result<uint32_t> map_type_size(const std::string& map, std::string_view attribute,
                                               uint32_t type) const;
  Status read_data();
  Status read_functions();
  Status check_instructions(const Function& function) const;
  Status read_relocations();
  Status relocate(const Elf::Relocation& relocation, size_t section);
  Status relocate_64(const Elf::Symbol& symbol, size_t function, size_t insn);
  Status relocate_call(const Elf::Symbol& symbol, size_t function, size_t insn);
  Status resolve_static_calls();
  Status read_core();
  Status read_core_section(std::span<const std::byte> records, size_t record_bytes, size_t section);
  Status list_programs();

  [[nodiscard]] std::string_view section_name(size_t section) const { return elf_.sections()[section].name; }
  [[nodiscard]] std::string place(size_t function, size_t insn) const {
    return parts_.functions[function].name + " insn " + std::to_string(insn);
  }
  [[nodiscard]] std::string label(const Elf::Symbol& symbol) const {
    if (!symbol.name.empty()) return "'" + std::string(symbol.name) + "'";
    if (symbol.section < elf_.sections().size())
      return "section '" + std::string(section_name(symbol.section)) + "'";
    return "an unnamed symbol";
  }
  Status add_map(MapSpec map);

  const Elf& elf_;
  Parts& parts_;
  std::vector<std::pair<std::string_view, size_t>> code_sections_;  // sorted by name
  std::vector<size_t> data_sections_;
  size_t license_section_ = kNone;
  size_t btf_section_ = kNone;
  size_t ext_section_ = kNone;
  size_t maps_section_ = kNone;
  std::vector<size_t> data_maps_;                    // by section: its index in maps, or kNone
  std::vector<std::pair<uint64_t, size_t>> places_;  // offset in .maps, index in maps
};

Status Parser::sort_sections() {
  const auto sections = elf_.sections();
  const auto claim = [&](size_t& place, size_t index) -> Status {
    if (place != kNone) return refuse(section_name(index), "a second section of that name");
    place = index;
    return {};
  };
  std::vector<std::string_view> data_names;
  for (size_t i = 1; i < sections.size(); ++i) {
    const Elf::Section& section = sections[i];
    if (section.type == SHT_REL) continue;
    if (const auto reason = unsupported_section(section.name); !reason.empty())
      return refuse(section.name, reason);
    if (section.type != SHT_PROGBITS && section.type != SHT_NOBITS) continue;

    Status status;
    bool used = true;
    if (section.name == "license") {
      status = claim(license_section_, i);
    } else if (section.name == ".BTF") {
      status = claim(btf_section_, i);
    } else if (section.name == ".BTF.ext") {
      status = claim(ext_section_, i);
    } else if (section.name == ".maps") {
      status = claim(maps_section_, i);
    } else if (is_code_section(section)) {
      code_sections_.emplace_back(section.name, i);
    } else if (is_data_section(section)) {
      data_sections_.push_back(i);
      data_names.push_back(section.name);
    } else {
      used = false;
    }
    if (!status) return status;
    if (used && (section.flags & SHF_COMPRESSED) != 0) return refuse(section.name, "section is compressed");
  }
  // .BTF.ext and find_map go by name.
  std::ranges::sort(code_sections_);
  const auto twice =
      std::ranges::adjacent_find(code_sections_, {}, &std::pair<std::string_view, size_t>::first);
  if (twice != code_sections_.end()) return refuse(twice->first, "a second section of that name");
  std::ranges::sort(data_names);
  const auto same = std::ranges::adjacent_find(data_names);
  if (same != data_names.end()) return refuse(*same, "a second section of that name");
  return {};
}

Status Parser::check_symbols() {
  for (const Elf::Symbol& symbol : elf_.symbols()) {
    if (symbol.section == SHN_UNDEF && !symbol.name.empty()) {
      return refuse(symbol.name,
                    "undefined: extern variables and functions (kconfig, ksyms, kfuncs) are not supported");
    }
    if (symbol.section == SHN_COMMON) return refuse(symbol.name, "common symbols are not supported");
  }
  return {};
}

Status Parser::read_license() {
  if (license_section_ == kNone) return {};
  const auto text = terminated_string(elf_.sections()[license_section_].data, 0);
  if (!text) return refuse("license", "not a terminated string");
  parts_.license = *text;
  return {};
}

Status Parser::read_btf() {
  if (btf_section_ == kNone) return {};
  const auto data = elf_.sections()[btf_section_].data;
  parts_.btf_bytes.assign(data.begin(), data.end());
  auto btf = Btf::parse(parts_.btf_bytes);
  if (!btf) return std::unexpected(btf.error());
  parts_.btf = std::make_unique<const Btf>(std::move(*btf));
  return {};
}

Status Parser::add_map(MapSpec map) {
  if (parts_.maps.size() == kMaxMaps)
    return refuse(map.name, "more than " + std::to_string(kMaxMaps) + " maps");
  parts_.maps.push_back(std::move(map));
  return {};
}

Status Parser::read_maps() {
  if (maps_section_ == kNone) return {};
  if (!parts_.btf) return refuse(".maps", "the object has no BTF to define its maps");
  const auto id = parts_.btf->find(BTF_KIND_DATASEC, ".maps");
  if (!id) return refuse(".maps", "the object's BTF does not define its maps");
  const Btf::Type section = parts_.btf->type(*id);
  for (uint32_t i = 0; i < section.count; ++i) {
    if (Status status = read_map(parts_.btf->variable(section, i).type); !status) return status;
  }
  return {};
}

Status Parser::read_map(uint32_t variable) {
  const Btf& btf = *parts_.btf;
  MapSpec map;
  map.name = btf.name(variable);
  if (btf.kind(variable) != BTF_KIND_VAR || map.name.empty())
    return refuse(".maps", "it holds something unnamed");
  const Btf::Type declaration = btf.type(variable);
  if (btf.linkage(declaration) != BTF_VAR_GLOBAL_ALLOCATED)
    return refuse(map.name, "a map must not be static or extern");
  const auto id = btf.skip_modifiers(declaration.size_or_type);
  const Btf::Type definition = btf.type(id.value_or(0));
  if (definition.kind != BTF_KIND_STRUCT) return refuse(map.name, "a map's definition must be a struct");

  uint32_t key_type_bytes = 0;
  uint32_t value_type_bytes = 0;
  for (uint32_t i = 0; i < definition.count; ++i) {
    const Btf::Member member = btf.member(definition, i);
    const std::string_view attribute = btf.string_at(member.name).value_or("");
    struct {
      std::string_view name;
      uint32_t* value;
      bool is_type;
    } const known[] = {
        {"type", &map.type, false},
        {"max_entries", &map.max_entries, false},
        {"map_flags", &map.flags, false},
        {"key_size", &map.key_size, false},
        {"value_size", &map.value_size, false},
        {"key", &key_type_bytes, true},
        {"value", &value_type_bytes, true},
    };
    const auto found = std::ranges::find(known, attribute, [](const auto& one) { return one.name; });
    if (found == std::end(known)) {
      return refuse(map.name, "map attribute '" + std::string(attribute) + "' is not supported");
    }
    const auto value = found->is_type ? map_type_size(map.name, attribute, member.type)
                                      : map_number(map.name, attribute, member.type);
    if (!value) return std::unexpected(value.error());
    *found->value = *value;
  }
  if (map.type == BPF_MAP_TYPE_UNSPEC) return refuse(map.name, "the map has no type");
  const auto merge = [&](uint32_t& size, uint32_t of_type, std::string_view what) -> Status {
    if (size != 0 && of_type != 0 && size != of_type) {
      return refuse(map.name, std::string(what) + " and " + std::string(what) + "_size differ");
    }
    if (size == 0) size = of_type;
    return {};
  };
  if (Status status = merge(map.key_size, key_type_bytes, "key"); !status) return status;
  if (Status status = merge(map.value_size, value_type_bytes, "value"); !status) return status;

  // clang leaves the offsets in the BTF zero; the symbol knows.
  const auto symbols = elf_.symbols();
  const auto symbol = std::ranges::find_if(symbols, [&](const Elf::Symbol& one) {
    return one.section == maps_section_ && one.type == STT_OBJECT && one.name == map.name;
  });
  if (symbol == symbols.end()) return refuse(map.name, "the map has no symbol in .maps");
  if (std::ranges::find(parts_.maps, map.name, &MapSpec::name) != parts_.maps.end()) {
    return refuse(map.name, "a second map of that name");
  }
  places_.emplace_back(symbol->value, parts_.maps.size());
  return add_map(std::move(map));
}

// __uint(name, n) is `int (*name)[n]`.
Result<uint32_t> Parser::map_number(const std::string& map, std::string_view attribute, uint32_t type) const {
  const Btf& btf = *parts_.btf;
  const Btf::Type pointer = btf.type(btf.skip_modifiers(type).value_or(0));
  if (pointer.kind == BTF_KIND_PTR) {
    const Btf::Type array = btf.type(btf.skip_modifiers(pointer.size_or_type).value_or(0));
    if (array.kind == BTF_KIND_ARRAY) return btf.array(array).count;
  }
  return refuse(map, "map attribute '" + std::string(attribute) + "' is not a pointer to an array");
}

// __type(name, type) is `type *name`.
Result<uint32_t> Parser::map_type_size(const std::string& map, std::string_view attribute,
                                       uint32_t type) const {
  const Btf& btf = *parts_.btf;
  const Btf::Type pointer = btf.type(btf.skip_modifiers(type).value_or(0));
  const auto size = pointer.kind == BTF_KIND_PTR ? btf.size_bytes(pointer.size_or_type) : std::nullopt;
  if (!size)
    return refuse(map,
                  "map attribute '" + std::string(attribute) + "' is not a pointer to a type with a size");
  return *size;
}

Status Parser::read_data() {
  for (const size_t index : data_sections_) {
    const Elf::Section& section = elf_.sections()[index];
    if (section.size_bytes == 0)
      continue;  // the kernel has no map of no bytes, and nothing can point into it
    if (section.size_bytes > kMaxDataBytes) return refuse(section.name, "more than 4 MiB of variables");
    MapSpec map;
    map.name = section.name;
    map.type = BPF_MAP_TYPE_ARRAY;
    map.key_size = sizeof(uint32_t);
    map.value_size = static_cast<uint32_t>(section.size_bytes);
    map.max_entries = 1;
    if (is_or_in(section.name, ".rodata")) {
      map.flags = BPF_F_RDONLY_PROG;
      map.freeze = true;
    }
    map.initial.assign(section.data.begin(), section.data.end());
    map.initial.resize(section.size_bytes);  // .bss has no bytes in the file and starts as zeros
    data_maps_[index] = parts_.maps.size();
    if (Status status = add_map(std::move(map)); !status) return status;
  }
  return {};
}

Status Parser::read_functions() {
  struct Extent {
    size_t section;
    uint64_t start;
    uint64_t size;
    const Elf::Symbol* symbol;
  };
  std::vector<Extent> extents;
  for (const Elf::Symbol& symbol : elf_.symbols()) {
    if (symbol.type != STT_FUNC) continue;
    if (symbol.name.empty()) return refuse("", "a function has no name");
    if (symbol.section >= elf_.sections().size() || !is_code_section(elf_.sections()[symbol.section])) {
      return refuse(symbol.name, "the function lies in no code section");
    }
    const uint64_t section_bytes = elf_.sections()[symbol.section].data.size();
    if (symbol.value > section_bytes || symbol.size_bytes > section_bytes - symbol.value) {
      return refuse(symbol.name, "the function does not fit into its section");
    }
    if (symbol.value % sizeof(bpf_insn) != 0 || symbol.size_bytes % sizeof(bpf_insn) != 0 ||
        symbol.size_bytes == 0) {
      return refuse(symbol.name, "the function is not a whole number of instructions");
    }
    extents.push_back({symbol.section, symbol.value, symbol.size_bytes, &symbol});
  }
  for (const auto& [name, section] : code_sections_) {
    if (elf_.sections()[section].data.size() % sizeof(bpf_insn) != 0) {
      return refuse(name, "the section is not a whole number of instructions");
    }
  }
  std::ranges::sort(extents, {}, [](const Extent& one) { return std::pair(one.section, one.start); });
  for (size_t i = 1; i < extents.size(); ++i) {
    const Extent& before = extents[i - 1];
    if (before.section == extents[i].section && extents[i].start - before.start < before.size) {
      return refuse(extents[i].symbol->name,
                    "the function overlaps '" + std::string(before.symbol->name) + "'");
    }
  }

  parts_.functions.reserve(extents.size());
  for (const Extent& extent : extents) {
    Function function;
    function.name = extent.symbol->name;
    function.section = extent.section;
    function.start = extent.start / sizeof(bpf_insn);
    function.global = extent.symbol->binding != STB_LOCAL;
    function.insns.resize(extent.size / sizeof(bpf_insn));
    std::memcpy(function.insns.data(), elf_.sections()[extent.section].data.data() + extent.start,
                extent.size);
    if (Status status = check_instructions(function); !status) return status;
    parts_.functions.push_back(std::move(function));
  }
  return {};
}

Status Parser::check_instructions(const Function& function) const {
  for (size_t i = 0; i < function.insns.size(); ++i) {
    const bpf_insn& insn = function.insns[i];
    const auto at = [&] { return function.name + " insn " + std::to_string(i); };
    if (insn.code == kCodeCall && insn.src_reg == BPF_PSEUDO_KFUNC_CALL) {
      return refuse(at(), "calls of kernel functions are not supported");
    }
    if (insn.code != kCode64) continue;
    if (i + 1 == function.insns.size()) return refuse(at(), "the second half of a 64-bit load is missing");
    // What it points at comes from a relocation; a file descriptor or address written here would be nobody's.
    if (insn.src_reg != 0) return refuse(at(), "a 64-bit load with a source register");
    if (function.insns[i + 1].code != 0) {
      return refuse(at(), "the second half of a 64-bit load is an instruction");
    }
    ++i;
  }
  return {};
}

Status Parser::read_relocations() {
  for (size_t i = 1; i < elf_.sections().size(); ++i) {
    const Elf::Section& table = elf_.sections()[i];
    if (table.type != SHT_REL && table.type != SHT_RELA) continue;
    if (table.info == 0 || table.info >= elf_.sections().size()) {
      return refuse(table.name, "the section it relocates is out of range");
    }
    const Elf::Section& relocated = elf_.sections()[table.info];
    if (is_debug_section(relocated.name) || table.size_bytes == 0) continue;
    if (table.type == SHT_RELA) return refuse(table.name, "relocations with addends are not supported");
    if (!is_code_section(relocated)) {
      return refuse(relocated.name,
                    "relocations in a section that holds no code (a pointer in a variable's initial "
                    "value or in a map's definition) are not supported");
    }
    const auto relocations = elf_.relocations(i);
    if (!relocations) return std::unexpected(relocations.error());
    for (const Elf::Relocation& relocation : *relocations) {
      if (Status status = relocate(relocation, table.info); !status) return status;
    }
  }
  return {};
}

Status Parser::relocate(const Elf::Relocation& relocation, size_t section) {
  const std::string_view section_name = this->section_name(section);
  if (relocation.offset % sizeof(bpf_insn) != 0) {
    return refuse(section_name,
                  "relocation at offset " + std::to_string(relocation.offset) + " is not at an instruction");
  }
  const uint64_t insn = relocation.offset / sizeof(bpf_insn);
  const size_t function = parts_.function_at(section, insn);
  if (function == parts_.functions.size()) {
    return refuse(section_name,
                  "relocation at offset " + std::to_string(relocation.offset) + " is in no function");
  }
  const Elf::Symbol& symbol = elf_.symbols()[relocation.symbol];
  const size_t own = insn - parts_.functions[function].start;
  switch (relocation.type) {
    case kRelocation64:
      return relocate_64(symbol, function, own);
    case kRelocationCall:
      return relocate_call(symbol, function, own);
    default:
      return refuse(place(function, own),
                    "relocation type " + std::to_string(relocation.type) + " is not supported");
  }
}

Status Parser::relocate_64(const Elf::Symbol& symbol, size_t function, size_t insn) {
  Function& holder = parts_.functions[function];
  const bpf_insn& load = holder.insns[insn];
  if (load.code != kCode64) return refuse(place(function, insn), "an address relocation, but no 64-bit load");
  if (symbol.section >= elf_.sections().size()) {
    return refuse(place(function, insn), label(symbol) + " is no variable and no map");
  }
  if (symbol.section == maps_section_) {
    const auto found = std::ranges::find(places_, symbol.value, &std::pair<uint64_t, size_t>::first);
    if (symbol.type == STT_SECTION || found == places_.end()) {
      return refuse(place(function, insn), label(symbol) + " is no map that the object's BTF defines");
    }
    if (load.imm != 0) return refuse(place(function, insn), "an offset from map " + label(symbol));
    holder.map_uses.push_back({insn, found->second, false, 0});
    return {};
  }
  if (is_code_section(elf_.sections()[symbol.section])) {
    return refuse(place(function, insn),
                  "the address of function " + label(symbol) + " (a callback) is not supported");
  }
  const size_t map = data_maps_[symbol.section];
  if (map == kNone) {
    return refuse(place(function, insn), label(symbol) + " lies in section '" +
                                             std::string(section_name(symbol.section)) +
                                             "', which is no data section");
  }
  const uint64_t size = elf_.sections()[symbol.section].size_bytes;  // at most kMaxDataBytes
  const int64_t offset = symbol.value < size ? static_cast<int64_t>(symbol.value) + load.imm : -1;
  if (offset < 0 || static_cast<uint64_t>(offset) >= size) {
    return refuse(place(function, insn),
                  "it points outside section '" + std::string(section_name(symbol.section)) + "'");
  }
  holder.map_uses.push_back({insn, map, true, static_cast<int32_t>(offset)});
  return {};
}

Status Parser::relocate_call(const Elf::Symbol& symbol, size_t function, size_t insn) {
  Function& holder = parts_.functions[function];
  const bpf_insn& call = holder.insns[insn];
  if (call.code != kCodeCall || call.src_reg != BPF_PSEUDO_CALL) {
    return refuse(place(function, insn), "a call relocation, but no call of a function");
  }
  const bool in_code =
      symbol.section < elf_.sections().size() && is_code_section(elf_.sections()[symbol.section]);
  if (!in_code || symbol.value % sizeof(bpf_insn) != 0) {
    return refuse(place(function, insn),
                  "it calls " + label(symbol) + ", which is no function of this object");
  }
  // imm counts from the instruction after the call and is relative to the symbol: -1 is the symbol itself.
  const auto base = static_cast<int64_t>(symbol.value / sizeof(bpf_insn));
  const int64_t target = base + call.imm + 1;
  const size_t callee =
      target < 0 ? parts_.functions.size() : parts_.function_at(symbol.section, static_cast<size_t>(target));
  if (callee == parts_.functions.size() || parts_.functions[callee].start != static_cast<size_t>(target)) {
    return refuse(place(function, insn), "it calls into " + label(symbol) + " where no function starts");
  }
  holder.calls.push_back({insn, callee});
  return {};
}

// Calls within one section carry no relocation: the compiler has filled in the distance.
Status Parser::resolve_static_calls() {
  for (size_t f = 0; f < parts_.functions.size(); ++f) {
    Function& function = parts_.functions[f];
    std::ranges::sort(function.calls, {}, &Call::insn);
    std::ranges::sort(function.map_uses, {}, &MapUse::insn);
    const auto call_twice = std::ranges::adjacent_find(function.calls, {}, &Call::insn);
    if (call_twice != function.calls.end())
      return refuse(place(f, call_twice->insn), "two relocations of one instruction");
    const auto use_twice = std::ranges::adjacent_find(function.map_uses, {}, &MapUse::insn);
    if (use_twice != function.map_uses.end())
      return refuse(place(f, use_twice->insn), "two relocations of one instruction");

    std::vector<Call> calls;
    auto relocated = function.calls.begin();
    for (size_t i = 0; i < function.insns.size(); ++i) {
      const bpf_insn& insn = function.insns[i];
      if (insn.code == kCode64) ++i;
      if (insn.code != kCodeCall || insn.src_reg != BPF_PSEUDO_CALL) continue;
      if (relocated != function.calls.end() && relocated->insn == i) {
        calls.push_back(*relocated++);
        continue;
      }
      const int64_t target = static_cast<int64_t>(function.start + i) + insn.imm + 1;
      const size_t callee = target < 0 ? parts_.functions.size()
                                       : parts_.function_at(function.section, static_cast<size_t>(target));
      if (callee == parts_.functions.size() ||
          parts_.functions[callee].start != static_cast<size_t>(target)) {
        return refuse(place(f, i), "it calls a place where no function starts");
      }
      calls.push_back({i, callee});
    }
    if (relocated != function.calls.end()) {
      return refuse(place(f, relocated->insn), "a call relocation inside a 64-bit load");
    }
    function.calls = std::move(calls);
  }
  return {};
}

// Layout: the header below, then at core_relo_off (from the header's end) the record size and, for each
// section, its name's string offset, the number of records, and the records.
Status Parser::read_core() {
  struct Header {
    uint16_t magic;
    uint8_t version;
    uint8_t flags;
    uint32_t header_bytes;
    uint32_t func_info_offset, func_info_bytes;
    uint32_t line_info_offset, line_info_bytes;
  };
  struct CorePart {
    uint32_t offset, bytes;
  };
  if (ext_section_ == kNone) return {};
  const auto data = elf_.sections()[ext_section_].data;
  const auto malformed = [](std::string_view detail) { return refuse(".BTF.ext", detail); };
  const auto header = load<Header>(data, 0);
  if (!header) return malformed("shorter than its header");
  if (header->magic == __builtin_bswap16(kExtMagic)) return malformed("big endian is not supported");
  if (header->magic != kExtMagic) return malformed("wrong magic");
  if (header->version != kExtVersion || header->flags != 0) return malformed("unknown version or flags");
  if (header->header_bytes < sizeof(Header) || header->header_bytes > data.size())
    return malformed("wrong header length");
  // Compilers before CO-RE wrote a shorter header.
  if (header->header_bytes < sizeof(Header) + sizeof(CorePart)) return {};
  const auto part = load<CorePart>(data, sizeof(Header));
  if (!part) return malformed("shorter than its header");
  if (part->bytes == 0) return {};
  if (!parts_.btf) return malformed("the object has CO-RE relocations but no BTF");
  auto rest = slice(data.subspan(header->header_bytes), part->offset, part->bytes);
  if (!rest) return malformed("the CO-RE relocations lie outside the section");
  const auto record_bytes = load<uint32_t>(*rest, 0);
  if (!record_bytes || *record_bytes < sizeof(CoreRecord) || *record_bytes % 4 != 0) {
    return malformed("unknown size of a CO-RE relocation");
  }

  *rest = rest->subspan(sizeof(uint32_t));
  while (!rest->empty()) {
    const auto name_offset = load<uint32_t>(*rest, 0);
    const auto count = load<uint32_t>(*rest, sizeof(uint32_t));
    if (!name_offset || !count) return malformed("the CO-RE relocations are cut short");
    const auto records = slice(*rest, 2 * sizeof(uint32_t), uint64_t{*count} * *record_bytes);
    if (!records) return malformed("the CO-RE relocations are cut short");
    const auto name = parts_.btf->string_at(*name_offset);
    if (!name) return malformed("a section's name is out of range");
    const auto section =
        std::ranges::lower_bound(code_sections_, *name, {}, &std::pair<std::string_view, size_t>::first);
    if (section == code_sections_.end() || section->first != *name) {
      return refuse(*name, "CO-RE relocations in a section that holds no code");
    }
    if (Status status = read_core_section(*records, *record_bytes, section->second); !status) return status;
    *rest = rest->subspan(2 * sizeof(uint32_t) + records->size());
  }
  return {};
}

Status Parser::read_core_section(std::span<const std::byte> records, size_t record_bytes, size_t section) {
  for (size_t at = 0; at < records.size(); at += record_bytes) {
    CoreRecord record;  // read_core() saw that records are at least that long
    std::memcpy(&record, records.data() + at, sizeof record);
    if (record.insn_offset % sizeof(bpf_insn) != 0) {
      return refuse(
          section_name(section),
          "CO-RE relocation at offset " + std::to_string(record.insn_offset) + " is not at an instruction");
    }
    const size_t insn = record.insn_offset / sizeof(bpf_insn);
    const size_t function = parts_.function_at(section, insn);
    if (function == parts_.functions.size()) {
      return refuse(section_name(section), "CO-RE relocation at offset " +
                                               std::to_string(record.insn_offset) + " is in no function");
    }
    parts_.core_uses.push_back({function, insn - parts_.functions[function].start, record.relocation});
  }
  return {};
}

Status Parser::list_programs() {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < parts_.functions.size(); ++i) {
    const Function& function = parts_.functions[i];
    const std::string_view section = section_name(function.section);
    if (section == ".text" || !function.global) continue;
    parts_.programs.push_back({function.name, std::string(section)});
    parts_.program_functions.push_back(i);
    names.push_back(function.name);
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) return refuse(*twice, "a second program of that name");
  return {};
}

// One program being put together: which functions it consists of and where each starts.
class Linker {
 public:
  Linker(const Parts& parts, const std::string& program) : parts_(parts), program_(program) {}

  Result<LinkedProgram> run(size_t function, const Btf* target) {
    starts_.assign(parts_.functions.size(), kAbsent);
    if (Status status = add_function(function); !status) return std::unexpected(status.error());
    if (Status status = relocate_core(target); !status) return std::unexpected(status.error());
    if (Status status = link_calls(); !status) return std::unexpected(status.error());
    if (Status status = link_maps(); !status) return std::unexpected(status.error());
    return std::move(linked_);
  }

 private:
  static constexpr size_t kAbsent = SIZE_MAX;

  std::unexpected<Error> refuse(std::string_view detail) const {
    return fail("link program", program_, 0, detail);
  }
  Status add_function(size_t function);
  Status relocate_core(const Btf* target);
  Status link_calls();
  Status link_maps();

  const Parts& parts_;
  const std::string& program_;
  std::vector<size_t> starts_;  // by function: its first instruction in the program
  std::vector<size_t> order_;
  LinkedProgram linked_;
};

// Callees follow their first caller, depth first: the order libbpf uses, so that the two can be compared.
Status Linker::add_function(size_t function) {
  const std::vector<bpf_insn>& insns = parts_.functions[function].insns;
  if (order_.size() == kMaxLinkedFunctions) {
    return refuse("more than " + std::to_string(kMaxLinkedFunctions) + " functions");
  }
  if (insns.size() > kMaxLinkedInsns - linked_.insns.size()) {
    return refuse("more than " + std::to_string(kMaxLinkedInsns) + " instructions");
  }
  starts_[function] = linked_.insns.size();
  order_.push_back(function);
  linked_.insns.insert(linked_.insns.end(), insns.begin(), insns.end());
  for (const Call& call : parts_.functions[function].calls) {
    if (starts_[call.function] != kAbsent) continue;
    if (Status status = add_function(call.function); !status) return status;
  }
  return {};
}

Status Linker::relocate_core(const Btf* target) {
  std::vector<const CoreUse*> uses;
  std::vector<CoreRelocation> relocations;
  for (const CoreUse& use : parts_.core_uses) {
    if (starts_[use.function] == kAbsent) continue;
    uses.push_back(&use);
    relocations.push_back(use.relocation);
  }
  if (uses.empty()) return {};
  const Btf& local = *parts_.btf;  // read_core() saw that it is there
  if (target == nullptr) {
    return refuse("it reads " + describe(local, relocations.front()) +
                  ", whose place only the kernel's BTF can tell");
  }
  auto resolver = CoreResolver::create(local, *target, relocations);
  if (!resolver) return refuse(resolver.error().object + ": " + resolver.error().detail);

  for (const CoreUse* use : uses) {
    const Function& function = parts_.functions[use->function];
    const size_t start = starts_[use->function];
    const auto refused = [&](const Error& error) {
      return refuse(function.name + " insn " + std::to_string(use->insn) + ", " +
                    describe(local, use->relocation) + ": " + error.detail);
    };
    const auto value = resolver->resolve(use->relocation);
    if (!value) return refused(value.error());
    const auto poison_call =
        static_cast<int32_t>(kPoisonCall + static_cast<int64_t>(linked_.poisoned.size()));
    const auto poisoned =
        apply(*value, poison_call, std::span(linked_.insns).subspan(start, function.insns.size()), use->insn);
    if (!poisoned) return refused(poisoned.error());
    if (*poisoned) linked_.poisoned.push_back({start + use->insn, describe(local, use->relocation)});
  }
  return {};
}

Status Linker::link_calls() {
  for (const size_t f : order_) {
    for (const Call& call : parts_.functions[f].calls) {
      const size_t at = starts_[f] + call.insn;
      bpf_insn& insn = linked_.insns[at];
      if (insn.code != kCodeCall || insn.src_reg != BPF_PSEUDO_CALL) {
        return refuse(parts_.functions[f].name + " insn " + std::to_string(call.insn) +
                      " has relocations of two sorts");
      }
      insn.imm =
          static_cast<int32_t>(static_cast<int64_t>(starts_[call.function]) - static_cast<int64_t>(at) - 1);
    }
  }
  return {};
}

Status Linker::link_maps() {
  for (const size_t f : order_) {
    for (const MapUse& use : parts_.functions[f].map_uses) {
      const size_t at = starts_[f] + use.insn;
      bpf_insn& insn = linked_.insns[at];
      if (insn.code != kCode64) {
        return refuse(parts_.functions[f].name + " insn " + std::to_string(use.insn) +
                      " has relocations of two sorts");
      }
      insn.src_reg = use.value ? BPF_PSEUDO_MAP_VALUE : BPF_PSEUDO_MAP_FD;
      insn.imm = 0;
      linked_.insns[at + 1].imm = use.offset;
      linked_.maps.push_back({at, use.map});
    }
  }
  return {};
}

}  // namespace

struct Object::Impl {
  Parts parts;
};

Result<Object> Object::parse(std::span<const std::byte> bytes) {
  const auto elf = Elf::parse(bytes);
  if (!elf) return std::unexpected(elf.error());
  auto impl = std::make_unique<Impl>();
  if (Status status = Parser(*elf, impl->parts).run(); !status) return std::unexpected(status.error());
  return Object(std::move(impl));
}

Object::Object(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Object::Object(Object&&) noexcept = default;
Object& Object::operator=(Object&&) noexcept = default;
Object::~Object() = default;

const std::string& Object::license() const { return impl_->parts.license; }
std::span<const MapSpec> Object::maps() const { return impl_->parts.maps; }
std::span<const ProgramSpec> Object::programs() const { return impl_->parts.programs; }

const ProgramSpec* Object::find_program(std::string_view name) const {
  const auto found = std::ranges::find(impl_->parts.programs, name, &ProgramSpec::name);
  return found == impl_->parts.programs.end() ? nullptr : &*found;
}

size_t Object::find_map(std::string_view name) const {
  const auto& maps = impl_->parts.maps;
  return static_cast<size_t>(std::ranges::find(maps, name, &MapSpec::name) - maps.begin());
}

Result<LinkedProgram> Object::link(std::string_view program, const Btf* target) const {
  const Parts& parts = impl_->parts;
  const ProgramSpec* spec = find_program(program);
  if (spec == nullptr) return fail("link program", program, 0, "the object has no program of that name");
  const auto index = static_cast<size_t>(spec - parts.programs.data());
  auto linked = Linker(parts, spec->name).run(parts.program_functions[index], target);
  if (linked) {
    linked->name = spec->name;
    linked->section = spec->section;
  }
  return linked;
}

}  // namespace kitty::loader
