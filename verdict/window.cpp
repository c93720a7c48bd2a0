#include "verdict/window.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace kitty::verdict {

namespace {

// Scrapes and clocks jitter: 1.5 s of busy time more than the window is long are possible, 10 s are not.
constexpr double kBusySlackS = 1.5;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view basename(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view directory(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : basename(path.substr(0, slash));
}

// What saved files of one node are called together.
std::string common_name(const std::vector<const Scrape*>& scrapes) {
  const std::string_view first = basename(scrapes.front()->target);
  std::string_view common = first;
  bool amid_number = false;
  bool one_directory = true;
  for (const Scrape* scrape : scrapes) {
    const std::string_view other = basename(scrape->target);
    size_t n = 0;
    while (n < common.size() && n < other.size() && common[n] == other[n]) ++n;
    if (n < common.size() || n < other.size()) {
      amid_number =
          amid_number || (n < first.size() && is_digit(first[n])) || (n < other.size() && is_digit(other[n]));
    }
    common = common.substr(0, n);
    one_directory = one_directory && directory(scrape->target) == directory(scrapes.front()->target);
  }
  if (common == first) {
    const size_t dot = common.rfind('.');
    return std::string(dot == 0 ? common : common.substr(0, dot));
  }
  while (amid_number && !common.empty() && is_digit(common.back())) common.remove_suffix(1);
  while (!common.empty() && std::string_view("-._ ").find(common.back()) != std::string_view::npos) {
    common.remove_suffix(1);
  }
  if (!common.empty()) return std::string(common);
  const std::string_view folder = directory(scrapes.front()->target);
  return std::string(one_directory && !folder.empty() ? folder : first);
}

// Where a process stands in the scrapes of one agent's life, ascending by time.
struct Step {
  size_t at;  // of the scrapes
  const ProcessScrape* process;
};
struct SameProcess {
  bool operator()(const ProcessScrape* a, const ProcessScrape* b) const {
    return std::tie(a->pid, a->start_time, a->rank, a->job) <
           std::tie(b->pid, b->start_time, b->rank, b->job);
  }
};
using Tracks = std::map<const ProcessScrape*, std::vector<Step>, SameProcess>;

Tracks track_processes(const std::vector<const Scrape*>& scrapes) {
  Tracks tracks;
  for (size_t i = 0; i < scrapes.size(); ++i) {
    for (const ProcessScrape& one : scrapes[i]->processes) {
      if (!one.identified) continue;
      std::vector<Step>& track = tracks[&one];
      if (track.empty() || track.back().at != i) track.push_back({i, &one});
    }
  }
  return tracks;
}

// Of one agent's life, without texts that stand there twice, ascending by time. Two agents on a node count on
// their own: the one seen longer is taken.
std::vector<const Scrape*> one_life(const std::vector<const Scrape*>& scrapes) {
  struct Life {
    std::vector<const Scrape*> scrapes;
    std::set<size_t> texts;
  };
  std::vector<Life> lives;  // by their first scrape
  std::map<double, size_t> index;
  for (const Scrape* one : scrapes) {
    const auto [at, added] = index.try_emplace(one->agent_start_s, lives.size());
    if (added) lives.emplace_back();
    Life& life = lives[at->second];
    if (life.texts.insert(one->fingerprint).second) life.scrapes.push_back(one);
  }
  if (lives.empty()) return {};
  return std::move(std::ranges::max_element(lives, {}, [](const Life& life) {
                     return life.scrapes.back()->time_s - life.scrapes.front()->time_s;
                   })->scrapes);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// The growth of one counter from scrape to scrape. A peer that was not there before begins at zero.
void grow(double& growth, const PeerScrape* before, const PeerScrape& after,
          std::optional<double> PeerScrape::* field, size_t& falling) {
  const std::optional<double>& now = after.*field;
  const double then = before == nullptr ? 0 : (before->*field).value_or(0);
  if (!now) return;
  if (*now < then) {
    ++falling;
  } else {
    growth += *now - then;
  }
}

// `steps` are the peer's entries in the process's scrapes, ascending by time, null where it has none; from
// `late` on they are the end's.
PeerWindow peer_window(const std::vector<const PeerScrape*>& steps, size_t late, std::string_view address,
                       size_t& falling) {
  PeerWindow window{.address = std::string(address)};
  PeerWindow at_late;
  std::vector<double> minima;
  size_t queues = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const PeerScrape* after = steps[i];
    if (i > 0 && after != nullptr) {
      const PeerScrape* before = steps[i - 1];
      window.counted = after->data_segments && after->rtt_count;
      grow(window.data_segments, before, *after, &PeerScrape::data_segments, falling);
      const double retransmits = window.retransmits;
      grow(window.retransmits, before, *after, &PeerScrape::retransmits, falling);
      if (steps.size() > 2)
        window.burst_retransmits = std::max(window.burst_retransmits, window.retransmits - retransmits);
      grow(window.rtt_sum_s, before, *after, &PeerScrape::rtt_sum_s, falling);
      grow(window.rtt_count, before, *after, &PeerScrape::rtt_count, falling);
      grow(window.busy_s, before, *after, &PeerScrape::busy_s, falling);
    }
    if (after != nullptr && after->rtt_min_s) minima.push_back(*after->rtt_min_s);
    const double queue = after == nullptr ? 0 : after->queue_bytes.value_or(0);
    window.queue_bytes += queue;
    window.least_queue_bytes = queues == 0 ? queue : std::min(window.least_queue_bytes, queue);
    if (i >= late)
      window.late_least_queue_bytes = i == late ? queue : std::min(window.late_least_queue_bytes, queue);
    if (i == late) at_late = window;
    ++queues;
  }
  window.late_data_segments = window.data_segments - at_late.data_segments;
  window.late_retransmits = window.retransmits - at_late.retransmits;
  window.late_rtt_count = window.rtt_count - at_late.rtt_count;
  window.queue_bytes /= static_cast<double>(std::max<size_t>(queues, 1));
  if (!minima.empty()) window.rtt_min_s = median(minima);
  return window;
}

// False where the process has no window: it is not in the latest scrape, or only there.
bool rank_window(const std::vector<const Scrape*>& scrapes, const std::vector<Step>& track, double late_s,
                 RankWindow& window, size_t& falling) {
  const ProcessScrape& process = *track.back().process;
  const double end_s = scrapes.back()->time_s;
  std::vector<const ProcessScrape*> steps;
  double begin_s = 0, late_begin_s = 0;
  size_t late = 0;
  size_t next = 0;
  for (const Step& step : track) {
    if (step.at != next) steps.clear();  // it was away
    next = step.at + 1;
    const double time_s = scrapes[step.at]->time_s;
    if (steps.empty()) begin_s = time_s;
    if (steps.empty() || time_s <= end_s - late_s + kScrapeJitterS) {
      late = steps.size();
      late_begin_s = time_s;
    }
    steps.push_back(step.process);
  }
  window.present = next == scrapes.size();
  if (!window.present) steps.clear();
  window.pid = process.pid;
  window.uid = process.uid;
  window.rank = process.rank;
  window.job = process.job;
  window.netns = process.netns;
  window.world_size = process.world_size;
  window.addresses = process.addresses;
  window.present = !steps.empty();
  window.duration_s = end_s - begin_s;
  window.late_s = end_s - late_begin_s;
  if (steps.size() < 2 || window.duration_s < kMinWindowS) return false;
  std::map<std::string_view, std::vector<const PeerScrape*>> peers;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const PeerScrape& peer : steps[i]->peers) {
      std::vector<const PeerScrape*>& entries = peers[peer.address];
      entries.resize(steps.size());
      if (entries[i] == nullptr) entries[i] = &peer;
    }
    window.addresses.insert(window.addresses.end(), steps[i]->addresses.begin(), steps[i]->addresses.end());
  }
  std::ranges::sort(window.addresses);
  const auto repeated = std::ranges::unique(window.addresses);
  window.addresses.erase(repeated.begin(), repeated.end());
  window.peers.reserve(peers.size());
  for (const auto& [address, entries] : peers)
    window.peers.push_back(peer_window(entries, late, address, falling));
  return true;
}

void add_node(const NodeScrapes& node, double late_s, Window& out) {
  NodeWindow window{.name = node.name};
  const std::vector<const Scrape*> scrapes = one_life(node.scrapes);
  if (!scrapes.empty()) {
    const Scrape& latest = *scrapes.back();
    window.begin_s = scrapes.front()->time_s;
    window.end_s = latest.time_s;
    window.hook = latest.hook;
    window.unreadable = latest.unreadable;
    window.dropped = latest.dropped + latest.series_dropped;
    window.left_out = latest.left_out;
  }
  const Tracks tracks = track_processes(scrapes);
  std::vector<RankWindow> ranks, partial;
  double busiest_s = 0;
  for (size_t i = scrapes.size(); i-- > 0;) {
    for (const ProcessScrape& process : scrapes[i]->processes) {
      if (!process.is_rank()) continue;
      const std::vector<Step>& track = tracks.at(&process);
      if (track.back().process != &process) continue;  // a later scrape shows it, too
      RankWindow one{.node = out.nodes.size()};
      const bool whole = rank_window(scrapes, track, late_s, one, window.falling_counters);
      for (const PeerWindow& peer : one.peers) busiest_s = std::max(busiest_s, peer.busy_s);
      (whole ? ranks : partial).push_back(std::move(one));
    }
  }
  const double duration_s = window.end_s - window.begin_s;
  if (scrapes.empty()) {
    window.problem = "no scrape";
  } else if (scrapes.size() == 1) {
    window.problem = node.scrapes.size() == 1
                         ? "one scrape only: two or more, some seconds apart, make a window"
                         : "one scrape of each life of the agent, or the same one again: nothing to compare";
  } else if (duration_s < kMinWindowS || busiest_s > duration_s + kBusySlackS) {
    window.problem =
        "the times of its scrapes are not those at which they were taken (cp -p keeps a file's time)";
  }
  std::vector<RankWindow>& usable = window.problem.empty() ? ranks : partial;
  if (&usable == &partial) std::ranges::move(ranks, std::back_inserter(partial));
  if (&usable == &ranks) std::ranges::move(ranks, std::back_inserter(out.ranks));
  std::ranges::move(partial, std::back_inserter(out.partial));
  out.nodes.push_back(std::move(window));
}

// Earlier agents do not say whose a process is: it is whose the job's others are.
void fill_in_users(Window& window) {
  struct User {
    std::string uid;
    bool several = false;
  };
  std::unordered_map<std::string_view, User> users;
  const auto each = [&window](auto&& use) {
    for (auto* list : {&window.ranks, &window.partial}) std::ranges::for_each(*list, use);
  };
  each([&users](const RankWindow& rank) {
    if (rank.uid.empty()) return;
    User& user = users[rank.job];
    user.several = user.several || (!user.uid.empty() && user.uid != rank.uid);
    user.uid = rank.uid;
  });
  each([&users](RankWindow& rank) {
    const auto found = users.find(rank.job);
    if (rank.uid.empty() && found != users.end() && !found->second.several) rank.uid = found->second.uid;
  });
}

// Those of one job and user together, in the order they had.
void put_by_job(std::vector<RankWindow>& ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<RankWindow>> jobs;
  for (RankWindow& rank : ranks) {
    std::vector<RankWindow>& job = jobs[{rank.job, rank.uid}];
    job.push_back(std::move(rank));
  }
  ranks.clear();
  for (auto& [whose, list] : jobs) std::ranges::move(list, std::back_inserter(ranks));
}

}  // namespace

std::vector<NodeScrapes> group_by_node(std::span<const Scrape> scrapes) {
  std::vector<const Scrape*> ordered;
  ordered.reserve(scrapes.size());
  for (const Scrape& scrape : scrapes) ordered.push_back(&scrape);
  // By time; the caller's order where that is the same.
  std::ranges::sort(ordered, [](const Scrape* a, const Scrape* b) {
    return a->time_s < b->time_s || (a->time_s == b->time_s && a < b);
  });

  std::vector<NodeScrapes> nodes;
  std::unordered_map<std::string, size_t> node_of;
  for (const Scrape* scrape : ordered) {
    std::vector<std::string> keys;
    for (const ProcessScrape& process : scrape->processes) {
      if (!process.is_rank()) continue;
      keys.push_back("process " + process.pid + '\n' + process.start_time + '\n' + process.rank + '\n' +
                     process.job);
    }
    // The last resort: all of a live agent's ranks may be new. A saved file's name says nothing.
    if (keys.empty() || scrape->live) keys.push_back("target " + scrape->target);
    size_t node = nodes.size();
    for (const std::string& key : keys) {
      const auto found = node_of.find(key);
      if (found == node_of.end()) continue;
      node = found->second;
      break;
    }
    if (node == nodes.size()) nodes.emplace_back();
    nodes[node].scrapes.push_back(scrape);
    for (std::string& key : keys) node_of.try_emplace(std::move(key), node);
  }
  for (NodeScrapes& node : nodes) {
    node.name = node.scrapes.front()->live ? node.scrapes.front()->target : common_name(node.scrapes);
  }
  return nodes;
}

std::vector<NodeScrapes> between(std::span<const NodeScrapes> nodes, double begin_s, double end_s) {
  std::vector<NodeScrapes> out;
  for (const NodeScrapes& node : nodes) {
    NodeScrapes& part = out.emplace_back(NodeScrapes{.name = node.name, .scrapes = {}});
    std::ranges::copy_if(node.scrapes, std::back_inserter(part.scrapes), [&](const Scrape* scrape) {
      return !scrape->live || (scrape->time_s >= begin_s && scrape->time_s <= end_s);
    });
  }
  return out;
}

Window make_window(std::span<const NodeScrapes> nodes, double late_s) {
  Window window;
  for (const NodeScrapes& node : nodes) add_node(node, late_s, window);
  fill_in_users(window);
  for (auto* list : {&window.ranks, &window.partial}) put_by_job(*list);
  return window;
}

}  // namespace kitty::verdict
