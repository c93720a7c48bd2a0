#include "http/metrics_text.h"

#include <gtest/gtest.h>
#include <unistd.h>

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
  collector::TimeMetrics time;
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
    rank.labels.rank_from = "RANK";
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
    state->report.unreadable = {.permission = 3, .open_files = 1, .mptcp = 2, .stuck = 2};
    state->report.stat_parse_errors = 2;
    state->report.dropped_addresses = 6;
    state->report.discovery_seconds = 0.0125;
    metrics.state = state;
    metrics.processes.resize(2);
    time.accounted_us = 10'000'000;
    time.owing_us = 1'000'000;
    time.moving_us = 2'000'000;
    time.unknown_us = 3;
    time.unsettled_us = 999'997;
    time.peers.resize(2);
    time.peers[1].waiting_us = 3'000'000;
    time.peers[1].receiver_limited_us = 500'000;
    time.peers[1].path_limited_us = 1'500'000;
    time.peers[1].receiving_us = 1'000'000;
    time.peers[1].name_bytes = std::string_view("10.0.0.1").copy(time.peers[1].name.data(), 8);
    metrics.processes[0] = {.time = &time,
                            .sockets_known = true,
                            .rtt_us = 51234.5,
                            .retransmits = 510,
                            .out_segs = 123456,
                            .tx_queue_bytes = 0,
                            .condition = {.cpu_ticks = 123 * static_cast<uint64_t>(sysconf(_SC_CLK_TCK)),
                                          .state = 'D',
                                          .throttled_us = 2'500'001,
                                          .pressure_us = {1'000'000, 20, 0}},
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

  // A state is shared and not changed: another one, for a case of its own.
  template <class Change>
  void change_state(Change&& change) {
    auto state = std::make_shared<collector::ProcessState>(*metrics.state);
    change(*state);
    metrics.state = std::move(state);
    metrics.processes.resize(metrics.state->processes.size());
  }

  // What is known of a process without a socket.
  [[nodiscard]] collector::ProcessMetrics idle() const {
    collector::ProcessMetrics process;
    process.sockets_known = true;
    process.retransmits = 1;
    process.out_segs = 2;
    process.tx_queue_bytes = 0;
    process.own = &own;
    process.condition = {.cpu_ticks = 1, .state = 'S', .throttled_us = 1, .pressure_us = {1, 2, 3}};
    return process;
  }

  // A crowd of so many idle processes of another user, with the longest labels.
  void add_crowd(int count) {
    change_state([count](collector::ProcessState& state) {
      for (int i = 0; i < count; ++i) {
        collector::WatchedProcess one;
        one.id = {10'000 + i, 1};
        one.uid = 65533;
        const std::string label(kMaxLabelValueBytes, '"');  // each is escaped
        one.labels = {label, label, label, label};
        state.processes.push_back(one);
      }
    });
    for (size_t i = 2; i < metrics.processes.size(); ++i) metrics.processes[i] = idle();
  }

  std::string render(size_t max_bytes = kMaxTextBytes) {
    MetricsText text({.version = "9.9.9",
                      .rtt_hook = "fentry/tcp_ack_update_rtt",
                      .socket_source = "iter/task_file",
                      .refused_hooks = {{"kprobe/tcp_rtt_estimator", "attach: no such \"symbol\""}},
                      .start_time_seconds = 1.5e9});
    ExpositionWriter writer(max_bytes);
    text.render(metrics,
                {.cpu_seconds = 1.25, .resident_bytes = 4 << 20, .open_fds = 12, .log_lines_dropped = 8},
                writer);
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

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(MetricsText, ACrowdWithLongLabelsLeavesAnotherUserHisPeers) {
  Fixture fixture;
  fixture.add_crowd(1000);
  for (const size_t max_bytes : {size_t{1} << 20, size_t{2} << 20, kMaxTextBytes}) {
    const std::string text = fixture.render(max_bytes);
    EXPECT_LE(text.size(), max_bytes);
    for (const char* series :
         {"kitty_process_info{pid=\"4242\"", "kitty_process_address_info{pid=\"4242\"",
          "net_tcp_rtt_us{pid=\"4242\"", "kitty_tcp_bytes_sent_total{pid=\"4242\"",
          "kitty_peer_rtt_seconds_sum{pid=\"4242\"", "kitty_peer_busy_seconds_total{pid=\"4242\""}) {
      EXPECT_TRUE(has(text, series)) << series << " in " << max_bytes;
    }
    EXPECT_TRUE(has(text, "kitty_dropped_by_uid{uid=\"65533\",what=\"series\"}")) << max_bytes;
    EXPECT_FALSE(has(text, "kitty_dropped_by_uid{uid=\"1000\"")) << max_bytes;
    const std::vector<std::string> problems = check_exposition(text);
    EXPECT_TRUE(problems.empty()) << problems.front();
  }
}

TEST(MetricsText, AllIdentitiesFitWhateverTheirLabels) {
  Fixture fixture;
  fixture.add_crowd(1022);
  const std::string text = fixture.render();
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("\nkitty_process_info{", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 1024U);
}

TEST(MetricsText, WhatIsNotKnownOfAllSocketsIsAbsentAndNever0) {
  Fixture fixture;
  fixture.metrics.processes[0].sockets_known = false;
  fixture.metrics.processes[0].tx_queue_bytes.reset();
  const std::string text = fixture.render();
  for (const char* name :
       {"\nkitty_tcp_bytes_sent_total", "\nkitty_tcp_segments_sent_total", "\nkitty_tcp_retransmits",
        "\nnet_tcp_tx_queue_bytes", "\nkitty_peer_data_segments", "\nkitty_peer_segments",
        "\nkitty_peer_retransmits", "\nkitty_peer_busy", "\nkitty_peer_tx_queue"}) {
    EXPECT_FALSE(has(text, name)) << name;
  }
  // What was measured was measured.
  EXPECT_TRUE(has(text, "\nkitty_peer_rtt_seconds_sum{"));
  EXPECT_TRUE(has(text, "\nnet_tcp_out_segs_total{"));
}

TEST(MetricsText, WhatIsNotKnownOfAConditionIsAbsent) {
  Fixture fixture;
  fixture.metrics.processes[0].condition = {};
  EXPECT_FALSE(has(fixture.render(), "kitty_process_cpu_seconds_total"));
  EXPECT_FALSE(has(fixture.render(), "kitty_process_state_info"));
  EXPECT_FALSE(has(fixture.render(), "kitty_process_cgroup"));
  fixture.metrics.processes[0].condition.state = 'Z';
  EXPECT_FALSE(has(fixture.render(), "kitty_process_state_info"));
  fixture.metrics.processes[0].condition.pressure_us[2] = 7;
  const std::string text = fixture.render();
  EXPECT_TRUE(has(text, "resource=\"memory\"} 0.000007\n"));
  EXPECT_FALSE(has(text, "resource=\"cpu\""));
}

TEST(MetricsText, AHistogramWithoutASampleIsLeftOut) {
  Fixture fixture;
  fixture.own.rtt = {};
  const std::string text = fixture.render();
  EXPECT_FALSE(has(text, "kitty_tcp_rtt_seconds"));
  EXPECT_TRUE(has(text, "\nkitty_tcp_bytes_sent_total{"));
}

TEST(MetricsText, AWorkerIsOneLine) {
  Fixture fixture;
  fixture.change_state([](collector::ProcessState& state) { state.processes[1].is_worker = true; });
  fixture.metrics.processes[1] = fixture.idle();
  const std::string text = fixture.render();
  EXPECT_TRUE(has(text, "role=\"worker\""));
  const size_t first = text.find("pid=\"4243\"");
  EXPECT_EQ(text.find("pid=\"4243\"", first + 1), std::string::npos);
}

TEST(MetricsText, WhatWasLeftOutIsShownWithWhoseItIs) {
  Fixture fixture;
  fixture.change_state([](collector::ProcessState& state) {
    state.report.left_out = {{.uid = 65533, .processes = 76, .sockets = 608}, {.sockets = 3}};
  });
  const std::string text = fixture.render();
  EXPECT_TRUE(has(text, "\nkitty_dropped_by_uid{uid=\"65533\",what=\"processes\"} 76\n"));
  EXPECT_TRUE(has(text, "\nkitty_dropped_by_uid{uid=\"65533\",what=\"sockets\"} 608\n"));
  EXPECT_TRUE(has(text, "\nkitty_dropped_by_uid{uid=\"other\",what=\"sockets\"} 3\n"));
  EXPECT_FALSE(has(Fixture().render(), "kitty_dropped_by_uid"));
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
