#include "http/exposition.h"

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/utf8.h"

namespace kitty::http {

namespace {

constexpr size_t kMaxValueBytes = 32;

std::string_view type_name(MetricType type) {
  switch (type) {
    case MetricType::counter:
      return "counter";
    case MetricType::gauge:
      return "gauge";
    case MetricType::histogram:
      return "histogram";
    case MetricType::summary:
      return "summary";
  }
  return "untyped";
}

// `{`, `}`, quotes, separators: what a line costs beyond names, values and labels.
constexpr size_t kLineOverhead = sizeof("{,le=\"+Inf\"} \n");
constexpr size_t kLabelOverhead = sizeof(",=\"\"");

}  // namespace

// The shortest decimal that reads back as `value`, without std::to_chars(double), whose tables are 130 KB of
// the binary.
Value::Value(double value) {
  if (std::isnan(value) || std::isinf(value)) {
    const std::string_view special = std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
    memcpy(text_, special.data(), special.size());
    size_ = special.size();
    return;
  }
  if (format_decimal(value)) return;
  // 15 digits are kept by every double, 17 tell any two apart (DBL_DIG, DBL_DECIMAL_DIG). kitty never calls
  // setlocale(), so the decimal point is one.
  for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; ++digits) {
    size_ = static_cast<size_t>(snprintf(text_, sizeof text_, "%.*g", digits, value));
    if (strtod(text_, nullptr) == value) return;
  }
}

// Sums of microseconds, the bulk of what kitty writes, are decimals of few digits, and a tenth of
// snprintf()'s price. n / 1e9 is rounded once, as a parser rounds the decimal n * 10^-9, so equality means
// that the text reads back as `value`; below 10^15 it is the only such decimal of so few digits, hence the
// shortest.
bool Value::format_decimal(double value) {
  constexpr double kScale = 1e9;
  constexpr int kFractionDigits = 9;
  const double size = std::fabs(value);
  const double scaled = std::round(size * kScale);
  if (scaled >= 1e15 || scaled / kScale != size || (scaled == 0 && std::signbit(value))) return false;
  const auto units = static_cast<uint64_t>(scaled);
  char* out = text_;
  if (std::signbit(value)) *out++ = '-';
  out = std::to_chars(out, text_ + sizeof text_, units / uint64_t{1'000'000'000}).ptr;
  if (uint64_t fraction = units % uint64_t{1'000'000'000}; fraction != 0) {
    *out = '.';
    for (int i = kFractionDigits; i > 0; --i) {
      out[i] = static_cast<char>('0' + fraction % 10);
      fraction /= 10;
    }
    out += kFractionDigits + 1;
    while (out[-1] == '0') --out;
  }
  size_ = static_cast<size_t>(out - text_);
  return true;
}

void Value::format_signed(int64_t value) {
  size_ = static_cast<size_t>(std::to_chars(text_, text_ + sizeof text_, value).ptr - text_);
}

void Value::format_unsigned(uint64_t value) {
  size_ = static_cast<size_t>(std::to_chars(text_, text_ + sizeof text_, value).ptr - text_);
}

void append_label_value(std::string& out, std::string_view value) {
  size_t used = 0;
  while (!value.empty()) {
    const size_t valid = code_point_bytes(value);
    std::string_view piece = value.substr(0, valid);
    // Most are visible ASCII, which is settled here; a newline is escaped below.
    const bool plain = valid == 1 && piece.front() >= ' ' && piece.front() < 0x7f;
    if (!plain && piece != "\n" && (valid == 0 || is_unprintable(piece))) piece = kReplacementCharacter;
    if (piece.size() > kMaxLabelValueBytes - used) return;
    used += piece.size();
    if (piece == "\n") {
      out += "\\n";
    } else {
      if (piece == "\\" || piece == "\"") out += '\\';
      out += piece;
    }
    value.remove_prefix(valid == 0 ? 1 : valid);
  }
}

void append_label(std::string& out, const Label& label) {
  out += label.name;
  out += "=\"";
  append_label_value(out, label.value);
  out += '"';
}

std::string format_labels(Labels labels) {
  std::string out;
  for (const Label& label : labels) {
    if (!out.empty()) out += ',';
    append_label(out, label);
  }
  return out;
}

HistogramBounds::HistogramBounds(std::span<const double> bounds) {
  texts_.reserve(bounds.size());
  for (const double bound : bounds) texts_.emplace_back(Value(bound).text());
}

void ExpositionWriter::begin() {
  text_.clear();
  series_dropped_ = 0;
  name_ = help_ = {};
  header_due_ = false;
}

void ExpositionWriter::family(std::string_view name, std::string_view help, MetricType type) {
  name_ = name;
  help_ = help;
  type_ = type;
  header_due_ = true;
}

bool ExpositionWriter::make_room(size_t lines, size_t line_bytes) {
  size_t needed = lines * line_bytes;
  // Twice the help: each of its bytes may need escaping.
  if (header_due_) needed += sizeof("# HELP  \n# TYPE  histogram\n") + 2 * name_.size() + 2 * help_.size();
  if (text_.size() > max_bytes_ || needed > max_bytes_ - text_.size()) {
    ++series_dropped_;
    return false;
  }
  if (text_.capacity() - text_.size() < needed) {
    text_.reserve(std::min(max_bytes_, std::max(2 * text_.capacity(), text_.size() + needed)));
  }
  if (!header_due_) return true;
  header_due_ = false;
  text_ += "# HELP ";
  text_ += name_;
  text_ += ' ';
  for (const char c : help_) {
    if (c == '\n') {
      text_ += "\\n";
      continue;
    }
    if (c == '\\') text_ += '\\';
    text_ += c;
  }
  text_ += "\n# TYPE ";
  text_ += name_;
  text_ += ' ';
  text_ += type_name(type_);
  text_ += '\n';
  return true;
}

void ExpositionWriter::line(std::string_view suffix, std::string_view prebuilt, Labels extra,
                            std::string_view bound, const Value& value) {
  text_ += name_;
  text_ += suffix;
  char separator = '{';
  if (!prebuilt.empty()) {
    text_ += separator;
    text_ += prebuilt;
    separator = ',';
  }
  for (const Label& label : extra) {
    text_ += separator;
    append_label(text_, label);
    separator = ',';
  }
  if (!bound.empty()) {
    text_ += separator;
    text_ += "le=\"";
    text_ += bound;
    text_ += '"';
    separator = ',';
  }
  if (separator == ',') text_ += '}';
  text_ += ' ';
  text_ += value.text();
  text_ += '\n';
}

// The most bytes a line with these labels can take, whatever its suffix, bound and value.
static size_t max_line_bytes(std::string_view name, std::string_view prebuilt, Labels extra) {
  size_t bytes = name.size() + sizeof("_bucket") + prebuilt.size() + kLineOverhead + 2 * kMaxValueBytes;
  for (const Label& label : extra) bytes += label.name.size() + kLabelOverhead + kMaxEscapedBytes;
  return bytes;
}

void ExpositionWriter::sample(std::string_view prebuilt, Labels extra, const Value& value) {
  if (!make_room(1, max_line_bytes(name_, prebuilt, extra))) return;
  line({}, prebuilt, extra, {}, value);
}

void ExpositionWriter::histogram(std::string_view prebuilt, Labels extra, const HistogramBounds& bounds,
                                 std::span<const uint64_t> cumulative, double sum) {
  if (cumulative.size() != bounds.size() + 1) {
    ++series_dropped_;
    return;
  }
  if (!make_room(cumulative.size() + 2, max_line_bytes(name_, prebuilt, extra))) return;
  for (size_t i = 0; i < bounds.size(); ++i) line("_bucket", prebuilt, extra, bounds.text(i), cumulative[i]);
  line("_bucket", prebuilt, extra, "+Inf", cumulative.back());
  line("_sum", prebuilt, extra, {}, sum);
  line("_count", prebuilt, extra, {}, cumulative.back());
}

void ExpositionWriter::summary(std::string_view prebuilt, Labels extra, double sum, uint64_t count) {
  if (!make_room(2, max_line_bytes(name_, prebuilt, extra))) return;
  line("_sum", prebuilt, extra, {}, sum);
  line("_count", prebuilt, extra, {}, count);
}

}  // namespace kitty::http
