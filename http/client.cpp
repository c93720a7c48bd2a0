#include "http/client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <vector>

#include "base/fd.h"
#include "http/exposition.h"
#include "http/httplib_config.h"
#include "http/resolve.h"
#include "http/scope.h"

namespace kitty::http {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxHeadersBytes = size_t{64} << 10;
constexpr size_t kMaxHostBytes = 253;  // RFC 1035, 2.3.4

// Waits until `events` or the deadline. False with errno ETIMEDOUT, or poll's own.
bool wait_for(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) errno = ETIMEDOUT;
    return false;
  }
}

Result<Fd> connect_to(const std::vector<Endpoint>& endpoints, Clock::time_point deadline) {
  int err = ETIMEDOUT;
  for (const Endpoint& endpoint : endpoints) {
    Fd socket(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      err = errno;
      continue;
    }
    const auto* address = reinterpret_cast<const sockaddr*>(&endpoint.address);
    if (connect(socket.get(), address, endpoint.bytes) == 0) return socket;
    err = errno;
    if (err != EINPROGRESS) continue;
    if (!wait_for(socket.get(), POLLOUT, deadline)) {
      err = errno;
      break;
    }
    socklen_t bytes = sizeof err;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &err, &bytes) != 0) err = errno;
    if (err == 0) return socket;
  }
  return fail("connect", {}, err,
              err == EINVAL ? "a link-local address needs its interface, as in [fe80::1%eth0]:9100" : "");
}

// A socket whose every operation ends at one deadline, whatever trickles in meanwhile.
class DeadlineStream final : public httplib::Stream {
 public:
  DeadlineStream(int socket, Clock::time_point deadline) : socket_(socket), deadline_(deadline) {}

  bool is_readable() const override { return wait_for(socket_, POLLIN, deadline_); }
  bool is_writable() const override { return wait_for(socket_, POLLOUT, deadline_); }
  ssize_t read(char* to, size_t size) override {
    // httplib reads the head byte by byte.
    if (begin_ == end_) {
      if (received_ > kMaxTextBytes + kMaxHeadersBytes) return -1;
      if (!is_readable()) return failed();
      const ssize_t n = recv(socket_, buffer_.data(), buffer_.size(), 0);
      if (n < 0) return failed();
      begin_ = 0;
      end_ = static_cast<size_t>(n);
      received_ += end_;
    }
    const size_t n = std::min(size, end_ - begin_);
    memcpy(to, buffer_.data() + begin_, n);
    begin_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!is_writable()) return failed();
    const ssize_t n = send(socket_, from, size, MSG_NOSIGNAL);
    return n < 0 ? failed() : n;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

  [[nodiscard]] int error() const { return error_; }

 private:
  ssize_t failed() {
    error_ = errno;
    return -1;
  }

  int socket_;
  Clock::time_point deadline_;
  int error_ = 0;
  size_t received_ = 0, begin_ = 0, end_ = 0;
  std::array<char, 16384> buffer_;
};

constexpr size_t kMaxStatusLineBytes = 1024;

// "HTTP/1.1 200 OK"; 0 where it is none.
int read_status_line(httplib::Stream& stream) {
  std::string line;
  char c = 0;
  while (c != '\n' && line.size() < kMaxStatusLineBytes && stream.read(&c, 1) == 1) line += c;
  constexpr std::string_view kVersion = "HTTP/1.";
  constexpr size_t kStatusAt = kVersion.size() + 2;  // behind the minor version and a blank
  int status = 0;
  if (!line.starts_with(kVersion) || line.size() < kStatusAt + 3 || line.back() != '\n') return 0;
  const char* const digits = line.data() + kStatusAt;
  return std::from_chars(digits, digits + 3, status).ptr == digits + 3 ? status : 0;
}

// httplib reads headers and body, for it knows chunks and lengths. Its client as a whole would not do: its
// timeouts are of single reads, and it brings 30 kB of regular expressions, proxies and logins.
Result<std::string> exchange(const Url& url, int socket, Clock::time_point deadline) {
  DeadlineStream stream(socket, deadline);
  const auto broken = [&stream] {
    return fail("fetch", {}, stream.error(),
                stream.error() != 0 ? "" : "the answer is no HTTP, or is cut off");
  };
  const std::string host(
      split_scope(url.host).address);  // the interface is this host's own affair (RFC 6874, 1)
  const bool v6 = host.find(':') != std::string::npos;
  const std::string request = "GET " + url.path + " HTTP/1.1\r\nHost: " + (v6 ? '[' + host + ']' : host) +
                              ':' + std::to_string(url.port) +
                              "\r\nUser-Agent: kitty/" KITTY_VERSION
                              "\r\nAccept: text/plain\r\nConnection: close\r\n\r\n";
  for (std::string_view rest = request; !rest.empty();) {
    const ssize_t n = stream.write(rest.data(), rest.size());
    if (n <= 0) return broken();
    rest.remove_prefix(static_cast<size_t>(n));
  }
  httplib::Response response;
  response.status = read_status_line(stream);
  if (response.status == 0 || !httplib::detail::read_headers(stream, response.headers)) return broken();
  if (response.status == 403) {
    return fail("fetch", {}, 0,
                "the server answers 403: where it is kitty, it does not know that name; use its address, or "
                "start it with "
                "--web.allowed-host=" +
                    host);
  }
  if (response.status != 200)
    return fail("fetch", {}, 0, "the server answers " + std::to_string(response.status));
  std::string body;
  bool too_large = false;
  const auto receive = [&](const char* data, size_t size, uint64_t, uint64_t) {
    too_large = size > kMaxTextBytes - body.size();
    if (!too_large) body.append(data, size);
    return !too_large;
  };
  constexpr bool kDecompress = false;
  int status = 0;
  const bool whole = httplib::detail::read_content(stream, response, std::numeric_limits<size_t>::max(),
                                                   status, nullptr, receive, kDecompress);
  if (too_large) return fail("fetch", {}, 0, "more than 4 MiB: not a scrape of kitty");
  if (!whole) return broken();
  return body;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const auto bad = [text](std::string_view why) {
    return fail("read target", text, 0,
                std::string(why) + "; write HOST:PORT, http://HOST:PORT/PATH or a file's name");
  };
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://")) return bad("kitty speaks no TLS");
  Url url;
  std::string_view rest = text;
  const bool with_scheme = rest.starts_with(kScheme);
  if (with_scheme) {
    rest.remove_prefix(kScheme.size());
    url.port = 80;
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  if (slash < rest.size()) {
    if (!with_scheme) return bad("no such file, and a path needs http:// in front");
    if (slash + 1 < rest.size()) url.path = rest.substr(slash);
    rest = rest.substr(0, slash);
  }
  for (const char c : url.path) {
    if (c <= ' ' || c > '~' || c == '#')
      return bad("a path of other than visible ASCII characters, or with '#'");
  }
  const bool bracketed = rest.starts_with('[');
  const size_t end = bracketed ? rest.find(']') : std::min(rest.rfind(':'), rest.size());
  if (end == std::string_view::npos) return bad("no ']'");
  url.host = rest.substr(bracketed ? 1 : 0, end - (bracketed ? 1 : 0));
  rest.remove_prefix(end + (bracketed ? 1 : 0));
  if (!rest.empty()) {
    rest.remove_prefix(rest.front() == ':' ? 1 : 0);
    const auto [at, error] = std::from_chars(rest.data(), rest.data() + rest.size(), url.port);
    if (error != std::errc() || at != rest.data() + rest.size() || url.port == 0) {
      return bad("the port is no number from 1 to 65535");
    }
  } else if (!with_scheme) {
    return bad("no such file, and no port");
  }
  if (!bracketed && url.host.find(':') != std::string::npos) return bad("an IPv6 address needs brackets");
  const ScopedAddress scoped = split_scope(url.host);
  if (scoped.scope) {
    std::string_view scope = *scoped.scope;
    if (with_scheme && scope.starts_with("25") && scope.size() > 2) scope.remove_prefix(2);
    if (!bracketed || !is_scope(scope)) return bad("no interface's name behind the '%'");
    url.host = std::string(scoped.address) + '%' + std::string(scope);
  }
  if (url.host.empty() || url.host.size() > kMaxHostBytes)
    return bad("no host, or a longer one than names may be");
  for (const char c : split_scope(url.host).address) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!plain && std::string_view("-._:").find(c) == std::string_view::npos) return bad("no valid host");
  }
  return url;
}

Result<std::string> get(const Url& url, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const auto named = [&url](Error error) {
    if (error.object.empty()) error.object = url.host + ':' + std::to_string(url.port);
    return std::unexpected(std::move(error));
  };
  const auto endpoints = resolve(url.host, url.port);
  if (!endpoints) return named(endpoints.error());
  const Result<Fd> socket = connect_to(*endpoints, deadline);
  if (!socket) return named(socket.error());
  try {
    Result<std::string> body = exchange(url, socket->get(), deadline);
    if (!body) return named(std::move(body.error()));
    return body;
  } catch (const std::exception& exception) {  // httplib's own
    return named(Error{"fetch", {}, 0, exception.what()});
  }
}

}  // namespace kitty::http
