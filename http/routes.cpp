#include "http/routes.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "http/ascii.h"
#include "http/exposition.h"
#include "http/httplib_config.h"
#include "http/page.h"
#include "http/request_head.h"

namespace kitty::http {

namespace {

constexpr size_t kMaxTelemetryPathBytes = 128;
// Of a name that is refused: in the answer, and in the log.
constexpr size_t kMaxShownNameBytes = 253;
constexpr size_t kMaxLoggedNames = 8;
constexpr std::string_view kHealthyPath = "/-/healthy";
constexpr std::string_view kReadyPath = "/-/ready";

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
    if (!is_alphanumeric(c) && std::string_view("-._~/").find(c) == std::string_view::npos) {
      return bad("only letters, digits and -._~/ are allowed");
    }
  }
  return {};
}

class Routes::Http : public httplib::Server {
 public:
  explicit Http(RoutesOptions options) : options_(std::move(options)), host_names_(options_.allowed_hosts) {
    set_default_headers({{"X-Content-Type-Options", "nosniff"}});
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

  void answer(std::string_view head, const RequestHead& request, bool last, Answer& answer) {
    if (!host_names_.knows(request.host)) return refuse_name(request.host, answer);
    std::string rewritten;
    if (request.is_absolute) {  // httplib knows paths only
      rewritten = std::string(request.method) + ' ' + (request.target.starts_with('/') ? "" : "/");
      rewritten += std::string(request.target) + ' ' + std::string(request.version) + "\r\n";
      rewritten += request.headers;
      head = rewritten;
    }
    MemoryStream stream(head, answer.head);
    bool parsed = false;
    bool closed = false;
    body_.reset();
    // The callback runs once request line and headers have been understood; a connection whose next bytes may
    // not be the start of a request must not go on.
    process_request(stream, {}, 0, {}, 0, last, closed, [&parsed](httplib::Request&) { parsed = true; });
    answer.close = last || closed || !parsed;
    if (request.method == "GET") answer.body = std::move(body_);
    body_.reset();
  }

 private:
  // `host` is a name that nobody here gave: see http/host_names.h.
  void refuse_name(std::string_view host, Answer& answer) {
    const std::string name(host.substr(0, kMaxShownNameBytes));
    refuse(403,
           "403 Forbidden: this agent does not know the name '" + name +
               "' as its own, which is how it keeps other sites' pages from reading it. Ask it by its "
               "address, or start "
               "it with --web.allowed-host=" +
               name + '\n',
           answer);
    if (refused_names_.size() >= kMaxLoggedNames ||
        std::ranges::find(refused_names_, name) != refused_names_.end())
      return;
    log::warn(
        "refused a request for a name that is not this host's; where it should be, --web.allowed-host=NAME",
        {{"name", name}});
    refused_names_.push_back(name);
  }

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
  HostNames host_names_;
  std::vector<std::string> refused_names_;  // that the log has
  TextSlot page_;
  SharedText body_;  // from route() to answer(), of the request being answered
};

Routes::Routes(RoutesOptions options) : http_(std::make_unique<Http>(std::move(options))) {}
Routes::~Routes() = default;

void Routes::answer(std::string_view head, bool last, Answer& answer) {
  answer.head.clear();
  answer.body.reset();
  const auto request = parse_request_head(head);
  if (!request) return refuse(request.error(), answer);
  http_->answer(head, *request, last, answer);
}

void Routes::refuse(int status, Answer& answer) {
  refuse(status, std::to_string(status) + ' ' + httplib::status_message(status) + '\n', answer);
}

void Routes::refuse(int status, std::string_view body, Answer& answer) {
  answer.body.reset();
  answer.close = true;
  answer.head = "HTTP/1.1 " + std::to_string(status) + ' ';
  answer.head += httplib::status_message(status);
  if (status == 405) answer.head += "\r\nAllow: GET, HEAD";
  answer.head += "\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8";
  answer.head += "\r\nX-Content-Type-Options: nosniff\r\nContent-Length: ";
  answer.head += std::to_string(body.size()) + "\r\n\r\n";
  answer.head += body;
}

}  // namespace kitty::http
