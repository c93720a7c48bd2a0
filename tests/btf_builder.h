// BTF put together by hand, right or wrong, for tests only. Format: Documentation/bpf/btf.rst.
#pragma once

#include <linux/btf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kitty {

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof value);
}

class BtfBuilder {
 public:
  struct Member {
    std::string_view name;
    uint32_t type = 0;
    uint32_t bit_offset = 0;
    uint32_t bits = 0;  // not 0: a bitfield
  };

  uint32_t string(std::string_view text) {
    if (text.empty()) return 0;
    const auto offset = static_cast<uint32_t>(strings_.size());
    strings_ += text;
    strings_ += '\0';
    return offset;
  }

  // The record as it stands: nothing checks that `tail` fits `kind` and `count`.
  uint32_t add(uint32_t kind, std::string_view name, uint32_t count, bool flag, uint32_t size_or_type,
               const std::vector<uint32_t>& tail = {}) {
    append(types_, string(name));
    append(types_, (flag ? 1U << 31 : 0U) | kind << 24 | count);
    append(types_, size_or_type);
    for (const uint32_t word : tail) append(types_, word);
    return ++last_;
  }

  uint32_t integer(std::string_view name, uint32_t bytes, uint32_t encoding = 0) {
    return add(BTF_KIND_INT, name, 0, false, bytes, {encoding << 24 | bytes * 8});
  }
  uint32_t pointer(uint32_t to) { return add(BTF_KIND_PTR, "", 0, false, to); }
  uint32_t reference(uint32_t kind, std::string_view name, uint32_t to) {
    return add(kind, name, 0, false, to);
  }
  uint32_t array(uint32_t of, uint32_t count) { return add(BTF_KIND_ARRAY, "", 0, false, 0, {of, 0, count}); }
  uint32_t composite(uint32_t kind, std::string_view name, uint32_t bytes,
                     const std::vector<Member>& members) {
    bool flag = false;
    for (const Member& member : members) flag |= member.bits != 0;
    std::vector<uint32_t> tail;
    for (const Member& member : members) {
      tail.insert(tail.end(), {string(member.name), member.type,
                               flag ? member.bits << 24 | member.bit_offset : member.bit_offset});
    }
    return add(kind, name, static_cast<uint32_t>(members.size()), flag, bytes, tail);
  }
  uint32_t structure(std::string_view name, uint32_t bytes, const std::vector<Member>& members) {
    return composite(BTF_KIND_STRUCT, name, bytes, members);
  }
  uint32_t enumeration(std::string_view name, const std::vector<std::pair<std::string_view, int32_t>>& values,
                       bool is_signed = false) {
    std::vector<uint32_t> tail;
    for (const auto& [text, value] : values)
      tail.insert(tail.end(), {string(text), static_cast<uint32_t>(value)});
    return add(BTF_KIND_ENUM, name, static_cast<uint32_t>(values.size()), is_signed, 4, tail);
  }
  uint32_t enumeration64(std::string_view name,
                         const std::vector<std::pair<std::string_view, uint64_t>>& values) {
    std::vector<uint32_t> tail;
    for (const auto& [text, value] : values) {
      tail.insert(tail.end(),
                  {string(text), static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)});
    }
    return add(BTF_KIND_ENUM64, name, static_cast<uint32_t>(values.size()), false, 8, tail);
  }
  uint32_t variable(std::string_view name, uint32_t type, uint32_t linkage = BTF_VAR_GLOBAL_ALLOCATED) {
    return add(BTF_KIND_VAR, name, 0, false, type, {linkage});
  }
  uint32_t section(std::string_view name, const std::vector<uint32_t>& variables) {
    std::vector<uint32_t> tail;
    for (const uint32_t one : variables) tail.insert(tail.end(), {one, 0, 0});
    return add(BTF_KIND_DATASEC, name, static_cast<uint32_t>(variables.size()), false, 0, tail);
  }

  // `tamper` may change the header before it is written.
  [[nodiscard]] std::vector<std::byte> bytes(const std::function<void(btf_header&)>& tamper = nullptr) const {
    btf_header header{};
    header.magic = BTF_MAGIC;
    header.version = BTF_VERSION;
    header.hdr_len = sizeof header;
    header.type_len = static_cast<uint32_t>(types_.size());
    header.str_off = header.type_len;
    header.str_len = static_cast<uint32_t>(strings_.size());
    if (tamper) tamper(header);
    std::vector<std::byte> all;
    append(all, header);
    all.insert(all.end(), types_.begin(), types_.end());
    for (const char letter : strings_) append(all, letter);
    return all;
  }

 private:
  std::vector<std::byte> types_;
  std::string strings_ = std::string(1, '\0');
  uint32_t last_ = 0;
};

}  // namespace kitty
