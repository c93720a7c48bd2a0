#include "base/error.h"

#include <cstring>

namespace kitty {

namespace {
constexpr int kEnotsupp = 524;  // include/linux/errno.h: internal to the kernel, but bpf() returns it
}

std::string errno_text(int err) {
  if (err == kEnotsupp) return "Operation not supported (ENOTSUPP)";
  char buffer[128];
  return strerror_r(err, buffer, sizeof buffer);  // the GNU variant: returns the text
}

std::string Error::message() const {
  std::string text = operation;
  if (!object.empty()) text += " '" + object + "'";
  if (err != 0) text += ": " + errno_text(err);
  if (!detail.empty()) text += ": " + detail;
  return text;
}

std::unexpected<Error> fail(std::string_view operation, std::string_view object, int err,
                            std::string_view detail) {
  return std::unexpected(Error{std::string(operation), std::string(object), err, std::string(detail)});
}

}  // namespace kitty
