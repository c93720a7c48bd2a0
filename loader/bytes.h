// Checked reads from a byte string of unknown origin. Nothing here reads outside the span it was given, and
// no value needs to be aligned. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kitty::loader {

// `size` bytes from `offset`, or nothing where they are not all there.
[[nodiscard]] inline std::optional<std::span<const std::byte>> slice(std::span<const std::byte> bytes,
                                                                     uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return std::nullopt;
  return bytes.subspan(offset, size);
}

// A value in the machine's (little) byte order, or nothing where it does not fit.
template <class T>
[[nodiscard]] std::optional<T> load(std::span<const std::byte> bytes, uint64_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (offset > bytes.size() || sizeof(T) > bytes.size() - offset) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// All whole records of one type, copied; what is left at the end is dropped, so check the size before.
template <class T>
[[nodiscard]] std::vector<T> load_records(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> records(bytes.size() / sizeof(T));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), records.size() * sizeof(T));
  return records;
}

// The NUL-terminated string at `offset`, without its NUL, or nothing where offset or NUL lie outside.
[[nodiscard]] inline std::optional<std::string_view> terminated_string(std::span<const std::byte> bytes,
                                                                       uint64_t offset) {
  if (offset >= bytes.size()) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(bytes.data()) + offset;
  const size_t length = strnlen(begin, bytes.size() - offset);
  if (length == bytes.size() - offset) return std::nullopt;
  return std::string_view(begin, length);
}

}  // namespace kitty::loader
