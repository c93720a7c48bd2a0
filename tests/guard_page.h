// Bytes that end exactly where an unreadable page begins: a parser that reads one byte past its input dies at
// once. Ownership: holds its own copy; views stay valid as long as the object. Not copyable. For tests only.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

namespace kitty {

class GuardPage {
 public:
  explicit GuardPage(std::span<const std::byte> bytes) : size_(bytes.size()) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t readable = (size_ + page - 1) / page * page;
    mapped_ = readable + page;
    void* memory = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(memory);
    begin_ = base_ + (readable - size_);
    if (size_ != 0) std::memcpy(begin_, bytes.data(), size_);
    if (mprotect(base_ + readable, page, PROT_NONE) != 0) std::abort();
  }
  explicit GuardPage(std::string_view text) : GuardPage(std::as_bytes(std::span(text))) {}
  GuardPage(const GuardPage&) = delete;
  GuardPage& operator=(const GuardPage&) = delete;
  ~GuardPage() { munmap(base_, mapped_); }

  [[nodiscard]] std::span<const std::byte> bytes() const { return {begin_, size_}; }
  [[nodiscard]] std::span<std::byte> writable() { return {begin_, size_}; }
  [[nodiscard]] std::string_view text() const { return {reinterpret_cast<const char*>(begin_), size_}; }

 private:
  std::byte* base_ = nullptr;
  std::byte* begin_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
};

}  // namespace kitty
