// `kitty check`: looks at everything that running the agent takes - kernel, hooks, capabilities, procfs, the
// address, the watched processes - and prints one screen. Really attaches each hook, and detaches it again;
// really listens on the address, for a moment. Leaves nothing behind.
#pragma once

#include <span>
#include <string_view>

namespace kitty::cli {

[[nodiscard]] std::string_view check_help_text();

// The whole command, `arguments` behind the word "check": the agent's flags, and --json. Returns the exit
// status: 0 everything works, 1 the agent would serve some of it, 2 none, 3 wrong usage.
[[nodiscard]] int check(std::span<const std::string_view> arguments);

}  // namespace kitty::cli
