// The rendered exposition on its way from the thread that renders it to the threads that serve it.
//
// The slot holds the latest text. One writer publishes, any number of readers hold what they got for as long
// as they need (a slow scraper keeps its text while newer ones are published). Texts are swapped, never
// copied, and the writer gets a text back that no reader holds, with its memory: in the steady state nothing
// is allocated.
//
// Ownership: the slot owns every text; a SharedText must not outlive it. Thread-safety: publish() from one
// thread at a time; read() and SharedText from any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace kitty::http {

// Texts alive at once: the latest, and older ones that slow readers still hold. The server gives a response 5
// s, in which 10 texts of 500 ms are published, so that only more patient readers than the server's could use
// them all up.
inline constexpr size_t kMaxTexts = 16;

namespace detail {
struct TextBuffer {
  std::string text;
  std::atomic<uint32_t> readers = 0;
};
}  // namespace detail

// One reader's hold on one text. Move-only; empty when default-made, moved from, or read before the first
// publish().
class SharedText {
 public:
  SharedText() = default;
  SharedText(SharedText&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  SharedText& operator=(SharedText&& other) noexcept {
    if (this != &other) {
      reset();
      buffer_ = std::exchange(other.buffer_, nullptr);
    }
    return *this;
  }
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;
  ~SharedText() { reset(); }

  [[nodiscard]] explicit operator bool() const { return buffer_ != nullptr; }
  // Valid while this object holds it.
  [[nodiscard]] std::string_view view() const {
    return buffer_ == nullptr ? std::string_view() : std::string_view(buffer_->text);
  }
  void reset() {
    // Release: the writer's acquire of zero readers comes after the last look at the text.
    if (buffer_ != nullptr) std::exchange(buffer_, nullptr)->readers.fetch_sub(1, std::memory_order_release);
  }

 private:
  friend class TextSlot;
  explicit SharedText(detail::TextBuffer* buffer) : buffer_(buffer) {}

  detail::TextBuffer* buffer_ = nullptr;
};

class TextSlot {
 public:
  TextSlot() = default;
  TextSlot(const TextSlot&) = delete;
  TextSlot& operator=(const TextSlot&) = delete;

  // Makes `text` the latest and leaves in it an older text for the writer to overwrite (its memory is what
  // counts). False, and nothing changed, where readers hold kMaxTexts - 1 older texts and the latest: the
  // readers then keep getting the latest.
  [[nodiscard]] bool publish(std::string& text);

  // The latest text; empty before the first publish(). Never waits for a writer that renders, only for a
  // swap.
  [[nodiscard]] SharedText read();

 private:
  std::mutex mutex_;  // guards latest_, and the step from "latest" to "held by a reader"
  detail::TextBuffer* latest_ = nullptr;
  std::array<detail::TextBuffer, kMaxTexts> buffers_;
};

}  // namespace kitty::http
