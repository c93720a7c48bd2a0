#include "procfs/environ.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "procfs/file.h"

namespace kitty::procfs {
namespace {

constexpr int kMaxExecRetries = 3;

constexpr uint64_t letter_bit(char c) { return uint64_t{1} << (static_cast<unsigned char>(c) % 64); }

// Whether `entry` is `name=...`.
bool has_name(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name);
}

// Reads to the end; true if what was read is one program's environment as a whole. A descriptor of environ
// keeps the memory it was opened on and reads nothing once that program has been replaced or has ended
// (environ_read in fs/proc/base.c).
ReadExpected<bool> scan_once(int fd, std::span<char> buffer, EnvironScan& scan) {
  for (;;) {
    const auto count = read_some(fd, buffer);
    if (!count) return std::unexpected(count.error());
    if (*count == 0) break;
    scan.feed({buffer.data(), *count});
    if (scan.bytes() > kMaxEnvironBytes) return std::unexpected(ReadResult{ReadStatus::too_long, 0});
  }
  scan.finish();
  if (scan.bytes() == 0) return true;
  char first = 0;
  const ssize_t again = ::pread(fd, &first, 1, 0);
  if (again < 0) return std::unexpected(read_failure(errno));
  return again == 1;
}

}  // namespace

// cppcheck-suppress uninitMemberVar ; carry_ is written before it is read, and is not small
EnvironScan::EnvironScan(std::span<EnvironVariable> variables) : variables_(variables) {
  first_letters_ = letter_bit(kWatchName.front());
  for (const EnvironVariable& variable : variables_) {
    first_letters_ |= letter_bit(variable.name.text().front());
  }
  reset();
}

void EnvironScan::reset() {
  for (EnvironVariable& variable : variables_) variable.value = {};
  watch_seen_ = false;
  watched_ = false;
  first_seen_ = false;
  overwritten_ = false;
  bytes_ = 0;
  carry_size_ = 0;
  carry_cut_ = false;
}

// `cut`: more bytes of the entry followed than were kept.
void EnvironScan::take_entry(std::string_view entry, bool cut) {
  if (!first_seen_ && bytes_ != 0) {
    first_seen_ = true;
    overwritten_ = !entry.substr(0, carry_.size()).contains('=');  // however it comes cut
  }
  if (entry.empty() || (first_letters_ & letter_bit(entry.front())) == 0) return;
  if (!watch_seen_ && has_name(entry, kWatchName)) {
    watch_seen_ = true;
    watched_ = !cut && entry.substr(kWatchName.size() + 1) == kWatchValue;
  }
  for (EnvironVariable& variable : variables_) {
    const std::string_view name = variable.name.text();
    if (!has_name(entry, name)) continue;
    EnvironValue& value = variable.value;
    if (!value.present) {
      const std::string_view text = entry.substr(name.size() + 1);
      const size_t size = std::min(text.size(), value.bytes.size());
      std::memcpy(value.bytes.data(), text.data(), size);
      value.present = true;
      value.truncated = cut || size < text.size();
      value.size = static_cast<uint16_t>(size);
    }
    return;
  }
}

void EnvironScan::keep(std::string_view part) {
  const size_t room = carry_.size() - carry_size_;
  const size_t size = std::min(part.size(), room);
  std::memcpy(carry_.data() + carry_size_, part.data(), size);
  carry_size_ += size;
  carry_cut_ = carry_cut_ || size < part.size();
}

void EnvironScan::feed(std::string_view chunk) {
  bytes_ += chunk.size();
  while (!chunk.empty()) {
    const size_t end = chunk.find('\0');
    const std::string_view part = chunk.substr(0, end);
    if (end == std::string_view::npos) {
      keep(part);
      return;
    }
    chunk.remove_prefix(end + 1);
    if (carry_size_ == 0) {
      take_entry(part, false);
      continue;
    }
    keep(part);
    finish();
  }
}

void EnvironScan::finish() {
  take_entry({carry_.data(), carry_size_}, carry_cut_);
  carry_size_ = 0;
  carry_cut_ = false;
}

ReadResult read_environ(int pid_dirfd, std::span<char> buffer, EnvironScan& scan) {
  for (int attempt = 0; attempt < kMaxExecRetries; ++attempt) {
    scan.reset();
    const auto file = open_at(pid_dirfd, "environ");
    if (!file) return file.error();
    const auto whole = scan_once(file->get(), buffer, scan);
    if (!whole) return whole.error();
    if (*whole) return {};
  }
  return {ReadStatus::failed, EAGAIN};
}

}  // namespace kitty::procfs
