#include "http/name_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/fd.h"

namespace kitty::http {

std::string read_name_file(const char* path) {
  const Fd file(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> block;
  while (file && text.size() < kMaxNameFileBytes) {
    const ssize_t n = read(file.get(), block.data(), block.size());
    if (n <= 0) break;
    text.append(block.data(), static_cast<size_t>(n));
  }
  return text;
}

}  // namespace kitty::http
