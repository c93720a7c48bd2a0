// The socket that is listened on, apart from serving: bound while every privilege is there, served once what
// serving does not need is given up. Until it is served the kernel keeps those that connect waiting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace kitty::http {

struct Listener {
  Fd socket;            // as listen_on() returns it
  uint16_t port = 0;    // listened on, also where 0 was asked for
  std::string address;  // as it was written, with that port: "127.0.0.1:9100", ":9100"

  // Of HOST:PORT as http/listen_address.h reads it; its errors.
  [[nodiscard]] static Result<Listener> open(std::string_view text);
};

}  // namespace kitty::http
