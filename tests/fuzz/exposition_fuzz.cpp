// libFuzzer target: the exposition reader and checker on any bytes, and the writer on any label value.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/exposition.h"
#include "http/exposition_reader.h"
#include "tests/exposition_check.h"

using namespace kitty::http;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)check_exposition(input);

  // Whatever the value, the text is well-formed and the reader gives back one series of the same labels.
  ExpositionWriter writer;
  writer.begin();
  writer.family("kitty_fuzz", "H.", MetricType::gauge);
  const std::string prebuilt = format_labels({{"job", input}});
  writer.sample(prebuilt, {{"peer", input}}, 1);
  if (!check_exposition(writer.text()).empty()) std::abort();
  ExpositionReader reader(writer.text());
  for (int samples = 0;;) {
    const auto item = reader.next();
    if (!item) std::abort();
    if (item->kind == ItemKind::sample) ++samples;
    if (item->kind == ItemKind::sample && item->label("job") != item->label("peer")) std::abort();
    if (item->kind != ItemKind::end) continue;
    if (samples != 1) std::abort();
    return 0;
  }
}
