// logfmt on stderr: `ts=2026-01-02T03:04:05.678Z level=info msg="..." key=value`. One write(2) a line, so
// lines of several threads never mix. Thread-safe.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace kitty::log {

enum class Level { debug, info, warn, error };

struct Field {
  std::string_view key;
  std::string_view value;
};

// "debug", "info", "warn", "error"; nothing else.
[[nodiscard]] std::optional<Level> parse_level(std::string_view text);
// Lines below `level` are dropped. Default info.
void set_level(Level level);

void debug(std::string_view message, std::initializer_list<Field> fields = {});
void info(std::string_view message, std::initializer_list<Field> fields = {});
void warn(std::string_view message, std::initializer_list<Field> fields = {});
void error(std::string_view message, std::initializer_list<Field> fields = {});

// The line without timestamp, as the tests read it.
[[nodiscard]] std::string format_line(Level level, std::string_view message,
                                      std::initializer_list<Field> fields);

}  // namespace kitty::log
