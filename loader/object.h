// A BPF object file as a description: bytes in, maps and programs out. Pure: no system calls, no kernel
// state.
//
// Ownership: an Object copies what it needs, so the ELF bytes may go once parse() returned. Immutable after
// parse(), so any number of threads may read it.
//
// Formats: ELF (gABI, EM_BPF), BTF and .BTF.ext (kernel Documentation/bpf/btf.rst), relocations and CO-RE
// (Documentation/bpf/llvm_reloc.rst), 64-bit little endian only.
#pragma once

#include <linux/bpf.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "loader/btf.h"

namespace kitty::loader {

// One map to create. BTF-defined maps (".maps"), and the data sections .rodata*, .data*, .bss* as one-entry
// arrays named after their section.
struct MapSpec {
  std::string name;
  uint32_t type = 0;  // BPF_MAP_TYPE_*
  uint32_t key_size = 0;
  uint32_t value_size = 0;
  uint32_t max_entries = 0;
  uint32_t flags = 0;
  std::vector<std::byte> initial;  // data sections: the value of entry 0; else empty
  bool freeze = false;  // .rodata: BPF_MAP_FREEZE after `initial` is written, before programs are loaded
};

// An ldimm64 in a linked program that needs a map's fd before it can be loaded.
struct MapReference {
  size_t insn = 0;  // index of the ldimm64's first slot
  size_t map = 0;   // index into Object::maps(); src_reg and the second slot's imm are already set
};

// A CO-RE access that the target kernel lacks. The instruction was replaced by a call to an unknown helper
// (kPoisonCall + index), so the verifier refuses the program only if it can be reached.
struct PoisonedAccess {
  size_t insn = 0;
  std::string what;  // "struct tcp_sock.bytes_sent"
};

inline constexpr int32_t kPoisonCall = 0xbad2310;  // the value libbpf uses, so that logs look familiar

// A program ready for BPF_PROG_LOAD but for map fds.
struct LinkedProgram {
  std::string name;
  std::string section;  // "fentry/tcp_rtt_estimator"
  std::vector<bpf_insn> insns;
  std::vector<MapReference> maps;
  std::vector<PoisonedAccess> poisoned;
};

struct ProgramSpec {
  std::string name;     // the function's name
  std::string section;  // as in SEC("...")
};

class Object {
 public:
  // Errors name the section, symbol or offset at fault. Never reads outside `elf`, whatever it holds.
  static Result<Object> parse(std::span<const std::byte> elf);

  Object(Object&&) noexcept;
  Object& operator=(Object&&) noexcept;
  ~Object();

  [[nodiscard]] const std::string& license() const;
  [[nodiscard]] std::span<const MapSpec> maps() const;
  [[nodiscard]] std::span<const ProgramSpec> programs() const;
  // nullptr when absent.
  [[nodiscard]] const ProgramSpec* find_program(std::string_view name) const;
  // Index into maps(), or maps().size() when absent.
  [[nodiscard]] size_t find_map(std::string_view name) const;

  // Copies the program with the subprograms it calls, applies CO-RE against `target` (the running kernel's
  // BTF), then links calls and maps. `target` may be null where a program has no CO-RE relocation; else an
  // error says so.
  [[nodiscard]] Result<LinkedProgram> link(std::string_view program, const Btf* target) const;

 private:
  struct Impl;
  explicit Object(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kitty::loader
