// How the commands end: their report on stdout, or one line on stderr that says why there is none.
#pragma once

#include <string_view>

#include "base/error.h"

namespace kitty::cli {

inline constexpr int kWrongUsage = 3;  // exit status, of every command

// Prints "kitty: " and the error's line on stderr. Returns `status`.
[[nodiscard]] int refuse(int status, const Error& error);

// Prints a whole report on stdout. Returns `status`, or `otherwise`, with a line on stderr, where it could
// not.
[[nodiscard]] int print_report(std::string_view text, int status, int otherwise);

}  // namespace kitty::cli
