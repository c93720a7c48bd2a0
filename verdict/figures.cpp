#include "verdict/figures.h"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace kitty::verdict {

std::string print(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return {text, std::min<size_t>(static_cast<size_t>(std::max(length, 0)), sizeof text - 1)};
}

std::string ms(double seconds) { return print(seconds < 0.001 ? "%.2f ms" : "%.3g ms", seconds * 1000); }
std::string percent(double share) { return print("%.3g %%", share * 100); }
std::string kilobytes(double bytes) { return print("%.0f kB", bytes / 1000); }

double lower_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace kitty::verdict
