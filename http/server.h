// Serves the routes on one TCP port, from one thread, so that no client can take more than its share.
//
// The thread waits on every connection at once. Each step of a connection has an absolute deadline and a size
// limit (below), so a client that drips bytes, sends nothing, or reads nothing costs one slot for a bounded
// time. When all slots are taken, a newcomer with a request gets that of a client that has said nothing, else
// one of the client that has the most: the one that has stood still longest. An answer that gets on is not
// cut off for it. A response is never copied: it is sent from where the text lies (http/text_slot.h), so
// stalled scrapers hold memory only as long as the response's deadline, and kMaxHeldBytes of it at most. What
// a client has not taken when its connection is ended is dropped by a reset; the kernel would keep it for
// minutes.
//
// Ownership: owns its socket and thread; the slot and predicate of ServerOptions outlive it. Thread-safety:
// start and stop from one thread; port() and counters() from any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "http/listener.h"
#include "http/text_slot.h"

namespace kitty::http {

// A handful of Prometheus servers, probes and people; far below the usual limit of 1024 descriptors.
inline constexpr size_t kMaxConnections = 64;
// A request line and its headers; Prometheus sends about 400 bytes.
inline constexpr size_t kMaxHeadBytes = 8192;
// Different texts that responses hold at once, in bytes; more, and those that have stood still longest give
// way. Readers as slow as they may be share a text that is not over 600 kB for the 5 s that they have.
inline constexpr size_t kMaxHeldBytes = size_t{6} << 20;
// Requests on one connection; the answer to the last says so.
inline constexpr size_t kMaxRequestsPerConnection = 1000;

// How long a step of a connection may take, whatever trickles in meanwhile.
struct Deadlines {
  // From a request's first byte to its last; also from the connect to the first byte.
  std::chrono::milliseconds head{2000};
  // From a response's first byte to its last. 4 MiB in 5 s is 7 Mbit/s.
  std::chrono::milliseconds response{5000};
  // Between two requests. Not one of the usual scrape intervals, which would make every scrape race the
  // close.
  std::chrono::milliseconds idle{40000};
  // From the end of a response that closes the connection to the close. Until then what the client still
  // sends is read and dropped: a close with bytes unread would reset the connection and could take the
  // response with it. Where the client has not taken it all by then, `response` counts.
  std::chrono::milliseconds linger{1000};
};

struct ServerOptions {
  std::string telemetry_path = "/metrics";  // see check_telemetry_path()
  TextSlot* text = nullptr;
  std::vector<std::string> allowed_hosts = {};  // names besides this host's own; see http/host_names.h
  std::function<bool()> ready = {};  // called by the server's thread; must return at once. None: always ready
  Deadlines deadlines = {};
  size_t max_connections = kMaxConnections;  // fewer where descriptors are few
};

// Since the start.
struct ServerCounters {
  uint64_t connections = 0;
  uint64_t requests = 0;               // refused ones included
  uint64_t connections_evicted = 0;    // gave way: as many as allowed were open, or held too much text
  uint64_t connections_timed_out = 0;  // missed the deadline of a request or a response
};

class Server {
 public:
  // Serves who connects to `listener`. Fails on a bad path, and where descriptors or threads cannot be had;
  // the error says what to do.
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(Listener listener, ServerOptions options);
  ~Server();  // stops
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Closes every connection and joins the thread; at once, whatever the clients do. Again: nothing.
  void stop();

  [[nodiscard]] uint16_t port() const;
  [[nodiscard]] ServerCounters counters() const;

 private:
  class Loop;
  explicit Server(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace kitty::http
