// What kitty answers: one request head in, one response out, from memory. It opens nothing and waits for
// nothing; the server in front of it owns sockets, deadlines and limits. Requests are parsed and answers
// written by cpp-httplib.
//
//   GET, HEAD  telemetry path   the latest text; 503 before the first
//              /-/healthy       200
//              /-/ready         200, or 503 until ready
//              /                the page for people, http/page.html
//   404 elsewhere, 403 under a name that is not this host's (http/host_names.h), 405 for other methods, 400
//   for bodies, Range, Expect and whatever is not HTTP/1.x (http/request_head.h).
//
// Ownership: holds references to the slot and the predicate of RoutesOptions. Thread-safety: none; one thread
// answers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "http/host_names.h"
#include "http/text_slot.h"

namespace kitty::http {

struct RoutesOptions {
  std::string telemetry_path = "/metrics";
  TextSlot* text = nullptr;  // outlives the routes
  std::function<bool()> ready =
      {};                   // called on the answering thread; must return at once. None: always ready
  int keep_alive_s = 0;     // what the server in front grants an idle connection, told to the client
  size_t max_requests = 1;  // what it grants a connection, told to the client
  std::vector<std::string> allowed_hosts = {};  // names besides this host's own; see http/host_names.h
};

struct Answer {
  std::string head;    // status line and headers, and a short body where `body` is empty
  SharedText body;     // sent after head; by reference, so that a scrape copies nothing
  bool close = false;  // the connection cannot or shall not go on
};

// Starts with '/', of letters, digits and "-._~/", at most 128 bytes, not below "/-/".
[[nodiscard]] Status check_telemetry_path(std::string_view path);

class Routes {
 public:
  explicit Routes(RoutesOptions options);
  ~Routes();
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  // `head`: from the request line through the blank line. `last`: the connection closes after this answer.
  // `answer` is overwritten; its memory is reused.
  void answer(std::string_view head, bool last, Answer& answer);

  // A whole response that closes the connection: for refusals, and for what the server in front decides (408,
  // 431).
  static void refuse(int status, Answer& answer);
  static void refuse(int status, std::string_view body, Answer& answer);

 private:
  class Http;
  std::unique_ptr<Http> http_;
};

}  // namespace kitty::http
