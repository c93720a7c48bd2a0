#include "http/metrics_text.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/exposition_check.h"

namespace kitty::http {
namespace {

constexpr const char* kGolden = "tests/golden/metrics.txt";

// Two processes: a rank with everything, and a launcher of which little is known, with hostile labels.
struct Fixture {
  collector::OwnTotals own;
  std::vector<collector::PeerMetrics> peers;
  collector::Metrics metrics;

  static collector::PeerMetrics peer(std::string_view name, bool other) {
    collector::PeerMetrics peer{.other = other,
                                .rtt_count = 21,
                                .rtt_sum_us = 3'000'001,
                                .tcp = {.retransmits = 2, .segments_sent = 500, .data_segments_sent = 450},
                                .busy_ns = 1'500'000'000,
                                .rtt_min_us = {},
                                .tx_queue_bytes = 65536};
    if (!other) peer.rtt_min_us = 51;
    peer.name_bytes = name.copy(peer.name.data(), peer.name.size());
    return peer;
  }

  Fixture() {
    own.rtt.buckets[3] = 40;
    own.rtt.buckets[9] = 2;
    own.rtt.buckets[KITTY_RTT_BUCKETS - 1] = 1;
    own.rtt.sum_us = 7'654'321;
    own.tcp = {.retransmits = 5, .segments_sent = 1000, .data_segments_sent = 900, .bytes_sent = 1 << 20};
    own.have = KITTY_HAVE_SEGS_OUT | KITTY_HAVE_TOTAL_RETRANS | KITTY_HAVE_BYTES_SENT |
               KITTY_HAVE_DATA_SEGS_OUT | KITTY_HAVE_BUSY;
    peers = {peer("10.0.0.3", false), peer("other", true)};

    auto state = std::make_shared<collector::ProcessState>();
    collector::WatchedProcess rank;
    rank.id = {4242, 987654};
    rank.uid = 1000;
    rank.comm = "python3";
    rank.labels = {"2", "gpt2-ddp", "0", "4"};
    rank.netns = 4026531840;
    rank.addresses = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2},
                      {0xfd, 0x79, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    rank.container_id = std::string(64, 'a');
    rank.pod_uid = "0f4c0a34-8d2f-4a7e-9d9a-5d2f0a1b2c3d";
    collector::WatchedProcess launcher;
    launcher.id = {4243, 987655};
    launcher.comm = "x) \"y\"\\";
    launcher.labels.job = "a\"b\\c\nd\xff" + std::string(200, 'z');
    state->processes = {rank, launcher};
    state->report.unreadable = {.permission = 3, .open_files = 1};
    state->report.stat_parse_errors = 2;
    state->report.dropped_addresses = 6;
    state->report.discovery_seconds = 0.0125;
    metrics.state = state;
    metrics.processes.resize(2);
    metrics.processes[0] = {.rtt_us = 51234.5,
                            .retransmits = 510,
                            .out_segs = 123456,
                            .tx_queue_bytes = 0,
                            .own = &own,
                            .peers = peers};
    metrics.agent.processes = {true, 0.0125};
    metrics.agent.sockets = {true, 0.0021};
    metrics.agent.network = {true, 0.00002};
    metrics.agent.rtt = {false, 0.0001};
    metrics.agent.rtt_samples = 43;
    metrics.agent.unattributed = {.unowned = 7, .no_inode = 2};
    metrics.agent.full = {.owned = 1};
    metrics.agent.snmp_parse_errors = 1;
  }

  std::string render() {
    MetricsText text({.version = "9.9.9",
                      .rtt_hook = "fentry/tcp_ack_update_rtt",
                      .socket_source = "iter/task_file",
                      .refused_hooks = {{"kprobe/tcp_rtt_estimator", "attach: no such \"symbol\""}},
                      .start_time_seconds = 1.5e9});
    ExpositionWriter writer;
    text.render(metrics, {.cpu_seconds = 1.25, .resident_bytes = 4 << 20, .open_fds = 12}, writer);
    return writer.text();
  }
};

// KITTY_UPDATE_GOLDEN=1 rewrites the file; the diff is then for a person to read.
TEST(MetricsText, GoldenFile) {
  const std::string text = Fixture().render();
  if (std::getenv("KITTY_UPDATE_GOLDEN")) std::ofstream(kGolden) << text;
  std::ifstream file(kGolden);
  ASSERT_TRUE(file) << "run from the top of the tree: " << kGolden;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str());
}

TEST(MetricsText, KeepsEveryRuleOfOurChecker) {
  const std::vector<std::string> problems = check_exposition(Fixture().render());
  EXPECT_TRUE(problems.empty()) << problems.front();
}

// The one lint that the contract with users rules out mending: the unit in net_tcp_rtt_us.
TEST(MetricsText, PassesPromtoolButForTheNamedLint) {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "promtool not found (package prometheus)";
  FILE* pipe = popen((std::string("promtool check metrics < ") + kGolden + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string complaints;
  char line[512];
  while (fgets(line, sizeof line, pipe)) {
    if (std::string_view(line).starts_with("net_tcp_rtt_us ")) continue;
    complaints += line;
  }
  pclose(pipe);
  EXPECT_EQ(complaints, "");
}

TEST(MetricsText, AFieldThatTheKernelLacksCostsItsMetricOnly) {
  Fixture fixture;
  fixture.own.have &= ~static_cast<uint32_t>(KITTY_HAVE_BYTES_SENT);
  const std::string text = fixture.render();
  EXPECT_EQ(text.find("kitty_tcp_bytes_sent_total"), std::string::npos);
  EXPECT_NE(text.find("kitty_tcp_segments_sent_total{"), std::string::npos);
  EXPECT_NE(text.find("kitty_tcp_rtt_seconds_count{"), std::string::npos);
}

TEST(MetricsText, WithoutAHookTheRestIsServed) {
  Fixture fixture;
  fixture.metrics.processes[0].own = nullptr;
  fixture.metrics.processes[0].rtt_us.reset();
  const std::string text = fixture.render();
  EXPECT_EQ(text.find("kitty_tcp_rtt_seconds"), std::string::npos);
  EXPECT_EQ(text.find("net_tcp_rtt_us"), std::string::npos);
  EXPECT_NE(text.find("net_tcp_out_segs_total{pid=\"4242\",rank=\"2\",job=\"gpt2-ddp\"} 123456\n"),
            std::string::npos);
}

}  // namespace
}  // namespace kitty::http
