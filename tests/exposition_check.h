// What kitty promises of its exposition and promtool does not look at: check_exposition() lists every breach,
// each with its line. Pure; for tests and for tests/exposition_check_main.cpp.
//
// Rules: valid UTF-8, final newline, at most kMaxTextBytes; every line readable (http/exposition_reader.h);
// HELP, then TYPE, once a family and before its samples; families contiguous; series unique; label names
// valid, once a sample and not reserved; label values at most kMaxLabelValueBytes; no timestamps; counters
// end in _total and are not negative; histograms have ascending, cumulative buckets up to +Inf, which equals
// _count, and a _sum; summaries a _sum and _count.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "http/exposition.h"
#include "http/exposition_reader.h"

namespace kitty::http {

namespace check_detail {

using LabelSet = std::vector<std::pair<std::string, std::string>>;  // sorted

struct Histogram {
  size_t line = 0;
  double last_bound = -std::numeric_limits<double>::infinity();
  double last_count = 0;
  bool has_buckets = false;
  std::optional<double> infinity, sum, count;
};

struct Family {
  std::string name, type;
  bool has_help = false;
  std::map<LabelSet, Histogram> parts;  // of histograms and summaries
};

inline std::string_view base_name(std::string_view sample, std::string_view type) {
  std::vector<std::string_view> suffixes;
  if (type == "histogram") suffixes = {"_bucket", "_sum", "_count"};
  if (type == "summary") suffixes = {"_sum", "_count"};
  for (std::string_view suffix : suffixes) {
    if (sample.ends_with(suffix)) return sample.substr(0, sample.size() - suffix.size());
  }
  return sample;
}

inline std::string describe(std::string_view name, const LabelSet& labels) {
  std::string out(name);
  for (const auto& [label, value] : labels) out += ' ' + label + '=' + value;
  return out;
}

}  // namespace check_detail

// Empty where all is well; else lines such as "line 7: series written twice: up pid=1".
inline std::vector<std::string> check_exposition(std::string_view text) {
  using namespace check_detail;
  std::vector<std::string> problems;
  auto problem = [&problems](size_t line, std::string_view what, std::string_view which = {}) {
    std::string out = "line " + std::to_string(line) + ": " + std::string(what);
    if (!which.empty()) out += ": " + std::string(which);
    problems.push_back(std::move(out));
  };

  if (text.size() > kMaxTextBytes) problem(0, "longer than the cap");
  if (!text.empty() && text.back() != '\n') {
    problem(1 + static_cast<size_t>(std::ranges::count(text, '\n')), "no newline at the end");
  }
  size_t utf8_line = 1;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t bytes = code_point_bytes(rest);
    if (bytes == 0) problem(utf8_line, "not UTF-8");
    if (bytes != 0 && rest.front() != '\n' && is_unprintable(rest.substr(0, bytes)))
      problem(utf8_line, "a character that steers a terminal");
    if (rest.front() == '\n') ++utf8_line;
    rest.remove_prefix(std::max<size_t>(bytes, 1));
  }

  std::set<std::string> finished;  // families that another one has followed
  std::set<std::pair<std::string, LabelSet>> series;
  Family family;

  auto finish = [&] {
    if (family.name.empty()) return;
    const bool is_histogram = family.type == "histogram";
    for (const auto& [labels, part] : family.parts) {
      const std::string which = describe(family.name, labels);
      if (!part.sum) problem(part.line, "no _sum", which);
      if (!part.count) problem(part.line, "no _count", which);
      if (!is_histogram) continue;
      if (!part.infinity) {
        problem(part.line, "no bucket le=\"+Inf\"", which);
      } else if (part.count && *part.infinity != *part.count) {
        problem(part.line, "bucket le=\"+Inf\" is not _count", which);
      }
    }
    finished.insert(family.name);
    family = {};
  };

  auto open = [&](size_t line, std::string_view name) {
    if (name == family.name) return;
    finish();
    family.name = name;
    if (finished.contains(family.name)) problem(line, "family in two places", name);
  };

  ExpositionReader reader(text);
  for (;;) {
    const auto item = reader.next();
    if (!item) {
      problems.push_back(item.error().object + ": " + item.error().detail);
      continue;
    }
    if (item->kind == ItemKind::end) break;
    const size_t line = item->line;
    if (item->kind == ItemKind::help) {
      const bool again = item->name == family.name;
      open(line, item->name);
      if (again)
        problem(line, family.has_help ? "HELP twice" : "HELP after the family's first line", item->name);
      family.has_help = true;
      continue;
    }
    if (item->kind == ItemKind::type) {
      open(line, item->name);
      if (!family.has_help) problem(line, "TYPE without HELP before it", item->name);
      if (!family.type.empty()) problem(line, "TYPE twice", item->name);
      family.type = item->text;
      if (family.type == "untyped") problem(line, "untyped family", item->name);
      if (family.type == "counter" && !item->name.ends_with("_total")) {
        problem(line, "counter's name does not end in _total", item->name);
      }
      continue;
    }

    const std::string_view base = base_name(item->name, family.type);
    if (base != family.name) {
      open(line, item->name);
      problem(line, "sample without HELP and TYPE before it", item->name);
    } else if (family.type.empty()) {
      problem(line, "sample without TYPE before it", item->name);
      family.type = "untyped";
    }
    const std::string_view suffix = item->name.substr(std::min(item->name.size(), family.name.size()));
    const bool is_bucket = family.type == "histogram" && suffix == "_bucket";
    const bool has_parts = family.type == "histogram" || family.type == "summary";
    if (has_parts && suffix.empty()) problem(line, "histogram or summary without suffix", item->name);

    LabelSet labels;
    std::optional<std::string> bound;
    for (const Label& label : item->labels) {
      const bool is_bound = is_bucket && label.name == "le";
      if (label.name.starts_with("__")) problem(line, "reserved label name", label.name);
      if (!is_bound && (label.name == "le" || label.name == "quantile"))
        problem(line, "label has no place here", label.name);
      if (label.value.size() > kMaxLabelValueBytes) problem(line, "label value too long", label.name);
      labels.emplace_back(label.name, label.value);
    }
    std::ranges::sort(labels);
    for (size_t i = 1; i < labels.size(); ++i) {
      if (labels[i].first == labels[i - 1].first) problem(line, "label twice", labels[i].first);
    }
    if (!series.emplace(item->name, labels).second)
      problem(line, "series written twice", describe(item->name, labels));
    if (item->timestamp_ms) problem(line, "timestamp", item->name);
    const bool counts = family.type == "counter" || is_bucket || (has_parts && suffix == "_count");
    if (counts && !(item->value >= 0)) problem(line, "count is negative or not a number", item->name);
    if (!has_parts) continue;

    if (is_bucket) {
      const auto le = std::ranges::find(labels, "le", &LabelSet::value_type::first);
      if (le == labels.end()) {
        problem(line, "bucket without le", item->name);
        continue;
      }
      bound = le->second;
      labels.erase(le);
    }
    Histogram& part = family.parts[labels];
    if (part.line == 0) part.line = line;
    if (suffix == "_sum") part.sum = item->value;
    if (suffix == "_count") part.count = item->value;
    if (!bound) continue;
    const bool infinite = *bound == "+Inf";
    double upper = std::numeric_limits<double>::infinity();
    if (!infinite) {
      const auto [end, error] = std::from_chars(bound->data(), bound->data() + bound->size(), upper);
      if (error != std::errc() || end != bound->data() + bound->size() || !std::isfinite(upper)) {
        problem(line, "le is no number", *bound);
        continue;
      }
    }
    if (part.has_buckets && upper <= part.last_bound)
      problem(line, "buckets not ascending", describe(item->name, labels));
    if (part.has_buckets && item->value < part.last_count) {
      problem(line, "buckets not cumulative", describe(item->name, labels));
    }
    part.has_buckets = true;
    part.last_bound = upper;
    part.last_count = item->value;
    if (infinite) part.infinity = item->value;
  }
  finish();
  return problems;
}

}  // namespace kitty::http
