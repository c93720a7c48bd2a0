#include "collector/ticker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "collector/agent_usage.h"
#include "http/metrics_text.h"
#include "http/text_slot.h"
#include "procfs/file.h"
#include "watched_child.h"

namespace kitty::collector {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = steady_clock::now() + seconds(30);
  while (!condition() && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(10));
  return condition();
}

TEST(Periodic, RunsAgainAndAgainAndStopsInTheMiddleOfAPause) {
  std::atomic<int> runs = 0;
  {
    const Periodic periodic(milliseconds(0), [&runs]() -> std::chrono::nanoseconds {
      return ++runs < 3 ? std::chrono::nanoseconds(milliseconds(1)) : std::chrono::hours(1);
    });
    EXPECT_TRUE(eventually([&runs] { return runs == 3; }));
  }  // joins: an hour's pause would fail the test by its time limit
  EXPECT_EQ(runs, 3);
}

// All threads of the agent but HTTP's at work at once, with readers; what ThreadSanitizer is to look at.
TEST(Ticker, PublishesAtOnceThenTickByTick) {
  const auto root = procfs::open_root("/proc");
  ASSERT_TRUE(root);
  const testing::WatchedChild child = testing::sleeper({"KITTY_WATCH=1", "RANK=6"});
  const ProcessWatch processes(Scanner(root->get(), nullptr), ExecLog(nullptr, 0));
  http::MetricsText text({.version = "t",
                          .rtt_hook = "none",
                          .socket_source = "procfs",
                          .refused_hooks = {},
                          .start_time_seconds = 1});
  http::ExpositionWriter writer;
  http::TextSlot slot;
  std::atomic<int> published = 0;
  const Ticker ticker(Tick(processes, nullptr, 0), [&](const Metrics& metrics) {
    text.render(metrics, read_agent_usage(), writer);
    if (slot.publish(writer.text())) ++published;
  });
  EXPECT_GE(published, 1) << "the first before the constructor returns";
  EXPECT_NE(slot.read().view().find("kitty_build_info"), std::string_view::npos)
      << "also before the first scan";
  const std::string series = "net_tcp_out_segs_total{pid=\"" + std::to_string(child.pid()) + "\",rank=\"6\"";
  EXPECT_TRUE(eventually([&] { return slot.read().view().contains(series); }));
  EXPECT_TRUE(eventually([&] {
    const http::SharedText latest = slot.read();
    return published >= 4 && !latest.view().empty();
  }));
}

}  // namespace
}  // namespace kitty::collector
