#include "procfs/cgroup.h"

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

constexpr bool is_lower_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

constexpr bool is_alphanumeric(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The last stand-alone run of exactly 64 hexadecimal digits.
std::string_view find_container_id(std::string_view path) {
  std::string_view found;
  size_t begin = 0;
  while (begin < path.size()) {
    if (!is_alphanumeric(path[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    bool hex = true;
    while (end < path.size() && is_alphanumeric(path[end])) hex = is_lower_hex(path[end++]) && hex;
    if (hex && end - begin == kContainerIdBytes) found = path.substr(begin, kContainerIdBytes);
    begin = end;
  }
  return found;
}

// 8-4-4-4-12 with "-" or "_" between.
bool is_uid(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' && text[i] != '_' : !is_lower_hex(text[i])) return false;
  }
  return true;
}

bool all_lower_hex(std::string_view text) {
  for (const char c : text) {
    if (!is_lower_hex(c)) return false;
  }
  return true;
}

// How many bytes at the beginning of `text` are a pod's uid; 0 if they are not one, or do not end there.
size_t uid_size(std::string_view text) {
  const auto ends_at = [&](size_t size) {
    return text.size() == size || text[size] == '.' || text[size] == '/' || text[size] == ':';
  };
  if (text.size() >= kPodUidBytes && is_uid(text.substr(0, kPodUidBytes)) && ends_at(kPodUidBytes)) {
    return kPodUidBytes;
  }
  if (text.size() >= kStaticPodUidBytes && all_lower_hex(text.substr(0, kStaticPodUidBytes)) &&
      ends_at(kStaticPodUidBytes)) {
    return kStaticPodUidBytes;
  }
  return 0;
}

// The uid after the last "/pod" or "-pod" that has one.
std::string_view find_pod_uid(std::string_view path) {
  constexpr std::string_view kPod = "pod";
  std::string_view found;
  for (size_t at = path.find(kPod); at != std::string_view::npos; at = path.find(kPod, at + 1)) {
    if (at == 0 || (path[at - 1] != '/' && path[at - 1] != '-')) continue;
    const std::string_view rest = path.substr(at + kPod.size());
    if (const size_t size = uid_size(rest); size != 0) found = rest.substr(0, size);
  }
  return found;
}

}  // namespace

Cgroup parse_cgroup(std::string_view text) {
  Cgroup cgroup;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    // HIERARCHY:CONTROLLERS:PATH
    std::array<std::string_view, 2> fields;
    for (std::string_view& field : fields) {
      const size_t colon = line.find(':');
      field = line.substr(0, colon);
      line.remove_prefix(colon == std::string_view::npos ? line.size() : colon + 1);
    }
    const bool is_unified = fields[0] == "0" && fields[1].empty();
    if (is_unified && cgroup.unified_path.empty()) cgroup.unified_path = line;
    if (cgroup.cpu_path.empty() && lists(fields[1], "cpu")) cgroup.cpu_path = line;
    if (cgroup.container_id.empty()) cgroup.container_id = find_container_id(line);
    if (cgroup.pod_uid_size == 0) {
      const std::string_view uid = find_pod_uid(line);
      for (const char c : uid) cgroup.pod_uid_bytes[cgroup.pod_uid_size++] = c == '_' ? '-' : c;
    }
  }
  return cgroup;
}

ReadExpected<Cgroup> read_cgroup(int pid_dirfd, std::span<char> buffer) {
  const auto text = read_text_at(pid_dirfd, "cgroup", buffer);
  if (!text) return std::unexpected(text.error());
  return parse_cgroup(*text);
}

}  // namespace kitty::procfs
