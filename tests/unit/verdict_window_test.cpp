#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/verdict_scenario.h"
#include "verdict/window.h"

namespace kitty::verdict {
namespace {

// Scrapes of one process with one peer, whose data segments are these.
std::vector<Scrape> one_flow(const std::vector<double>& data_segments) {
  Scenario scenario = Scenario::ring(2);
  scenario.ranks.pop_back();
  scenario.sent.clear();
  scenario.sent_elsewhere[{0, "10.9.9.9"}] = {};
  scenario.window_s = static_cast<double>(data_segments.size() - 1);
  std::vector<Scrape> scrapes = scenario.scrapes();
  for (size_t i = 0; i < scrapes.size(); ++i)
    scrapes[i].processes[0].peers[0].data_segments = data_segments[i];
  return scrapes;
}

Window window_of(const std::vector<Scrape>& scrapes) { return make_window(group_by_node(scrapes)); }

TEST(Window, GrowthIsSummedFromScrapeToScrape) {
  const Window window = window_of(one_flow({100, 150, 150, 400}));
  ASSERT_EQ(window.ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(window.ranks[0].duration_s, 3);
  ASSERT_EQ(window.ranks[0].peers.size(), 1u);
  EXPECT_DOUBLE_EQ(window.ranks[0].peers[0].data_segments, 300);
  EXPECT_EQ(window.nodes[0].falling_counters, 0u);
  EXPECT_EQ(window.nodes[0].problem, "");
}

TEST(Window, TheMostRetransmitsBetweenTwoScrapesAreToldApart) {
  const auto burst = [](const std::vector<double>& retransmits) {
    std::vector<Scrape> scrapes = one_flow(std::vector<double>(retransmits.size(), 100));
    for (size_t i = 0; i < scrapes.size(); ++i) {
      scrapes[i].processes[0].peers[0].retransmits = retransmits[i];
      scrapes[i].fingerprint = i + 1;
    }
    return window_of(scrapes).ranks[0].peers[0].burst_retransmits;
  };
  EXPECT_DOUBLE_EQ(burst({0, 97, 98, 98}), 97);
  EXPECT_DOUBLE_EQ(burst({0, 40, 75, 120}), 45);
  EXPECT_DOUBLE_EQ(burst({0, 97}), 0) << "two scrapes cannot tell";
}

TEST(Window, AFallingCounterAddsNothingAndIsCounted) {
  const Window window = window_of(one_flow({100, 150, 20, 30}));
  EXPECT_DOUBLE_EQ(window.ranks[0].peers[0].data_segments, 60);
  EXPECT_EQ(window.nodes[0].falling_counters, 1u);
}

TEST(Window, ANewPeerBeginsAtZeroAndAVanishedOneEnds) {
  std::vector<Scrape> scrapes = one_flow({100, 150, 200, 250});
  for (Scrape& scrape : scrapes) scrape.processes[0].peers[0].busy_s = 0.5;
  scrapes[0].processes[0].peers.clear();
  scrapes[3].processes[0].peers.clear();
  const Window window = window_of(scrapes);
  ASSERT_EQ(window.ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(window.ranks[0].peers[0].data_segments, 200);
  EXPECT_DOUBLE_EQ(window.ranks[0].peers[0].least_queue_bytes, 0);
}

TEST(Window, OrderOfArrivalDoesNotMatter) {
  std::vector<Scrape> scrapes = one_flow({100, 150, 200, 400});
  std::swap(scrapes[0], scrapes[2]);
  std::swap(scrapes[1], scrapes[3]);
  EXPECT_DOUBLE_EQ(window_of(scrapes).ranks[0].peers[0].data_segments, 300);
}

TEST(Window, TheSameTextTwiceIsOneScrape) {
  std::vector<Scrape> scrapes = one_flow({100, 100});
  scrapes[1].fingerprint = scrapes[0].fingerprint;
  const Window window = window_of(scrapes);
  EXPECT_TRUE(window.ranks.empty());
  EXPECT_EQ(window.partial.size(), 1u);
  EXPECT_NE(window.nodes[0].problem.find("the same one again"), std::string::npos);
}

TEST(Window, OneScrapeIsNoWindow) {
  const Window window = window_of(one_flow({100}));
  EXPECT_TRUE(window.ranks.empty());
  EXPECT_NE(window.nodes[0].problem.find("one scrape only"), std::string::npos);
}

TEST(Window, TimesThatCannotBeTheScrapesOwn) {
  std::vector<Scrape> scrapes = one_flow({100, 150});
  scrapes[1].time_s = scrapes[0].time_s + 0.01;
  EXPECT_NE(window_of(scrapes).nodes[0].problem.find("times of its scrapes"), std::string::npos);
  scrapes = one_flow({100, 150, 200, 250});
  scrapes[3].processes[0].peers[0].busy_s = 500;
  EXPECT_NE(window_of(scrapes).nodes[0].problem.find("times of its scrapes"), std::string::npos);
}

TEST(Window, ARestartOfTheAgentEndsAWindow) {
  std::vector<Scrape> scrapes = one_flow({100, 150, 3, 8, 10, 20});
  for (size_t i = 2; i < scrapes.size(); ++i) scrapes[i].agent_start_s = 7;
  const Window window = window_of(scrapes);
  EXPECT_DOUBLE_EQ(window.ranks[0].peers[0].data_segments, 17);
  EXPECT_DOUBLE_EQ(window.ranks[0].duration_s, 3);
  EXPECT_EQ(window.nodes[0].falling_counters, 0u);
}

TEST(Window, AProcessThatBeginsOrEndsWithinIt) {
  std::vector<Scrape> scrapes = one_flow({100, 150, 200, 260});
  scrapes[0].processes.clear();
  Window window = window_of(scrapes);
  ASSERT_EQ(window.ranks.size(), 1u);
  EXPECT_DOUBLE_EQ(window.ranks[0].duration_s, 2);
  EXPECT_DOUBLE_EQ(window.ranks[0].peers[0].data_segments, 110);

  scrapes = one_flow({100, 150, 200, 260});
  scrapes[3].processes[0].pid = "999";  // another life of the rank
  window = window_of(scrapes);
  EXPECT_TRUE(window.ranks.empty());
  EXPECT_EQ(window.partial.size(), 2u);
}

TEST(Nodes, FilesOfOneNodeAreFoundByTheirProcesses) {
  struct Case {
    std::vector<const char*> files;
    const char* name;
  };
  const Case cases[] = {
      {{"n0-1.txt", "n0-2.txt"}, "n0"},
      {{"a/node1.1764.txt", "a/node1.1765.txt"}, "node1"},
      {{"t0/n0.txt", "t1/n0.txt"}, "n0"},
      {{"n0/1", "n0/2"}, "n0"},
      {{"1", "2"}, "1"},
      {{"only.prom"}, "only"},
      {{"worker-9.txt", "worker-10.txt"}, "worker"},
  };
  for (const Case& c : cases) {
    std::vector<Scrape> scrapes = one_flow(std::vector<double>(c.files.size(), 1));
    for (size_t i = 0; i < scrapes.size(); ++i) {
      scrapes[i].target = c.files[i];
      scrapes[i].live = false;
    }
    const auto nodes = group_by_node(scrapes);
    ASSERT_EQ(nodes.size(), 1u) << c.name;
    EXPECT_EQ(nodes[0].name, c.name);
  }
}

TEST(Nodes, OneAgentUnderTwoNamesIsOneNode) {
  std::vector<Scrape> scrapes = one_flow({100, 150, 200});
  const std::vector<Scrape> again = scrapes;
  for (const Scrape& scrape : again) {
    scrapes.push_back(scrape);
    scrapes.back().target = "localhost:9100";
  }
  const auto nodes = group_by_node(scrapes);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_DOUBLE_EQ(make_window(nodes).ranks[0].peers[0].data_segments, 100);
}

TEST(Nodes, BetweenTakesLiveScrapesByTimeAndFilesWhole) {
  std::vector<Scrape> scrapes = one_flow({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(between(group_by_node(scrapes), 1001, 1003)[0].scrapes.size(), 3u);
  for (Scrape& scrape : scrapes) scrape.live = false;
  EXPECT_EQ(between(group_by_node(scrapes), 1001, 1003)[0].scrapes.size(), 6u);
}

}  // namespace
}  // namespace kitty::verdict
