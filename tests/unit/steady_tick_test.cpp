// A steady tick, from the kernel's maps and /proc to the rendered text, takes nothing from the heap.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collector/agent_usage.h"
#include "collector/embedded_object.h"
#include "collector/process_watch.h"
#include "collector/rtt_hook.h"
#include "collector/ticker.h"
#include "http/metrics_text.h"
#include "http/text_slot.h"
#include "kernel_tests.h"
#include "procfs/file.h"
#include "tcp_pair.h"
#include "tests/allocation_count.h"
#include "watched_child.h"

namespace kitty {
namespace {

TEST(SteadyTick, AllocatesNothing) {
  KITTY_NEEDS_KERNEL();
  const testing::TcpPair pair;
  const testing::WatchedChild child =
      testing::sleeper({"KITTY_WATCH=1", "RANK=1", "JOB_NAME=steady"}, {pair.client.get()});
  const auto root = procfs::open_root("/proc");
  ASSERT_TRUE(root);
  collector::RttSource rtt = collector::open_rtt_source(collector::embedded_object(), "", "auto");
  ASSERT_NE(rtt.maps, nullptr) << rtt.hook.refusals.front().reason;
  const collector::ProcessWatch processes(collector::Scanner(root->get(), nullptr),
                                          collector::ExecLog(nullptr, 0));
  for (int i = 0; !processes.fresh() && i < 3000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(processes.fresh());
  collector::Tick tick(processes, rtt.maps.get(), rtt.hook.have);
  http::MetricsText text({.version = "t",
                          .rtt_hook = rtt.hook.name,
                          .socket_source = "procfs",
                          .refused_hooks = {},
                          .start_time_seconds = 1});
  http::ExpositionWriter writer;
  http::TextSlot slot;
  const auto run = [&] {
    char byte = 'k';
    ASSERT_EQ(send(pair.client.get(), &byte, 1, 0), 1);
    ASSERT_EQ(recv(pair.server.get(), &byte, 1, 0), 1);
    text.render(tick.run(), collector::read_agent_usage(), writer);
    ASSERT_TRUE(slot.publish(writer.text()));
  };
  // Buffers reach their sizes: each of the slot's texts, then the longest numbers.
  for (int i = 0; i < 40; ++i) run();
  const AllocationCount allocations;
  for (int i = 0; i < 20; ++i) run();
  EXPECT_EQ(allocations.count(), 0U);
  EXPECT_NE(slot.read().view().find("rank=\"1\",job=\"steady\""), std::string_view::npos);
}

}  // namespace
}  // namespace kitty
