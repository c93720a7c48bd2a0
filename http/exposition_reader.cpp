#include "http/exposition_reader.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace kitty::http {

namespace {

constexpr size_t kMaxValueBytes = 64;  // of a number's text; the longest double takes 24

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_byte(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }
bool is_blank(char c) { return c == ' ' || c == '\t'; }

void skip_blanks(std::string_view& text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
}

// Takes the longest prefix that could be a name; the caller judges whether it is one.
std::string_view take_name(std::string_view& text) {
  size_t n = 0;
  while (n < text.size() && (is_name_byte(text[n]) || text[n] == ':')) ++n;
  const std::string_view name = text.substr(0, n);
  text.remove_prefix(n);
  return name;
}

std::string_view take_word(std::string_view& text) {
  size_t n = 0;
  while (n < text.size() && !is_blank(text[n])) ++n;
  const std::string_view word = text.substr(0, n);
  text.remove_prefix(n);
  return word;
}

bool parse_timestamp(std::string_view word, int64_t& value) {
  const auto [ptr, ec] = std::from_chars(word.data(), word.data() + word.size(), value);
  return ec == std::errc() && ptr == word.data() + word.size();
}

// Decimal numbers, NaN, Inf, with a sign or without, in any case. strtod() and not std::from_chars(double),
// which brings its own tables; it also reads hexadecimal numbers and nan(...), which the format does not
// have.
bool parse_value(std::string_view word, double& value) {
  char text[kMaxValueBytes + 1];
  if (word.empty() || word.size() > kMaxValueBytes) return false;
  if (word.find_first_of(std::string_view("xX(\0", 4)) != std::string_view::npos) return false;
  memcpy(text, word.data(), word.size());
  text[word.size()] = '\0';
  char* end = nullptr;
  value = strtod(text, &end);
  if (end != text + word.size()) return false;
  const char last = text[word.size() - 1];
  return !std::isinf(value) || last < '0' || last > '9';  // 1e999 is no infinity
}

std::unexpected<Error> bad_line(size_t line, std::string_view detail) {
  return fail("read exposition", "line " + std::to_string(line), 0, detail);
}

}  // namespace

bool is_metric_name(std::string_view name) {
  if (name.empty() || (name.front() >= '0' && name.front() <= '9')) return false;
  for (const char c : name) {
    if (!is_name_byte(c) && c != ':') return false;
  }
  return true;
}

bool is_label_name(std::string_view name) {
  return is_metric_name(name) && name.find(':') == std::string_view::npos;
}

std::string_view Item::label(std::string_view label_name) const {
  for (const Label& one : labels) {
    if (one.name == label_name) return one.value;
  }
  return {};
}

Result<Item> ExpositionReader::next() {
  while (!rest_.empty()) {
    const size_t newline = rest_.find('\n');
    std::string_view line = rest_.substr(0, newline);
    rest_.remove_prefix(newline == std::string_view::npos ? rest_.size() : newline + 1);
    ++line_;
    skip_blanks(line);
    if (line.empty()) continue;
    if (line.front() != '#') return parse_sample(line);

    line.remove_prefix(1);
    skip_blanks(line);
    const std::string_view keyword = take_word(line);
    if (keyword != "HELP" && keyword != "TYPE") continue;
    skip_blanks(line);
    Item item{
        .kind = keyword == "HELP" ? ItemKind::help : ItemKind::type, .line = line_, .name = take_word(line)};
    if (!is_metric_name(item.name)) return bad_line(line_, "no valid metric name after HELP or TYPE");
    skip_blanks(line);
    item.text = line;
    if (item.kind == ItemKind::type && item.text != "counter" && item.text != "gauge" &&
        item.text != "histogram" && item.text != "summary" && item.text != "untyped") {
      return bad_line(line_, "unknown metric type");
    }
    return item;
  }
  return Item{.line = line_};
}

Result<Item> ExpositionReader::parse_sample(std::string_view line) {
  Item item{.kind = ItemKind::sample, .line = line_, .name = take_name(line)};
  if (!is_metric_name(item.name)) return bad_line(line_, "no valid metric name");
  skip_blanks(line);
  size_t count = 0;
  if (line.starts_with('{')) {
    line.remove_prefix(1);
    unescaped_.clear();
    unescaped_.reserve(line.size());  // what is unescaped is shorter, so views into it stay
    skip_blanks(line);
    while (!line.starts_with('}')) {
      if (count == labels_.size()) return bad_line(line_, "too many labels");
      Label& label = labels_[count++];
      label.name = take_name(line);
      if (!is_label_name(label.name)) return bad_line(line_, "no valid label name");
      skip_blanks(line);
      if (!line.starts_with('=')) return bad_line(line_, "no '=' after a label name");
      line.remove_prefix(1);
      skip_blanks(line);
      if (!line.starts_with('"')) return bad_line(line_, "label value is not quoted");
      line.remove_prefix(1);

      size_t n = 0;
      size_t kept = 0;  // of line, already in unescaped_
      const size_t start = unescaped_.size();
      while (n < line.size() && line[n] != '"') {
        if (line[n] != '\\') {
          ++n;
          continue;
        }
        if (n + 1 == line.size()) break;
        const char escaped = line[n + 1];
        if (escaped != '\\' && escaped != '"' && escaped != 'n')
          return bad_line(line_, "unknown escape in a label value");
        unescaped_.append(line, kept, n - kept);
        unescaped_ += escaped == 'n' ? '\n' : escaped;
        n += 2;
        kept = n;
      }
      if (n >= line.size() || line[n] != '"') return bad_line(line_, "label value is not closed");
      if (kept == 0) {
        label.value = line.substr(0, n);
      } else {
        unescaped_.append(line, kept, n - kept);
        label.value = std::string_view(unescaped_).substr(start);
      }
      line.remove_prefix(n + 1);
      skip_blanks(line);
      if (line.starts_with(',')) {
        line.remove_prefix(1);
        skip_blanks(line);
      } else if (!line.starts_with('}')) {
        return bad_line(line_, "neither ',' nor '}' after a label");
      }
    }
    line.remove_prefix(1);
  }
  item.labels = Labels(labels_.data(), count);
  skip_blanks(line);
  if (!parse_value(take_word(line), item.value)) return bad_line(line_, "value is not a number");
  skip_blanks(line);
  if (!line.empty()) {
    int64_t timestamp_ms = 0;
    if (!parse_timestamp(take_word(line), timestamp_ms)) return bad_line(line_, "timestamp is not a number");
    item.timestamp_ms = timestamp_ms;
    skip_blanks(line);
    if (!line.empty()) return bad_line(line_, "more than a value and a timestamp");
  }
  return item;
}

}  // namespace kitty::http
