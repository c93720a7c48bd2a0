#include "http/page.h"

asm(".section .rodata\n"
    ".global kitty_page\n"
    "kitty_page:\n"
    ".incbin \"http/page.html\"\n"
    ".global kitty_page_end\n"
    "kitty_page_end:\n"
    ".previous\n");

extern "C" {
extern const char kitty_page[];
extern const char kitty_page_end[];
}

namespace kitty::http {

std::string page(std::string_view telemetry_path) {
  constexpr std::string_view kPlaceholder = "/TELEMETRY-PATH";
  std::string text(kitty_page, kitty_page_end);
  if (const size_t at = text.find(kPlaceholder); at != std::string::npos) {
    text.replace(at, kPlaceholder.size(), telemetry_path);
  }
  return text;
}

}  // namespace kitty::http
