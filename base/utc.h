// A moment as text. Not by gmtime_r(): the C library's reads time zones, and with them a static binary gets
// the reader of /etc/localtime, all of scanf() and 128-bit floating point, 110 kB. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace kitty {

// "2026-01-02T03:04:05", UTC, without a zone's letter; `seconds` are since the epoch. What lies outside the
// years 0 to 9999 becomes their first or last second.
[[nodiscard]] std::string utc_text(int64_t seconds);

}  // namespace kitty
