// What the tests against the real kernel share: hand-made instructions, and whether bpf(2) can be used at
// all.
#pragma once

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "loader/object.h"
#include "loader/sys.h"

namespace kitty::loader::testing {

// Why tests that load into the kernel cannot run here; empty when they can. Asked of the kernel directly, not
// through the code under test: a zeroed attribute is refused with EINVAL where maps may be created.
inline std::string kernel_obstacle() {
  sys::raise_memlock();  // kernels before 5.11
  std::array<uint64_t, 8> attr{};
  syscall(SYS_bpf, BPF_MAP_CREATE, attr.data(), sizeof attr);
  if (errno == EINVAL) return {};
  return "bpf(2) cannot be used here: " + errno_text(errno) + (geteuid() == 0 ? "" : " (not root)");
}

inline bpf_insn insn(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm) {
  bpf_insn out{};
  out.code = code;
  out.dst_reg = dst & 0xf;
  out.src_reg = src & 0xf;
  out.off = off;
  out.imm = imm;
  return out;
}

inline bpf_insn set(uint8_t reg, int32_t value) {
  return insn(BPF_ALU64 | BPF_MOV | BPF_K, reg, 0, 0, value);
}
inline bpf_insn call(int32_t helper) { return insn(BPF_JMP | BPF_CALL, 0, 0, 0, helper); }
inline bpf_insn leave() { return insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

inline std::vector<bpf_insn> return_zero() { return {set(0, 0), leave()}; }

// *(u64 *)(value of map 0 + 8) += 1; return 0. The map is a one-entry array, as a .bss section is.
inline LinkedProgram counting_program(const std::string& section) {
  LinkedProgram program;
  program.name = "count";
  program.section = section;
  program.insns = {
      insn(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_VALUE, 0, 0), insn(0, 0, 0, 0, 8), set(2, 1),
      insn(BPF_STX | BPF_DW | BPF_ATOMIC, 1, 2, 0, BPF_ADD),          set(0, 0),           leave()};
  program.maps = {MapReference{.insn = 0, .map = 0}};
  return program;
}

inline MapSpec counter_map() {
  MapSpec spec;
  spec.name = ".bss";
  spec.type = BPF_MAP_TYPE_ARRAY;
  spec.key_size = 4;
  spec.value_size = 16;
  spec.max_entries = 1;
  return spec;
}

}  // namespace kitty::loader::testing

// In a test body: skips it where the kernel cannot be reached, naming why.
#define KITTY_NEEDS_KERNEL()                                                                     \
  if (const std::string obstacle = kitty::loader::testing::kernel_obstacle(); !obstacle.empty()) \
  GTEST_SKIP() << obstacle
