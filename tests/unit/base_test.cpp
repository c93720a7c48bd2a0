#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"

namespace kitty {
namespace {

TEST(Error, OneLineFromWhatIsKnown) {
  EXPECT_EQ((Error{"load program", "rtt", EACCES, "missing CAP_PERFMON"}.message()),
            "load program 'rtt': Permission denied: missing CAP_PERFMON");
  EXPECT_EQ((Error{"read flag", "--x", 0, "unknown"}.message()), "read flag '--x': unknown");
  EXPECT_EQ((Error{"socket", "", EMFILE, ""}.message()), "socket: Too many open files");
  EXPECT_EQ((Error{"attach", "f", 524, ""}.message()), "attach 'f': Operation not supported (ENOTSUPP)");
}

TEST(Fd, ClosesOnceAndMoves) {
  int raw = -1;
  {
    Fd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
    raw = first.get();
    ASSERT_GE(raw, 0);
    Fd second = std::move(first);
    EXPECT_EQ(second.get(), raw);
    Fd& same = second;
    second = std::move(same);  // to itself: keeps
    EXPECT_NE(fcntl(raw, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(raw, F_GETFD), -1);
}

TEST(Log, QuotesWhatLogfmtMustQuote) {
  using log::format_line;
  using log::Level;
  EXPECT_EQ(format_line(Level::info, "serving", {{"address", ":9100"}}),
            "level=info msg=serving address=:9100");
  EXPECT_EQ(format_line(Level::warn, "a \"b\"\nc", {{"empty", ""}, {"path", "a\\b"}, {"odd", "a=b\x01"}}),
            "level=warn msg=\"a \\\"b\\\"\\nc\" empty=\"\" path=\"a\\\\b\" odd=\"a=b?\"");
  EXPECT_EQ(format_line(Level::info, "x", {{"job", "\xc2\x9b\xe2\x80\xae\xff"}, {"name", "\xc3\xa4"}}),
            "level=info msg=x job=\"???\" name=\"\xc3\xa4\"");
  EXPECT_EQ(log::parse_level("warn"), Level::warn);
  EXPECT_EQ(log::parse_level("WARN"), std::nullopt);
}

}  // namespace
}  // namespace kitty
