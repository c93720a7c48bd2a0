// Counts what the calling thread takes from the heap, so that a test can show that something takes nothing.
// The whole test binary counts, through the replacements in tests/unit/allocation_count.cpp: malloc and its
// relatives, or operator new alone where a sanitizer owns malloc. Thread-safe; one thread does not see
// another's allocations.
#pragma once

#include <cstdint>

namespace kitty {

// Allocations of the calling thread since it began.
[[nodiscard]] uint64_t allocations_of_this_thread();

// Counts from its construction on, on the thread that made it.
class AllocationCount {
 public:
  [[nodiscard]] uint64_t count() const { return allocations_of_this_thread() - before_; }

 private:
  uint64_t before_ = allocations_of_this_thread();
};

}  // namespace kitty
