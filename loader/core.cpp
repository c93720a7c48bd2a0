#include "loader/core.h"

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstring>
#include <optional>
#include <string_view>

namespace kitty::loader {

namespace {

constexpr uint32_t kLastKnownKind = BPF_CORE_ENUMVAL_VALUE;
constexpr uint32_t kTypeMatches = 12;  // BPF_CORE_TYPE_MATCHES; clang 14 crashes on it, kitty does without
constexpr size_t kMaxAnonymousDepth = 64;
// A field further from its root than this cannot come from a compiler: struct sizes are 32 bits.
constexpr uint64_t kMaxBitOffset = uint64_t{UINT32_MAX} * CHAR_BIT;
// Reading a bitfield takes one load of at most 8 bytes (bpf_core_read.h, BPF_CORE_READ_BITFIELD).
constexpr uint64_t kMaxBitfieldLoadBytes = 8;
constexpr uint64_t kShiftedBits = 64;

bool is_field_kind(uint32_t kind) { return kind <= BPF_CORE_FIELD_RSHIFT_U64; }
bool is_type_kind(uint32_t kind) { return kind >= BPF_CORE_TYPE_ID_LOCAL && kind <= BPF_CORE_TYPE_SIZE; }

bool is_enum(uint32_t kind) { return kind == BTF_KIND_ENUM || kind == BTF_KIND_ENUM64; }
bool is_composite(uint32_t kind) { return kind == BTF_KIND_STRUCT || kind == BTF_KIND_UNION; }
bool same_sort(uint32_t a, uint32_t b) { return a == b || (is_enum(a) && is_enum(b)); }

// The name without its flavour: "task_struct" of "task_struct___v5". The last "___" counts, and only between
// characters that are no underscores themselves.
std::string_view essential(std::string_view name) {
  if (name.size() < 5) return name;
  for (size_t i = name.size() - 4; i-- > 0;) {
    if (name[i] != '_' && name.substr(i + 1, 3) == "___" && name[i + 4] != '_') return name.substr(0, i + 1);
  }
  return name;
}

std::unexpected<Error> refuse(std::string_view object, std::string_view detail) {
  return fail("relocate", object, 0, detail);
}

std::string type_label(const Btf& btf, uint32_t id) {
  const char* name = btf.name(id);
  std::string label = *name != '\0' ? name : "(anonymous)";
  switch (btf.kind(id)) {
    case BTF_KIND_STRUCT:
      return "struct " + label;
    case BTF_KIND_UNION:
      return "union " + label;
    case BTF_KIND_ENUM:
    case BTF_KIND_ENUM64:
      return "enum " + label;
    case BTF_KIND_UNKN:
      return "type id " + std::to_string(id);
    default:
      return label;
  }
}

// The next number of "0:1:2"; takes it and its colon off `text`.
std::optional<uint32_t> next_index(std::string_view& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > INT32_MAX) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.empty()) {
    if (text.front() != ':' || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  return value;
}

// Where element `index` starts, or nothing past kMaxBitOffset.
std::optional<uint64_t> element_bits(uint32_t index, uint32_t size_bytes) {
  const uint64_t bytes = uint64_t{index} * size_bytes;
  if (bytes > UINT32_MAX) return std::nullopt;
  return bytes * CHAR_BIT;
}

bool unsigned_int(const Btf& btf, uint32_t id) {
  const Btf::Type type = btf.type(id);
  return type.kind == BTF_KIND_INT && btf.int_encoding(type) != BTF_INT_SIGNED;
}

uint32_t load_bytes(uint8_t code) {
  switch (BPF_SIZE(code)) {
    case BPF_B:
      return 1;
    case BPF_H:
      return 2;
    case BPF_W:
      return 4;
    default:
      return 8;
  }
}

std::optional<uint8_t> load_size(uint32_t bytes) {
  switch (bytes) {
    case 1:
      return BPF_B;
    case 2:
      return BPF_H;
    case 4:
      return BPF_W;
    case 8:
      return BPF_DW;
    default:
      return std::nullopt;
  }
}

}  // namespace

struct CoreResolver::FieldValue {
  uint64_t value = 0;
  bool validate = true;
  uint32_t access_bytes = 0;  // 0: no load or store of one size reads it
  uint32_t type = 0;
};

std::string describe(const Btf& local, const CoreRelocation& relocation) {
  std::string text = type_label(local, relocation.type);
  std::string_view access = local.string_at(relocation.access).value_or("");
  if (is_type_kind(relocation.kind)) return text;
  uint32_t id = local.skip_modifiers(relocation.type).value_or(0);
  auto index = next_index(access);
  if (!index) return text;
  if (!is_field_kind(relocation.kind)) {
    const Btf::Type type = local.type(id);
    if (!is_enum(type.kind) || *index >= type.count) return text;
    return text + "::" + std::string(local.string_at(local.enumerator(type, *index).name).value_or(""));
  }
  if (*index != 0) text += "[" + std::to_string(*index) + "]";
  for (size_t i = 1; i < kMaxAccessors && !access.empty(); ++i) {
    index = next_index(access);
    const Btf::Type type = local.type(id);
    if (!index) break;
    if (is_composite(type.kind)) {
      if (*index >= type.count) break;
      const Btf::Member member = local.member(type, *index);
      const std::string_view name = local.string_at(member.name).value_or("");
      if (!name.empty()) (text += '.') += name;
      id = local.skip_modifiers(member.type).value_or(0);
    } else if (type.kind == BTF_KIND_ARRAY) {
      text += "[" + std::to_string(*index) + "]";
      id = local.skip_modifiers(local.array(type).type).value_or(0);
    } else {
      break;
    }
  }
  return text;
}

Result<CoreResolver> CoreResolver::create(const Btf& local, const Btf& target,
                                          std::span<const CoreRelocation> relocations) {
  CoreResolver resolver(local, target);
  for (const CoreRelocation& relocation : relocations) {
    if (relocation.kind == kTypeMatches) {
      return refuse(describe(local, relocation), "type_matches (kind 12) is not supported");
    }
    if (relocation.kind > kLastKnownKind) {
      return refuse(describe(local, relocation), "unknown CO-RE kind " + std::to_string(relocation.kind));
    }
    if (local.kind(relocation.type) == BTF_KIND_UNKN) {
      return refuse(describe(local, relocation), "no such type in the object's BTF");
    }
    if (relocation.kind == BPF_CORE_TYPE_ID_LOCAL) continue;
    if (*local.name(relocation.type) == '\0') {
      return refuse(describe(local, relocation), "an anonymous type cannot be looked up in the kernel");
    }
    resolver.roots_.push_back({relocation.type, {}});
  }
  std::ranges::sort(resolver.roots_, {}, &Root::type);
  const auto repeated = std::ranges::unique(resolver.roots_, {}, &Root::type);
  resolver.roots_.erase(repeated.begin(), repeated.end());
  if (Status status = resolver.find_candidates(); !status) return std::unexpected(status.error());
  return resolver;
}

Status CoreResolver::find_candidates() {
  struct Wanted {
    std::string_view name;
    uint32_t kind;
    Root* root;
  };
  std::vector<Wanted> wanted;
  uint32_t kinds = 0;  // bit set
  bool first_letters[256] = {};
  for (Root& root : roots_) {
    const uint32_t kind = local_->kind(root.type);
    wanted.push_back({essential(local_->name(root.type)), kind, &root});
    kinds |= is_enum(kind) ? 1U << BTF_KIND_ENUM | 1U << BTF_KIND_ENUM64 : 1U << kind;
    first_letters[static_cast<unsigned char>(wanted.back().name[0])] = true;
  }
  if (wanted.empty()) return {};

  const uint32_t count = target_->type_count();
  for (uint32_t id = 1; id <= count; ++id) {
    const uint32_t kind = target_->kind(id);
    if ((kinds >> kind & 1) == 0) continue;
    const char* name = target_->name(id);
    if (!first_letters[static_cast<unsigned char>(*name)]) continue;
    for (const Wanted& one : wanted) {
      if (*name != one.name[0] || !same_sort(kind, one.kind)) continue;
      if (std::strncmp(name, one.name.data(), one.name.size()) != 0) continue;
      if (essential(name) != one.name) continue;
      if (one.root->candidates.size() == kMaxCandidates) {
        return refuse(type_label(*local_, one.root->type), "more than " + std::to_string(kMaxCandidates) +
                                                               " types of that name in the kernel's BTF");
      }
      one.root->candidates.push_back(id);
    }
  }
  return {};
}

Status CoreResolver::spend(uint64_t steps) {
  if (steps > kMaxCoreSteps - steps_)
    return refuse("", "the kernel's BTF is malformed: a search takes too many steps");
  steps_ += steps;
  return {};
}

// A trailing array of no elements may be indexed past its end; `holder` is the accessor that led to it.
bool CoreResolver::is_flexible(const Btf& btf, const Step& holder, const Btf::Array& array) {
  return holder.name != nullptr && array.count == 0 && holder.index + 1 == btf.type(holder.type).count;
}

Result<CoreResolver::Path> CoreResolver::local_path(const CoreRelocation& relocation) const {
  const auto malformed = [&](std::string_view detail) {
    return refuse(describe(*local_, relocation), detail);
  };
  const Btf& btf = *local_;
  std::string_view access = btf.string_at(relocation.access).value_or("");
  if (access.empty()) return malformed("the access string is missing");

  Path path;
  path.root = relocation.type;
  if (is_type_kind(relocation.kind)) {
    if (access != "0") return malformed("a type needs the access string \"0\"");
    return path;
  }

  auto index = next_index(access);
  auto id = btf.skip_modifiers(relocation.type);
  if (!index) return malformed("the access string is malformed");
  if (!id) return malformed("too many typedefs in a row");
  path.steps[path.length++] = {*id, *index, nullptr};

  if (!is_field_kind(relocation.kind)) {
    const Btf::Type type = btf.type(*id);
    if (!is_enum(type.kind) || !access.empty() || *index >= type.count)
      return malformed("no such enumerator");
    const auto name = btf.string_at(btf.enumerator(type, *index).name);
    if (!name || name->empty()) return malformed("the enumerator has no name");
    path.steps[0].name = name->data();
    return path;
  }

  // Element `index` of `type`, which the last step points at.
  const auto add_element = [&path, &btf](uint32_t type, uint32_t element) {
    const auto size = btf.size_bytes(type);
    const auto bits = size ? element_bits(element, *size) : std::nullopt;
    if (!bits) return false;
    path.bit_offset += *bits;
    return true;
  };
  if (!add_element(*id, *index)) return malformed("the root type has no size");

  while (!access.empty()) {
    index = next_index(access);
    if (!index) return malformed("the access string is malformed");
    if (path.length == kMaxAccessors) return malformed("more than 64 accessors");
    const Btf::Type type = btf.type(*id);
    if (is_composite(type.kind)) {
      if (*index >= type.count) return malformed("no such member");
      const Btf::Member member = btf.member(type, *index);
      const auto name = btf.string_at(member.name);
      if (!name) return malformed("a member's name is out of range");
      path.bit_offset += member.bit_offset;
      if (!name->empty()) path.steps[path.length++] = {*id, *index, name->data()};
      id = btf.skip_modifiers(member.type);
    } else if (type.kind == BTF_KIND_ARRAY) {
      const Btf::Array array = btf.array(type);
      if (*index >= array.count && !is_flexible(btf, path.steps[path.length - 1], array)) {
        return malformed("array index out of range");
      }
      id = btf.skip_modifiers(array.type);
      if (!id || !add_element(*id, *index)) return malformed("an array element has no size");
      path.steps[path.length++] = {*id, *index, nullptr};
    } else {
      return malformed("an accessor goes through a type that is no struct, union or array");
    }
    if (!id) return malformed("too many typedefs in a row");
    if (path.bit_offset > kMaxBitOffset) return malformed("the offset is out of range");
  }
  return path;
}

// Field types count as compatible when a read compiled for one makes sense for the other: integers whatever
// their size and sign, any two pointers, any two structs or unions, enums of one name, arrays by element.
Result<bool> CoreResolver::fields_compatible(uint32_t local, uint32_t target) const {
  for (int depth = 0; depth <= kMaxTypeChain; ++depth) {
    const auto local_id = local_->skip_modifiers(local);
    const auto target_id = target_->skip_modifiers(target);
    if (!local_id || !target_id) break;
    const Btf::Type a = local_->type(*local_id);
    const Btf::Type b = target_->type(*target_id);
    if (is_composite(a.kind) && is_composite(b.kind)) return true;
    if (!same_sort(a.kind, b.kind)) return false;
    switch (a.kind) {
      case BTF_KIND_PTR:
      case BTF_KIND_FLOAT:
        return true;
      case BTF_KIND_INT:
        return local_->int_offset_bits(a) == 0 && target_->int_offset_bits(b) == 0;
      case BTF_KIND_FWD:
      case BTF_KIND_ENUM:
      case BTF_KIND_ENUM64: {
        const std::string_view left = essential(local_->name(*local_id));
        const std::string_view right = essential(target_->name(*target_id));
        return left.empty() || right.empty() || left == right;
      }
      case BTF_KIND_ARRAY:
        local = local_->array(a).type;
        target = target_->array(b).type;
        continue;
      default:
        return false;
    }
  }
  return refuse("", "BTF is malformed: typedefs or arrays nest too deeply");
}

Result<bool> CoreResolver::types_compatible(uint32_t local, uint32_t target, int depth) {
  for (; depth < kMaxTypeChain; ++depth) {
    const auto local_id = local_->skip_modifiers(local);
    const auto target_id = target_->skip_modifiers(target);
    if (!local_id || !target_id) break;
    const Btf::Type a = local_->type(*local_id);
    const Btf::Type b = target_->type(*target_id);
    if (!same_sort(a.kind, b.kind)) return false;
    switch (a.kind) {
      case BTF_KIND_UNKN:
      case BTF_KIND_STRUCT:
      case BTF_KIND_UNION:
      case BTF_KIND_ENUM:
      case BTF_KIND_ENUM64:
      case BTF_KIND_FWD:
        return true;
      case BTF_KIND_INT:
        return local_->int_offset_bits(a) == 0 && target_->int_offset_bits(b) == 0;
      case BTF_KIND_PTR:
        break;
      case BTF_KIND_ARRAY:
        local = local_->array(a).type;
        target = target_->array(b).type;
        continue;
      case BTF_KIND_FUNC_PROTO:
        if (a.count != b.count) return false;
        if (Status status = spend(a.count); !status) return std::unexpected(status.error());
        for (uint32_t i = 0; i < a.count; ++i) {
          const auto same = types_compatible(local_->parameter(a, i), target_->parameter(b, i), depth + 1);
          if (!same || !*same) return same;
        }
        break;
      default:
        return false;
    }
    local = a.size_or_type;  // what a pointer points at, what a function returns
    target = b.size_or_type;
  }
  return refuse("", "BTF is malformed: types nest too deeply");
}

// Looks for the member of that name, through anonymous ones; adds its step and offset to `path` and gives its
// type.
Result<bool> CoreResolver::match_member(const Step& wanted, uint32_t type, size_t depth, Path& path,
                                        uint32_t& next) {
  const auto id = target_->skip_modifiers(type);
  if (!id || depth > kMaxAnonymousDepth)
    return refuse("", "the kernel's BTF is malformed: members nest too deeply");
  const Btf::Type holder = target_->type(*id);
  if (!is_composite(holder.kind)) return false;
  if (Status status = spend(holder.count); !status) return std::unexpected(status.error());
  for (uint32_t i = 0; i < holder.count; ++i) {
    const Btf::Member member = target_->member(holder, i);
    const auto name = target_->string_at(member.name);
    if (!name) return refuse("", "the kernel's BTF is malformed: a member's name is out of range");
    if (name->empty()) {
      path.bit_offset += member.bit_offset;
      const auto found = match_member(wanted, member.type, depth + 1, path, next);
      if (!found || *found) return found;
      path.bit_offset -= member.bit_offset;
    } else if (*name == wanted.name) {
      const Btf::Member mine = local_->member(local_->type(wanted.type), wanted.index);
      const auto compatible = fields_compatible(mine.type, member.type);
      if (!compatible || !*compatible) return compatible;
      path.bit_offset += member.bit_offset;
      path.steps[path.length++] = {*id, i, name->data()};
      next = member.type;
      return true;
    }
  }
  return false;
}

Result<bool> CoreResolver::match(const CoreRelocation& relocation, const Path& wanted, uint32_t candidate,
                                 Path& path) {
  path.root = candidate;
  path.length = 0;
  path.bit_offset = 0;
  if (is_type_kind(relocation.kind)) return types_compatible(wanted.root, candidate, 0);

  if (!is_field_kind(relocation.kind)) {
    const uint32_t id = target_->skip_modifiers(candidate).value_or(0);
    const Btf::Type type = target_->type(id);
    if (!is_enum(type.kind)) return false;
    if (Status status = spend(type.count); !status) return std::unexpected(status.error());
    const std::string_view name = essential(wanted.steps[0].name);
    for (uint32_t i = 0; i < type.count; ++i) {
      const auto other = target_->string_at(target_->enumerator(type, i).name);
      if (!other || essential(*other) != name) continue;
      path.steps[path.length++] = {id, i, other->data()};
      return true;
    }
    return false;
  }

  uint32_t type = candidate;
  for (size_t i = 0; i < wanted.length; ++i) {
    const Step& step = wanted.steps[i];
    if (step.name != nullptr) {
      const auto found = match_member(step, type, 0, path, type);
      if (!found || !*found) return found;
      continue;
    }
    auto id = target_->skip_modifiers(type);
    // The first accessor indexes the root itself; the others an array.
    if (id && i > 0) {
      const Btf::Type holder = target_->type(*id);
      if (holder.kind != BTF_KIND_ARRAY) return false;
      const Btf::Array array = target_->array(holder);
      if (step.index >= array.count && !is_flexible(*target_, path.steps[i - 1], array)) return false;
      id = target_->skip_modifiers(array.type);
    }
    const auto size = id ? target_->size_bytes(*id) : std::nullopt;
    const auto bits = size ? element_bits(step.index, *size) : std::nullopt;
    if (!bits) return refuse(describe(*local_, relocation), "the kernel's type has no size");
    path.bit_offset += *bits;
    path.steps[path.length++] = {*id, step.index, nullptr};
    type = *id;
  }
  if (path.bit_offset > kMaxBitOffset)
    return refuse(describe(*local_, relocation), "the offset is out of range");
  return true;
}

Result<CoreResolver::FieldValue> CoreResolver::field_value(const CoreRelocation& relocation, const Btf& btf,
                                                           const Path& path) const {
  const auto malformed = [&](std::string_view detail) {
    return refuse(describe(*local_, relocation), detail);
  };
  FieldValue field;
  const Step& last = path.steps[path.length - 1];
  if (last.name == nullptr) {
    const auto size = btf.size_bytes(last.type);
    if (!size) return malformed("the array element has no size");
    if (relocation.kind == BPF_CORE_FIELD_BYTE_OFFSET) {
      field.value = path.bit_offset / CHAR_BIT;
      field.access_bytes = *size;
      field.type = last.type;
    } else if (relocation.kind == BPF_CORE_FIELD_BYTE_SIZE) {
      field.value = *size;
    } else {
      return malformed("CO-RE kind " + std::to_string(relocation.kind) +
                       " does not apply to an array element");
    }
    return field;
  }

  const Btf::Member member = btf.member(btf.type(last.type), last.index);
  const auto type_id = btf.skip_modifiers(member.type);
  const auto size = type_id ? btf.size_bytes(*type_id) : std::nullopt;
  if (!size) return malformed("the field's type has no size");
  const Btf::Type type = btf.type(*type_id);
  const bool bitfield = member.bitfield_bits != 0;
  uint64_t bytes = *size;
  uint64_t byte_offset = path.bit_offset / CHAR_BIT;
  uint64_t bits = bytes * CHAR_BIT;
  if (bitfield) {
    bits = member.bitfield_bits;
    if (!load_size(*size)) return malformed("the bitfield's type has no integer's size");
    // The smallest aligned load that covers the field.
    const auto covers = [&] {
      byte_offset = path.bit_offset / CHAR_BIT / bytes * bytes;
      return path.bit_offset + bits <= (byte_offset + bytes) * CHAR_BIT;
    };
    while (!covers()) {
      if (bytes == kMaxBitfieldLoadBytes) return malformed("the bitfield cannot be read with one load");
      bytes *= 2;
    }
  }
  // A compiler may choose another load for a bitfield than the one computed here, so that only what does not
  // depend on that choice can be compared with the instruction.
  field.validate = !bitfield;

  switch (relocation.kind) {
    case BPF_CORE_FIELD_BYTE_OFFSET:
      field.value = byte_offset;
      if (!bitfield) {
        field.access_bytes = *size;
        field.type = *type_id;
      }
      break;
    case BPF_CORE_FIELD_BYTE_SIZE:
      field.value = bytes;
      break;
    case BPF_CORE_FIELD_SIGNED:
      field.value = (is_enum(type.kind) && type.flag) ||
                    (type.kind == BTF_KIND_INT && (btf.int_encoding(type) & BTF_INT_SIGNED) != 0);
      field.validate = true;
      break;
    case BPF_CORE_FIELD_LSHIFT_U64:
    case BPF_CORE_FIELD_RSHIFT_U64: {
      const uint64_t end = path.bit_offset + bits - byte_offset * CHAR_BIT;
      if (end > kShiftedBits) return malformed("the field is too large to be read as an integer");
      const bool left = relocation.kind == BPF_CORE_FIELD_LSHIFT_U64;
      field.value = kShiftedBits - (left ? end : bits);
      if (!left) field.validate = true;
      break;
    }
    default:
      return malformed("unknown CO-RE kind " + std::to_string(relocation.kind));
  }
  return field;
}

Result<CoreValue> CoreResolver::evaluate(const CoreRelocation& relocation, const Path& wanted,
                                         const Path* found) const {
  CoreValue result;
  switch (relocation.kind) {
    case BPF_CORE_FIELD_EXISTS:
    case BPF_CORE_ENUMVAL_EXISTS:
    case BPF_CORE_TYPE_EXISTS:
      result.original = 1;
      result.value = found != nullptr;
      return result;
    case BPF_CORE_TYPE_ID_LOCAL:
      result.original = result.value = wanted.root;
      result.validate = false;
      return result;
    case BPF_CORE_TYPE_ID_TARGET:
      result.original = wanted.root;
      result.value = found != nullptr ? found->root : 0;
      result.validate = false;  // a static linker may have renumbered the types
      return result;
    case BPF_CORE_TYPE_SIZE: {
      const auto original = local_->size_bytes(wanted.root);
      const auto value = found != nullptr ? target_->size_bytes(found->root) : 0;
      if (!original || !value) return refuse(describe(*local_, relocation), "the type has no size");
      result.original = *original;
      result.value = *value;
      return result;
    }
    case BPF_CORE_ENUMVAL_VALUE: {
      const Btf::Type mine = local_->type(wanted.steps[0].type);
      // Whether a 32-bit value is signed is what the program was compiled for: older kernels' BTF does not
      // say.
      const auto extended = [&mine](const Btf& btf, const Step& step) {
        const Btf::Type type = btf.type(step.type);
        const uint64_t value = btf.enumerator(type, step.index).value;
        if (type.kind == BTF_KIND_ENUM64 || !mine.flag) return value;
        return static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
      };
      result.original = extended(*local_, wanted.steps[0]);
      result.poison = found == nullptr;
      if (found != nullptr) result.value = extended(*target_, found->steps[0]);
      return result;
    }
    default:
      break;
  }

  const auto original = field_value(relocation, *local_, wanted);
  if (!original) return std::unexpected(original.error());
  result.original = original->value;
  result.validate = original->validate;
  if (found == nullptr) {
    result.poison = true;
    return result;
  }
  const auto value = field_value(relocation, *target_, *found);
  if (!value) return std::unexpected(value.error());
  result.value = value->value;
  result.original_bytes = original->access_bytes;
  result.value_bytes = value->access_bytes;
  if (result.original_bytes != result.value_bytes) {
    // A wider or narrower load gives the same number only for pointers (32-bit kernels) and unsigned
    // integers.
    const bool pointers =
        local_->kind(original->type) == BTF_KIND_PTR && target_->kind(value->type) == BTF_KIND_PTR;
    const bool integers = unsigned_int(*local_, original->type) && unsigned_int(*target_, value->type);
    result.unfit_resize = !pointers && !integers;
  }
  return result;
}

Result<CoreValue> CoreResolver::resolve(const CoreRelocation& relocation) {
  const auto wanted = local_path(relocation);
  if (!wanted) return std::unexpected(wanted.error());
  if (relocation.kind == BPF_CORE_TYPE_ID_LOCAL) return evaluate(relocation, *wanted, nullptr);
  const auto root = std::ranges::lower_bound(roots_, relocation.type, {}, &Root::type);
  if (root == roots_.end() || root->type != relocation.type) {
    return refuse(describe(*local_, relocation), "the relocation was not announced");
  }

  const auto named = [&](Error error) {
    if (error.object.empty()) error.object = describe(*local_, relocation);
    return std::unexpected(std::move(error));
  };
  std::optional<CoreValue> agreed;
  uint64_t agreed_offset = 0;
  std::vector<uint32_t> matching;
  Path path;
  for (const uint32_t candidate : root->candidates) {
    if (Status status = spend(1); !status) return named(std::move(status.error()));
    auto found = match(relocation, *wanted, candidate, path);
    if (!found) return named(std::move(found.error()));
    if (!*found) continue;
    auto value = evaluate(relocation, *wanted, &path);
    if (!value) return named(std::move(value.error()));
    if (!agreed) {
      agreed = *value;
      agreed_offset = path.bit_offset;
    } else if (path.bit_offset != agreed_offset || value->poison != agreed->poison ||
               value->value != agreed->value) {
      return refuse(describe(*local_, relocation),
                    "ambiguous: the kernel's BTF has it as " + type_label(*target_, matching.front()) +
                        " (id " + std::to_string(matching.front()) + ") and differently as " +
                        type_label(*target_, candidate) + " (id " + std::to_string(candidate) + ")");
    }
    matching.push_back(candidate);
  }
  if (!agreed) return evaluate(relocation, *wanted, nullptr);
  root->candidates = std::move(matching);
  return *agreed;
}

Result<bool> apply(const CoreValue& value, int32_t poison_call, std::span<bpf_insn> insns, size_t at) {
  const auto refused = [at](std::string_view detail) { return refuse("insn " + std::to_string(at), detail); };
  const auto mismatch = [&](uint64_t holds) {
    return refused("it holds " + std::to_string(static_cast<int64_t>(holds)) +
                   " where the object's BTF says " + std::to_string(static_cast<int64_t>(value.original)));
  };
  if (at >= insns.size()) return refused("it lies past the program's end");
  bpf_insn& insn = insns[at];
  const bool wide = insn.code == (BPF_LD | BPF_IMM | BPF_DW);
  if (wide && at + 1 >= insns.size()) return refused("the second half of a 64-bit load is missing");
  const auto poison = [&] {
    const auto call = [poison_call] {
      bpf_insn unknown{};
      unknown.code = BPF_JMP | BPF_CALL;
      unknown.imm = poison_call;
      return unknown;
    };
    insn = call();
    // Left as it is, the second slot would be an "unknown opcode 00" and hide the reason.
    if (wide) insns[at + 1] = call();
    return true;
  };
  if (value.poison) return poison();

  switch (BPF_CLASS(insn.code)) {
    case BPF_ALU:
    case BPF_ALU64: {
      if (BPF_SRC(insn.code) != BPF_K) return refused("an operation without an immediate value");
      // One 32-bit pattern is read as signed or unsigned by the type it came from; both are the same
      // immediate.
      const auto immediate = [](uint64_t wanted) -> std::optional<int32_t> {
        const auto low = static_cast<int32_t>(wanted);
        if (wanted != static_cast<uint32_t>(wanted) && wanted != static_cast<uint64_t>(int64_t{low}))
          return std::nullopt;
        return low;
      };
      if (value.validate && immediate(value.original) != insn.imm) {
        return mismatch(static_cast<uint64_t>(int64_t{insn.imm}));
      }
      const auto patched = immediate(value.value);
      if (!patched) return refused("the value " + std::to_string(value.value) + " does not fit into 32 bits");
      insn.imm = *patched;
      return false;
    }
    case BPF_LDX:
    case BPF_ST:
    case BPF_STX: {
      if (value.validate && static_cast<uint64_t>(int64_t{insn.off}) != value.original) {
        return mismatch(static_cast<uint64_t>(int64_t{insn.off}));
      }
      if (value.value > INT16_MAX) {
        return refused("the offset " + std::to_string(value.value) + " does not fit into 16 bits");
      }
      if (value.unfit_resize) return poison();
      if (value.value_bytes != value.original_bytes) {
        const uint32_t bytes = load_bytes(insn.code);
        if (bytes != value.original_bytes) {
          return refused("it accesses " + std::to_string(bytes) + " bytes where the object's BTF says " +
                         std::to_string(value.original_bytes));
        }
        const auto size = load_size(value.value_bytes);
        if (!size) return refused("no load or store has " + std::to_string(value.value_bytes) + " bytes");
        insn.code = static_cast<uint8_t>(BPF_MODE(insn.code) | *size | BPF_CLASS(insn.code));
      }
      insn.off = static_cast<int16_t>(value.value);
      return false;
    }
    default: {
      if (!wide) return refused("an instruction that holds neither an immediate value nor an offset");
      bpf_insn& high = insns[at + 1];
      if (insn.src_reg != 0 || insn.off != 0 || high.code != 0 || high.dst_reg != 0 || high.src_reg != 0 ||
          high.off != 0) {
        return refused("a malformed 64-bit load");
      }
      const uint64_t holds =
          uint64_t{static_cast<uint32_t>(high.imm)} << 32 | static_cast<uint32_t>(insn.imm);
      if (value.validate && holds != value.original) return mismatch(holds);
      insn.imm = static_cast<int32_t>(value.value);
      high.imm = static_cast<int32_t>(value.value >> 32);
      return false;
    }
  }
}

}  // namespace kitty::loader
