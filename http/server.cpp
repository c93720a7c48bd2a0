#include "http/server.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>

#include "base/fd.h"
#include "base/log.h"
#include "http/connection.h"
#include "http/routes.h"

namespace kitty::http {

namespace {

using std::chrono::milliseconds;

// Connections accepted, and passes over the open ones between two accepts: a flood of newcomers must not keep
// those that are already open from being served.
constexpr int kMaxAcceptsPerTurn = 16;
// How long not to accept after the process or the system ran out of descriptors or memory.
constexpr milliseconds kAcceptPause{100};
// A client that has taken some of its answer within that time is getting on, and no newcomer ends it: where
// all do, those wait, or in a flood of requests everybody would be ended before the last byte. A slot is had
// again after that time from whoever stands still.
constexpr milliseconds kGettingOn{20};
// How long newcomers wait before it is looked again whether somebody stands still.
constexpr milliseconds kAllGettingOnPause{2};
// As many connections as a scraper, a browser and a probe have between them: who has no more is no flood.
constexpr ptrdiff_t kFewConnections = 4;
// Bytes one turn of a lingering connection reads to drop them.
constexpr size_t kDropBytes = 4096;

constexpr uint64_t kListenEvent = kMaxConnections;
constexpr uint64_t kStopEvent = kMaxConnections + 1;

}  // namespace

class Server::Loop {
 public:
  static Result<std::unique_ptr<Loop>> create(Listener listener, ServerOptions options);

  Status start_thread();
  void stop();

  uint16_t port() const { return port_; }
  ServerCounters counters() const {
    return {connections_.load(std::memory_order_relaxed), requests_.load(std::memory_order_relaxed),
            evicted_.load(std::memory_order_relaxed), timed_out_.load(std::memory_order_relaxed)};
  }

 private:
  Loop(RoutesOptions routes, const Deadlines& deadlines, size_t max_connections)
      : routes_(std::move(routes)),
        deadlines_(deadlines),
        slots_(std::span(table_).first(std::clamp<size_t>(max_connections, 1, kMaxConnections))) {}

  void run();
  int wait_ms(Clock::time_point now) const;
  void accept_some(Clock::time_point now);
  void accept_again_at(Clock::time_point then);
  void set_accepting(bool on);
  Connection* choose_slot(Clock::time_point now);
  void limit_held(const Connection& latest);
  void expire(Clock::time_point now);

  void turn(Connection& connection, Clock::time_point now);
  void read_some(Connection& connection, Clock::time_point now);
  bool answer_head(Connection& connection, Clock::time_point now);
  void send_some(Connection& connection, Clock::time_point now);
  void drop_some(Connection& connection, Clock::time_point now);
  void client_ended(Connection& connection, Clock::time_point now);

  void enter(Connection& connection, State state, Clock::time_point now);
  void watch(Connection& connection);
  void evict(Connection& connection);
  // Whether the client has connected and not said a word since.
  static bool is_silent(const Connection& connection) {
    return connection.state == State::idle && connection.requests == 0;
  }
  uint64_t index(const Connection& connection) const {
    return static_cast<uint64_t>(&connection - table_.data());
  }

  Routes routes_;
  const Deadlines deadlines_;
  Fd listener_;
  Fd epoll_;
  Fd stop_event_;
  uint16_t port_ = 0;
  std::array<Connection, kMaxConnections> table_;
  const std::span<Connection> slots_;              // the part of the table that is used
  std::optional<Clock::time_point> accept_again_;  // set while accepting is paused
  std::atomic<uint64_t> connections_ = 0;
  std::atomic<uint64_t> requests_ = 0;
  std::atomic<uint64_t> evicted_ = 0;
  std::atomic<uint64_t> timed_out_ = 0;
  std::thread thread_;
};

Result<std::unique_ptr<Server::Loop>> Server::Loop::create(Listener listener, ServerOptions options) {
  if (Status ok = check_telemetry_path(options.telemetry_path); !ok) return std::unexpected(ok.error());

  std::unique_ptr<Loop> loop(new Loop(
      RoutesOptions{
          .telemetry_path = std::move(options.telemetry_path),
          .text = options.text,
          .ready = std::move(options.ready),
          .keep_alive_s = static_cast<int>(options.deadlines.idle.count() / 1000),
          .max_requests = kMaxRequestsPerConnection,
          .allowed_hosts = std::move(options.allowed_hosts),
      },
      options.deadlines, options.max_connections));
  loop->listener_ = std::move(listener.socket);
  loop->port_ = listener.port;

  loop->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_) return fail("create epoll instance", {}, errno);
  loop->stop_event_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!loop->stop_event_) return fail("create eventfd", {}, errno);
  for (auto [fd, id] :
       {std::pair(loop->listener_.get(), kListenEvent), {loop->stop_event_.get(), kStopEvent}}) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    if (epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail("watch socket", {}, errno);
  }
  return loop;
}

Status Server::Loop::start_thread() {
  // Signals are for the thread that waits for them; a new thread inherits the mask.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int err = 0;
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "kitty-http");  // from elsewhere it would be a file to be written to
      run();
    });
  } catch (const std::system_error& error) {
    err = error.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (err != 0) return fail("start thread", "http", err);
  return {};
}

void Server::Loop::stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  // Cannot fail: the counter is far from its maximum, and the descriptor is ours.
  [[maybe_unused]] const ssize_t written = ::write(stop_event_.get(), &one, sizeof one);
  thread_.join();
}

void Server::Loop::run() {
  std::array<epoll_event, kMaxConnections + 2> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), wait_ms(Clock::now()));
    if (count < 0 && errno != EINTR) {
      log::error("http server stopped", {{"err", errno_text(errno)}});
      break;
    }
    const Clock::time_point now = Clock::now();
    bool accepting = false;
    bool stopping = false;
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;
      if (id == kStopEvent) {
        stopping = true;
      } else if (id == kListenEvent) {
        accepting = true;
      } else {
        table_[id].runnable = true;
      }
    }
    if (stopping) break;
    // What an event says is not trusted further than "try": by now it may be about a slot's former
    // connection.
    for (Connection& connection : table_) {
      if (connection.runnable) turn(connection, now);
    }
    expire(now);
    if (accept_again_ && now >= *accept_again_) set_accepting(true);
    if (accepting) accept_some(now);
  }
  for (Connection& connection : table_) connection.close();
  listener_.reset();
}

int Server::Loop::wait_ms(Clock::time_point now) const {
  std::optional<Clock::time_point> first = accept_again_;
  for (const Connection& connection : table_) {
    if (!connection.socket) continue;
    if (connection.runnable) return 0;
    if (!first || connection.deadline < *first) first = connection.deadline;
  }
  if (!first) return -1;
  if (*first <= now) return 0;
  return static_cast<int>(std::chrono::ceil<milliseconds>(*first - now).count());
}

void Server::Loop::accept_some(Clock::time_point now) {
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    Connection* slot = choose_slot(now);
    if (slot == nullptr) return accept_again_at(now + kAllGettingOnPause);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Fd socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Anything else concerns one connection that is gone already (accept(2) lists them), or EAGAIN.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        accept_again_at(now + kAcceptPause);
      return;
    }
    connections_.fetch_add(1, std::memory_order_relaxed);
    // Most that connect have said something by now (TCP_DEFER_ACCEPT, http/listen_address.cpp).
    char first = 0;
    const ssize_t said = recv(socket.get(), &first, sizeof first, MSG_PEEK | MSG_DONTWAIT);
    if (said == 0 || (said < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) continue;  // gone without a word
    Connection& connection = *slot;
    if (connection.socket) {
      if (said < 0 && !is_silent(connection)) {
        evicted_.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
      evict(connection);
    }
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = index(connection)}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
      accept_again_at(now + kAcceptPause);
      return;
    }
    connection.socket = std::move(socket);
    connection.client = client_of(address);
    connection.interest = EPOLLIN;
    enter(connection, State::idle, now);
    connection.deadline = now + deadlines_.head;  // a client that connects has something to say
    turn(connection, now);
  }
}

void Server::Loop::accept_again_at(Clock::time_point then) {
  // The listener stays readable, so without a pause the loop would spin. Another thread's descriptors may
  // come free.
  set_accepting(false);
  accept_again_ = then;
}

void Server::Loop::set_accepting(bool on) {
  epoll_event event{.events = on ? EPOLLIN : 0U, .data = {.u64 = kListenEvent}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  accept_again_.reset();
}

// A slot for a newcomer: a free one, or that of the one who gives way; none where everybody is getting on.
Connection* Server::Loop::choose_slot(Clock::time_point now) {
  // Who gives way: one that has not said a word, else of the client that has the most connections, so that
  // nobody's flood costs others theirs, one that has its answer and asks nothing more, else one that has
  // begun a head and not ended it, else the one that has stood still longest. A scraper of good will asks
  // soon, all at once, and takes what it asked for.
  Connection* victim = nullptr;
  std::tuple<bool, ptrdiff_t, bool, bool, Clock::duration> most;
  uint64_t client = 0;
  ptrdiff_t of_client = 0;
  for (Connection& connection : slots_) {
    if (!connection.socket) return &connection;
    if (of_client == 0 || client != connection.client) {
      client = connection.client;
      of_client = std::max(std::ranges::count(slots_, client, &Connection::client), kFewConnections);
    }
    const Clock::duration age = now - connection.since;
    const bool is_sent =
        connection.state == State::lingering || (connection.state == State::idle && connection.requests > 0);
    std::tuple claim(is_silent(connection), of_client, is_sent, connection.state == State::reading, age);
    if (victim != nullptr && claim <= most) continue;
    // The kernel may still be delivering what the server has sent. Asked of few, for it is a system call.
    if (is_sent && !connection.is_taken()) {
      std::get<2>(claim) = false;
      if (victim != nullptr && claim <= most) continue;
    }
    victim = &connection;
    most = claim;
  }
  const auto [silent, crowd, has_answer, reading, age] = most;
  const bool getting_on = !silent && crowd == kFewConnections && !has_answer && !reading && age < kGettingOn;
  return getting_on ? nullptr : victim;
}

// Where the texts that responses hold have become too many bytes, those give way that stood still longest.
void Server::Loop::limit_held(const Connection& latest) {
  const auto text_of = [](const Connection& connection) { return connection.answer.body.view(); };
  for (;;) {
    size_t held = 0;
    Connection* oldest = nullptr;
    for (Connection& connection : slots_) {
      const std::string_view text = text_of(connection);
      if (text.empty()) continue;
      const auto same = [&](const Connection& other) { return text_of(other).data() == text.data(); };
      if (&*std::ranges::find_if(slots_, same) == &connection) held += text.size();
      if (!same(latest) && (oldest == nullptr || connection.since < oldest->since)) oldest = &connection;
    }
    if (held <= kMaxHeldBytes || oldest == nullptr) return;
    evict(*oldest);
  }
}

void Server::Loop::expire(Clock::time_point now) {
  for (Connection& connection : slots_) {
    if (!connection.socket || now < connection.deadline) continue;
    const State state = connection.state;
    if (state == State::reading) {
      timed_out_.fetch_add(1, std::memory_order_relaxed);
      Routes::refuse(408, connection.answer);
      enter(connection, State::sending, now);
      turn(connection, now);
      continue;
    }
    if (state == State::lingering && !connection.is_taken()) {
      connection.deadline = connection.since + deadlines_.response;
      if (now < connection.deadline) continue;
      timed_out_.fetch_add(1, std::memory_order_relaxed);
    }
    if (state == State::sending) timed_out_.fetch_add(1, std::memory_order_relaxed);
    connection.abort();
  }
}

// One turn: at most one response begun, so that one client's pipeline does not hold up the others.
void Server::Loop::turn(Connection& connection, Clock::time_point now) {
  connection.runnable = false;
  if (!connection.socket) return;
  if (connection.state == State::lingering) {
    drop_some(connection, now);
  } else if (connection.state != State::sending) {
    // What is left of a pipeline first; it may hold a whole request.
    if (!answer_head(connection, now)) read_some(connection, now);
  }
  if (connection.socket && connection.state == State::sending) send_some(connection, now);
  if (connection.socket) watch(connection);
}

void Server::Loop::read_some(Connection& connection, Clock::time_point now) {
  std::array<char, kMaxHeadBytes> buffer;
  const size_t room = kMaxHeadBytes - connection.in.size();
  const ssize_t n = recv(connection.socket.get(), buffer.data(), room, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (n == 0) return client_ended(connection, now);
  if (n < 0) return connection.close();
  connection.in.append(buffer.data(), static_cast<size_t>(n));
  answer_head(connection, now);
}

// Answers the first request of `in` where all of it is there. False where it is not.
bool Server::Loop::answer_head(Connection& connection, Clock::time_point now) {
  std::string& in = connection.in;
  // RFC 9112, 2.2: empty lines before a request line are to be passed over.
  size_t blank = 0;
  while (in.size() - blank >= 2 && in[blank] == '\r' && in[blank + 1] == '\n') blank += 2;
  if (blank > 0) {
    in.erase(0, blank);
    connection.searched = 0;
  }
  if (in.empty()) return false;
  if (connection.state == State::idle) enter(connection, State::reading, now);

  constexpr std::string_view kEnd = "\r\n\r\n";
  const size_t end = in.find(kEnd, connection.searched);
  if (end == std::string::npos) {
    connection.searched = in.size() < kEnd.size() ? 0 : in.size() - (kEnd.size() - 1);
    if (in.size() < kMaxHeadBytes) return false;
    Routes::refuse(431, connection.answer);
  } else {
    const size_t head_bytes = end + kEnd.size();
    const bool last = ++connection.requests >= kMaxRequestsPerConnection;
    try {
      routes_.answer(std::string_view(in).substr(0, head_bytes), last, connection.answer);
    } catch (const std::exception& error) {
      log::warn("request failed", {{"err", error.what()}});
      Routes::refuse(500, connection.answer);
    }
    in.erase(0, head_bytes);
  }
  connection.searched = 0;
  requests_.fetch_add(1, std::memory_order_relaxed);
  enter(connection, State::sending, now);
  limit_held(connection);
  return true;
}

void Server::Loop::send_some(Connection& connection, Clock::time_point now) {
  const size_t total = connection.answer.head.size() + connection.answer.body.view().size();
  while (connection.sent < total) {
    const ssize_t n = connection.send();
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) return connection.close();
    connection.sent += static_cast<size_t>(n);
    connection.since = now;
  }
  connection.answer.body.reset();
  if (connection.answer.close) {
    shutdown(connection.socket.get(), SHUT_WR);
    enter(connection, State::lingering, now);
    drop_some(connection, now);
    return;
  }
  enter(connection, State::idle, now);
  connection.runnable = !connection.in.empty();
}

void Server::Loop::drop_some(Connection& connection, Clock::time_point now) {
  std::array<char, kDropBytes> buffer;
  const ssize_t n = recv(connection.socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n == 0) return client_ended(connection, now);
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) connection.close();
}

// The client will say no more; it may still be taking its last response.
void Server::Loop::client_ended(Connection& connection, Clock::time_point now) {
  if (connection.is_taken()) return connection.close();
  if (connection.state != State::lingering) {
    shutdown(connection.socket.get(), SHUT_WR);
    enter(connection, State::lingering, now);
  }
  connection.only_taking = true;
}

void Server::Loop::enter(Connection& connection, State state, Clock::time_point now) {
  connection.state = state;
  connection.since = now;
  switch (state) {
    case State::idle:
      connection.deadline = now + deadlines_.idle;
      break;
    case State::reading:
      connection.deadline = now + deadlines_.head;
      break;
    case State::sending:
      connection.deadline = now + deadlines_.response;
      connection.sent = 0;
      break;
    case State::lingering:
      connection.deadline = now + deadlines_.linger;
      break;
  }
}

// While a response is being sent no more is read: a client that does not take its answers cannot ask for
// more. A client that ended is readable for good; with EPOLLET alone each change is told once, and the last
// is that all has been taken.
void Server::Loop::watch(Connection& connection) {
  const uint32_t wanted = connection.state == State::sending ? EPOLLOUT
                          : connection.only_taking           ? EPOLLET
                                                             : EPOLLIN;
  if (wanted == connection.interest) return;
  epoll_event event{.events = wanted, .data = {.u64 = index(connection)}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(), &event) != 0) return connection.close();
  connection.interest = wanted;
}

void Server::Loop::evict(Connection& connection) {
  evicted_.fetch_add(1, std::memory_order_relaxed);
  connection.abort();
}

Server::Server(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Server::~Server() { stop(); }

Result<std::unique_ptr<Server>> Server::start(Listener listener, ServerOptions options) {
  auto loop = Loop::create(std::move(listener), std::move(options));
  if (!loop) return std::unexpected(loop.error());
  if (Status started = (*loop)->start_thread(); !started) return std::unexpected(started.error());
  return std::unique_ptr<Server>(new Server(std::move(*loop)));
}

void Server::stop() { loop_->stop(); }
uint16_t Server::port() const { return loop_->port(); }
ServerCounters Server::counters() const { return loop_->counters(); }

}  // namespace kitty::http
