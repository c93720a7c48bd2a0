// The terminal on stdin and stdout while a program draws on it: alternate screen, no cursor, keys unechoed
// and one by one. Whoever owns this has the terminal; destruction gives it back, and so does a crash. At most
// one at a time; not thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "base/fd.h"

namespace kitty::cli {

class Terminal {
 public:
  // Stdout is a terminal, and one that knows escape codes: TERM is not "dumb".
  [[nodiscard]] static bool is_usable();

  // Takes the terminal, unless the process is in the background: see take().
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Takes it once the process is in the foreground (after fg); nothing where it is taken.
  void take();
  // Gives it back: settings, cursor, main screen.
  void give_back();

  // Columns and rows, within what a frame may sensibly take; 80 and 24 where the terminal does not say.
  struct Size {
    size_t columns, rows;
  };
  [[nodiscard]] static Size size();

  // Writes the frame in one write(2). A terminal that takes no more (Ctrl-S, a slow line) keeps the rest
  // waiting, and frames that come meanwhile are left out. False where the terminal is gone.
  [[nodiscard]] bool draw(std::string frame);
  // Writes more of what waits. False where the terminal is gone.
  [[nodiscard]] bool flush();
  [[nodiscard]] bool has_waiting() const { return !waiting_.empty(); }
  [[nodiscard]] int out() const { return out_ ? out_.get() : 1; }

  // Whether stdin gives keys.
  [[nodiscard]] bool has_keys() const { return has_keys_; }
  // Reads what was typed; false where q was among it. To be called when stdin is readable.
  [[nodiscard]] bool read_keys();

 private:
  Fd out_;  // stdout's terminal, opened anew so that its writes do not wait; stdout itself stays as it was
  std::string waiting_;
  bool has_keys_ = false;
};

// Whether the locale's variables say UTF-8.
[[nodiscard]] bool locale_is_utf8();

}  // namespace kitty::cli
