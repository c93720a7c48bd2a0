#include "http/listener.h"

#include <utility>

#include "http/listen_address.h"

namespace kitty::http {

Result<Listener> Listener::open(std::string_view text) {
  const auto address = parse_listen_address(text);
  if (!address) return std::unexpected(address.error());
  Result<Fd> socket = listen_on(*address, text);
  if (!socket) return std::unexpected(socket.error());
  const Result<uint16_t> port = bound_port(*socket);
  if (!port) return std::unexpected(port.error());
  return Listener{.socket = std::move(*socket),
                  .port = *port,
                  .address = std::string(text.substr(0, text.rfind(':') + 1)) + std::to_string(*port)};
}

}  // namespace kitty::http
