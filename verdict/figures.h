// The median, and figures as the sentences of a verdict show them. Pure.
#pragma once

#include <string>
#include <vector>

namespace kitty::verdict {

// As printf() writes it; cut at 511 bytes.
[[gnu::format(printf, 1, 2)]] [[nodiscard]] std::string print(const char* format, ...);

[[nodiscard]] std::string ms(double seconds);       // "0.25 ms", "104 ms"
[[nodiscard]] std::string percent(double share);    // 0.0312: "3.12 %"
[[nodiscard]] std::string kilobytes(double bytes);  // "87 kB"; a kilobyte is 1000 bytes

// Of an even count the lower of the two in the middle; 0 of none.
[[nodiscard]] double lower_median(std::vector<double> values);

}  // namespace kitty::verdict
