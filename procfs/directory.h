// The entries of a directory through getdents64(2), into the caller's buffer: readdir would allocate. Owns
// nothing. Thread-safe as long as descriptor and buffer are not shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "procfs/function_ref.h"
#include "procfs/read_status.h"

namespace kitty::procfs {

// What a walk is best given: some 1,000 entries a system call. The kernel refuses a buffer too small for one
// entry.
inline constexpr size_t kDirectoryBufferBytes = size_t{32} * 1024;

// Calls back with every name but "." and "..", and its inode number; the name lives until the callback
// returns. `dirfd` is a directory opened for reading, at its beginning. Names already reported stand when the
// walk ends with an error.
ReadResult walk_directory(int dirfd, std::span<char> buffer,
                          FunctionRef<void(const char* name, uint64_t inode)> on_name);

// The same of those entries alone that are directories, where the file system says so (readdir(3), d_type).
ReadResult walk_directories(int dirfd, std::span<char> buffer,
                            FunctionRef<void(const char* name, uint64_t inode)> on_name);

}  // namespace kitty::procfs
