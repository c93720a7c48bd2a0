#include "cli/read_scrape.h"

#include <functional>
#include <string>

#include "http/exposition_reader.h"

namespace kitty::cli {

Result<verdict::Scrape> read_scrape(std::string_view text) {
  if (text.empty()) return fail("read scrape", {}, 0, "it is empty");
  if (text.size() > http::kMaxTextBytes)
    return fail("read scrape", {}, 0, "more than 4 MiB: not a scrape of kitty");
  verdict::ScrapeBuilder builder;
  http::ExpositionReader reader(text);
  for (;;) {
    const auto item = reader.next();
    if (!item) return std::unexpected(item.error());
    if (item->kind == http::ItemKind::end) break;
    if (item->kind != http::ItemKind::sample) continue;
    const char* problem =
        builder.add(item->name, item->value, [&item](std::string_view label) { return item->label(label); });
    if (problem != nullptr) return fail("read scrape", "line " + std::to_string(item->line), 0, problem);
  }
  if (!text.ends_with('\n')) return fail("read scrape", {}, 0, "its last line is cut off");
  const char* problem = nullptr;
  verdict::Scrape scrape = builder.finish(problem);
  if (problem != nullptr) {
    return fail("read scrape", {}, 0,
                std::string(problem) + " (all that /metrics answers is needed, unfiltered)");
  }
  scrape.fingerprint = std::hash<std::string_view>{}(text);
  return scrape;
}

}  // namespace kitty::cli
