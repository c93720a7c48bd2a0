// One run of an iter/task_file program over the descriptors of one process: the program is called for each
// and writes what it likes, and read() hands those bytes over. Owns the link and the run; move-only; not
// thread-safe.
//
// Facts: kernel/bpf/bpf_iter.c and task_iter.c. The process is looked up anew at each read, by its number in
// the pid namespace of the one who reads; one that is not there, or gone, gives no bytes and no error.
// Threads that have descriptors of their own are visited too. Holds no reference to the process, and needs no
// capability once the program is loaded (kernels from 6.1, the first that can visit one process alone).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "loader/program.h"

namespace kitty::loader {

class Iterator {
 public:
  // `pid` is not 0. An error where the kernel cannot visit one process alone: it is then never read, because
  // it would visit all.
  static Result<Iterator> start(const Program& program, uint32_t pid);

  // The next bytes; 0 at the end. The kernel keeps what does not fit for the next read, and collects up to
  // 32 KiB a read: records all of one size come whole into a buffer that holds a multiple of it.
  [[nodiscard]] Result<size_t> read(std::span<std::byte> buffer);

 private:
  Iterator(Fd link, Fd run) : link_(std::move(link)), run_(std::move(run)) {}

  Fd link_;
  Fd run_;
};

}  // namespace kitty::loader
