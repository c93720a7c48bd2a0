#include "http/request_head.h"

#include <algorithm>
#include <array>
#include <optional>

#include "http/ascii.h"

namespace kitty::http {

namespace {

constexpr int kBadRequest = 400;
constexpr int kMethodNotAllowed = 405;

// RFC 9110, 5.6.2
bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_alphanumeric(c) || std::string_view("!#$%&'*+-.^_`|~").contains(c);
  });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Each line must mean the same to this check and to the parser behind it: CR and LF only as a pair, no NUL.
std::optional<std::string_view> take_line(std::string_view& text) {
  const size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 2);
  if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) return std::nullopt;
  return line;
}

// The host of `host[:port]` (RFC 3986, 3.2.2); none where it is not that. Nobody's login is asked for.
std::optional<std::string_view> host_of(std::string_view authority) {
  const bool bracketed = authority.starts_with('[');
  const size_t end = bracketed ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view host = authority.substr(0, bracketed ? end + 1 : end);
  std::string_view port = authority.substr(host.size());
  if (!port.empty() && port.front() != ':') return std::nullopt;
  port.remove_prefix(port.empty() ? 0 : 1);
  const std::string_view inner = bracketed ? host.substr(1, host.size() - 2) : host;
  const std::string_view others = bracketed ? "-._~:%" : "-._~%!$&'()*+,;=";
  const bool plain =
      std::ranges::all_of(inner, [others](char c) { return is_alphanumeric(c) || others.contains(c); });
  const bool number = std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
  if (!plain || !number || (bracketed && inner.empty())) return std::nullopt;
  return host;
}

// What the header lines ask for, taken together.
struct Wishes {
  std::string_view host;  // the value of the last Host
  size_t hosts = 0;
  bool unwanted = false;  // a body, a part, or an answer before the request's end
};

std::optional<Wishes> read_headers(std::string_view lines) {
  Wishes wishes;
  for (;;) {
    const auto line = take_line(lines);
    if (!line) return std::nullopt;
    if (line->empty()) break;
    const size_t colon = line->find(':');
    const std::string_view name = line->substr(0, colon);
    if (colon == std::string_view::npos || !is_token(name)) return std::nullopt;
    const std::string_view value = trim(line->substr(colon + 1));
    for (const std::string_view refused : {"Transfer-Encoding", "Range", "Expect"}) {
      if (equals_ignoring_case(name, refused)) wishes.unwanted = true;
    }
    if (equals_ignoring_case(name, "Content-Length") && value != "0") wishes.unwanted = true;
    if (!equals_ignoring_case(name, "Host")) continue;
    wishes.host = value;
    ++wishes.hosts;
  }
  if (!lines.empty()) return std::nullopt;
  return wishes;
}

}  // namespace

std::expected<RequestHead, int> parse_request_head(std::string_view head) {
  const auto line = take_line(head);
  if (!line) return std::unexpected(kBadRequest);
  RequestHead request{
      .method = line->substr(0, line->find(' ')), .target = {}, .version = {}, .headers = head, .host = {}};
  if (!is_token(request.method)) return std::unexpected(kBadRequest);
  const auto wishes = read_headers(head);
  if (!wishes) return std::unexpected(kBadRequest);
  if (request.method != "GET" && request.method != "HEAD") return std::unexpected(kMethodNotAllowed);
  if (wishes->unwanted) return std::unexpected(kBadRequest);

  const std::string_view rest = line->substr(std::min(request.method.size() + 1, line->size()));
  const size_t blank = std::min(rest.find(' '), rest.size());
  request.target = rest.substr(0, blank);
  request.version = rest.substr(std::min(blank + 1, rest.size()));
  const bool http11 = request.version == "HTTP/1.1";
  if (!http11 && request.version != "HTTP/1.0") return std::unexpected(kBadRequest);
  // RFC 9112, 3.2: a server that guesses which of two is meant may differ from the proxy before it.
  if (wishes->hosts > 1 || (http11 && wishes->hosts == 0)) return std::unexpected(kBadRequest);
  auto host = host_of(wishes->host);
  constexpr std::string_view kScheme = "http://";
  if (!request.target.starts_with('/')) {
    if (!equals_ignoring_case(request.target.substr(0, kScheme.size()), kScheme))
      return std::unexpected(kBadRequest);
    request.is_absolute = true;
    request.target.remove_prefix(kScheme.size());
    const size_t end = std::min(request.target.find_first_of("/?"), request.target.size());
    // RFC 9112, 3.2.2: what Host says does not count then. It must be one all the same.
    if (host) host = host_of(request.target.substr(0, end));
    if (host && host->empty()) return std::unexpected(kBadRequest);
    request.target.remove_prefix(end);
  }
  if (!host) return std::unexpected(kBadRequest);
  request.host = *host;
  return request;
}

}  // namespace kitty::http
