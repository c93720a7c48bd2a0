// The BPF object compiled from kprobe.bpf.c, as the build put it into the binary. Lives as long as the
// program.
#pragma once

#include <cstddef>
#include <span>

namespace kitty::collector {

[[nodiscard]] std::span<const std::byte> embedded_object();

}  // namespace kitty::collector
