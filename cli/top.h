// `kitty top [TARGET...]`: what `kitty diagnose` says, live, on a terminal or as lines.
#pragma once

#include <span>
#include <string_view>

namespace kitty::cli {

// The whole command. Returns the exit status where nothing was started: 0 after --help, 3 wrong usage. Else
// it ends the process with status 0, for fetches of up to 5 s may be under way.
[[nodiscard]] int top(std::span<const std::string_view> arguments);

}  // namespace kitty::cli
