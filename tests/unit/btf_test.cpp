#include "loader/btf.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

#include "base/fd.h"
#include "tests/btf_builder.h"
#include "tests/guard_page.h"

namespace kitty::loader {
namespace {

TEST(Btf, WalksEveryKind) {
  BtfBuilder b;
  const uint32_t number = b.integer("int", 4, BTF_INT_SIGNED);
  const uint32_t pointer = b.pointer(number);
  const uint32_t array = b.array(number, 6);
  const uint32_t structure = b.structure("pair", 8, {{"a", number, 0}, {"b", number, 37, 5}});
  const uint32_t either = b.composite(BTF_KIND_UNION, "either", 4, {{"x", number, 0}});
  const uint32_t enumeration = b.enumeration("color", {{"RED", -1}, {"GREEN", 2}}, true);
  const uint32_t forward = b.reference(BTF_KIND_FWD, "later", 0);
  const uint32_t typedefed = b.reference(BTF_KIND_TYPEDEF, "number_t", number);
  const uint32_t volatiled = b.reference(BTF_KIND_VOLATILE, "", typedefed);
  const uint32_t consted = b.reference(BTF_KIND_CONST, "", volatiled);
  const uint32_t restricted = b.reference(BTF_KIND_RESTRICT, "", consted);
  const uint32_t prototype = b.add(BTF_KIND_FUNC_PROTO, "", 2, false, number, {0, number, 0, pointer});
  // A function's linkage sits where others count what follows.
  const uint32_t function = b.add(BTF_KIND_FUNC, "pair", 1, false, prototype);
  const uint32_t variable = b.variable("global", number);
  const uint32_t section = b.section(".data", {variable});
  const uint32_t real = b.add(BTF_KIND_FLOAT, "double", 0, false, 8);
  b.add(BTF_KIND_DECL_TAG, "tag", 0, false, structure, {UINT32_MAX});
  const uint32_t tagged = b.reference(BTF_KIND_TYPE_TAG, "user", number);
  const uint32_t wide = b.enumeration64("wide", {{"HUGE_A", 0x123456789abcdef0}});

  const GuardPage page(b.bytes());
  const auto btf = Btf::parse(page.bytes());
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_EQ(btf->type_count(), wide);
  EXPECT_EQ(btf->find(BTF_KIND_STRUCT, "pair"), structure);
  EXPECT_EQ(btf->find(BTF_KIND_FUNC, "pair"), function);
  EXPECT_EQ(btf->find(BTF_KIND_ENUM64, "wide"), wide);
  EXPECT_EQ(btf->find(BTF_KIND_STRUCT, "pai"), std::nullopt);
  EXPECT_EQ(btf->find(BTF_KIND_STRUCT, "pairs"), std::nullopt);
  EXPECT_EQ(btf->find(BTF_KIND_UNKN, ""), std::nullopt);
  EXPECT_EQ(btf->find(BTF_KIND_ENUM64, std::string_view("wide\0and more than the strings hold", 35)),
            std::nullopt);
  EXPECT_STREQ(btf->name(forward), "later");
  EXPECT_STREQ(btf->name(0), "");
  EXPECT_STREQ(btf->name(wide + 1), "");
  EXPECT_EQ(btf->kind(wide + 1), uint32_t{BTF_KIND_UNKN});
  EXPECT_EQ(btf->type(wide + 1).kind, uint32_t{BTF_KIND_UNKN});

  const Btf::Type pair = btf->type(structure);
  EXPECT_EQ(pair.count, 2U);
  EXPECT_EQ(btf->member(pair, 0).bitfield_bits, 0U);
  EXPECT_EQ(btf->member(pair, 1).bit_offset, 37U);
  EXPECT_EQ(btf->member(pair, 1).bitfield_bits, 5U);
  EXPECT_EQ(btf->string_at(btf->member(pair, 1).name), "b");
  EXPECT_EQ(btf->string_at(1 << 20), std::nullopt);
  EXPECT_EQ(btf->enumerator(btf->type(enumeration), 0).value, 0xffffffffU);
  EXPECT_TRUE(btf->type(enumeration).flag);
  EXPECT_EQ(btf->enumerator(btf->type(wide), 0).value, 0x123456789abcdef0U);
  EXPECT_EQ(btf->parameter(btf->type(prototype), 1), pointer);
  EXPECT_EQ(btf->variable(btf->type(section), 0).type, variable);
  EXPECT_EQ(btf->linkage(btf->type(variable)), uint32_t{BTF_VAR_GLOBAL_ALLOCATED});
  EXPECT_EQ(btf->int_encoding(btf->type(number)), uint32_t{BTF_INT_SIGNED});
  EXPECT_EQ(btf->array(btf->type(array)).count, 6U);

  EXPECT_EQ(btf->skip_modifiers(restricted), number);
  EXPECT_EQ(btf->skip_modifiers(tagged), number);
  EXPECT_EQ(btf->skip_modifiers(structure), structure);
  EXPECT_EQ(btf->size_bytes(array), 24U);
  EXPECT_EQ(btf->size_bytes(pointer), 8U);
  EXPECT_EQ(btf->size_bytes(restricted), 4U);
  EXPECT_EQ(btf->size_bytes(either), 4U);
  EXPECT_EQ(btf->size_bytes(real), 8U);
  EXPECT_EQ(btf->size_bytes(variable), 4U);
  EXPECT_EQ(btf->size_bytes(prototype), std::nullopt);
  EXPECT_EQ(btf->size_bytes(forward), std::nullopt);
  EXPECT_EQ(btf->size_bytes(0), std::nullopt);
}

TEST(Btf, EndlessChainsEnd) {
  BtfBuilder b;
  const uint32_t self = b.reference(BTF_KIND_TYPEDEF, "self", 1);
  const uint32_t ring = b.array(2, 1);
  const uint32_t number = b.integer("u64", 8);
  const uint32_t huge = b.array(number, UINT32_MAX);
  const uint32_t huger = b.array(huge, UINT32_MAX);
  const GuardPage page(b.bytes());
  const auto btf = Btf::parse(page.bytes());
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_EQ(btf->skip_modifiers(self), std::nullopt);
  EXPECT_EQ(btf->size_bytes(self), std::nullopt);
  EXPECT_EQ(btf->size_bytes(ring), std::nullopt);
  EXPECT_EQ(btf->size_bytes(huge), std::nullopt);
  EXPECT_EQ(btf->size_bytes(huger), std::nullopt);
}

TEST(Btf, EmptyIsValid) {
  const GuardPage page(BtfBuilder().bytes());
  const auto btf = Btf::parse(page.bytes());
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_EQ(btf->type_count(), 0U);
}

TEST(Btf, LongerHeaderOfNewerKernels) {
  BtfBuilder b;
  b.integer("int", 4);
  std::vector<std::byte> bytes = b.bytes([](btf_header& header) { header.hdr_len += 8; });
  bytes.insert(bytes.begin() + sizeof(btf_header), 8, std::byte{0});
  const GuardPage page(bytes);
  const auto btf = Btf::parse(page.bytes());
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_EQ(btf->find(BTF_KIND_INT, "int"), 1U);
}

// As Linux 7.1 writes it: a longer header, and between types and strings how long each kind's types are.
std::vector<std::byte> with_layouts(const BtfBuilder& b,
                                    const std::vector<std::pair<uint8_t, uint8_t>>& layouts,
                                    uint32_t layout_bytes) {
  uint32_t types = 0;
  const auto layout_size = static_cast<uint32_t>(layouts.size() * 4);
  std::vector<std::byte> bytes = b.bytes([&](btf_header& header) {
    types = header.type_len;
    header.hdr_len += 8;
    header.str_off += layout_size;
  });
  std::vector<std::byte> range, section;
  append(range, types);
  append(range, layout_bytes);
  for (const auto& [fixed, each] : layouts) {
    append(section, fixed);
    append(section, each);
    append(section, uint16_t{0});
  }
  const auto after_types = static_cast<std::ptrdiff_t>(sizeof(btf_header) + types);
  bytes.insert(bytes.begin() + after_types, section.begin(), section.end());
  bytes.insert(bytes.begin() + sizeof(btf_header), range.begin(), range.end());
  return bytes;
}

TEST(Btf, KindsOfTheFutureArePassedOverWhereTheLayoutTellsTheirLength) {
  std::vector<std::pair<uint8_t, uint8_t>> layouts(128, {0, 0});
  layouts[BTF_KIND_INT] = {4, 0};
  layouts[20] = {4, 4};
  layouts[31] = {0, 8};
  layouts[127] = {12, 0};
  BtfBuilder b;
  b.integer("int", 4);
  const uint32_t first = b.add(20, "future", 2, true, 0, {1, 2, 3});
  const uint32_t second = b.add(31, "future", 1, false, 0, {1, 2});
  const uint32_t third = b.add(127, "future", 0, false, 0, {1, 2, 3});
  const uint32_t structure = b.structure("s", 4, {{"a", 1, 0}, {"of_the_future", first, 32}});
  const GuardPage page(with_layouts(b, layouts, 512));
  const auto btf = Btf::parse(page.bytes());
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_EQ(btf->type_count(), structure);
  EXPECT_EQ(btf->find(BTF_KIND_STRUCT, "s"), structure);
  for (const uint32_t id : {first, second, third}) {
    EXPECT_EQ(btf->kind(id), kUnknownBtfKind);
    EXPECT_EQ(btf->type(id).kind, kUnknownBtfKind);
    EXPECT_EQ(btf->type(id).count, 0U);
    EXPECT_STREQ(btf->name(id), "future");
    EXPECT_EQ(btf->skip_modifiers(id), id);
    EXPECT_EQ(btf->size_bytes(id), std::nullopt);
  }
}

TEST(Btf, LayoutsThatDoNotHelpAreRefused) {
  const struct {
    const char* name;
    std::vector<std::pair<uint8_t, uint8_t>> layouts;
    uint32_t layout_bytes;
    const char* error;
  } cases[] = {
      {"kind_not_described", {20, {0, 0}}, 80, "unknown kind 20"},
      {"section_past_the_end", {21, {0, 0}}, 1 << 20, "layouts of kinds lie outside"},
      {"odd_length", {21, {3, 0}}, 84, "no multiple of 4"},
      {"longer_than_the_types", {21, {8, 0}}, 84, "cut short"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    BtfBuilder b;
    b.integer("int", 4);
    b.add(20, "future", 0, false, 0, {1});
    const GuardPage page(with_layouts(b, bad.layouts, bad.layout_bytes));
    const auto btf = Btf::parse(page.bytes());
    ASSERT_FALSE(btf);
    EXPECT_NE(btf.error().message().find(bad.error), std::string::npos) << btf.error().message();
  }
}

TEST(Btf, CountsAreAsWideAsLinux71MadeThem) {
  constexpr uint32_t kMany = 70'000;
  BtfBuilder b;
  const uint32_t many = b.add(BTF_KIND_FUNC_PROTO, "", kMany, false, 0, std::vector<uint32_t>(2 * kMany));
  const uint32_t number = b.integer("int", 4);
  const GuardPage page(b.bytes());
  const auto btf = Btf::parse(page.bytes());
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_EQ(btf->type(many).count, kMany);
  EXPECT_EQ(btf->find(BTF_KIND_INT, "int"), number);
}

TEST(Btf, TruncatedAtEveryByte) {
  BtfBuilder b;
  b.structure("s", 4, {{"a", b.integer("int", 4), 0}});
  const std::vector<std::byte> whole = b.bytes();
  for (size_t size = 0; size < whole.size(); ++size) {
    const GuardPage cut{std::span(whole).first(size)};
    EXPECT_FALSE(Btf::parse(cut.bytes())) << size;
  }
}

TEST(Btf, RefusesBadHeaders) {
  const struct {
    const char* name;
    void (*tamper)(btf_header&);
    const char* error;
  } cases[] = {
      {"magic", [](btf_header& h) { h.magic = 0x1234; }, "magic"},
      {"big_endian", [](btf_header& h) { h.magic = 0x9feb; }, "big endian"},
      {"version", [](btf_header& h) { h.version = 2; }, "version 2"},
      {"flags", [](btf_header& h) { h.flags = 1; }, "flags"},
      {"short_header", [](btf_header& h) { h.hdr_len = 20; }, "header length"},
      {"long_header", [](btf_header& h) { h.hdr_len = 1 << 20; }, "header length"},
      {"types_past_end", [](btf_header& h) { h.type_off = 1 << 20; }, "types lie outside"},
      {"types_overflow", [](btf_header& h) { h.type_len = UINT32_MAX; }, "types lie outside"},
      {"strings_past_end", [](btf_header& h) { h.str_off = 1 << 20; }, "strings lie outside"},
      {"strings_overflow", [](btf_header& h) { h.str_len = UINT32_MAX; }, "strings lie outside"},
      {"no_strings", [](btf_header& h) { h.str_len = 0; }, "NUL"},
      {"unterminated_strings", [](btf_header& h) { h.str_len -= 1; }, "NUL"},
      {"type_cut_short", [](btf_header& h) { h.type_len -= 4; }, "type 1 at offset 0 is cut short"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    BtfBuilder b;
    b.integer("int", 4);
    const GuardPage page(b.bytes(bad.tamper));
    const auto btf = Btf::parse(page.bytes());
    ASSERT_FALSE(btf);
    EXPECT_NE(btf.error().message().find(bad.error), std::string::npos) << btf.error().message();
  }
}

TEST(Btf, RefusesBadTypes) {
  const struct {
    const char* name;
    void (*add)(BtfBuilder&);
    const char* error;
  } cases[] = {
      {"kind_void", [](BtfBuilder& b) { b.add(BTF_KIND_UNKN, "", 0, false, 0); },
       "type 2 at offset 16 has unknown kind 0"},
      {"kind_new", [](BtfBuilder& b) { b.add(20, "future", 0, false, 0); },
       "type 2 at offset 16 has unknown kind 20"},
      {"kind_last", [](BtfBuilder& b) { b.add(31, "future", 0, false, 0); }, "unknown kind 31"},
      {"members_missing", [](BtfBuilder& b) { b.add(BTF_KIND_STRUCT, "s", 9, false, 8); },
       "type 2 at offset 16 is cut"},
      {"array_missing", [](BtfBuilder& b) { b.add(BTF_KIND_ARRAY, "", 0, false, 0); },
       "type 2 at offset 16 is cut"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.name);
    BtfBuilder b;
    b.integer("int", 4);
    bad.add(b);
    const GuardPage page(b.bytes());
    const auto btf = Btf::parse(page.bytes());
    ASSERT_FALSE(btf);
    EXPECT_NE(btf.error().message().find(bad.error), std::string::npos) << btf.error().message();
  }
  BtfBuilder b;
  b.integer("int", 4);
  std::vector<std::byte> bytes = b.bytes();
  const uint32_t outside = 1 << 20;
  std::memcpy(bytes.data() + sizeof(btf_header), &outside, sizeof outside);
  const GuardPage page(bytes);
  const auto btf = Btf::parse(page.bytes());
  ASSERT_FALSE(btf);
  EXPECT_NE(btf.error().message().find("name out of range"), std::string::npos) << btf.error().message();
}

// The kernel's own: some 130,000 types, walked without a hash index. A quadratic search would take minutes.
TEST(Btf, RunningKernel) {
  const Fd fd(open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC));
  if (!fd) GTEST_SKIP() << "/sys/kernel/btf/vmlinux is missing";
  std::vector<std::byte> bytes;
  std::byte block[65536];
  for (ssize_t n; (n = read(fd.get(), block, sizeof block)) > 0;) bytes.insert(bytes.end(), block, block + n);
  const auto start = std::chrono::steady_clock::now();
  const auto btf = Btf::parse(bytes);
  ASSERT_TRUE(btf) << btf.error().message();
  EXPECT_GT(btf->type_count(), 10000U);
  const auto sock = btf->find(BTF_KIND_STRUCT, "tcp_sock");
  ASSERT_TRUE(sock);
  EXPECT_GT(btf->size_bytes(*sock).value_or(0), 1000U);
  EXPECT_TRUE(btf->find(BTF_KIND_FUNC, "tcp_ack"));
  EXPECT_FALSE(btf->find(BTF_KIND_FUNC, "no such function"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace
}  // namespace kitty::loader
