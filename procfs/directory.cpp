#include "procfs/directory.h"

#include <dirent.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace kitty::procfs {
namespace {

// struct linux_dirent64, getdents(2): u64 d_ino, s64 d_off, u16 d_reclen, u8 d_type, char d_name[].
constexpr size_t kRecordLengthOffset = 16;
constexpr size_t kTypeOffset = 18;
constexpr size_t kNameOffset = 19;

ReadResult walk(int dirfd, std::span<char> buffer,
                FunctionRef<void(const char* name, uint64_t inode, unsigned char type)> on_name) {
  for (;;) {
    const ssize_t count = ::getdents64(dirfd, buffer.data(), buffer.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      return read_failure(errno);
    }
    if (count == 0) return {};
    std::string_view records(buffer.data(), static_cast<size_t>(count));
    while (!records.empty()) {
      if (records.size() <= kNameOffset) return {ReadStatus::malformed, 0};
      uint16_t length = 0;
      std::memcpy(&length, records.data() + kRecordLengthOffset, sizeof length);
      if (length <= kNameOffset || length > records.size()) return {ReadStatus::malformed, 0};
      const std::string_view padded = records.substr(kNameOffset, length - kNameOffset);
      if (padded.find('\0') == std::string_view::npos) return {ReadStatus::malformed, 0};
      const char* name = padded.data();
      uint64_t inode = 0;
      std::memcpy(&inode, records.data(), sizeof inode);
      const auto type = static_cast<unsigned char>(records[kTypeOffset]);
      records.remove_prefix(length);
      if (std::strcmp(name, ".") != 0 && std::strcmp(name, "..") != 0) on_name(name, inode, type);
    }
  }
}

}  // namespace

ReadResult walk_directory(int dirfd, std::span<char> buffer,
                          FunctionRef<void(const char* name, uint64_t inode)> on_name) {
  return walk(dirfd, buffer, [&](const char* name, uint64_t inode, unsigned char) { on_name(name, inode); });
}

ReadResult walk_directories(int dirfd, std::span<char> buffer,
                            FunctionRef<void(const char* name, uint64_t inode)> on_name) {
  return walk(dirfd, buffer, [&](const char* name, uint64_t inode, unsigned char type) {
    if (type == DT_DIR) on_name(name, inode);
  });
}

}  // namespace kitty::procfs
