// logfmt on stderr: `ts=2026-01-02T03:04:05.678Z level=info msg="..." key=value`. One write(2) a line, so
// lines of several threads never mix. A line that stderr does not take is dropped and counted. Thread-safe.
#pragma once

#include <cstdint>
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

// From now on nothing waits for stderr: a pipe that is full, a terminal or socket that nobody reads costs
// lines, not time. The descriptor's own flags, which other programs share, stay as they are. Once, before
// there are threads. A file is written to as before.
void never_wait();

// Since the start: lines that stderr has not taken, or not whole.
[[nodiscard]] uint64_t lines_dropped();

// Lines that are no log, as they are; `text` ends in a newline.
void print(std::string_view text);

void debug(std::string_view message, std::initializer_list<Field> fields = {});
void info(std::string_view message, std::initializer_list<Field> fields = {});
void warn(std::string_view message, std::initializer_list<Field> fields = {});
void error(std::string_view message, std::initializer_list<Field> fields = {});

// The line without timestamp, as the tests read it.
[[nodiscard]] std::string format_line(Level level, std::string_view message,
                                      std::initializer_list<Field> fields);

}  // namespace kitty::log
