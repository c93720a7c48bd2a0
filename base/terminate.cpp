// What std::terminate() does, and so what an exception that nobody catches does: one line on stderr, then
// abort(). Defined in place of libstdc++'s (its manual, "Verbose Terminate Handler"), which prints the same
// with the type's name demangled; the demangler is 47 kB of a static binary.
#include <atomic>
#include <cstdlib>
#include <exception>

#include "base/log.h"

namespace {

void print(const char* text) { kitty::log::print(text); }

}  // namespace

namespace __gnu_cxx {  // NOLINT(bugprone-reserved-identifier)

void __verbose_terminate_handler() {  // NOLINT(bugprone-reserved-identifier)
  static std::atomic_flag entered;
  // An exception's destructor or what() may end here, too.
  if (entered.test_and_set()) std::abort();
  print("kitty: ended by ");
  const std::exception_ptr thrown = std::current_exception();
  if (!thrown) {
    print("std::terminate()\n");
    std::abort();
  }
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& exception) {
    print("an uncaught exception: ");
    print(exception.what());
    print("\n");
  } catch (...) {
    print("an uncaught exception of unknown type\n");
  }
  std::abort();
}

}  // namespace __gnu_cxx
