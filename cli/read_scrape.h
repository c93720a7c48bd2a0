// A scrape's text into plain data: where the exposition's reader meets the verdict's builder. Pure.
#pragma once

#include <string_view>

#include "base/error.h"
#include "verdict/scrape.h"

namespace kitty::cli {

// Fails, with the line, on what is no whole scrape of kitty: a wrong figure could make a wrong name.
[[nodiscard]] Result<verdict::Scrape> read_scrape(std::string_view text);

}  // namespace kitty::cli
