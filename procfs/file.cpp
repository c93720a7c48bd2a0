#include "procfs/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace kitty::procfs {

Result<Fd> open_root(const char* path) {
  Fd root(::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail("open procfs", path, errno, "see --path.procfs");
  return root;
}

ReadExpected<Fd> open_at(int dirfd, const char* name, int flags) {
  for (;;) {
    Fd fd(::openat(dirfd, name, O_RDONLY | O_CLOEXEC | flags));
    if (fd) return fd;
    if (errno != EINTR) return std::unexpected(read_failure(errno));
  }
}

ReadExpected<size_t> read_some(int fd, std::span<char> buffer) {
  for (;;) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR) return std::unexpected(read_failure(errno));
  }
}

ReadExpected<std::string_view> read_text(int fd, std::span<char> buffer) {
  size_t used = 0;
  while (used < buffer.size()) {
    const auto count = read_some(fd, buffer.subspan(used));
    if (!count) return std::unexpected(count.error());
    if (*count == 0) return std::string_view(buffer.data(), used);
    used += *count;
  }
  return std::unexpected(ReadResult{ReadStatus::too_long, 0});
}

ReadExpected<std::string_view> read_text_at(int dirfd, const char* name, std::span<char> buffer) {
  const auto fd = open_at(dirfd, name);
  if (!fd) return std::unexpected(fd.error());
  return read_text(fd->get(), buffer);
}

ReadExpected<std::string_view> read_link_at(int dirfd, const char* name, std::span<char> buffer) {
  const ssize_t count = ::readlinkat(dirfd, name, buffer.data(), buffer.size());
  if (count < 0) return std::unexpected(read_failure(errno));
  const auto size = static_cast<size_t>(count);
  if (size >= buffer.size()) return std::unexpected(ReadResult{ReadStatus::too_long, 0});
  return std::string_view(buffer.data(), size);
}

}  // namespace kitty::procfs
