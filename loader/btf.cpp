#include "loader/btf.h"

#include <cstring>
#include <string>

#include "loader/bytes.h"

namespace kitty::loader {

namespace {

constexpr size_t kHeadBytes = sizeof(btf_type);
constexpr uint32_t kPointerBytes = 8;

// What follows struct btf_type, by kind: so many bytes, and so many more for each of vlen entries.
struct Tail {
  uint8_t fixed;
  uint8_t each;
};
constexpr Tail kTails[] = {
    {0, 0},                        // UNKN, never looked up
    {4, 0},                        // INT
    {0, 0},                        // PTR
    {sizeof(btf_array), 0},        // ARRAY
    {0, sizeof(btf_member)},       // STRUCT
    {0, sizeof(btf_member)},       // UNION
    {0, sizeof(btf_enum)},         // ENUM
    {0, 0},                        // FWD
    {0, 0},                        // TYPEDEF
    {0, 0},                        // VOLATILE
    {0, 0},                        // CONST
    {0, 0},                        // RESTRICT
    {0, 0},                        // FUNC; its vlen is the linkage
    {0, sizeof(btf_param)},        // FUNC_PROTO
    {sizeof(btf_var), 0},          // VAR
    {0, sizeof(btf_var_secinfo)},  // DATASEC
    {0, 0},                        // FLOAT
    {sizeof(btf_decl_tag), 0},     // DECL_TAG
    {0, 0},                        // TYPE_TAG
    {0, 3 * sizeof(uint32_t)},     // ENUM64: name, low and high half
};
constexpr uint32_t kLastKind = std::size(kTails) - 1;
static_assert(kLastKind == BTF_KIND_ENUM64);
static_assert(kLastKind < kUnknownBtfKind);

// As Linux 7.1 has it, which made the fields wider; the bits were zero before.
constexpr uint32_t kind_of(uint32_t info) { return info >> 24 & 0x7f; }
constexpr uint32_t count_of(uint32_t info) { return info & 0xffffff; }

// struct btf_header's members since Linux 7.1, behind those of the installed <linux/btf.h>.
struct LayoutRange {
  uint32_t offset;
  uint32_t length;
};
// struct btf_layout, one for each kind that the writer of the BTF knew.
struct KindLayout {
  uint8_t fixed;
  uint8_t each;
  uint16_t flags;
};

std::unexpected<Error> malformed(std::string_view detail) { return fail("read BTF", "", 0, detail); }

std::string at_type(size_t id, size_t offset) {
  return "type " + std::to_string(id) + " at offset " + std::to_string(offset);
}

// Empty where the header is too short to name one.
std::optional<std::span<const std::byte>> layout_section(std::span<const std::byte> bytes,
                                                         const btf_header& header) {
  if (header.hdr_len < sizeof header + sizeof(LayoutRange)) return std::span<const std::byte>();
  const auto range = load<LayoutRange>(bytes, sizeof header);
  if (!range) return std::nullopt;
  return slice(bytes.subspan(header.hdr_len), range->offset, range->length);
}

std::optional<Tail> tail_of(uint32_t kind, std::span<const std::byte> layouts) {
  if (kind == BTF_KIND_UNKN) return std::nullopt;
  if (kind <= kLastKind) return kTails[kind];
  const auto layout = load<KindLayout>(layouts, size_t{kind} * sizeof(KindLayout));
  if (!layout) return std::nullopt;
  return Tail{layout->fixed, layout->each};
}

bool is_modifier(uint32_t kind) {
  return kind == BTF_KIND_TYPEDEF || kind == BTF_KIND_VOLATILE || kind == BTF_KIND_CONST ||
         kind == BTF_KIND_RESTRICT || kind == BTF_KIND_TYPE_TAG;
}

}  // namespace

Result<Btf> Btf::parse(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxBtfBytes) return malformed("larger than 128 MiB");
  const auto header = load<btf_header>(bytes, 0);
  if (!header) return malformed("shorter than its header");
  if (header->magic == __builtin_bswap16(BTF_MAGIC)) return malformed("big endian is not supported");
  if (header->magic != BTF_MAGIC) return malformed("not BTF (wrong magic)");
  if (header->version != BTF_VERSION) return malformed("unknown version " + std::to_string(header->version));
  if (header->flags != 0) return malformed("unknown flags " + std::to_string(header->flags));
  if (header->hdr_len < sizeof(btf_header) || header->hdr_len > bytes.size())
    return malformed("wrong header length");

  // Offsets count from the end of the header, which newer kernels may lengthen.
  const std::span<const std::byte> body = bytes.subspan(header->hdr_len);
  const auto types = slice(body, header->type_off, header->type_len);
  if (!types) return malformed("the types lie outside the data");
  const auto strings = slice(body, header->str_off, header->str_len);
  if (!strings) return malformed("the strings lie outside the data");
  // Offset 0 means "no name", and a NUL at the very end terminates every string there can be.
  if (strings->empty() || strings->front() != std::byte{0} || strings->back() != std::byte{0}) {
    return malformed("the strings do not begin and end with NUL");
  }

  const auto layouts = layout_section(bytes, *header);
  if (!layouts) return malformed("the layouts of kinds lie outside the data");

  Btf btf;
  btf.types_ = *types;
  btf.strings_ = *strings;
  // The vmlinux BTFs looked at have 27-31 bytes a type: half that overshoots once, and growing is rare.
  btf.index_.reserve(types->size() / 24 + 1);
  btf.index_.push_back(0);
  for (size_t offset = 0; offset < types->size();) {
    const size_t left = types->size() - offset;
    const size_t id = btf.index_.size();
    if (left < kHeadBytes) return malformed(at_type(id, offset) + " is cut short");
    btf_type head;
    std::memcpy(&head, types->data() + offset, sizeof head);
    const uint32_t kind = kind_of(head.info);
    const auto tail = tail_of(kind, *layouts);
    if (!tail) return malformed(at_type(id, offset) + " has unknown kind " + std::to_string(kind));
    if (head.name_off >= strings->size()) return malformed(at_type(id, offset) + " has a name out of range");
    const size_t size = kHeadBytes + tail->fixed + size_t{tail->each} * count_of(head.info);
    if (size > left) return malformed(at_type(id, offset) + " is cut short");
    if (size % 4 != 0) return malformed(at_type(id, offset) + " has a length that is no multiple of 4");
    btf.index_.push_back(static_cast<uint32_t>(offset / 4) << kKindBits |
                         (kind <= kLastKind ? kind : kUnknownBtfKind));
    offset += size;
  }
  return btf;
}

uint32_t Btf::word(size_t offset) const {
  uint32_t value;
  std::memcpy(&value, types_.data() + offset, sizeof value);
  return value;
}

std::optional<uint32_t> Btf::find(uint32_t kind, std::string_view name) const {
  // strncmp stops at a NUL, and no name holds one.
  if (kind == BTF_KIND_UNKN || name.find('\0') != std::string_view::npos) return std::nullopt;
  for (uint32_t id = 1; id < index_.size(); ++id) {
    if ((index_[id] & kKindMask) != kind) continue;
    const char* candidate = this->name(id);
    if (std::strncmp(candidate, name.data(), name.size()) == 0 && candidate[name.size()] == '\0') return id;
  }
  return std::nullopt;
}

Btf::Type Btf::type(uint32_t id) const {
  Type type;
  if (id == 0 || id >= index_.size()) return type;
  const size_t at = offset(id);
  const uint32_t info = word(at + offsetof(btf_type, info));
  type.kind = kind(id);
  if (type.kind == kUnknownBtfKind) return type;
  type.count = count_of(info);
  type.flag = BTF_INFO_KFLAG(info) != 0;
  type.size_or_type = word(at + offsetof(btf_type, size));
  type.extra = at + kHeadBytes;
  return type;
}

const char* Btf::name(uint32_t id) const {
  if (id == 0 || id >= index_.size()) return "";
  return reinterpret_cast<const char*>(strings_.data()) + word(offset(id) + offsetof(btf_type, name_off));
}

std::optional<std::string_view> Btf::string_at(uint32_t offset) const {
  if (offset >= strings_.size()) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(strings_.data()) + offset);
}

Btf::Member Btf::member(const Type& type, uint32_t index) const {
  const size_t at = type.extra + size_t{index} * sizeof(btf_member);
  const uint32_t offset = word(at + offsetof(btf_member, offset));
  Member member{word(at + offsetof(btf_member, name_off)), word(at + offsetof(btf_member, type)), offset, 0};
  if (type.flag) {
    member.bit_offset = BTF_MEMBER_BIT_OFFSET(offset);
    member.bitfield_bits = BTF_MEMBER_BITFIELD_SIZE(offset);
  }
  return member;
}

Btf::Enumerator Btf::enumerator(const Type& type, uint32_t index) const {
  if (type.kind == BTF_KIND_ENUM) {
    const size_t at = type.extra + size_t{index} * sizeof(btf_enum);
    return {word(at), word(at + offsetof(btf_enum, val))};
  }
  const size_t at = type.extra + size_t{index} * 3 * sizeof(uint32_t);
  return {word(at), uint64_t{word(at + 8)} << 32 | word(at + 4)};
}

uint32_t Btf::parameter(const Type& type, uint32_t index) const {
  return word(type.extra + size_t{index} * sizeof(btf_param) + offsetof(btf_param, type));
}

Btf::Variable Btf::variable(const Type& type, uint32_t index) const {
  const size_t at = type.extra + size_t{index} * sizeof(btf_var_secinfo);
  return {word(at), word(at + 4), word(at + 8)};
}

Btf::Array Btf::array(const Type& type) const {
  return {word(type.extra + offsetof(btf_array, type)), word(type.extra + offsetof(btf_array, nelems))};
}

uint32_t Btf::int_encoding(const Type& type) const { return BTF_INT_ENCODING(word(type.extra)); }

uint32_t Btf::int_offset_bits(const Type& type) const { return BTF_INT_OFFSET(word(type.extra)); }

uint32_t Btf::linkage(const Type& type) const { return word(type.extra); }

std::optional<uint32_t> Btf::skip_modifiers(uint32_t id) const {
  for (int depth = 0; depth <= kMaxTypeChain; ++depth) {
    if (!is_modifier(kind(id))) return id;
    id = type(id).size_or_type;
  }
  return std::nullopt;
}

std::optional<uint32_t> Btf::size_bytes(uint32_t id) const {
  uint64_t count = 1;
  for (int depth = 0; depth <= kMaxTypeChain; ++depth) {
    const Type type = this->type(id);
    uint64_t each = 0;
    switch (type.kind) {
      case BTF_KIND_INT:
      case BTF_KIND_STRUCT:
      case BTF_KIND_UNION:
      case BTF_KIND_ENUM:
      case BTF_KIND_ENUM64:
      case BTF_KIND_FLOAT:
      case BTF_KIND_DATASEC:
        each = type.size_or_type;
        break;
      case BTF_KIND_PTR:
        each = kPointerBytes;
        break;
      case BTF_KIND_ARRAY: {
        const Array array = this->array(type);
        count *= array.count;  // both below 2^32
        if (count > UINT32_MAX) return std::nullopt;
        id = array.type;
        continue;
      }
      case BTF_KIND_VAR:
      case BTF_KIND_DECL_TAG:
        id = type.size_or_type;
        continue;
      default:
        if (!is_modifier(type.kind)) return std::nullopt;
        id = type.size_or_type;
        continue;
    }
    const uint64_t total = count * each;
    if (total > UINT32_MAX) return std::nullopt;
    return static_cast<uint32_t>(total);
  }
  return std::nullopt;
}

}  // namespace kitty::loader
