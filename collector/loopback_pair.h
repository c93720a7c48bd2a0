// A TCP connection on 127.0.0.1 with both ends in this process: what the agent proves its kernel side on.
// Every step that could hang gives up after a second. Owns its descriptors.
#pragma once

#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace kitty::collector {

struct LoopbackPair {
  Fd client, server;
};

// Errors name `operation` and the step that failed.
[[nodiscard]] Result<LoopbackPair> connect_loopback_pair(std::string_view operation);

}  // namespace kitty::collector
