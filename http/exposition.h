// Writes Prometheus' text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats): HELP and TYPE
// once a family, one sample a line, no timestamps (so that a vanished series goes stale at once).
//
// Ownership: the writer owns its text and allocates only while that grows; text() may be swapped for an older
// one. Thread-safety: none; one thread writes. Trusted: metric and label names and help texts, which are
// kitty's own constants, and that a family is opened once and a series written once. Not trusted: label
// values, which come from other processes' environments.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kitty::http {

// The text never grows beyond this: a series that might not fit is dropped whole and counted.
inline constexpr size_t kMaxTextBytes = size_t{4} << 20;
// A label value is cut here, on a code point's boundary, before escaping.
inline constexpr size_t kMaxLabelValueBytes = 128;
// "text/plain" alone fails a scrape by Prometheus 3.
inline constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

enum class MetricType { counter, gauge, histogram, summary };

struct Label {
  std::string_view name;
  std::string_view value;
};
using Labels = std::span<const Label>;

// A sample's value as text: integers exact, doubles in the shortest form that reads back the same, NaN, +Inf,
// -Inf.
class Value {
 public:
  // Implicit: every arithmetic type but bool and char is a value.
  template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
  Value(T value) {
    if constexpr (std::signed_integral<T>) {
      format_signed(value);
    } else {
      format_unsigned(value);
    }
  }
  Value(double value);

  [[nodiscard]] std::string_view text() const { return {text_, size_}; }

 private:
  void format_signed(int64_t value);
  void format_unsigned(uint64_t value);
  [[nodiscard]] bool format_decimal(double value);  // false: not a decimal of at most nine places

  char text_[32];  // the longest double is 24 bytes: -2.2250738585072014e-308
  size_t size_ = 0;
};

// Appends `value` as it stands between a label's quotes: bytes that are not UTF-8, and what steers a terminal
// or is not to be seen (is_unprintable(), base/utf8.h), replaced by U+FFFD, cut at kMaxLabelValueBytes,
// backslash, quote and newline escaped. At most kMaxEscapedBytes are appended. A newline comes in no other
// program's text (collector/identity.h).
void append_label_value(std::string& out, std::string_view value);
inline constexpr size_t kMaxEscapedBytes = 2 * kMaxLabelValueBytes;

// Appends `name="value"`, likewise.
void append_label(std::string& out, const Label& label);

// `pid="7",rank="0"`: for labels that many series share, formatted once. Values as by append_label_value().
[[nodiscard]] std::string format_labels(Labels labels);
[[nodiscard]] inline std::string format_labels(std::initializer_list<Label> labels) {
  return format_labels(Labels(labels.begin(), labels.size()));
}

// A histogram's upper bounds, formatted once. Ascending and finite; +Inf is added by the writer.
class HistogramBounds {
 public:
  explicit HistogramBounds(std::span<const double> bounds);
  // Without +Inf; a histogram has size() + 1 buckets.
  [[nodiscard]] size_t size() const { return texts_.size(); }
  [[nodiscard]] std::string_view text(size_t i) const { return texts_[i]; }

 private:
  std::vector<std::string> texts_;
};

class ExpositionWriter {
 public:
  explicit ExpositionWriter(size_t max_bytes = kMaxTextBytes) : max_bytes_(max_bytes) {}

  // Empties the text and the count of dropped series, keeps the memory.
  void begin();

  // Opens a family: what follows belongs to it. HELP and TYPE are written with its first series, so a family
  // without series leaves no trace. The views must live until the next family() or begin().
  void family(std::string_view name, std::string_view help, MetricType type);

  // One series of a counter or gauge. `prebuilt` comes from format_labels() and may be empty.
  void sample(std::string_view prebuilt, Labels extra, const Value& value);
  void sample(std::string_view prebuilt, std::initializer_list<Label> extra, const Value& value) {
    sample(prebuilt, Labels(extra.begin(), extra.size()), value);
  }
  void sample(std::string_view prebuilt, const Value& value) { sample(prebuilt, Labels(), value); }

  // One series of a histogram: a _bucket line for each bound and for +Inf, then _sum and _count. `cumulative`
  // holds bounds.size() + 1 counts, none less than the one before it; the last is the count. Any other length
  // drops the series.
  void histogram(std::string_view prebuilt, Labels extra, const HistogramBounds& bounds,
                 std::span<const uint64_t> cumulative, double sum);

  // One series of a summary without quantiles: _sum and _count.
  void summary(std::string_view prebuilt, Labels extra, double sum, uint64_t count);
  void summary(std::string_view prebuilt, std::initializer_list<Label> extra, double sum, uint64_t count) {
    summary(prebuilt, Labels(extra.begin(), extra.size()), sum, count);
  }

  // What was written since begin(): empty, or complete lines.
  [[nodiscard]] std::string& text() { return text_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] size_t max_bytes() const { return max_bytes_; }
  // Series (a histogram is one) that begin() and the cap kept out of this text.
  [[nodiscard]] uint64_t series_dropped() const { return series_dropped_; }

 private:
  // True where `lines` lines of this family, its header if due, and `more` further bytes a line fit; else
  // counts a drop.
  bool make_room(size_t lines, size_t line_bytes);
  void line(std::string_view suffix, std::string_view prebuilt, Labels extra, std::string_view bound,
            const Value& value);

  const size_t max_bytes_;
  std::string text_;
  std::string_view name_;
  std::string_view help_;
  MetricType type_ = MetricType::gauge;
  bool header_due_ = false;
  uint64_t series_dropped_ = 0;
};

}  // namespace kitty::http
