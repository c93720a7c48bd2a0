// Reads Prometheus' text format 0.0.4, as kitty and others write it: one line at a time, nothing copied but
// label values that hold an escape.
//
// Ownership: the caller's text must outlive the reader; what item() returned is valid until the next call of
// next(). Thread-safety: none. Errors name the line. Bounds: kMaxSampleLabels labels a sample; more is an
// error. It checks the form of each line. That series are unique, families contiguous and buckets cumulative
// is for the reader's user to judge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "http/exposition.h"

namespace kitty::http {

inline constexpr size_t kMaxSampleLabels = 64;

enum class ItemKind { end, help, type, sample };

struct Item {
  ItemKind kind = ItemKind::end;
  size_t line = 0;             // 1 is the first
  std::string_view name = {};  // help, type: the family; sample: with its suffix, such as _bucket
  std::string_view text =
      {};              // help: the raw text; type: "counter", "gauge", "histogram", "summary" or "untyped"
  Labels labels = {};  // sample: in the order of the text, values unescaped
  double value = 0;    // sample
  std::optional<int64_t> timestamp_ms = std::nullopt;

  // A sample's label; empty where it is absent, as Prometheus sees it.
  [[nodiscard]] std::string_view label(std::string_view label_name) const;
};

class ExpositionReader {
 public:
  explicit ExpositionReader(std::string_view text) : rest_(text) {}

  // The next HELP, TYPE or sample; other comments and blank lines are passed over. ItemKind::end at the end
  // of the text, and from then on. After an error the reader stands behind the line at fault, so that one may
  // go on.
  [[nodiscard]] Result<Item> next();

 private:
  [[nodiscard]] Result<Item> parse_sample(std::string_view line);

  std::string_view rest_;
  size_t line_ = 0;
  std::array<Label, kMaxSampleLabels> labels_;
  std::string unescaped_;
};

// [a-zA-Z_:][a-zA-Z0-9_:]* and [a-zA-Z_][a-zA-Z0-9_]*
[[nodiscard]] bool is_metric_name(std::string_view name);
[[nodiscard]] bool is_label_name(std::string_view name);

}  // namespace kitty::http
