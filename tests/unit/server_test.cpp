#include "http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "http/connection.h"
#include "http/exposition.h"

namespace kitty::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kPatience{20000};  // what no test should ever need

// For tests in which no deadline shall pass, however slow the machine.
constexpr Deadlines kPatient{
    .head = kPatience, .response = kPatience, .idle = kPatience, .linger = kPatience};

struct Response {
  std::string head;
  std::string body;
  [[nodiscard]] std::string status() const { return head.substr(0, head.find("\r\n")); }
};

// A client over a blocking socket. Reads give up after kPatience.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer_bytes = 0, uint32_t source = INADDR_LOOPBACK)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer_bytes != 0) {
      setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(source);
    (void)bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  [[nodiscard]] bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  void half_close() { shutdown(socket_.get(), SHUT_WR); }

  // One response by its Content-Length; whatever there is where the connection ends before.
  Response response(bool with_body = true) {
    Response out;
    size_t end;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) {
        out.head = std::exchange(in_, {});
        return out;
      }
    }
    out.head = in_.substr(0, end + 4);
    in_.erase(0, end + 4);
    if (!with_body) return out;
    const size_t length = content_length(out.head);
    while (in_.size() < length && fill()) {
    }
    out.body = in_.substr(0, length);
    in_.erase(0, out.body.size());
    return out;
  }

  Response get(std::string_view path) {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return response();
  }

  // True once the other side has closed, in order or by a reset.
  bool is_closed(milliseconds patience = kPatience) {
    const auto give_up = steady_clock::now() + patience;
    char buffer[4096];
    for (;;) {
      const auto left = std::chrono::ceil<milliseconds>(give_up - steady_clock::now());
      if (left.count() <= 0) return false;
      pollfd poll_fd{socket_.get(), POLLIN, 0};
      if (poll(&poll_fd, 1, static_cast<int>(left.count())) <= 0) return false;
      const ssize_t n = recv(socket_.get(), buffer, sizeof buffer, 0);
      if (n <= 0) return true;
    }
  }

 private:
  static size_t content_length(std::string_view head) {
    constexpr std::string_view kName = "Content-Length: ";
    const size_t at = head.find(kName);
    size_t length = 0;
    if (at == std::string_view::npos) return 0;
    const char* digits = head.data() + at + kName.size();
    std::from_chars(digits, head.data() + head.size(), length);
    return length;
  }

  bool fill() {
    pollfd poll_fd{socket_.get(), POLLIN, 0};
    if (poll(&poll_fd, 1, static_cast<int>(kPatience.count())) != 1) return false;
    char buffer[65536];
    const ssize_t n = recv(socket_.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    in_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  Fd socket_;
  bool connected_ = false;
  std::string in_;
};

class ServerTest : public testing::Test {
 protected:
  void start(Deadlines deadlines = {}) {
    auto listener = Listener::open("127.0.0.1:0");
    ASSERT_TRUE(listener) << listener.error().message();
    auto server = Server::start(std::move(*listener), ServerOptions{.telemetry_path = "/metrics",
                                                                    .text = &slot_,
                                                                    .ready = [this] { return ready_.load(); },
                                                                    .deadlines = deadlines});
    ASSERT_TRUE(server) << server.error().message();
    server_ = std::move(*server);
  }
  void publish(std::string text) { ASSERT_TRUE(slot_.publish(text)); }
  uint16_t port() const { return server_->port(); }

  TextSlot slot_;
  std::atomic<bool> ready_ = false;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, ServesTheTextOverOneConnection) {
  start();
  Client client(port());
  EXPECT_EQ(client.get("/metrics").status(), "HTTP/1.1 503 Service Unavailable");
  publish("up 1\n");
  Response response = client.get("/metrics");
  EXPECT_EQ(response.status(), "HTTP/1.1 200 OK");
  EXPECT_EQ(response.body, "up 1\n");
  publish("up 2\n");
  EXPECT_EQ(client.get("/metrics").body, "up 2\n");
  ASSERT_TRUE(client.send("HEAD /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  response = client.response(false);
  EXPECT_NE(response.head.find("Content-Length: 5\r\n"), std::string::npos) << response.head;
  EXPECT_EQ(client.get("/-/ready").status(), "HTTP/1.1 503 Service Unavailable");
  ready_ = true;
  EXPECT_EQ(client.get("/-/ready").status(), "HTTP/1.1 200 OK");
  EXPECT_EQ(client.get("/no").status(), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(server_->counters().connections, 1U);
  EXPECT_EQ(server_->counters().requests, 7U);
}

TEST_F(ServerTest, AnswersAPipelineInOrder) {
  start();
  publish("up 1\n");
  Client client(port());
  std::string all;
  for (int i = 0; i < 100; ++i) {
    all += i % 2 == 0 ? "GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"
                      : "\r\nGET /-/healthy HTTP/1.1\r\nHost:\r\n\r\n";
  }
  ASSERT_TRUE(client.send(all + "GET /met"));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(client.response().body, i % 2 == 0 ? "up 1\n" : "kitty is healthy\n");
  ASSERT_TRUE(client.send("rics HTTP/1.1\r\nHost:\r\n\r\n"));
  EXPECT_EQ(client.response().body, "up 1\n");
}

TEST_F(ServerTest, ARequestMayComeInPieces) {
  start();
  publish("up 1\n");
  Client client(port());
  for (std::string_view piece : {"G", "ET /metr", "ics HTTP/1.1\r", "\nHost: localhost\r\n", "\r", "\n"}) {
    ASSERT_TRUE(client.send(piece));
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(client.response().body, "up 1\n");
}

TEST_F(ServerTest, AClientMayHalfCloseAfterItsRequest) {
  start();
  publish("up 1\n");
  Client client(port());
  ASSERT_TRUE(client.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  client.half_close();
  EXPECT_EQ(client.response().body, "up 1\n");
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, ServesTheLongestTextToASlowReader) {
  start(kPatient);
  std::string text;
  while (text.size() < kMaxTextBytes) text += "up{n=\"" + std::to_string(text.size()) + "\"} 1\n";
  publish(text);
  Client client(port(), 4096);
  EXPECT_EQ(client.get("/metrics").body, text);
}

TEST_F(ServerTest, ARefusalArrivesWholeHoweverMuchTheClientSends) {
  start();
  Client client(port());
  ASSERT_TRUE(client.send("POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"));
  client.send(std::string(100000, 'x'));
  const Response response = client.response();
  EXPECT_EQ(response.status(), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(response.body, "405 Method Not Allowed\n");
  client.half_close();
  EXPECT_TRUE(client.is_closed());
}

TEST_F(ServerTest, AHeadBeyondTheLimitIsRefused) {
  start();
  Client client(port());
  client.send("GET / HTTP/1.1\r\nX: " + std::string(kMaxHeadBytes, 'x'));
  EXPECT_EQ(client.response().status(), "HTTP/1.1 431 Request Header Fields Too Large");
}

// Who connects between binding and serving waits: nothing is refused and nothing is lost.
TEST_F(ServerTest, WhoConnectsBeforeItServesIsAnswered) {
  publish("up 1\n");
  auto listener = Listener::open("127.0.0.1:0");
  ASSERT_TRUE(listener) << listener.error().message();
  const uint16_t port = listener->port;
  Client early(port);
  ASSERT_TRUE(early.connected());
  ASSERT_TRUE(early.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  const auto server = Server::start(std::move(*listener), ServerOptions{.text = &slot_});
  ASSERT_TRUE(server) << server.error().message();
  EXPECT_EQ((*server)->port(), port);
  EXPECT_EQ(early.response().body, "up 1\n");
}

TEST_F(ServerTest, ABadPathIsAnError) {
  auto listener = Listener::open("127.0.0.1:0");
  ASSERT_TRUE(listener) << listener.error().message();
  EXPECT_FALSE(Server::start(std::move(*listener), ServerOptions{.telemetry_path = "x", .text = &slot_}));
}

TEST_F(ServerTest, StopsAtOnceWhateverTheClientsDo) {
  start(kPatient);
  publish(std::string(kMaxTextBytes, 'x'));
  Client idle(port());
  ASSERT_EQ(idle.get("/-/healthy").status(), "HTTP/1.1 200 OK");
  Client half(port());
  ASSERT_TRUE(half.send("GET /metrics HTT"));
  Client silent(port());
  Client not_reading(port(), 4096);
  ASSERT_TRUE(not_reading.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  while (server_->counters().connections < 4 || server_->counters().requests < 2) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  const auto before = steady_clock::now();
  server_->stop();
  EXPECT_LT(steady_clock::now() - before, seconds(2));
  EXPECT_TRUE(idle.is_closed());
  EXPECT_TRUE(half.is_closed());
  EXPECT_TRUE(silent.is_closed());
  EXPECT_FALSE(Client(port()).connected());
  server_->stop();  // again: nothing
  // Nobody holds a text any more: the latest one comes back.
  std::string text = "new";
  ASSERT_TRUE(slot_.publish(text));
  EXPECT_EQ(text.size(), kMaxTextBytes);
}

TEST_F(ServerTest, AClientThatDripsIsCutOffAndHoldsUpNobody) {
  start(Deadlines{.head = milliseconds(1500)});
  publish("up 1\n");
  std::vector<Client> drippers;
  for (int i = 0; i < 16; ++i) drippers.emplace_back(port());
  Client client(port());
  const auto before = steady_clock::now();
  bool cut_off = false;
  for (size_t i = 0; !cut_off && steady_clock::now() - before < kPatience; ++i) {
    for (Client& dripper : drippers) cut_off |= !dripper.send(std::string(1, "GET /metrics"[i % 12]));
    EXPECT_EQ(client.get("/metrics").body, "up 1\n");
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_TRUE(cut_off);
  for (Client& dripper : drippers) {
    EXPECT_EQ(dripper.response().status(), "HTTP/1.1 408 Request Timeout");
  }
  EXPECT_EQ(server_->counters().connections_timed_out, 16U);
}

TEST_F(ServerTest, AClientThatDoesNotReadIsCutOffAndLetsGoOfItsText) {
  start(Deadlines{.response = milliseconds(1000)});
  std::string text(kMaxTextBytes, 'x');
  ASSERT_TRUE(slot_.publish(text));
  Client stalled(port(), 4096);
  ASSERT_TRUE(stalled.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  const auto before = steady_clock::now();
  while (server_->counters().requests == 0) std::this_thread::sleep_for(milliseconds(1));
  text = "held";
  ASSERT_TRUE(slot_.publish(text));
  EXPECT_EQ(text, "");  // the long one is held by the stalled client
  Client client(port());
  while (server_->counters().connections_timed_out == 0 && steady_clock::now() - before < kPatience) {
    EXPECT_EQ(client.get("/metrics").body, "held");
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(server_->counters().connections_timed_out, 1U);
  EXPECT_TRUE(stalled.is_closed());
}

TEST_F(ServerTest, IdleConnectionsAreClosed) {
  start(Deadlines{.head = milliseconds(200), .idle = milliseconds(300)});
  Client silent(port());
  Client idle(port());
  ASSERT_EQ(idle.get("/-/healthy").status(), "HTTP/1.1 200 OK");
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(idle.is_closed());
}

TEST_F(ServerTest, ANewcomerIsServedHoweverManyConnectionsAreOpen) {
  start(kPatient);
  publish("up 1\n");
  std::vector<Client> idle;
  for (size_t i = 0; i < kMaxConnections + 20; ++i) {
    idle.emplace_back(port());
    ASSERT_TRUE(idle.back().send(i % 2 == 0 ? "" : "GET /"));
  }
  Client early(port());
  EXPECT_EQ(early.get("/metrics").body, "up 1\n");
  // The silent ones come to the server after a second only.
  while (server_->counters().connections < idle.size() + 1) std::this_thread::sleep_for(milliseconds(1));
  Client client(port());
  EXPECT_EQ(client.get("/metrics").body, "up 1\n");
  EXPECT_EQ(server_->counters().connections_evicted, 22U);
  for (size_t i = 1; i < idle.size(); i += 2)
    EXPECT_FALSE(idle[i].is_closed(milliseconds(0))) << "it has begun a head, others have not said a word";
}

TEST_F(ServerTest, SilentConnectionsOfManyAddressesCostOthersNothing) {
  start(kPatient);
  publish("up 1\n");
  Client kept(port());
  ASSERT_EQ(kept.get("/metrics").body, "up 1\n");
  Client half(port());
  ASSERT_TRUE(half.send("GET /metrics HT"));
  std::vector<Client> flood;
  for (uint32_t i = 0; i < 2 * kMaxConnections; ++i) flood.emplace_back(port(), 0, INADDR_LOOPBACK + 1 + i);
  while (server_->counters().connections < 2 + flood.size()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(kept.get("/metrics").body, "up 1\n");
  ASSERT_TRUE(half.send("TP/1.1\r\nHost:\r\n\r\n"));
  EXPECT_EQ(half.response().body, "up 1\n");
  EXPECT_EQ(server_->counters().connections_evicted, kMaxConnections + 2);
}

// The kernel hands a connection over with its first bytes, but not only then.
TEST_F(ServerTest, WhoConnectsAndAsksLaterIsServed) {
  start(kPatient);
  publish("up 1\n");
  Client client(port());
  ASSERT_TRUE(client.connected());
  while (server_->counters().connections < 1) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(client.get("/metrics").body, "up 1\n");
}

TEST_F(ServerTest, WhoConnectsAndGoesCostsNothing) {
  start(kPatient);
  publish("up 1\n");
  for (size_t i = 0; i < 2 * kMaxConnections; ++i) ASSERT_TRUE(Client(port()).connected());
  Client client(port());
  EXPECT_EQ(client.get("/metrics").body, "up 1\n");
  EXPECT_EQ(server_->counters().connections_evicted, 0U);
}

TEST_F(ServerTest, WhoHasItsAnswerGivesWayToWhoHasNone) {
  start(kPatient);
  publish("up 1\n");
  Client slow(port());
  ASSERT_TRUE(slow.send("GET /metrics HTTP/1.1\r\nHost:"));
  while (server_->counters().connections < 1) std::this_thread::sleep_for(milliseconds(1));
  std::vector<Client> answered;
  for (size_t i = 0; i < kMaxConnections + 20; ++i) {
    answered.emplace_back(port());
    ASSERT_EQ(answered.back().get("/metrics").body, "up 1\n");
  }
  ASSERT_TRUE(slow.send("\r\n\r\n"));
  EXPECT_EQ(slow.response().body, "up 1\n");
  EXPECT_EQ(server_->counters().connections_evicted, 21U);
}

TEST_F(ServerTest, WhoIsStillBeingSentItsAnswerHasNone) {
  start(kPatient);
  // More than the client's buffer holds, and no more than the kernel takes from the server at once.
  const std::string text(size_t{256} << 10, 'x');
  publish(text);
  Client slow(port(), 4096);
  ASSERT_TRUE(slow.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  while (server_->counters().requests < 1) std::this_thread::sleep_for(milliseconds(1));
  std::vector<Client> answered;
  for (size_t i = 0; i < kMaxConnections + 20; ++i) {
    answered.emplace_back(port());
    ASSERT_EQ(answered.back().get("/metrics").body, text);
  }
  EXPECT_EQ(server_->counters().connections_evicted, 21U);
  EXPECT_EQ(slow.response().body, text);
}

TEST_F(ServerTest, ANewcomerIsServedHoweverManyConnectionsDoNotRead) {
  start(kPatient);
  publish(std::string(kMaxTextBytes, 'x'));
  std::vector<Client> stalled;
  for (size_t i = 0; i < kMaxConnections; ++i) {
    stalled.emplace_back(port(), 4096);
    ASSERT_TRUE(stalled.back().send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  }
  while (server_->counters().requests < kMaxConnections) std::this_thread::sleep_for(milliseconds(1));
  Client client(port());
  EXPECT_EQ(client.get("/-/healthy").status(), "HTTP/1.1 200 OK");
  EXPECT_EQ(server_->counters().connections_evicted, 1U);
}

TEST_F(ServerTest, AFloodFromOneAddressCostsOthersNothing) {
  start(kPatient);
  publish("up 1\n");
  Client kept(port());
  ASSERT_EQ(kept.get("/metrics").body, "up 1\n");
  Client half(port());
  ASSERT_TRUE(half.send("GET /metrics HT"));
  constexpr uint32_t kOther = INADDR_LOOPBACK + 1;
  std::vector<Client> flood;
  for (size_t i = 0; i < 3 * kMaxConnections; ++i) {
    flood.emplace_back(port(), 0, kOther);
    ASSERT_TRUE(flood.back().send(i % 2 == 0 ? "" : "GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  }
  while (server_->counters().connections < 2 + flood.size()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(kept.get("/metrics").body, "up 1\n");
  ASSERT_TRUE(half.send("TP/1.1\r\nHost:\r\n\r\n"));
  EXPECT_EQ(half.response().body, "up 1\n");
  EXPECT_EQ(server_->counters().connections_evicted, 2 * kMaxConnections + 2);
}

TEST_F(ServerTest, TextsThatSlowReadersHoldAreBounded) {
  start(kPatient);
  publish(std::string(kMaxTextBytes, 'a'));
  Client first(port(), 4096);
  ASSERT_TRUE(first.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  while (server_->counters().requests < 1) std::this_thread::sleep_for(milliseconds(1));
  publish(std::string(kMaxTextBytes, 'b'));
  std::vector<Client> later;
  for (uint64_t i = 0; i < 4; ++i) {
    later.emplace_back(port(), 4096);
    ASSERT_TRUE(later.back().send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
    while (server_->counters().requests < 2 + i) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(first.response().body.size(), kMaxTextBytes);
  EXPECT_EQ(server_->counters().connections_evicted, 1U);
  EXPECT_EQ(later.front().response().body, std::string(kMaxTextBytes, 'b'));
}

TEST_F(ServerTest, AClientThatHalfClosesAndDoesNotReadIsReset) {
  start(Deadlines{.response = milliseconds(1000), .linger = milliseconds(200)});
  const std::string text(200'000, 'x');  // the kernel takes all of it
  publish(text);
  Client stalled(port(), 4096);
  ASSERT_TRUE(stalled.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  stalled.half_close();
  Client reads(port(), 4096);
  ASSERT_TRUE(reads.send("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n"));
  reads.half_close();
  std::this_thread::sleep_for(milliseconds(300));  // beyond linger
  EXPECT_EQ(reads.response().body, text);
  const auto before = steady_clock::now();
  while (server_->counters().connections_timed_out == 0 && steady_clock::now() - before < kPatience) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_LT(stalled.response().body.size(), text.size());
  EXPECT_EQ(server_->counters().connections_timed_out, 1U);
}

TEST_F(ServerTest, AConnectionIsClosedAfterItsLastRequest) {
  start();
  Client client(port());
  for (size_t i = 1; i < kMaxRequestsPerConnection; ++i) {
    ASSERT_EQ(client.get("/-/healthy").body, "kitty is healthy\n") << i;
  }
  const Response last = client.get("/-/healthy");
  EXPECT_NE(last.head.find("Connection: close\r\n"), std::string::npos) << last.head;
  EXPECT_TRUE(client.is_closed());
}

TEST(ClientOf, AddressesOfOneHostAreOneClient) {
  const auto client = [](const char* text) {
    sockaddr_storage address{};
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
      address.ss_family = AF_INET;
    } else {
      EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
      address.ss_family = AF_INET6;
    }
    return client_of(address);
  };
  EXPECT_EQ(client("10.0.0.1"), client("::ffff:10.0.0.1"));
  EXPECT_EQ(client("2001:db8::1"), client("2001:db8::2:1"));
  EXPECT_NE(client("10.0.0.1"), client("10.0.0.2"));
  EXPECT_NE(client("::ffff:10.0.0.1"), client("::ffff:10.0.0.2"));
  EXPECT_NE(client("2001:db8::1"), client("2001:db8:0:1::1"));
}

// select() cannot tell descriptors from 1024 on; a server that uses it goes silent there.
TEST_F(ServerTest, ServesWithDescriptorsBeyondFdSetSize) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  constexpr rlim_t kNeeded = 1200;
  if (limit.rlim_max < kNeeded) GTEST_SKIP() << "RLIMIT_NOFILE is " << limit.rlim_max;
  const rlimit raised{std::max(limit.rlim_cur, kNeeded), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &raised), 0);
  std::vector<Fd> taken;
  for (int i = 0; i < 1100; ++i) taken.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  start();
  publish("up 1\n");
  EXPECT_EQ(Client(port()).get("/metrics").body, "up 1\n");
  server_->stop();
  taken.clear();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(ServerTest, SurvivesRunningOutOfDescriptors) {
  start();
  publish("up 1\n");
  Client served(port());
  ASSERT_EQ(served.get("/metrics").body, "up 1\n");
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  Client waiting(port());  // its own descriptor before there are none, then the accept has none
  while (server_->counters().connections < 2) std::this_thread::sleep_for(milliseconds(1));
  std::vector<Fd> sockets;
  for (int i = 0; i < 4; ++i) sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd next(dup(0));
  ASSERT_TRUE(next);
  const rlimit none{static_cast<rlim_t>(next.get()), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const Fd& socket : sockets) {
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(send(socket.get(), "G", 1, MSG_NOSIGNAL), 1);  // which has it handed over at once
  }
  std::this_thread::sleep_for(milliseconds(250));
  EXPECT_EQ(served.get("/metrics").body, "up 1\n");
  EXPECT_EQ(server_->counters().connections, 2U);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto before = steady_clock::now();
  while (server_->counters().connections < 6 && steady_clock::now() - before < kPatience) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(server_->counters().connections, 6U);
  EXPECT_EQ(served.get("/metrics").body, "up 1\n");
}

TEST_F(ServerTest, ManyClientsReadWholeTextsWhileNewOnesArePublished) {
  start();
  publish(std::string(1000, 'a'));
  std::atomic<bool> done = false;
  std::atomic<uint64_t> scrapes = 0;
  std::atomic<uint64_t> wrong = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] {
      while (!done) {
        Client client(port());
        for (int n = 0; n < 1 + i * 5; ++n) {
          const std::string body = client.get("/metrics").body;
          if (body.size() < 1000 || body.find_first_not_of(body[0]) != std::string::npos) wrong.fetch_add(1);
          scrapes.fetch_add(1);
        }
      }
    });
  }
  std::string text;
  for (int i = 0; i < 500; ++i) {
    text.assign(static_cast<size_t>(1000 + 300 * (i % 400)), static_cast<char>('a' + i % 26));
    EXPECT_TRUE(slot_.publish(text));
    std::this_thread::sleep_for(milliseconds(1));
  }
  done = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong.load(), 0U);
  EXPECT_GT(scrapes.load(), 100U);
}

}  // namespace
}  // namespace kitty::http
