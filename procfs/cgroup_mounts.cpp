#include "procfs/cgroup_mounts.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <limits>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

constexpr std::string_view kUp = "/..";

// MAJOR:MINOR
std::optional<dev_t> parse_device(std::string_view text) {
  constexpr uint64_t kMax = std::numeric_limits<unsigned>::max();
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto major = parse_decimal(text.substr(0, colon));
  const auto minor = parse_decimal(text.substr(colon + 1));
  if (!major || !minor || *major > kMax || *minor > kMax) return std::nullopt;
  return makedev(static_cast<unsigned>(*major), static_cast<unsigned>(*minor));
}

// How often the path leads out of its namespace before it leads anywhere else; that part is taken off.
size_t take_ups(std::string_view& path) {
  size_t ups = 0;
  while (path == kUp || path.starts_with("/../")) {
    path.remove_prefix(kUp.size());
    ++ups;
  }
  return ups;
}

// Whether each component names something below; "" is none at all.
bool leads_down(std::string_view relative) {
  if (relative.size() > kMaxCgroupPathBytes) return false;
  if (relative.empty()) return true;
  for (size_t depth = 1;; ++depth) {
    const size_t slash = relative.find('/');
    const std::string_view name = relative.substr(0, slash);
    if (name.empty() || name == "." || name == ".." || depth > kMaxCgroupDepth) return false;
    if (name.find('\0') != std::string_view::npos) return false;
    if (slash == std::string_view::npos) return true;
    relative.remove_prefix(slash + 1);
  }
}

size_t depth_of(std::string_view relative) {
  return relative.empty() ? 0 : 1 + static_cast<size_t>(std::ranges::count(relative, '/'));
}

constexpr bool is_octal(char c) { return c >= '0' && c <= '7'; }

}  // namespace

std::optional<Mount> parse_mount(std::string_view line) {
  Tokens tokens(line);
  Mount mount;
  if (!parse_decimal(tokens.next()) || !parse_decimal(tokens.next())) return std::nullopt;
  const auto device = parse_device(tokens.next());
  if (!device) return std::nullopt;
  mount.device = *device;
  mount.root = tokens.next();
  mount.point = tokens.next();
  if (!mount.point.starts_with('/')) return std::nullopt;
  (void)tokens.next();  // options of the mount
  std::string_view token = tokens.next();
  while (!token.empty() && token != "-") token = tokens.next();  // shared:, master: and the like
  if (token.empty()) return std::nullopt;
  const std::string_view type = tokens.next();
  (void)tokens.next();  // what is mounted
  mount.is_unified = type == "cgroup2";
  mount.is_cpu = type == "cgroup" && lists(tokens.next(), "cpu");
  return mount;
}

std::optional<std::string_view> unescape(std::string_view field, std::span<char> buffer) {
  size_t size = 0;
  while (!field.empty()) {
    if (size + 1 >= buffer.size()) return std::nullopt;
    size_t taken = 1;
    char byte = field.front();
    if (byte == '\\') {
      if (field.size() < 4 || !std::ranges::all_of(field.substr(1, 3), is_octal)) return std::nullopt;
      byte = static_cast<char>((field[1] - '0') * 64 + (field[2] - '0') * 8 + (field[3] - '0'));
      taken = 4;
    }
    buffer[size++] = byte;
    field.remove_prefix(taken);
  }
  if (size >= buffer.size()) return std::nullopt;
  buffer[size] = '\0';
  return std::string_view(buffer.data(), size);
}

std::optional<size_t> levels_above(std::string_view mount_root) {
  if (mount_root == "/") return 0;
  const size_t ups = take_ups(mount_root);
  if (ups == 0 || !mount_root.empty()) return std::nullopt;
  return ups;
}

std::optional<BelowMount> path_below(std::string_view mount_root, std::string_view namespace_path,
                                     std::string_view path) {
  if (!mount_root.starts_with('/') || !path.starts_with('/')) return std::nullopt;
  const auto levels = levels_above(mount_root);
  size_t mount_ups = take_ups(mount_root);
  const size_t ups = take_ups(path);
  BelowMount below;
  if (mount_ups > ups) {
    // The names on the way down to where `path` begins are those of the namespace's own path.
    if (!levels || !leads_down(namespace_path) || depth_of(namespace_path) != *levels) return std::nullopt;
    below.above = namespace_path;
    for (size_t i = 0; i < ups; ++i) below.above = below.above.substr(0, below.above.rfind('/'));
    mount_ups = ups;
    mount_root = {};
  }
  if (mount_ups != ups) return std::nullopt;
  if (mount_root == "/") mount_root = {};
  if (!path.starts_with(mount_root)) return std::nullopt;
  path.remove_prefix(mount_root.size());
  if (path == "/") path = {};
  if (path.empty()) return below;
  if (path.front() != '/') return std::nullopt;  // "/ab" is not below "/a"
  below.rest = path.substr(1);
  if (!leads_down(below.rest) || depth_of(below.above) + depth_of(below.rest) > kMaxCgroupDepth)
    return std::nullopt;
  return below;
}

ReadResult walk_mounts(int root, std::span<char> buffer, FunctionRef<void(const Mount&)> on_mount) {
  const auto file = open_at(root, "self/mountinfo");
  if (!file) return file.error();
  size_t used = 0;
  bool passing_over = false;  // the rest of a line that is too long
  for (;;) {
    const auto count = read_some(file->get(), buffer.subspan(used));
    if (!count) return count.error();
    if (*count == 0) return {};
    std::string_view text(buffer.data(), used + *count);
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      const auto mount = passing_over ? std::nullopt : parse_mount(text.substr(0, end));
      if (mount) on_mount(*mount);
      passing_over = false;
      text.remove_prefix(end + 1);
    }
    if (text.size() == buffer.size()) {
      passing_over = true;
      text = {};
    }
    std::ranges::copy(text, buffer.begin());
    used = text.size();
  }
}

}  // namespace kitty::procfs
