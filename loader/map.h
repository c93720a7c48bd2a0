// A BPF map in the kernel. Owns the map's descriptor; the map itself lives on while a loaded program refers
// to it. Move-only. Thread-safe as the kernel's maps are: any number of threads may look up, update and
// remove; moving and destroying are the owner's business. Looking up and updating allocate nothing unless
// they fail. Facts: bpf(2); per-CPU values, kernel/bpf/syscall.c, bpf_map_value_size().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/fd.h"
#include "loader/object.h"

namespace kitty::loader {

// Most CPUs believed: the largest CONFIG_NR_CPUS of x86 (8192).
inline constexpr uint32_t kMaxPossibleCpus = 8192;

// Number of CPUs in the kernel's list format, "0-3,8\n" (lib/bitmap.c); ascending, as the kernel writes it.
[[nodiscard]] Result<uint32_t> count_cpus(std::string_view list);
// CPUs that per-CPU values exist for: the possible ones, not those online. Reads
// /sys/devices/system/cpu/possible.
[[nodiscard]] Result<uint32_t> possible_cpus();

// The "memlock:" line, in bytes, of the fdinfo text of a map or program (kernel/bpf/syscall.c,
// bpf_map_show_fdinfo): what the object takes of the kernel's memory, as an estimate since 5.11.
[[nodiscard]] Result<uint64_t> parse_memlock(std::string_view fdinfo);
// The same for one of this process's descriptors.
[[nodiscard]] Result<uint64_t> object_memlock_bytes(int fd);

class Map {
 public:
  // Creates the map, writes `spec.initial` to entry 0 and freezes it where asked. The name is cut to what the
  // kernel accepts. Errors say why the kernel refused (explain.h).
  static Result<Map> create(const MapSpec& spec);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] uint32_t key_size() const { return key_size_; }
  // As declared: the value of one CPU in per-CPU maps.
  [[nodiscard]] uint32_t value_size() const { return value_size_; }
  // What lookup_raw and update_raw move, in bytes: in per-CPU maps value_size() rounded up to 8, times the
  // possible CPUs.
  [[nodiscard]] size_t transfer_size() const { return transfer_size_; }
  [[nodiscard]] uint32_t max_entries() const { return max_entries_; }

  // The raw forms. A span of another size than key_size() or transfer_size() is an error (EINVAL), never a
  // short copy.

  // False, and `value` untouched, when the key is absent.
  [[nodiscard]] Result<bool> lookup_raw(std::span<const std::byte> key, std::span<std::byte> value) const;
  // `flags` BPF_ANY, BPF_NOEXIST (EEXIST when present) or BPF_EXIST (ENOENT when absent); E2BIG when the map
  // is full.
  [[nodiscard]] Status update_raw(std::span<const std::byte> key, std::span<const std::byte> value,
                                  uint64_t flags);
  // False when the key was absent.
  [[nodiscard]] Result<bool> remove_raw(std::span<const std::byte> key);
  // The key after `previous`, the first where `previous` is empty; false after the last. When `previous` was
  // removed meanwhile a hash starts over, so bound the walk by max_entries().
  [[nodiscard]] Result<bool> next_key_raw(std::span<const std::byte> previous,
                                          std::span<std::byte> next) const;

  // The typed forms, on the bytes of the objects themselves. sizeof must equal the map's sizes.

  template <class Key, class Value>
  [[nodiscard]] Result<bool> lookup(const Key& key, Value& value) const {
    return lookup_raw(bytes_of(key), writable_bytes_of(value));
  }
  template <class Key, class Value>
  [[nodiscard]] Status update(const Key& key, const Value& value, uint64_t flags = BPF_ANY) {
    return update_raw(bytes_of(key), bytes_of(value), flags);
  }
  template <class Key>
  [[nodiscard]] Result<bool> remove(const Key& key) {
    return remove_raw(bytes_of(key));
  }
  // `previous` null: the first key.
  template <class Key>
  [[nodiscard]] Result<bool> next_key(const Key* previous, Key& next) const {
    return next_key_raw(previous ? bytes_of(*previous) : std::span<const std::byte>{},
                        writable_bytes_of(next));
  }
  // Every possible CPU's value, in the order of the CPUs; `values` has as many elements.
  template <class Key, class Value>
  [[nodiscard]] Result<bool> lookup_per_cpu(const Key& key, std::span<Value> values) const {
    check_type<Value>();
    static_assert(sizeof(Value) % 8 == 0,
                  "the kernel places per-CPU values 8 bytes apart or a multiple of it");
    return lookup_raw(bytes_of(key), std::as_writable_bytes(values));
  }

  // Kernel memory of this map in bytes, from /proc/self/fdinfo.
  [[nodiscard]] Result<uint64_t> memlock_bytes() const;

 private:
  Map() = default;

  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T>, "keys and values are copied as bytes");
    static_assert(!std::is_pointer_v<T>, "pass the object, not its address");
  }
  template <class T>
  static std::span<const std::byte> bytes_of(const T& object) {
    check_type<T>();
    return std::as_bytes(std::span<const T, 1>(&object, 1));
  }
  template <class T>
  static std::span<std::byte> writable_bytes_of(T& object) {
    check_type<T>();
    return std::as_writable_bytes(std::span<T, 1>(&object, 1));
  }

  Fd fd_;
  std::string name_;
  uint32_t key_size_ = 0;
  uint32_t value_size_ = 0;
  uint32_t max_entries_ = 0;
  size_t transfer_size_ = 0;
};

}  // namespace kitty::loader
