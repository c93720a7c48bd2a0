#include "base/utc.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace kitty {

std::string utc_text(int64_t seconds) {
  using std::chrono::sys_days;
  using std::chrono::sys_seconds;
  constexpr sys_seconds kFirst = sys_days(std::chrono::year(0) / 1 / 1);
  constexpr sys_seconds kLast = sys_days(std::chrono::year(10000) / 1 / 1) - std::chrono::seconds(1);
  const sys_seconds moment = std::clamp(sys_seconds(std::chrono::seconds(seconds)), kFirst, kLast);
  const auto midnight = std::chrono::floor<std::chrono::days>(moment);
  const std::chrono::year_month_day date(midnight);
  const std::chrono::hh_mm_ss time(moment - midnight);
  char text[64];
  const int length =
      snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
               static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
               static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
               static_cast<int>(time.seconds().count()));
  return {text, static_cast<size_t>(length)};
}

}  // namespace kitty
