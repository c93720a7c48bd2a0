// libFuzzer target: a request head of any bytes, through kitty's own check and httplib.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/routes.h"

using namespace kitty::http;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static TextSlot slot;
  static Routes routes(RoutesOptions{.text = &slot, .keep_alive_s = 40, .max_requests = 1000});
  if (!slot.read()) {
    std::string text = "up 1\n";
    if (!slot.publish(text)) std::abort();
  }
  // Half of the inputs become headers of a request that is otherwise good.
  std::string head(reinterpret_cast<const char*>(data), size);
  if (size % 2 == 1) head = "GET /metrics HTTP/1.1\r\n" + head;
  head += "\r\n\r\n";
  Answer answer;
  routes.answer(head, false, answer);
  // One response, with one head.
  if (!answer.head.starts_with("HTTP/1.1 ")) std::abort();
  const size_t end = answer.head.find("\r\n\r\n");
  if (end == std::string::npos || answer.head.find("HTTP/1.1 ", 1) != std::string::npos) std::abort();
  if (answer.body && answer.head.size() != end + 4) std::abort();
  return 0;
}
