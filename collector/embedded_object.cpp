#include "collector/embedded_object.h"

// KITTY_BPF_OBJECT is the object's path, given by the Makefile.
asm(".section .rodata\n"
    ".balign 16\n"
    ".global kitty_bpf_object\n"
    "kitty_bpf_object:\n"
    ".incbin \"" KITTY_BPF_OBJECT
    "\"\n"
    ".global kitty_bpf_object_end\n"
    "kitty_bpf_object_end:\n"
    ".previous\n");

extern "C" {
extern const std::byte kitty_bpf_object[];
extern const std::byte kitty_bpf_object_end[];
}

namespace kitty::collector {

std::span<const std::byte> embedded_object() { return {kitty_bpf_object, kitty_bpf_object_end}; }

}  // namespace kitty::collector
