#include "verdict/assembly.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "verdict/figures.h"

namespace kitty::verdict {

namespace {

constexpr size_t kNobody = std::numeric_limits<size_t>::max();

std::optional<uint64_t> rank_number(std::string_view rank) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), number);
  if (error != std::errc() || end != rank.data() + rank.size()) return std::nullopt;
  return number;
}

// Numbers by value, anything else behind them.
struct RankLess {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto x = rank_number(a), y = rank_number(b);
    if (x && y && *x != *y) return *x < *y;
    if (x.has_value() != y.has_value()) return x.has_value();
    return a < b;
  }
};
using Ranks = std::set<std::string, RankLess>;

// "0-7,9"; at most a dozen ranges.
std::string join_ranks(const Ranks& ranks) {
  constexpr int kMaxRanges = 12;
  std::string text;
  int ranges = 0;
  for (auto at = ranks.begin(); at != ranks.end();) {
    if (++ranges > kMaxRanges) return text + ",...";
    if (!text.empty()) text += ',';
    text += *at;
    const auto first = rank_number(*at);
    auto last = at++;
    uint64_t length = 1;
    while (first && at != ranks.end() && rank_number(*at) == *first + length) {
      last = at++;
      ++length;
    }
    if (length > 1) text += (length == 2 ? "," : "-") + *last;
  }
  return text;
}

bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

// No ACK came in the whole window, though bytes were queued at each scrape. Segments may have left:
// retransmits, and what the sender's own interface refused and tcp_write_wakeup() (net/ipv4/tcp_output.c)
// tries again, which the kernel counts as sent (measured: up to 62 a second).
bool is_stalled(const PeerWindow& peer, double duration_s, const Thresholds& limits) {
  return peer.counted && duration_s >= limits.stall_s && peer.least_queue_bytes > 0 && peer.rtt_count <= 0;
}

// The same of the window's end, which is soon to tell and therefore asks for more: a receiver that pauses
// does not read either, but what is sent to it is not sent in vain.
bool is_late_stalled(const PeerWindow& peer, double late_s, const Thresholds& limits) {
  return peer.counted && late_s + kScrapeJitterS >= limits.stall_s && peer.late_least_queue_bytes > 0 &&
         peer.late_rtt_count <= 0 && peer.late_data_segments + peer.late_retransmits > 0;
}

void add(Flow& flow, const PeerWindow& peer, const RankWindow& rank, const Thresholds& limits) {
  const double duration_s = rank.duration_s;
  const bool stalled = is_stalled(peer, duration_s, limits);
  const bool late_stalled = is_late_stalled(peer, rank.late_s, limits);
  if (!stalled) flow.data_per_s += peer.data_segments / duration_s;
  flow.stalled = flow.stalled || stalled;
  flow.late_stalled = flow.late_stalled || late_stalled;
  flow.late_active =
      flow.late_active ||
      (!stalled && !late_stalled && peer.late_data_segments >= limits.active_segments_per_s * rank.late_s);
  flow.rtt_sum_s += peer.rtt_sum_s;
  flow.rtt_count += peer.rtt_count;
  if (peer.rtt_min_s && (!flow.rtt_min_s || *peer.rtt_min_s < *flow.rtt_min_s))
    flow.rtt_min_s = peer.rtt_min_s;
  flow.data_segments += peer.data_segments;
  flow.retransmits += peer.retransmits;
  flow.busy_share = std::max(flow.busy_share, std::min(peer.busy_s / duration_s, 1.0));
  flow.lasting_retransmits += peer.retransmits - peer.burst_retransmits;
  flow.queue_bytes += peer.queue_bytes;
}

void measure(Link& link, const Thresholds& limits) {
  for (Flow* flow : {&link.out, &link.back}) {
    flow->active = flow->data_per_s >= limits.active_segments_per_s;
    flow->judged = flow->active && flow->data_segments >= limits.segments_per_sample * flow->rtt_count;
    if (!flow->judged || flow->rtt_count < limits.min_rtt_samples) continue;
    const double mean_s = flow->rtt_sum_s / flow->rtt_count;
    if (!link.rtt_s || mean_s < *link.rtt_s) link.rtt_s = mean_s;
  }
  size_t measured = 0;
  for (const Flow* flow : {&link.out, &link.back}) {
    if (flow->rtt_count <= 0 || !flow->rtt_min_s) continue;
    ++measured;
    if (!link.rtt_min_s || *flow->rtt_min_s < *link.rtt_min_s) link.rtt_min_s = flow->rtt_min_s;
  }
  link.both_measured = measured == 2;
}

// Fills in what the evidence table shows, and the job's reference.
void measure(Job& job) {
  std::vector<double> segments(job.units.size()), retransmits(job.units.size());
  for (const Directed& one : job.flows()) {
    UnitEvidence& unit = job.units[one.from];
    segments[one.from] += one.flow->data_segments;
    retransmits[one.from] += one.flow->retransmits;
    unit.queue_bytes += one.flow->queue_bytes;
    if (one.flow->judged) unit.busy_share = std::max(unit.busy_share, one.flow->busy_share);
  }
  std::vector<double> best;
  for (size_t i = 0; i < job.units.size(); ++i) {
    UnitEvidence& unit = job.units[i];
    if (segments[i] > 0) unit.retransmit_share = retransmits[i] / segments[i];
    for (const Link* link : job.active_links(i)) {
      ++unit.active_links;
      if (!link->rtt_s || (unit.best_rtt_s && *link->rtt_s >= *unit.best_rtt_s)) continue;
      unit.best_rtt_s = link->rtt_s;
      unit.min_rtt_s = link->rtt_min_s;
    }
    if (unit.best_rtt_s) best.push_back(*unit.best_rtt_s);
  }
  if (best.empty()) return;
  job.median_rtt_s = lower_median(best);
  for (Link& link : job.links) {
    link.slow = link.active() && link.rtt_s && job.is_slow(*link.rtt_s);
    if (!link.slow) continue;
    ++job.units[link.first].slow_links;
    ++job.units[link.second].slow_links;
  }
  for (UnitEvidence& unit : job.units) {
    if (unit.best_rtt_s && *job.median_rtt_s > 0) unit.times_median = *unit.best_rtt_s / *job.median_rtt_s;
  }
}

// The job's part of ranks that stand by job and user.
auto of_job(const std::vector<RankWindow>& ranks, std::string_view name, std::string_view uid) {
  using Whose = std::pair<std::string_view, std::string_view>;
  return std::ranges::equal_range(ranks, Whose(name, uid), {},
                                  [](const RankWindow& rank) { return Whose(rank.job, rank.uid); });
}

// Puts ranks into units and what they sent each other into links.
class Assembler {
 public:
  Assembler(const Window& window, std::string_view name, std::string_view uid, const Thresholds& limits)
      : window_(window), uid_(uid), limits_(limits) {
    for (const RankWindow& rank : of_job(window.ranks, name, uid)) ranks_.push_back(&rank);
    whole_ = ranks_.size();
    // They have no figures of their own, but others' flows to them have.
    for (const RankWindow& rank : of_job(window.partial, name, uid)) ranks_.push_back(&rank);
  }

  Assembly assemble() {
    Job job{.units = {}, .links = {}, .links_of = {}, .median_rtt_s = {}, .window_s = 0, .limits = limits_};
    leave_out_contested_ranks();
    make_units(job);
    map_addresses();
    make_links(job);
    measure(job);
    find_blind_spots(job);
    return {.job = std::move(job),
            .ranks = all_ranks_.size() + made_up_.size(),
            .has_window = whole_ > 0,
            .problem = problem(),
            .any_hook = any_hook(),
            .foreign_address = foreign_,
            .blind_spots = blind_spots_,
            .incomplete = incomplete_};
  }

 private:
  [[nodiscard]] bool any_hook() const {
    return std::ranges::any_of(nodes_, [this](size_t node) {
      const std::string& hook = window_.nodes[node].hook;
      return !hook.empty() && hook != "none";
    });
  }
  // Why no window could be made: the first node's reason.
  [[nodiscard]] std::string problem() const {
    for (const size_t node : nodes_) {
      if (!window_.nodes[node].problem.empty())
        return window_.nodes[node].name + ": " + window_.nodes[node].problem;
    }
    return "its ranks ended, or began, within the window";
  }
  void find_blind_spots(const Job& job);
  void find_left_out(const NodeWindow& node);

  // Where one process and its children are: what claims the same at two places is not all what it says.
  using Place = std::pair<size_t, std::string_view>;
  static Place place_of(const RankWindow& rank) { return {rank.node, rank.netns}; }

  // A rank without a connection may be the shell that started it, and one that has ended the same rank
  // before.
  void leave_out_contested_ranks() {
    std::map<std::string_view, std::map<Place, const RankWindow*>> claims;
    for (const RankWindow* rank : ranks_) {
      nodes_.insert(rank->node);
      // Each agent counts by itself: nobody else claims the same.
      if (is_made_up(rank->rank)) {
        made_up_.emplace(rank->node, rank->rank);
        continue;
      }
      all_ranks_.insert(rank->rank);
      const bool claims_it = rank->present && !(rank->addresses.empty() && rank->peers.empty());
      if (claims_it) claims[rank->rank].try_emplace(place_of(*rank), rank);
    }
    for (const auto& [rank, places] : claims) {
      if (places.size() < 2) continue;
      incomplete_ = true;
      contested_.insert(rank);
      constexpr size_t kMaxListed = 3;
      std::string who;
      size_t listed = 0;
      for (const auto& [place, one] : places) {
        if (++listed > kMaxListed) break;
        who += (listed == 1 ? "" : ", ") + print("pid %s on %s (netns %s)", one->pid.c_str(),
                                                 window_.nodes[one->node].name.c_str(), one->netns.c_str());
      }
      if (listed > kMaxListed) who += ", ...";
      say(print("rank %s is claimed by %zu processes: %s: %s is judged", std::string(rank).c_str(),
                places.size(), who.c_str(), places.size() == 2 ? "neither" : "none"));
    }
    if (contested_.empty()) return;
    const auto is_contested = [this](const RankWindow* rank) { return contested_.contains(rank->rank); };
    const auto whole_end = ranks_.begin() + static_cast<ptrdiff_t>(whole_);
    whole_ -= static_cast<size_t>(std::count_if(ranks_.begin(), whole_end, is_contested));
    std::erase_if(ranks_, is_contested);
  }

  void make_units(Job& job) {
    const bool by_node = nodes_.size() > 1;
    std::map<std::string, Ranks> ranks_of;
    for (const RankWindow* rank : ranks_) {
      const std::string key = by_node ? std::to_string(rank->node) : rank->netns;
      ranks_of[key].insert(rank->rank);
    }
    std::vector<std::pair<std::string, Ranks>> ordered(ranks_of.begin(), ranks_of.end());
    std::ranges::sort(ordered, [](const auto& a, const auto& b) {
      return RankLess{}(*a.second.begin(), *b.second.begin()) ||
             (*a.second.begin() == *b.second.begin() && a.first < b.first);
    });
    std::map<std::string, size_t> index;
    for (const auto& [key, ranks] : ordered) {
      index[key] = job.units.size();
      UnitEvidence& unit = job.units.emplace_back();
      unit.ranks = join_ranks(ranks);
      unit.node = by_node ? window_.nodes[std::strtoul(key.c_str(), nullptr, 10)].name : "netns " + key;
      shares_ = shares_ || ranks.size() > 1;
    }
    for (const RankWindow* rank : ranks_)
      unit_of_.push_back(index[by_node ? std::to_string(rank->node) : rank->netns]);
  }

  void map_addresses() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      for (const std::string& address : ranks_[i]->addresses) {
        if (is_loopback(address)) continue;
        const auto [at, added] = unit_at_.try_emplace(address, unit_of_[i]);
        if (!added && (at->second != unit_of_[i] || places_[address] != place_of(*ranks_[i])))
          at->second = kNobody;
        places_[address] = place_of(*ranks_[i]);
      }
    }
  }

  // Whether it has addresses, and others claim all of them: then nobody knows who sent what it sent.
  [[nodiscard]] bool is_anybody(const RankWindow& rank) const {
    bool any = false;
    for (const std::string& address : rank.addresses) {
      if (is_loopback(address)) continue;
      any = true;
      if (unit_at_.at(address) != kNobody) return false;
    }
    return any;
  }

  void make_links(Job& job) {
    std::map<std::pair<size_t, size_t>, Link> links;
    for (size_t i = 0; i < whole_; ++i) {
      const size_t from = unit_of_[i];
      job.window_s = std::max(job.window_s, ranks_[i]->duration_s);
      if (is_anybody(*ranks_[i])) {
        anybodies_.insert(ranks_[i]->rank);
        continue;
      }
      for (const PeerWindow& peer : ranks_[i]->peers) {
        const auto at = unit_at_.find(peer.address);
        const size_t to = at == unit_at_.end() ? kNobody : at->second;
        if (to == kNobody) {
          const bool busy = peer.data_segments >= limits_.active_segments_per_s * ranks_[i]->duration_s;
          if (busy && foreign_.empty() && !is_loopback(peer.address)) foreign_ = peer.address;
          continue;
        }
        if (to == from) continue;
        Link& link = links[{std::min(from, to), std::max(from, to)}];
        link.first = std::min(from, to);
        link.second = std::max(from, to);
        add(from == link.first ? link.out : link.back, peer, *ranks_[i], limits_);
      }
    }
    job.links_of.resize(job.units.size());
    for (auto& [pair, link] : links) {
      measure(link, limits_);
      for (const size_t end : {link.first, link.second}) job.links_of[end].push_back(job.links.size());
      job.links.push_back(link);
    }
  }

  void say(std::string text) { blind_spots_.push_back(std::move(text)); }

  const Window& window_;
  const std::string_view uid_;
  const Thresholds& limits_;
  std::vector<const RankWindow*> ranks_;
  size_t whole_ = 0;             // the first so many of ranks_ have a window
  std::vector<size_t> unit_of_;  // parallel to ranks_
  std::set<size_t> nodes_;
  Ranks all_ranks_;
  std::set<std::pair<size_t, std::string_view>> made_up_;  // by node
  std::set<std::string_view> contested_;                   // ranks claimed at several places
  Ranks anybodies_;                                        // ranks all of whose addresses are
  std::map<std::string, size_t> unit_at_;                  // address -> unit; kNobody: of several
  std::map<std::string_view, Place> places_;               // address -> where it was last claimed
  std::string foreign_;                                    // an address that gets data and is no rank's
  bool shares_ = false;
  std::vector<std::string> blind_spots_;
  bool incomplete_ = false;
};

void Assembler::find_left_out(const NodeWindow& node) {
  constexpr size_t kMaxListed = 6;
  std::string text;
  size_t listed = 0;
  for (const LeftOut& one : node.left_out) {
    // The job may be what is not seen.
    incomplete_ = incomplete_ || one.uid == uid_ || one.uid == "other";
    if (++listed > kMaxListed) continue;
    text += (listed > 1 ? ", " : "") + describe(one);
  }
  if (listed > kMaxListed) text += ", ...";
  say("node " + node.name + ": no room for " + text + ", beyond a fair share of what the agent keeps");
}

void Assembler::find_blind_spots(const Job& job) {
  uint64_t world = 0;
  for (const RankWindow* rank : ranks_) world = std::max(world, rank_number(rank->world_size).value_or(0));
  if (const size_t seen = all_ranks_.size() + made_up_.size(); world > seen) {
    incomplete_ = true;
    std::string which = join_ranks(all_ranks_);
    if (!made_up_.empty()) which += print("%s%zu without a rank", which.empty() ? "" : ", ", made_up_.size());
    say(print("%zu of %llu ranks seen (%s)", seen, static_cast<unsigned long long>(world), which.c_str()));
  }
  if (!made_up_.empty()) {
    say(print(
        "%zu processes have no rank in their environment and are numbered ?0, ?1, ... on each node by when "
        "they started: set RANK, or LOCAL_RANK, NODE_RANK and LOCAL_WORLD_SIZE, before each starts",
        made_up_.size()));
  }
  const bool any_active =
      std::ranges::any_of(job.units, [](const UnitEvidence& unit) { return unit.active_links > 0; });
  for (const UnitEvidence& unit : job.units) {
    if (unit.active_links == 0 && any_active)
      say(unit.label() + " sends no data to the others, nor they to it");
  }
  double first_end_s = 0, last_begin_s = 0;
  bool any = false;
  for (const size_t at : nodes_) {
    const NodeWindow& node = window_.nodes[at];
    if (!node.problem.empty()) {
      incomplete_ = true;
      say("node " + node.name + ": " + node.problem);
      continue;
    }
    first_end_s = any ? std::min(first_end_s, node.end_s) : node.end_s;
    last_begin_s = any ? std::max(last_begin_s, node.begin_s) : node.begin_s;
    any = true;
    if (node.hook.empty() || node.hook == "none") {
      say("node " + node.name + ": no RTT hook, so no round-trip times and no counters of its own sockets");
    } else if (node.hook == "tp_btf/tcp_probe") {
      say("node " + node.name + ": degraded RTT hook, each sample shows with the packet after it");
    }
    if (!node.left_out.empty()) {
      find_left_out(node);
    } else if (node.dropped > 0) {
      say("node " + node.name + ": more sockets, processes or series than the agent keeps");
    }
    if (node.unreadable > 0) {
      say(print("node %s: %.0f processes could not be read", node.name.c_str(), node.unreadable));
    }
    if (node.falling_counters > 0)
      say("node " + node.name + ": counters fell: its scrapes may be out of order");
  }
  if (any && last_begin_s - first_end_s > limits_.stale_s) {
    say(print("the nodes' scrapes are up to %.0f s apart: stale, or clocks differ",
              last_begin_s - first_end_s));
  }
  const auto claimed = std::ranges::find_if(unit_at_, [](const auto& one) { return one.second == kNobody; });
  if (claimed != unit_at_.end())
    say("address " + claimed->first + " is of several ranks: what is sent to it is not judged");
  if (!anybodies_.empty()) {
    incomplete_ = true;
    say("ranks " + join_ranks(anybodies_) +
        " have no address that is theirs alone: what they send is not judged");
  }
  if (shares_) say("ranks that share a node or network namespace are judged as one");
}

}  // namespace

Assembly assemble(const Window& window, std::string_view name, std::string_view uid,
                  const Thresholds& limits) {
  return Assembler(window, name, uid, limits).assemble();
}

}  // namespace kitty::verdict
