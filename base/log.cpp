#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>

#include "base/utc.h"

namespace kitty::log {

namespace {

std::atomic<Level> g_level{Level::info};

constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warn", "error"};

// logfmt quotes a value that holds a space, a quote, an equals sign or a control character, or is empty.
void append_value(std::string& out, std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) plain = false;
  }
  if (plain) {
    out += value;
    return;
  }
  out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      out += '?';
    } else {
      out += c;
    }
  }
  out += '"';
}

void emit(Level level, std::string_view message, std::initializer_list<Field> fields) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char milliseconds[32];
  snprintf(milliseconds, sizeof milliseconds, ".%03ldZ ", now.tv_nsec / 1000000);
  std::string line = "ts=" + utc_text(now.tv_sec) + milliseconds;
  line += format_line(level, message, fields);
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::optional<Level> parse_level(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == text) return static_cast<Level>(i);
  }
  return std::nullopt;
}

void set_level(Level level) { g_level.store(level, std::memory_order_relaxed); }

std::string format_line(Level level, std::string_view message, std::initializer_list<Field> fields) {
  std::string line = "level=";
  line += kNames[static_cast<size_t>(level)];
  line += " msg=";
  append_value(line, message);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  return line;
}

void debug(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::debug, message, fields);
}
void info(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::info, message, fields);
}
void warn(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::warn, message, fields);
}
void error(std::string_view message, std::initializer_list<Field> fields) {
  emit(Level::error, message, fields);
}

}  // namespace kitty::log
