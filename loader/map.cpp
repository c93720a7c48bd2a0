#include "loader/map.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "loader/explain.h"
#include "loader/sys.h"

namespace kitty::loader {

namespace {

constexpr const char* kPossibleCpusPath = "/sys/devices/system/cpu/possible";
constexpr size_t kMaxCpuListBytes = 65536;
constexpr size_t kMaxFdinfoBytes = 4096;
constexpr size_t kPerCpuAlignment =
    8;  // kernel/bpf/syscall.c: round_up(map->value_size, 8) * num_possible_cpus()

bool is_per_cpu(uint32_t type) {
  return type == BPF_MAP_TYPE_PERCPU_HASH || type == BPF_MAP_TYPE_PERCPU_ARRAY ||
         type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
}

std::unexpected<Error> wrong_size(std::string_view operation, std::string_view map, size_t got, size_t want) {
  return fail(operation, map, EINVAL,
              std::to_string(got) + " bytes given, the map has " + std::to_string(want));
}

// Takes a decimal number off the front of `text`.
bool take_number(std::string_view& text, uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

Result<uint32_t> count_cpus(std::string_view list) {
  constexpr std::string_view kOperation = "read list of CPUs";
  std::string_view rest = list;
  if (rest.ends_with('\n')) rest.remove_suffix(1);
  uint32_t count = 0;
  uint32_t next_allowed = 0;
  do {
    uint32_t first = 0;
    if (!take_number(rest, first)) return fail(kOperation, list, 0, "a number was expected");
    uint32_t last = first;
    if (take(rest, '-') && !take_number(rest, last))
      return fail(kOperation, list, 0, "a number was expected");
    if (first < next_allowed || last < first) return fail(kOperation, list, 0, "not ascending");
    if (last >= kMaxPossibleCpus) return fail(kOperation, list, 0, "too many CPUs");
    count += last - first + 1;
    next_allowed = last + 1;
  } while (take(rest, ','));
  if (!rest.empty()) return fail(kOperation, list, 0, "a comma was expected");
  return count;
}

Result<uint32_t> possible_cpus() {
  const auto text = sys::read_file(kPossibleCpusPath, kMaxCpuListBytes);
  if (!text) return fail("read", kPossibleCpusPath, text.error());
  return count_cpus(*text);
}

Result<uint64_t> parse_memlock(std::string_view fdinfo) {
  constexpr std::string_view kLabel = "memlock:";
  while (!fdinfo.empty()) {
    std::string_view line = fdinfo.substr(0, fdinfo.find('\n'));
    fdinfo.remove_prefix(std::min(line.size() + 1, fdinfo.size()));
    if (!line.starts_with(kLabel)) continue;
    line.remove_prefix(kLabel.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), bytes);
    if (error != std::errc{} || end != line.data() + line.size()) break;
    return bytes;
  }
  return fail("read fdinfo", "memlock", 0, "no such line, or not a number");
}

Result<uint64_t> object_memlock_bytes(int fd) {
  const std::string path = "/proc/self/fdinfo/" + std::to_string(fd);
  const auto text = sys::read_file(path.c_str(), kMaxFdinfoBytes);
  if (!text) return fail("read", path, text.error());
  return parse_memlock(*text);
}

Result<Map> Map::create(const MapSpec& spec) {
  Map map;
  map.name_ = spec.name;
  map.key_size_ = spec.key_size;
  map.value_size_ = spec.value_size;
  map.max_entries_ = spec.max_entries;
  map.transfer_size_ = spec.value_size;
  if (is_per_cpu(spec.type)) {
    const auto cpus = possible_cpus();
    if (!cpus) return std::unexpected(cpus.error());
    const size_t rounded =
        (size_t{spec.value_size} + kPerCpuAlignment - 1) / kPerCpuAlignment * kPerCpuAlignment;
    map.transfer_size_ = rounded * *cpus;
  }

  auto fd = sys::create_map({.type = spec.type,
                             .key_size = spec.key_size,
                             .value_size = spec.value_size,
                             .max_entries = spec.max_entries,
                             .flags = spec.flags,
                             .name = spec.name});
  if (!fd) {
    const Refusal refusal{.step = Step::create_map, .err = fd.error()};
    return fail("create map", spec.name, fd.error(), explain(refusal, read_host_facts()));
  }
  map.fd_ = std::move(*fd);

  if (!spec.initial.empty()) {
    constexpr uint32_t kEntry = 0;
    const auto key = std::as_bytes(std::span(&kEntry, 1));
    if (const Status written = map.update_raw(key, spec.initial, BPF_ANY); !written) {
      return std::unexpected(written.error());
    }
  }
  if (spec.freeze) {
    if (const int err = sys::freeze_map(map.fd())) return fail("freeze map", spec.name, err);
  }
  return map;
}

Result<bool> Map::lookup_raw(std::span<const std::byte> key, std::span<std::byte> value) const {
  constexpr std::string_view kOperation = "look up in map";
  if (key.size() != key_size_) return wrong_size(kOperation, name_, key.size(), key_size_);
  if (value.size() != transfer_size_) return wrong_size(kOperation, name_, value.size(), transfer_size_);
  const int err = sys::lookup_element(fd(), key.data(), value.data());
  if (err == 0) return true;
  if (err == ENOENT) return false;
  return fail(kOperation, name_, err);
}

Status Map::update_raw(std::span<const std::byte> key, std::span<const std::byte> value, uint64_t flags) {
  constexpr std::string_view kOperation = "update map";
  if (key.size() != key_size_) return wrong_size(kOperation, name_, key.size(), key_size_);
  if (value.size() != transfer_size_) return wrong_size(kOperation, name_, value.size(), transfer_size_);
  if (const int err = sys::update_element(fd(), key.data(), value.data(), flags))
    return fail(kOperation, name_, err);
  return {};
}

Result<bool> Map::remove_raw(std::span<const std::byte> key) {
  constexpr std::string_view kOperation = "remove from map";
  if (key.size() != key_size_) return wrong_size(kOperation, name_, key.size(), key_size_);
  const int err = sys::delete_element(fd(), key.data());
  if (err == 0) return true;
  if (err == ENOENT) return false;
  return fail(kOperation, name_, err);
}

Result<bool> Map::next_key_raw(std::span<const std::byte> previous, std::span<std::byte> next) const {
  constexpr std::string_view kOperation = "walk map";
  if (!previous.empty() && previous.size() != key_size_) {
    return wrong_size(kOperation, name_, previous.size(), key_size_);
  }
  if (next.size() != key_size_) return wrong_size(kOperation, name_, next.size(), key_size_);
  const int err = sys::next_key(fd(), previous.empty() ? nullptr : previous.data(), next.data());
  if (err == 0) return true;
  if (err == ENOENT) return false;
  return fail(kOperation, name_, err);
}

Result<uint64_t> Map::memlock_bytes() const { return object_memlock_bytes(fd()); }

}  // namespace kitty::loader
