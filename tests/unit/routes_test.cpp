#include "http/routes.h"

#include <gtest/gtest.h>

#include "http/exposition.h"
#include "http/page.h"

namespace kitty::http {
namespace {

std::string request(std::string_view line, std::string_view headers = "") {
  return std::string(line) + "\r\nHost: localhost\r\n" + std::string(headers) + "\r\n";
}

struct PathCase {
  const char* name;
  std::string path;
  bool good;
};

void PrintTo(const PathCase& c, std::ostream* out) { *out << c.name; }

class TelemetryPath : public testing::TestWithParam<PathCase> {};

TEST_P(TelemetryPath, IsChecked) {
  const Status status = check_telemetry_path(GetParam().path);
  EXPECT_EQ(status.has_value(), GetParam().good) << GetParam().path;
}

INSTANTIATE_TEST_SUITE_P(Cases, TelemetryPath,
                         testing::Values(PathCase{"usual", "/metrics", true}, PathCase{"root", "/", true},
                                         PathCase{"deep", "/a/b.c-d_e~f", true}, PathCase{"empty", "", false},
                                         PathCase{"relative", "metrics", false},
                                         PathCase{"reserved", "/-/ready", false},
                                         PathCase{"query", "/metrics?x", false},
                                         PathCase{"markup", "/\"><b>", false},
                                         PathCase{"blank", "/a b", false}, PathCase{"percent", "/%41", false},
                                         PathCase{"longest", "/" + std::string(127, 'a'), true},
                                         PathCase{"too_long", "/" + std::string(128, 'a'), false}),
                         [](const auto& c) { return std::string(c.param.name); });

class RoutesTest : public testing::Test {
 protected:
  Answer ask(const std::string& head, bool last = false) {
    Answer answer;
    routes_.answer(head, last, answer);
    return answer;
  }
  void publish(std::string text) { ASSERT_TRUE(slot_.publish(text)); }
  static bool has(const Answer& answer, std::string_view line) {
    return answer.head.find(std::string(line) + "\r\n") != std::string::npos;
  }
  static std::string_view status(const Answer& answer) {
    return std::string_view(answer.head).substr(0, answer.head.find("\r\n"));
  }
  static std::string_view content(const Answer& answer) {
    return std::string_view(answer.head).substr(answer.head.find("\r\n\r\n") + 4);
  }

  TextSlot slot_;
  bool ready_ = false;
  Routes routes_{RoutesOptions{.telemetry_path = "/metrics",
                               .text = &slot_,
                               .ready = [this] { return ready_; },
                               .keep_alive_s = 40,
                               .max_requests = 1000}};
};

TEST_F(RoutesTest, MetricsAreTheLatestText) {
  publish("up 1\n");
  Answer answer = ask(request("GET /metrics HTTP/1.1"));
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(answer, "Content-Type: " + std::string(kContentType))) << answer.head;
  EXPECT_TRUE(has(answer, "Content-Length: 5")) << answer.head;
  EXPECT_EQ(content(answer), "");
  EXPECT_EQ(answer.body.view(), "up 1\n");
  EXPECT_FALSE(answer.close);
  publish("up 22\n");
  answer = ask(request("GET /metrics?name[]=up HTTP/1.1"));
  EXPECT_TRUE(has(answer, "Content-Length: 6")) << answer.head;
  EXPECT_EQ(answer.body.view(), "up 22\n");
}

TEST_F(RoutesTest, HeadOfMetricsHasTheLengthButNoBody) {
  publish("up 1\n");
  const Answer answer = ask(request("HEAD /metrics HTTP/1.1"));
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(answer, "Content-Length: 5")) << answer.head;
  EXPECT_EQ(content(answer), "");
  EXPECT_FALSE(answer.body);
}

TEST_F(RoutesTest, AnEmptyTextIsServed) {
  publish("");
  const Answer answer = ask(request("GET /metrics HTTP/1.1"));
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(answer, "Content-Length: 0")) << answer.head;
}

TEST_F(RoutesTest, MetricsAreUnavailableBeforeTheFirstText) {
  const Answer answer = ask(request("GET /metrics HTTP/1.1"));
  EXPECT_EQ(status(answer), "HTTP/1.1 503 Service Unavailable");
  EXPECT_EQ(content(answer), "kitty: nothing collected yet\n");
}

TEST_F(RoutesTest, HealthAndReadiness) {
  EXPECT_EQ(status(ask(request("GET /-/healthy HTTP/1.1"))), "HTTP/1.1 200 OK");
  EXPECT_EQ(status(ask(request("GET /-/ready HTTP/1.1"))), "HTTP/1.1 503 Service Unavailable");
  ready_ = true;
  EXPECT_EQ(status(ask(request("GET /-/ready HTTP/1.1"))), "HTTP/1.1 200 OK");
}

TEST_F(RoutesTest, ThePageIsServedAtTheRoot) {
  const Answer answer = ask(request("GET / HTTP/1.1"));
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(answer, "Content-Type: text/html; charset=utf-8")) << answer.head;
  EXPECT_TRUE(has(answer, "Content-Security-Policy: " + std::string(kPagePolicy))) << answer.head;
  EXPECT_TRUE(has(answer, "Cache-Control: no-cache")) << answer.head;
  EXPECT_TRUE(has(answer, "Content-Length: " + std::to_string(answer.body.view().size()))) << answer.head;
  EXPECT_EQ(content(answer), "");
  EXPECT_TRUE(answer.body.view().starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(answer.body.view().ends_with("</html>\n"));
  EXPECT_FALSE(answer.close);
}

TEST_F(RoutesTest, HeadOfThePageHasTheLengthButNoBody) {
  const Answer answer = ask(request("HEAD / HTTP/1.1"));
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  EXPECT_TRUE(has(answer, "Content-Length: " + std::to_string(page("/metrics").size()))) << answer.head;
  EXPECT_EQ(content(answer), "");
  EXPECT_FALSE(answer.body);
}

TEST_F(RoutesTest, ThePageIsToldTheTelemetryPath) {
  for (const std::string& path : {std::string("/metrics"), std::string("/a"), "/" + std::string(127, 'x')}) {
    Routes routes(RoutesOptions{.telemetry_path = path, .text = &slot_});
    Answer answer;
    routes.answer(request("GET / HTTP/1.1"), false, answer);
    EXPECT_NE(answer.body.view().find("href=\"." + path + "\""), std::string_view::npos) << path;
    EXPECT_EQ(answer.body.view().find("TELEMETRY-PATH"), std::string_view::npos) << path;
  }
}

// What the policy would refuse anyway, and every byte is part of the binary.
TEST(Page, IsSmallAndWhole) {
  const std::string text = page("/metrics");
  EXPECT_LT(text.size(), 22'528);
  for (const std::string_view outside : {"http://", "https://", "@import", "url(", "innerHTML"}) {
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
  }
}

TEST_F(RoutesTest, RefusalsAreWholeResponsesThatClose) {
  const Answer method = ask(request("DELETE /metrics HTTP/1.1"));
  EXPECT_EQ(
      method.head,
      "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nConnection: close\r\nContent-Type: text/plain; "
      "charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: 23\r\n\r\n405 Method Not "
      "Allowed\n");
  EXPECT_TRUE(method.close);
  const Answer body = ask(request("GET /metrics HTTP/1.1", "Content-Length: 1\r\n"));
  EXPECT_EQ(status(body), "HTTP/1.1 400 Bad Request");
  EXPECT_TRUE(body.close);
}

struct StatusCase {
  const char* name;
  std::string head;
  std::string status;
  bool close;
};

void PrintTo(const StatusCase& c, std::ostream* out) { *out << c.name; }

class RoutesStatus : public RoutesTest, public testing::WithParamInterface<StatusCase> {};

TEST_P(RoutesStatus, IsAnswered) {
  const Answer answer = ask(GetParam().head);
  EXPECT_EQ(status(answer), "HTTP/1.1 " + GetParam().status);
  EXPECT_EQ(answer.close, GetParam().close);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RoutesStatus,
    testing::Values(
        StatusCase{"unknown_path", request("GET /nothing HTTP/1.1"), "404 Not Found", false},
        StatusCase{"path_below_metrics", request("GET /metrics/ HTTP/1.1"), "404 Not Found", false},
        StatusCase{"traversal", request("GET /../../etc/passwd HTTP/1.1"), "404 Not Found", false},
        StatusCase{"encoded_path", request("GET /%2d/healthy HTTP/1.1"), "200 OK", false},
        StatusCase{"http10", request("GET /-/healthy HTTP/1.0"), "200 OK", true},
        StatusCase{"client_closes", request("GET /-/healthy HTTP/1.1", "Connection: close\r\n"), "200 OK",
                   true},
        StatusCase{"http2_version", request("GET / HTTP/2.0"), "400 Bad Request", true},
        StatusCase{"no_version", request("GET /"), "400 Bad Request", true},
        StatusCase{"long_path", request("GET /" + std::string(7000, 'a') + " HTTP/1.1"), "404 Not Found",
                   false}),
    [](const auto& c) { return std::string(c.param.name); });

TEST_F(RoutesTest, TheLastAnswerSaysThatItIs) {
  const Answer answer = ask(request("GET /-/healthy HTTP/1.1"), true);
  EXPECT_TRUE(answer.close);
  EXPECT_TRUE(has(answer, "Connection: close")) << answer.head;
}

// A browser that guesses what a text is could take a job's name for markup.
TEST_F(RoutesTest, NobodyIsToGuessWhatAnAnswerIs) {
  publish("up 1\n");
  for (const std::string& head :
       {request("GET /metrics HTTP/1.1"), request("HEAD /metrics HTTP/1.1"), request("GET / HTTP/1.1"),
        request("GET /-/ready HTTP/1.1"), request("GET /none HTTP/1.1"), request("POST / HTTP/1.1"),
        request("GET /" + std::string(9000, 'a') + " HTTP/1.1"), request("GET / HTTP/2.0"),
        std::string("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), std::string("\x16\x03\x01\r\n\r\n")}) {
    const Answer answer = ask(head);
    EXPECT_TRUE(has(answer, "X-Content-Type-Options: nosniff")) << head << answer.head;
    EXPECT_EQ(answer.head.find("X-Content-Type"), answer.head.rfind("X-Content-Type")) << answer.head;
  }
}

// DNS rebinding: a page of somebody's lets its name lead here and reads what the browser is answered.
TEST_F(RoutesTest, ANameThatIsNobodysHereIsRefused) {
  publish("up 1\n");
  const auto from = [](std::string_view host) {
    return "GET /metrics HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n";
  };
  for (const char* host :
       {"localhost", "LocalHost:9100", "127.0.0.1:9100", "10.1.2.3", "[::1]:9100", "[fe80::1%25eth0]", ""})
    EXPECT_EQ(status(ask(from(host))), "HTTP/1.1 200 OK") << host;
  for (const char* host : {"evil.example", "evil.example:9100", "localhost.evil.example",
                           "127.0.0.1.evil.example", "127.1", "2130706433", "[::g]", "xlocalhost"}) {
    const Answer answer = ask(from(host));
    EXPECT_EQ(status(answer), "HTTP/1.1 403 Forbidden") << host;
    EXPECT_FALSE(answer.body) << host;
    EXPECT_TRUE(answer.close) << host;
    EXPECT_NE(content(answer).find("--web.allowed-host="), std::string_view::npos) << content(answer);
  }
  // Whom an absolute target asks counts, whatever Host says (RFC 9112, 3.2.2).
  EXPECT_EQ(status(ask(request("GET http://evil.example/metrics HTTP/1.1"))), "HTTP/1.1 403 Forbidden");

  Routes routes(
      RoutesOptions{.telemetry_path = "/metrics", .text = &slot_, .allowed_hosts = {"n7.train.example"}});
  Answer answer;
  routes.answer(from("N7.train.example.:9100"), false, answer);
  EXPECT_EQ(status(answer), "HTTP/1.1 200 OK");
  routes.answer(from("n8.train.example:9100"), false, answer);
  EXPECT_EQ(status(answer), "HTTP/1.1 403 Forbidden");
}

TEST_F(RoutesTest, AnAbsoluteTargetIsAnswered) {
  publish("up 1\n");
  for (const char* target :
       {"http://127.0.0.1:9100/metrics", "HTTP://localhost/metrics?a=b", "http://[::1]:9100/metrics"}) {
    const Answer answer = ask(request("GET " + std::string(target) + " HTTP/1.1"));
    EXPECT_EQ(status(answer), "HTTP/1.1 200 OK") << target;
    EXPECT_EQ(answer.body.view(), "up 1\n") << target;
    EXPECT_FALSE(answer.close) << target;
  }
  EXPECT_TRUE(ask(request("GET http://localhost HTTP/1.1")).body.view().starts_with("<!DOCTYPE html>"));
  EXPECT_EQ(status(ask(request("GET http://localhost/none HTTP/1.1"))), "HTTP/1.1 404 Not Found");
  const Answer head = ask(request("HEAD http://localhost/metrics HTTP/1.1"));
  EXPECT_TRUE(has(head, "Content-Length: 5")) << head.head;
  EXPECT_FALSE(head.body);
}

TEST_F(RoutesTest, MetricsMayLiveAtTheRoot) {
  publish("up 1\n");
  Routes routes(RoutesOptions{.telemetry_path = "/", .text = &slot_});
  Answer answer;
  routes.answer(request("GET / HTTP/1.1"), false, answer);
  EXPECT_EQ(answer.body.view(), "up 1\n");
}

}  // namespace
}  // namespace kitty::http
