// A request's head, from the request line through the blank line, judged before anything else parses it (RFC
// 9112). Pure; what is returned points into the text.
#pragma once

#include <expected>
#include <string_view>

namespace kitty::http {

struct RequestHead {
  std::string_view method;   // GET or HEAD
  std::string_view target;   // path and query; of an absolute target (RFC 9112, 3.2.2) what stands behind the
                             // host, so it may be empty, or begin with '?'
  std::string_view version;  // HTTP/1.0 or HTTP/1.1
  std::string_view headers;  // what follows the request line, with its blank line
  std::string_view
      host;  // whom the request asks, without a port: the absolute target's host, else that of Host;
             // "[::1]" with its brackets; empty where it names nobody
  bool is_absolute = false;
};

// Or the status of its refusal: 405 for methods other than GET and HEAD, 400 for bodies, Range, Expect, no or
// more than one Host in HTTP/1.1, more than one in HTTP/1.0, and whatever is not HTTP/1.x.
[[nodiscard]] std::expected<RequestHead, int> parse_request_head(std::string_view head);

}  // namespace kitty::http
