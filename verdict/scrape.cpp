#include "verdict/scrape.h"

#include <array>
#include <cmath>
#include <utility>

#include "verdict/figures.h"

namespace kitty::verdict {

namespace {

struct PeerField {
  std::string_view name;
  std::optional<double> PeerScrape::* field;
};

constexpr std::array kPeerFields = {
    PeerField{"kitty_peer_rtt_seconds_sum", &PeerScrape::rtt_sum_s},
    PeerField{"kitty_peer_rtt_seconds_count", &PeerScrape::rtt_count},
    PeerField{"kitty_peer_rtt_min_seconds", &PeerScrape::rtt_min_s},
    PeerField{"kitty_peer_retransmits_total", &PeerScrape::retransmits},
    PeerField{"kitty_peer_data_segments_sent_total", &PeerScrape::data_segments},
    PeerField{"kitty_peer_busy_seconds_total", &PeerScrape::busy_s},
    PeerField{"kitty_peer_tx_queue_bytes", &PeerScrape::queue_bytes},
};

struct AgentField {
  std::string_view name;
  double Scrape::* field;
};

// Several series of one field add up: what matters is whether anything was lost.
constexpr std::array kAgentFields = {
    AgentField{"kitty_watched_processes", &Scrape::watched},
    AgentField{"kitty_unreadable_processes", &Scrape::unreadable},
    AgentField{"kitty_processes_dropped", &Scrape::dropped},
    AgentField{"kitty_sockets_dropped", &Scrape::dropped},
    AgentField{"kitty_flow_table_full_total", &Scrape::dropped},
    AgentField{"kitty_series_dropped_total", &Scrape::series_dropped},
};

}  // namespace

std::string describe(const LeftOut& one) {
  return print("%.0f %s of ", one.count, one.what.c_str()) +
         (one.uid == "other" ? "other users" : "uid " + one.uid);
}

ProcessScrape* ScrapeBuilder::process(const LabelOf& label) {
  key_ = "process ";
  key_ += label("pid");
  for (const std::string_view name : {"rank", "job"}) {
    key_ += '\n';  // may stand in a job's name, but not in what precedes it
    key_ += label(name);
  }
  const auto [found, added] = index_.try_emplace(key_, scrape_.processes.size());
  if (added) {
    if (scrape_.processes.size() >= kMaxProcesses) {
      beyond_ = "more than 1024 processes: not a scrape of kitty";
      return nullptr;
    }
    ProcessScrape& process = scrape_.processes.emplace_back();
    process.pid = label("pid");
    process.rank = label("rank");
    process.job = label("job");
  }
  return found->second < scrape_.processes.size() ? &scrape_.processes[found->second] : nullptr;
}

PeerScrape* ScrapeBuilder::peer(const LabelOf& label) {
  ProcessScrape* const owner = process(label);
  if (owner == nullptr) return nullptr;
  key_.insert(0, "\n");
  key_.insert(0, label("peer"));
  key_.insert(0, "peer ");
  const auto [found, added] = index_.try_emplace(key_, owner->peers.size());
  if (added) {
    if (owner->peers.size() >= kMaxPeers) {
      beyond_ = "more than 64 peers of a process, and those called other: not a scrape of kitty";
      return nullptr;
    }
    owner->peers.emplace_back().address = label("peer");
  }
  return found->second < owner->peers.size() ? &owner->peers[found->second] : nullptr;
}

const char* ScrapeBuilder::add(std::string_view name, double value, const LabelOf& label) {
  constexpr const char* kManyAddresses = "more than 64 addresses of a process: not a scrape of kitty";
  constexpr const char* kTwice = "a series stands there twice: save each scrape into a file of its own";
  if (name == "process_start_time_seconds") {
    if (!std::isfinite(value)) return "a start time that is infinite or not a number";
    scrape_.agent_start_s = value;
  }
  if (!name.starts_with("kitty_")) return nullptr;
  if (!std::isfinite(value) || value < 0) return "a kitty metric below zero, infinite or not a number";
  for (const PeerField& one : kPeerFields) {
    if (name != one.name) continue;
    PeerScrape* const its_peer = peer(label);
    if (its_peer == nullptr) return beyond_;
    std::optional<double>& field = its_peer->*one.field;
    if (field) return kTwice;
    field = value;
    has_peers_ = true;
    return nullptr;
  }
  for (const AgentField& one : kAgentFields) {
    // Servers of the host overwrite theirs, too (sshd, nginx): no sign that a rank is missed.
    if (name == one.name && label("reason") != "overwritten") scrape_.*one.field += value;
  }
  if (name == "kitty_build_info") {
    if (ours_) return kTwice;
    ours_ = true;
    scrape_.version = label("version");
  } else if (name == "kitty_rtt_hook_info") {
    scrape_.hook = label("hook");
  } else if (name == "kitty_process_info") {
    ProcessScrape* const found = process(label);
    if (found == nullptr) return beyond_;
    ProcessScrape& one = *found;
    if (one.identified) return kTwice;
    one.identified = true;
    one.role = label("role");
    one.start_time = label("start_time_ticks");
    one.netns = label("netns");
    one.world_size = label("world_size");
    one.uid = label("uid");
  } else if (name == "kitty_dropped_by_uid") {
    if (scrape_.left_out.size() < kMaxLeftOut)
      scrape_.left_out.push_back({std::string(label("uid").substr(0, kMaxLeftOutBytes)),
                                  std::string(label("what").substr(0, kMaxLeftOutBytes)), value});
  } else if (name == "kitty_process_address_info") {
    ProcessScrape* const one = process(label);
    if (one == nullptr) return beyond_;
    if (one->addresses.size() >= kMaxAddresses) return kManyAddresses;
    one->addresses.emplace_back(label("address"));
  }
  return nullptr;
}

Scrape ScrapeBuilder::finish(const char*& problem) {
  problem = nullptr;
  double identified = 0;
  for (const ProcessScrape& one : scrape_.processes) identified += one.identified ? 1 : 0;
  if (!ours_) {
    problem = "no kitty_build_info in it: not a scrape of kitty";
  } else if (identified < scrape_.watched && scrape_.series_dropped == 0 && scrape_.left_out.empty()) {
    // The identities stand at the text's end.
    problem = "fewer processes described than watched: the text is cut off";
  } else if (!has_peers_ && scrape_.processes.size() >= 2 && scrape_.hook.empty()) {
    problem = "no kitty_rtt_hook_info in it: the text is cut off";
  }
  return std::move(scrape_);
}

}  // namespace kitty::verdict
