#include "http/text_slot.h"

namespace kitty::http {

bool TextSlot::publish(std::string& text) {
  const std::lock_guard lock(mutex_);
  // Under the lock nobody can become a reader, so a buffer without readers, the latest included, is the
  // writer's alone.
  auto is_free = [](const detail::TextBuffer& buffer) {
    return buffer.readers.load(std::memory_order_acquire) == 0;
  };
  detail::TextBuffer* target = latest_ != nullptr && is_free(*latest_) ? latest_ : nullptr;
  for (detail::TextBuffer& buffer : buffers_) {
    if (target != nullptr) break;
    if (is_free(buffer)) target = &buffer;
  }
  if (target == nullptr) return false;
  target->text.swap(text);
  latest_ = target;
  return true;
}

SharedText TextSlot::read() {
  const std::lock_guard lock(mutex_);
  if (latest_ != nullptr) latest_->readers.fetch_add(1, std::memory_order_relaxed);
  return SharedText(latest_);
}

}  // namespace kitty::http
