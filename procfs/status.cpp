#include "procfs/status.h"

#include <algorithm>
#include <limits>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {

namespace {

constexpr std::string_view kUidLine = "Uid:\t";

}  // namespace

std::optional<uid_t> parse_real_uid(std::string_view text) {
  // A newline in the name, on the line before, is escaped (proc_task_name(), fs/proc/array.c).
  while (!text.starts_with(kUidLine)) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  text.remove_prefix(kUidLine.size());
  // Real, effective, saved, file system; without what follows it, a number may be cut.
  const size_t end = text.find('\t');
  if (end == std::string_view::npos) return std::nullopt;
  const auto uid = parse_decimal(text.substr(0, end));
  if (!uid || *uid > std::numeric_limits<uid_t>::max()) return std::nullopt;
  return static_cast<uid_t>(*uid);
}

ReadExpected<uid_t> read_real_uid(int pid_dirfd, std::span<char> buffer) {
  const auto fd = open_at(pid_dirfd, "status");
  if (!fd) return std::unexpected(fd.error());
  const auto size = read_some(fd->get(), buffer.first(std::min(buffer.size(), kStatusBufferBytes)));
  if (!size) return std::unexpected(size.error());
  const auto uid = parse_real_uid({buffer.data(), *size});
  if (!uid) return std::unexpected(ReadResult{ReadStatus::malformed, 0});
  return *uid;
}

}  // namespace kitty::procfs
