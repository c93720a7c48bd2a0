#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "cli/read_scrape.h"
#include "verdict/scrape.h"

namespace kitty::verdict {
namespace {

std::string golden() {
  std::ifstream file("tests/golden/metrics.txt");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Scrape, TheAgentsOwnTextIsUnderstood) {
  const auto scrape = cli::read_scrape(golden());
  ASSERT_TRUE(scrape) << scrape.error().message();
  EXPECT_EQ(scrape->hook, "fentry/tcp_ack_update_rtt");
  EXPECT_EQ(scrape->version, "9.9.9");
  EXPECT_DOUBLE_EQ(scrape->agent_start_s, 1500000000);
  EXPECT_DOUBLE_EQ(scrape->unreadable, 8);
  EXPECT_DOUBLE_EQ(scrape->watched, 2);
  ASSERT_EQ(scrape->processes.size(), 2u);
  const ProcessScrape& rank = scrape->processes[0];
  EXPECT_TRUE(rank.is_rank());
  EXPECT_EQ(rank.rank + rank.job + rank.pid + rank.world_size + rank.netns + rank.start_time,
            "2gpt2-ddp424244026531840987654");
  EXPECT_EQ(rank.addresses, (std::vector<std::string>{"10.0.0.2", "fd79::1"}));
  ASSERT_EQ(rank.peers.size(), 2u);
  const PeerScrape& peer = rank.peers[0];
  EXPECT_EQ(peer.address, "10.0.0.3");
  EXPECT_EQ(peer.rtt_sum_s, 3.000001);
  EXPECT_EQ(peer.rtt_count, 21);
  EXPECT_EQ(peer.rtt_min_s, 0.000051);
  EXPECT_EQ(peer.retransmits, 2);
  EXPECT_EQ(peer.data_segments, 450);
  EXPECT_EQ(peer.busy_s, 1.5);
  EXPECT_EQ(peer.queue_bytes, 65536);
  EXPECT_FALSE(scrape->processes[1].is_rank());
}

TEST(Scrape, WhatIsNoWholeScrapeIsRefusedWithItsReason) {
  struct Case {
    const char* name;
    std::string text;
    const char* says;
  };
  const std::string good = golden();
  const size_t identities = good.find("# HELP kitty_process_info");
  const Case cases[] = {
      {"empty", "", "it is empty"},
      {"garbage", std::string("\x7f\x45LF\0\1\2\n", 8), "line 1"},
      {"a web page", "<!DOCTYPE html><html></html>\n", "line 1"},
      {"foreign", "node_load1 0.5\nprocess_start_time_seconds 12\n", "not a scrape of kitty"},
      {"amid a line", good.substr(0, good.size() - 5), "line"},
      {"without the last newline", good.substr(0, good.size() - 1), "cut off"},
      {"without the identities", good.substr(0, identities), "fewer processes described than watched"},
      {"without most", good.substr(0, good.find("# HELP kitty_watched")), ""},
      {"twice in one file", good + good, "a file of its own"},
      {"negative", good + "kitty_peer_retransmits_total{pid=\"1\",peer=\"x\"} -1\n", "below zero"},
      {"infinite", good + "kitty_peer_busy_seconds_total{pid=\"1\",peer=\"x\"} +Inf\n", "infinite"},
  };
  for (const Case& c : cases) {
    const auto scrape = cli::read_scrape(c.text);
    if (*c.says == '\0') continue;  // a cut before any process cannot be told from a node without one
    ASSERT_FALSE(scrape) << c.name;
    EXPECT_NE(scrape.error().message().find(c.says), std::string::npos)
        << c.name << ": " << scrape.error().message();
  }
}

TEST(Scrape, WhoseAProcessIsWorkersAndWhatIsLeftOut) {
  const auto scrape = cli::read_scrape(
      "kitty_build_info{version=\"1\"} 1\n"
      "kitty_rtt_hook_info{hook=\"none\"} 1\n"
      "kitty_watched_processes 9\n"  // some have no line, and the text says why
      "kitty_dropped_by_uid{uid=\"65533\",what=\"series\"} 21\n"
      "kitty_dropped_by_uid{uid=\"other\",what=\"sockets\"} 3\n"
      "kitty_process_info{pid=\"1\",rank=\"0\",job=\"a\",uid=\"1000\",role=\"rank\"} 1\n"
      "kitty_process_info{pid=\"2\",rank=\"0\",job=\"a\",uid=\"1000\",role=\"worker\"} 1\n");
  ASSERT_TRUE(scrape) << scrape.error().message();
  ASSERT_EQ(scrape->processes.size(), 2u);
  EXPECT_TRUE(scrape->processes[0].is_rank());
  EXPECT_EQ(scrape->processes[0].uid, "1000");
  EXPECT_FALSE(scrape->processes[1].is_rank());
  ASSERT_EQ(scrape->left_out.size(), 2u);
  EXPECT_EQ(describe(scrape->left_out[0]), "21 series of uid 65533");
  EXPECT_EQ(describe(scrape->left_out[1]), "3 sockets of other users");
}

TEST(Scrape, LabelsOfOthersMakeNoMixUp) {
  const auto scrape = cli::read_scrape(
      "kitty_build_info{version=\"1\"} 1\n"
      "kitty_peer_tx_queue_bytes{pid=\"1\",rank=\"0\",job=\"a\",peer=\"p\"} 1\n"
      "kitty_peer_tx_queue_bytes{pid=\"p\",rank=\"1\",job=\"0\\na\",peer=\"process 1\"} 2\n"
      "kitty_process_info{pid=\"1\",rank=\"0\",job=\"a\",role=\"rank\"} 1\n");
  ASSERT_TRUE(scrape) << scrape.error().message();
  ASSERT_EQ(scrape->processes.size(), 2u);
  EXPECT_EQ(scrape->processes[0].peers.at(0).queue_bytes, 1);
  EXPECT_EQ(scrape->processes[1].peers.at(0).queue_bytes, 2);
}

}  // namespace
}  // namespace kitty::verdict
