#include "http/request_head.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace kitty::http {
namespace {

std::string request(std::string_view line, std::string_view headers = "") {
  return std::string(line) + "\r\nHost: x\r\n" + std::string(headers) + "\r\n";
}

struct Case {
  const char* name;
  std::string head;
  std::optional<int> status;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class RequestHeadStatus : public testing::TestWithParam<Case> {};

TEST_P(RequestHeadStatus, IsJudgedFromTheHead) {
  const auto request = parse_request_head(GetParam().head);
  EXPECT_EQ(request ? std::nullopt : std::optional(request.error()), GetParam().status);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RequestHeadStatus,
    testing::Values(
        Case{"get", request("GET / HTTP/1.1"), std::nullopt},
        Case{"head", request("HEAD / HTTP/1.1"), std::nullopt},
        Case{"no_headers", "GET / HTTP/1.0\r\n\r\n", std::nullopt},
        Case{"content_length_zero", request("GET / HTTP/1.1", "Content-Length: 0\r\n"), std::nullopt},
        Case{"post", request("POST / HTTP/1.1", "Content-Length: 5\r\n"), 405},
        Case{"lower_case_get", request("get / HTTP/1.1"), 405},
        Case{"unknown_method", request("BREW / HTTP/1.1"), 405},
        Case{"http2_preface", "PRI * HTTP/2.0\r\n\r\n", 405},
        Case{"body", request("GET / HTTP/1.1", "Content-Length: 5\r\n"), 400},
        Case{"negative_length", request("GET / HTTP/1.1", "Content-Length: -1\r\n"), 400},
        Case{"two_lengths", request("GET / HTTP/1.1", "Content-Length: 0\r\ncontent-length: 5\r\n"), 400},
        Case{"chunked", request("GET / HTTP/1.1", "transfer-ENCODING:chunked\r\n"), 400},
        Case{"range", request("GET / HTTP/1.1", "Range: bytes=0-1\r\n"), 400},
        Case{"expect", request("GET / HTTP/1.1", "Expect: 100-continue\r\n"), 400},
        Case{"folded_line", request("GET / HTTP/1.1", "X: a\r\n b\r\n"), 400},
        Case{"blank_before_colon", request("GET / HTTP/1.1", "Range : bytes=0-1\r\n"), 400},
        Case{"no_colon", request("GET / HTTP/1.1", "Range\r\n"), 400},
        Case{"bare_line_feed", request("GET / HTTP/1.1", "X: a\nRange: bytes=0-1\r\n"), 400},
        Case{"bare_carriage_return", request("GET / HTTP/1.1", "X: a\rb\r\n"), 400},
        Case{"nul", request("GET / HTTP/1.1", std::string_view("X: a\0b\r\n", 8)), 400},
        Case{"tls_hello", std::string("\x16\x03\x01\r\n\r\n"), 400}, Case{"nothing", "", 400},
        Case{"no_blank_line", "GET / HTTP/1.1\r\nHost: x\r\n", 400},
        Case{"more_behind_the_blank_line", "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET", 400},
        Case{"no_host", "GET / HTTP/1.1\r\n\r\n", 400},
        Case{"empty_host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", std::nullopt},
        Case{"two_hosts", request("GET / HTTP/1.1", "host: x\r\n"), 400},
        Case{"two_hosts_in_http10", request("GET / HTTP/1.0", "HOST: y\r\n"), 400},
        Case{"login_in_host", "GET / HTTP/1.1\r\nHost: u@x\r\n\r\n", 400},
        Case{"blank_in_host", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400},
        Case{"two_names_in_host", "GET / HTTP/1.1\r\nHost: x,y/z\r\n\r\n", 400},
        Case{"escape_in_host", "GET / HTTP/1.1\r\nHost: \x1b[2J\r\n\r\n", 400},
        Case{"port_no_number", "GET / HTTP/1.1\r\nHost: x:y\r\n\r\n", 400},
        Case{"bare_ipv6", "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400},
        Case{"open_bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
        Case{"absolute", request("GET http://x:1/metrics HTTP/1.1"), std::nullopt},
        Case{"absolute_without_host", "GET http://x/ HTTP/1.1\r\n\r\n", 400},
        Case{"absolute_of_nobody", request("GET http:///metrics HTTP/1.1"), 400},
        Case{"absolute_with_login", request("GET http://u@x/ HTTP/1.1"), 400},
        Case{"absolute_https", request("GET https://x/ HTTP/1.1"), 400},
        Case{"asterisk", request("GET * HTTP/1.1"), 400},
        Case{"relative", request("GET metrics HTTP/1.1"), 400}, Case{"no_version", request("GET /"), 400},
        Case{"other_version", request("GET / HTTP/2.0"), 400},
        Case{"two_blanks", request("GET  / HTTP/1.1"), 400}),
    [](const auto& c) { return std::string(c.param.name); });

TEST(RequestHead, SaysWhomItAsksAndForWhat) {
  struct {
    const char* line;
    const char* host;
    const char* asks;
    const char* target;
  } const cases[] = {
      {"GET /a?b=c HTTP/1.1", "n7.example:9100", "n7.example", "/a?b=c"},
      {"HEAD / HTTP/1.0", "[::1]:9100", "[::1]", "/"},
      {"GET / HTTP/1.1", "\t x: ", "x", "/"},
      {"GET http://y:1/a?b HTTP/1.1", "x", "y", "/a?b"},
      {"GET Http://[::1] HTTP/1.1", "x", "[::1]", ""},
      {"GET http://y?b HTTP/1.1", "x", "y", "?b"},
  };
  for (const auto& c : cases) {
    const std::string text = std::string(c.line) + "\r\nHost: " + c.host + "\r\n\r\n";
    const auto head = parse_request_head(text);
    ASSERT_TRUE(head) << text << head.error();
    EXPECT_EQ(head->host, c.asks) << text;
    EXPECT_EQ(head->target, c.target) << text;
    EXPECT_EQ(head->headers, "Host: " + std::string(c.host) + "\r\n\r\n");
  }
}

}  // namespace
}  // namespace kitty::http
