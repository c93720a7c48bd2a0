#include "http/routes.h"

#include <algorithm>
#include <cstring>

#include "http/ascii.h"
#include "http/exposition.h"
#include "http/httplib_config.h"
#include "http/page.h"

namespace kitty::http {

namespace {

constexpr size_t kMaxTelemetryPathBytes = 128;
constexpr std::string_view kHealthyPath = "/-/healthy";
constexpr std::string_view kReadyPath = "/-/ready";

bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// RFC 9110, 5.6.2
bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return is_alnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// One request head to read, one response to append to. There is no socket behind it.
class MemoryStream final : public httplib::Stream {
 public:
  MemoryStream(std::string_view in, std::string& out) : in_(in), out_(out) {}

  bool is_readable() const override { return !in_.empty(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const size_t n = std::min(size, in_.size());
    memcpy(to, in_.data(), n);
    in_.remove_prefix(n);
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    out_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

 private:
  std::string_view in_;
  std::string& out_;
};

}  // namespace

Status check_telemetry_path(std::string_view path) {
  auto bad = [path](std::string_view why) { return fail("use telemetry path", path, 0, why); };
  if (!path.starts_with('/')) return bad("it must start with '/', as /metrics does");
  if (path.size() > kMaxTelemetryPathBytes) return bad("longer than 128 bytes");
  if (path == "/-" || path.starts_with("/-/")) return bad("/-/ is for /-/healthy and /-/ready");
  for (const char c : path) {
    if (!is_alnum(c) && std::string_view("-._~/").find(c) == std::string_view::npos) {
      return bad("only letters, digits and -._~/ are allowed");
    }
  }
  return {};
}

std::optional<int> refusal(std::string_view head) {
  constexpr int kBadRequest = 400;
  constexpr int kMethodNotAllowed = 405;
  // Each line must mean the same to this check and to the parser behind it: CR and LF only as a pair, no NUL,
  // no folding.
  auto take_line = [&head]() -> std::optional<std::string_view> {
    const size_t end = head.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) return std::nullopt;
    return line;
  };
  const auto request_line = take_line();
  if (!request_line) return kBadRequest;
  const std::string_view method = request_line->substr(0, request_line->find(' '));
  if (!is_token(method)) return kBadRequest;
  bool unwanted = false;
  for (;;) {
    const auto line = take_line();
    if (!line) return kBadRequest;
    if (line->empty()) break;
    const size_t colon = line->find(':');
    const std::string_view name = line->substr(0, colon);
    if (colon == std::string_view::npos || !is_token(name)) return kBadRequest;
    const std::string_view value = trim(line->substr(colon + 1));
    for (const std::string_view refused : {"Transfer-Encoding", "Range", "Expect"}) {
      if (equals_ignoring_case(name, refused)) unwanted = true;
    }
    if (equals_ignoring_case(name, "Content-Length") && value != "0") unwanted = true;
  }
  if (!head.empty()) return kBadRequest;
  if (method != "GET" && method != "HEAD") return kMethodNotAllowed;
  if (unwanted) return kBadRequest;
  return std::nullopt;
}

class Routes::Http : public httplib::Server {
 public:
  explicit Http(RoutesOptions options) : options_(std::move(options)) {
    set_keep_alive_timeout(options_.keep_alive_s);
    set_keep_alive_max_count(options_.max_requests);
    // httplib matches paths as regular expressions; four literal ones need none.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      route(request.path, response);
      return HandlerResponse::Handled;
    });
    set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, const std::exception_ptr&) {
          response.body.clear();
          response.status = 500;
        });
    // A slot of its own, so that the page too is sent from where it lies. The first text finds room.
    std::string text = page(options_.telemetry_path);
    (void)page_.publish(text);
  }

  void answer(std::string_view head, bool last, Answer& answer) {
    MemoryStream stream(head, answer.head);
    bool parsed = false;
    bool closed = false;
    body_.reset();
    // The callback runs once request line and headers have been understood; a connection whose next bytes may
    // not be the start of a request must not go on.
    process_request(stream, {}, 0, {}, 0, last, closed, [&parsed](httplib::Request&) { parsed = true; });
    answer.close = last || closed || !parsed;
    if (head.starts_with("GET ")) answer.body = std::move(body_);
    body_.reset();
  }

 private:
  void route(std::string_view path, httplib::Response& response) {
    response.status = 200;
    response.set_header("Accept-Ranges", "none");
    if (path == options_.telemetry_path) {
      body_ = options_.text->read();
      if (!body_) return text(response, 503, "kitty: nothing collected yet\n");
      shared(response, kContentType);
    } else if (path == kHealthyPath) {
      text(response, 200, "kitty is healthy\n");
    } else if (path == kReadyPath) {
      if (!options_.ready || options_.ready()) return text(response, 200, "kitty is ready\n");
      text(response, 503, "kitty is not ready: nothing collected yet\n");
    } else if (path == "/") {
      body_ = page_.read();
      response.set_header("Content-Security-Policy", std::string(kPagePolicy));
      response.set_header("X-Content-Type-Options", "nosniff");
      response.set_header("Cache-Control", "no-cache");  // another version of kitty may answer next time
      shared(response, "text/html; charset=utf-8");
    } else {
      text(response, 404, "404 not found\n");
    }
  }

  // httplib would copy the text into the response and from there to the stream. With its length announced and
  // no body it writes the head alone, and the server in front sends the text from where it lies.
  void shared(httplib::Response& response, std::string_view content_type) const {
    response.set_header("Content-Type", std::string(content_type));
    response.set_header("Content-Length", std::to_string(body_.view().size()));
  }

  static void text(httplib::Response& response, int status, const char* body) {
    response.status = status;
    response.set_content(body, "text/plain; charset=utf-8");
  }

  const RoutesOptions options_;
  TextSlot page_;
  SharedText body_;  // from route() to answer(), of the request being answered
};

Routes::Routes(RoutesOptions options) : http_(std::make_unique<Http>(std::move(options))) {}
Routes::~Routes() = default;

void Routes::answer(std::string_view head, bool last, Answer& answer) {
  answer.head.clear();
  answer.body.reset();
  if (const auto status = refusal(head)) {
    refuse(*status, answer);
    return;
  }
  http_->answer(head, last, answer);
}

void Routes::refuse(int status, Answer& answer) {
  const std::string_view reason = httplib::status_message(status);
  const std::string number = std::to_string(status);
  answer.body.reset();
  answer.close = true;
  answer.head = "HTTP/1.1 " + number + ' ';
  answer.head += reason;
  if (status == 405) answer.head += "\r\nAllow: GET, HEAD";
  answer.head += "\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ";
  answer.head += std::to_string(number.size() + 1 + reason.size() + 1) + "\r\n\r\n";
  answer.head += number + ' ';
  answer.head += reason;
  answer.head += '\n';
}

}  // namespace kitty::http
