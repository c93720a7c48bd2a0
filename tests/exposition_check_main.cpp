// exposition-check FILE|-: reads an exposition, prints every breach of kitty's promises. Exit 0 none, 1 some,
// 3 usage.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/exposition_check.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: exposition-check FILE|-\n");
    return 3;
  }
  const bool is_stdin = strcmp(argv[1], "-") == 0;
  FILE* file = is_stdin ? stdin : fopen(argv[1], "rb");
  if (file == nullptr) {
    fprintf(stderr, "exposition-check: open '%s': %s\n", argv[1], strerror(errno));
    return 1;
  }
  std::string text;
  char buffer[65536];
  // One read beyond the cap is enough for the checker to say so.
  while (text.size() <= kitty::http::kMaxTextBytes) {
    const size_t n = fread(buffer, 1, sizeof buffer, file);
    if (n == 0) break;
    text.append(buffer, n);
  }
  const bool failed = ferror(file) != 0;
  if (!is_stdin) fclose(file);
  if (failed) {
    fprintf(stderr, "exposition-check: read '%s': %s\n", argv[1], strerror(errno));
    return 1;
  }
  if (text.empty()) {
    fprintf(stderr, "exposition-check: '%s' is empty\n", argv[1]);
    return 1;
  }
  const auto problems = kitty::http::check_exposition(text);
  for (const std::string& problem : problems) printf("%s\n", problem.c_str());
  return problems.empty() ? 0 : 1;
}
