// libFuzzer target: arbitrary texts as scrapes of one or more nodes, through window, verdict and report. What
// is refused is refused; what is judged names units that exist, and its reports are text. The input is cut at
// lines of "#next SECONDS": each part is a scrape, taken that much later.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "cli/read_scrape.h"
#include "cli/report.h"
#include "verdict/judge.h"
#include "verdict/watch.h"
#include "verdict/window.h"

using namespace kitty;

static void expect_printable(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = code_point_bytes(text);
    if (bytes == 0 || (text.front() != '\n' && is_unprintable(text.substr(0, bytes)))) std::abort();
    text.remove_prefix(bytes);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kNext = "#next ";
  std::vector<verdict::Scrape> scrapes;
  double time_s = 1000;
  for (;;) {
    const size_t cut = rest.find(kNext);
    auto scrape = cli::read_scrape(rest.substr(0, cut));
    if (scrape) {
      scrape->target = "n" + std::to_string(scrapes.size());
      scrape->time_s = time_s;
      scrape->live = size % 2 == 0;
      scrapes.push_back(std::move(*scrape));
    }
    if (cut == std::string_view::npos) break;
    rest.remove_prefix(cut + kNext.size());
    time_s += rest.empty() ? 0 : rest.front() - '0';
    rest.remove_prefix(std::min(rest.find('\n') + 1, rest.size()));
  }
  const auto nodes = verdict::group_by_node(scrapes);
  cli::Report report;
  verdict::Watch watch;
  for (verdict::JobVerdict& one : verdict::judge(verdict::make_window(nodes))) {
    for (const size_t unit : one.culprits) {
      if (unit >= one.units.size()) std::abort();
    }
    for (const auto& [a, b] : one.links) {
      if (a >= one.units.size() || b >= one.units.size() || a == b) std::abort();
    }
    report.jobs.push_back({.verdict = std::move(one), .since_s = time_s});
  }
  for (double t = 1000; t < 1010; ++t)
    watch.add(t, verdict::judge(verdict::make_window(verdict::between(nodes, t, t + 3))));
  const std::string text = cli::text_report(report);
  expect_printable(text);
  expect_printable(cli::json_report(report));
  return 0;
}
