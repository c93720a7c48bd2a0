#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace kitty {

Status open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest descriptor that is free (open(2)), so this one. Inherited like any standard stream.
    int opened = open("/dev/null", O_RDWR | O_NOCTTY);         // NOLINT(android-cloexec-open)
    if (opened < 0) opened = open("/", O_PATH | O_DIRECTORY);  // NOLINT(android-cloexec-open)
    if (opened != stream) return fail("open standard stream", std::to_string(stream), opened < 0 ? errno : 0);
  }
  return {};
}

}  // namespace kitty
