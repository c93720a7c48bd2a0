// libFuzzer target: any bytes as an address to listen on, as a target, as a name that is allowed, and as the
// files that say how this host is called.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/client.h"
#include "http/host_names.h"
#include "http/listen_address.h"
#include "http/scope.h"

using namespace kitty::http;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto address = parse_listen_address(input)) {
    if (!address->scope.empty() && !is_scope(address->scope)) std::abort();
  }
  // What goes into a request line and a Host header cannot end it.
  if (const auto url = parse_url(input)) {
    for (const std::string& part : {url->host, url->path}) {
      if (part.empty() || part.find_first_of(std::string_view("\r\n \0", 4)) != std::string::npos)
        std::abort();
    }
  }
  if (check_allowed_host(input) && input.contains(':')) std::abort();
  for (const std::string& name : names_of_host("n7", input, input)) {
    if (name.empty()) std::abort();
  }
  return 0;
}
