#include "cli/ending.h"

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/log.h"

namespace kitty::cli {

int refuse(int status, const Error& error) {
  log::print("kitty: " + error.message() + '\n');
  return status;
}

int print_report(std::string_view text, int status, int otherwise) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return status;
  return refuse(otherwise, {.operation = "write the report", .object = {}, .err = errno, .detail = {}});
}

}  // namespace kitty::cli
