// Opening and reading files relative to a held directory under /proc. Nothing is allocated: the caller owns
// the buffer and what is returned points into it. Thread-safe as long as buffers are not shared.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "procfs/read_status.h"

namespace kitty::procfs {

// The directory all reads start from: /proc, or what --path.procfs says. An error names the path.
[[nodiscard]] Result<Fd> open_root(const char* path);

// Opens `name` under `dirfd` read-only and close-on-exec; add O_DIRECTORY through `flags`.
[[nodiscard]] ReadExpected<Fd> open_at(int dirfd, const char* name, int flags = 0);

// One read(2), not cut short by signals: 0 at the end of the file.
[[nodiscard]] ReadExpected<size_t> read_some(int fd, std::span<char> buffer);

// The whole file from the descriptor's position on; too_long if it fills the buffer.
[[nodiscard]] ReadExpected<std::string_view> read_text(int fd, std::span<char> buffer);

// Opens, reads whole, closes.
[[nodiscard]] ReadExpected<std::string_view> read_text_at(int dirfd, const char* name,
                                                          std::span<char> buffer);

// The target of a link under `dirfd`; too_long if it may have been cut to the buffer.
[[nodiscard]] ReadExpected<std::string_view> read_link_at(int dirfd, const char* name,
                                                          std::span<char> buffer);

}  // namespace kitty::procfs
