// kitty's linked instructions against libbpf's, instruction by instruction: the fixtures against their own
// -DTARGET build, and kitty's own object against the running kernel. libbpf (Debian's, tests only) relocates
// against the BTF it is told, and its instructions can be read even where the kernel then refuses the
// program. Environment: KITTY_FIXTURES, the folder of the compiled fixtures; KITTY_OBJECT, kitty's own BPF
// object.
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "loader/btf.h"
#include "loader/elf.h"
#include "loader/object.h"
#include "tests/guard_page.h"

namespace kitty::loader {
namespace {

constexpr char kKernelBtf[] = "/sys/kernel/btf/vmlinux";

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::string fixture(const std::string& name, const char* variant) {
  return environment("KITTY_FIXTURES", "build/fixtures") + "/" + name + "." + variant + ".o";
}

std::vector<std::byte> read_file(const std::string& path) {
  std::vector<std::byte> bytes;
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(fd) << path;
  std::byte block[65536];
  for (ssize_t n; fd && (n = read(fd.get(), block, sizeof block)) > 0;)
    bytes.insert(bytes.end(), block, block + n);
  return bytes;
}

std::vector<std::byte> btf_section(const std::vector<std::byte>& object) {
  const auto elf = Elf::parse(object);
  EXPECT_TRUE(elf) << elf.error().message();
  for (const Elf::Section& section : elf->sections()) {
    if (section.name == ".BTF") return {section.data.begin(), section.data.end()};
  }
  ADD_FAILURE() << "no .BTF";
  return {};
}

// What libbpf said while it worked; the only way to tell a failed relocation from a refused program.
std::string libbpf_log;
int record(libbpf_print_level, const char* format, va_list arguments) {
  char line[512];
  vsnprintf(line, sizeof line, format, arguments);
  libbpf_log += line;
  return 0;
}
bool said(const char* text) { return libbpf_log.find(text) != std::string::npos; }

bool lacks_privilege() { return said("Couldn't load trivial BPF program") || said("failed to create: "); }

struct Linked {
  bool relocated = false;
  std::vector<bpf_insn> insns;
};

// One program alone: libbpf relocates, and drops candidates, only for what is to be loaded.
Linked link_with_libbpf(const std::string& path, const char* btf_path, const std::string& program) {
  libbpf_log.clear();
  libbpf_set_print(record);
  bpf_object_open_opts options{};
  options.sz = sizeof options;
  options.btf_custom_path = btf_path;
  bpf_object* object = bpf_object__open_file(path.c_str(), &options);
  EXPECT_NE(object, nullptr) << libbpf_log;
  Linked linked;
  if (object == nullptr) return linked;
  bpf_program* wanted = nullptr;
  bpf_program* one = nullptr;
  while ((one = bpf_object__next_program(object, one)) != nullptr) {
    const bool same = program == bpf_program__name(one);
    bpf_program__set_autoload(one, same);
    if (same) wanted = one;
  }
  EXPECT_NE(wanted, nullptr) << program;
  const bool loaded = bpf_object__load(object) == 0;
  linked.relocated = loaded || said("BPF program load failed") || said("failed to load program") ||
                     said("failed to find kernel BTF type ID");
  if (wanted != nullptr) {
    const bpf_insn* insns = bpf_program__insns(wanted);
    linked.insns.assign(insns, insns + bpf_program__insn_cnt(wanted));
  }
  bpf_object__close(object);
  return linked;
}

bool is_poison(const bpf_insn& insn, size_t kinds) {
  return insn.code == (BPF_JMP | BPF_CALL) && insn.src_reg == 0 && insn.imm >= kPoisonCall &&
         insn.imm < kPoisonCall + static_cast<int64_t>(kinds);
}

std::string text(const bpf_insn& insn) {
  char line[80];
  snprintf(line, sizeof line, "code=%02x dst=%d src=%d off=%d imm=%d", unsigned{insn.code}, insn.dst_reg,
           insn.src_reg, insn.off, insn.imm);
  return line;
}

void compare(const LinkedProgram& ours, const std::vector<bpf_insn>& theirs) {
  ASSERT_EQ(ours.insns.size(), theirs.size());
  std::vector<bpf_insn> left = ours.insns;
  std::vector<bpf_insn> right = theirs;
  // A map's number is ours in one and a descriptor in the other, but one number always stands for the same
  // map.
  std::map<size_t, int> descriptors;
  std::map<int, size_t> maps;
  for (const MapReference& use : ours.maps) {
    const int fd = right[use.insn].imm;
    EXPECT_EQ(descriptors.emplace(use.map, fd).first->second, fd) << "insn " << use.insn;
    EXPECT_EQ(maps.emplace(fd, use.map).first->second, use.map) << "insn " << use.insn;
    left[use.insn].imm = right[use.insn].imm = 0;
  }
  for (size_t i = 0; i < left.size(); ++i) {
    // libbpf poisons everything with one number; kitty adds which access it was.
    if (is_poison(left[i], ours.poisoned.size())) left[i].imm = kPoisonCall;
    EXPECT_EQ(text(left[i]), text(right[i])) << "insn " << i;
  }
}

struct Case {
  const char* fixture;
  const char* program;
  std::vector<std::string> poisoned = {};
  bool refused = false;  // by both
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"fields", "direct"},
      {"fields", "arrays"},
      {"fields", "resized"},
      {"fields", "resized_signed", {"struct outer.widened_signed"}},
      {"fields", "store"},
      {"fields", "chase"},
      {"fields", "element_of_pointer"},
      {"fields", "numbers"},
      {"bitfields", "read_moved"},
      {"bitfields", "read_signed_bits"},
      {"bitfields", "read_wide"},
      {"bitfields", "read_was_bits"},
      {"bitfields", "read_was_plain"},
      {"bitfields", "read_tint"},
      {"bitfields", "read_crossing"},
      {"bitfields", "read_same"},
      {"bitfields", "read_became_signed"},
      {"bitfields", "read_straddles"},
      {"bitfields",
       "read_gone",
       {"struct packet.gone", "struct packet.gone", "struct packet.gone", "struct packet.gone",
        "struct packet.gone", "struct packet.gone"}},
      {"bitfields", "plain_load", {"struct packet.was_plain"}},
      {"exists", "questions"},
      {"exists", "guarded", {"struct present.absent"}},
      {"exists", "unguarded", {"struct present.absent"}},
      {"exists", "whole_type", {"struct missing.field"}},
      {"exists",
       "missing_offset",
       {"struct missing.field", "struct missing.field", "struct missing.bits", "struct missing.bits",
        "struct missing.bits"}},
      {"exists", "out_of_range", {"struct present.small[3]"}},
      {"exists", "incompatible", {"struct present.changed"}},
      {"exists", "missing_size"},
      {"exists", "missing_enumerator", {"enum state::STATE_B"}},
      {"exists", "missing_enum", {"enum unknown_state::UNKNOWN_A"}},
      {"types", "sizes"},
      {"types", "ids"},
      {"types", "local_ids"},
      {"types", "functions"},
      {"types", "two_things"},
      {"types", "anonymous"},
      {"enums", "small"},
      {"enums", "large"},
      {"enums", "grown"},
      {"enums", "shrunk"},
      {"enums", "negative"},
      {"enums", "renamed"},
      {"enums", "typedeffed_value"},
      {"flavors", "either", {"struct thing___old.old_name"}},
      {"flavors", "shared"},
      {"flavors", "narrowed"},
      {"flavors", "leading"},
      {"flavors", "tail"},
      {"flavors", "double_flavor", {"struct a___b___c.x"}},
      {"ambiguous", "disagree", {}, true},
      {"ambiguous", "sizes_disagree", {}, true},
      {"ambiguous", "ids_disagree", {}, true},
      {"ambiguous", "values_disagree", {}, true},
      {"ambiguous", "both_exist"},
      {"ambiguous", "only_one"},
      {"ambiguous", "one_then_other"},
      {"ambiguous", "real_disagree", {}, true},
      {"ambiguous", "real_first"},
      {"ambiguous", "real_second"},
      {"calls", "one"},
      {"calls", "two"},
      {"calls", "three"},
      {"calls", "four", {"struct node.missing"}},
      {"calls", "five"},
      {"globals", "use_maps"},
      {"globals", "use_globals"},
      {"globals", "use_string"},
  };
  return all;
}

void PrintTo(const Case& one, std::ostream* out) { *out << one.fixture << "/" << one.program; }

class Oracle : public testing::TestWithParam<Case> {};

TEST_P(Oracle, SameInstructions) {
  const Case& wanted = GetParam();
  const std::vector<std::byte> object_bytes = read_file(fixture(wanted.fixture, "local"));
  const std::vector<std::byte> target_bytes = btf_section(read_file(fixture(wanted.fixture, "target")));
  const auto object = Object::parse(object_bytes);
  ASSERT_TRUE(object) << object.error().message();
  const auto target = Btf::parse(target_bytes);
  ASSERT_TRUE(target) << target.error().message();

  const auto ours = object->link(wanted.program, &*target);
  const Linked theirs = link_with_libbpf(fixture(wanted.fixture, "local"),
                                         fixture(wanted.fixture, "target").c_str(), wanted.program);
  if (lacks_privilege()) GTEST_SKIP() << "missing CAP_BPF: libbpf gives up before it relocates";
  if (wanted.refused) {
    ASSERT_FALSE(ours);
    EXPECT_NE(ours.error().message().find("ambiguous"), std::string::npos) << ours.error().message();
    EXPECT_TRUE(said("failed to perform CO-RE relocations")) << libbpf_log;
    return;
  }
  ASSERT_TRUE(ours) << ours.error().message();
  ASSERT_TRUE(theirs.relocated) << libbpf_log;
  compare(*ours, theirs.insns);
  std::vector<std::string> poisoned;
  for (const PoisonedAccess& access : ours->poisoned) poisoned.push_back(access.what);
  EXPECT_EQ(poisoned, wanted.poisoned);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.fixture) + "_" + info.param.program;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Oracle, testing::ValuesIn(cases()), name_of);

// libbpf 1.1 takes every 32-bit enumerator for signed and refuses one with its highest bit set; kitty knows
// from the object's own BTF that it is not.
TEST(OracleDifference, UnsignedEnumeratorWithHighestBit) {
  const std::vector<std::byte> object_bytes = read_file(fixture("enums", "local"));
  const std::vector<std::byte> target_bytes = btf_section(read_file(fixture("enums", "target")));
  const auto object = Object::parse(object_bytes);
  const auto target = Btf::parse(target_bytes);
  ASSERT_TRUE(object && target);
  const auto ours = object->link("high_bit", &*target);
  ASSERT_TRUE(ours) << ours.error().message();
  ASSERT_EQ(ours->insns[0].code, BPF_LD | BPF_IMM | BPF_DW);
  EXPECT_EQ(static_cast<uint32_t>(ours->insns[0].imm), 0x90000001U);
  EXPECT_EQ(ours->insns[1].imm, 0);
}

// A fixture's program that no case names would test nothing.
TEST(OracleCoverage, EveryProgramHasACase) {
  for (const char* name :
       {"fields", "bitfields", "exists", "types", "enums", "flavors", "ambiguous", "calls", "globals"}) {
    const auto object = Object::parse(read_file(fixture(name, "local")));
    ASSERT_TRUE(object) << object.error().message();
    for (const ProgramSpec& program : object->programs()) {
      if (program.name == "high_bit") continue;  // the test above
      const bool found = std::ranges::any_of(cases(), [&](const Case& one) {
        return std::string(name) == one.fixture && program.name == one.program;
      });
      EXPECT_TRUE(found) << name << "/" << program.name;
    }
  }
}

// Cut anywhere, an object is either refused or still whole; never read past its end.
TEST(RealObjects, TruncatedAtEveryByte) {
  for (const char* name : {"fields", "calls", "globals"}) {
    const std::vector<std::byte> whole = read_file(fixture(name, "local"));
    ASSERT_TRUE(Object::parse(whole));
    for (size_t size = 0; size < whole.size(); ++size) {
      const GuardPage cut{std::span(whole).first(size)};
      EXPECT_FALSE(Object::parse(cut.bytes())) << name << " cut to " << size;
    }
    const std::vector<std::byte> types = btf_section(whole);
    for (size_t size = 0; size < types.size(); ++size) {
      const GuardPage cut{std::span(types).first(size)};
      EXPECT_FALSE(Btf::parse(cut.bytes())) << name << " BTF cut to " << size;
    }
  }
}

TEST(RealObjects, Globals) {
  const auto object = Object::parse(read_file(fixture("globals", "local")));
  ASSERT_TRUE(object) << object.error().message();
  EXPECT_EQ(object->license(), "GPL");
  const auto map = [&](std::string_view name) -> const MapSpec& {
    return object->maps()[object->find_map(name)];
  };
  ASSERT_LT(object->find_map("table"), object->maps().size());
  EXPECT_EQ(map("table").type, uint32_t{BPF_MAP_TYPE_HASH});
  EXPECT_EQ(map("table").key_size, 8U);
  EXPECT_EQ(map("table").value_size, 40U);
  EXPECT_EQ(map("table").max_entries, 1024U);
  EXPECT_EQ(map("table").flags, uint32_t{BPF_F_NO_PREALLOC});
  EXPECT_EQ(map("list").value_size, 16U);
  for (const char* name : {".rodata", ".data", ".bss", ".data.extra", ".bss.blank", ".rodata.str1.1"}) {
    ASSERT_LT(object->find_map(name), object->maps().size()) << name;
    EXPECT_EQ(map(name).initial.size(), map(name).value_size) << name;
    EXPECT_EQ(map(name).freeze, std::string_view(name).starts_with(".rodata")) << name;
    EXPECT_EQ(map(name).flags, map(name).freeze ? uint32_t{BPF_F_RDONLY_PROG} : 0U) << name;
  }
  EXPECT_EQ(map(".bss.blank").value_size, 4U);
  EXPECT_EQ(map(".data.extra").initial[0], std::byte{9});
}

TEST(OracleKernel, KittysOwnObject) {
  const std::string path = environment("KITTY_OBJECT", "build/kprobe.bpf.o");
  if (access(path.c_str(), R_OK) != 0) GTEST_SKIP() << path << " is not built";
  if (access(kKernelBtf, R_OK) != 0) GTEST_SKIP() << kKernelBtf << " is missing";
  const std::vector<std::byte> object_bytes = read_file(path);
  const std::vector<std::byte> kernel_bytes = read_file(kKernelBtf);
  const auto object = Object::parse(object_bytes);
  ASSERT_TRUE(object) << object.error().message();
  const auto kernel = Btf::parse(kernel_bytes);
  ASSERT_TRUE(kernel) << kernel.error().message();
  ASSERT_FALSE(object->programs().empty());
  for (const ProgramSpec& program : object->programs()) {
    SCOPED_TRACE(program.name);
    const auto ours = object->link(program.name, &*kernel);
    ASSERT_TRUE(ours) << ours.error().message();
    const Linked theirs = link_with_libbpf(path, kKernelBtf, program.name);
    if (lacks_privilege()) GTEST_SKIP() << "missing CAP_BPF: libbpf gives up before it relocates";
    ASSERT_TRUE(theirs.relocated) << libbpf_log;
    compare(*ours, theirs.insns);
  }
}

}  // namespace
}  // namespace kitty::loader
