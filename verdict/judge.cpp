#include "verdict/judge.h"

#include <algorithm>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string_view>

namespace kitty::verdict {

namespace {

constexpr size_t kNobody = std::numeric_limits<size_t>::max();

// What one unit sent another.
struct Flow {
  double data_per_s = 0;
  double rtt_sum_s = 0, rtt_count = 0;
  std::optional<double> rtt_min_s;
  double data_segments = 0, retransmits = 0;
  double lasting_retransmits = 0;  // without those of the worst second
  double busy_share = 0;
  double queue_bytes = 0;
  bool active = false;
  bool judged = false;        // active, with messages of several segments: RTT and busy time mean something
  bool stalled = false;       // the whole window
  bool late_stalled = false;  // its end, and what was sent then was sent in vain
  bool late_active = false;

  [[nodiscard]] double retransmit_share() const {
    return data_segments > 0 ? retransmits / data_segments : 0;
  }
};

// Two units, first < second, with the flow each sent.
struct Link {
  size_t first = 0, second = 0;
  Flow out, back;
  // The better of what the active ends measured: a slow path is slow from both ends, while delayed ACKs and
  // thinking time make one end's small messages look slow.
  std::optional<double> rtt_s;
  std::optional<double> rtt_min_s;  // the least of either end, of any message: a slow path has no fast one
  bool both_measured = false;       // it is of both
  bool slow = false;

  [[nodiscard]] bool active() const { return out.active || back.active; }
  [[nodiscard]] bool touches(size_t unit) const { return first == unit || second == unit; }
  // How much of the mean the minimum explains: nearly all of it on a longer path, hardly any in a queue.
  [[nodiscard]] double min_share() const {
    return rtt_s && rtt_min_s && *rtt_s > 0 ? *rtt_min_s / *rtt_s : 0;
  }
  [[nodiscard]] size_t other(size_t unit) const { return first == unit ? second : first; }
};

struct Directed {
  size_t from, to;
  const Flow* flow;
};

// Everything the rules look at, of one job.
struct Job {
  std::vector<UnitEvidence> units;
  std::vector<Link> links;             // with any traffic between known ranks
  std::optional<double> median_rtt_s;  // of the units' best links
  double window_s = 0;
  const Thresholds& limits;

  [[nodiscard]] std::vector<const Link*> active_links(size_t unit) const {
    std::vector<const Link*> list;
    for (const Link& link : links) {
      if (link.active() && link.touches(unit)) list.push_back(&link);
    }
    return list;
  }
  [[nodiscard]] std::vector<Directed> flows() const {
    std::vector<Directed> list;
    for (const Link& link : links) {
      list.push_back({link.first, link.second, &link.out});
      list.push_back({link.second, link.first, &link.back});
    }
    return list;
  }
  [[nodiscard]] bool is_slow(double rtt_s) const {
    return median_rtt_s && rtt_s > limits.rtt_ratio * *median_rtt_s &&
           rtt_s > *median_rtt_s + limits.rtt_floor_s;
  }
};

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return {text, std::min<size_t>(static_cast<size_t>(std::max(length, 0)), sizeof text - 1)};
}

std::string ms(double seconds) { return print(seconds < 0.001 ? "%.2f ms" : "%.3g ms", seconds * 1000); }
std::string percent(double share) { return print("%.3g %%", share * 100); }
std::string kilobytes(double bytes) { return print("%.0f kB", bytes / 1000); }

double lower_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

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

double others_median(const Job& job, size_t unit, double UnitEvidence::* field) {
  std::vector<double> values;
  for (size_t i = 0; i < job.units.size(); ++i) {
    if (i != unit && job.units[i].active_links > 0) values.push_back(job.units[i].*field);
  }
  return lower_median(std::move(values));
}

// Why these links of a unit are slow. A standing queue at a sender that is nearly always busy is a throttle,
// unless the minimum has risen like the mean; so is a mean far above the minimum, where the queue stands
// elsewhere (an inbound throttle). What is left is a longer path.
Kind why_slow(const Job& job, size_t unit, const std::vector<const Link*>& links, double busy_share,
              double queue_bytes) {
  const Thresholds& limits = job.limits;
  double min_share = 1;
  for (const Link* link : links) {
    if (link->rtt_s) min_share = std::min(min_share, link->min_share());
  }
  const double usual_queue_bytes =
      std::max(limits.throttle_queue_floor_bytes, others_median(job, unit, &UnitEvidence::queue_bytes));
  const bool queued = busy_share > limits.throttle_busy_share &&
                      queue_bytes > limits.throttle_queue_ratio * usual_queue_bytes;
  if (queued && min_share < limits.path_min_share) return Kind::throttle;
  return min_share < limits.queue_min_share ? Kind::throttle : Kind::latency;
}

// What a slow RTT was compared with.
std::string reference(const Job& job) {
  return "the median rank's best link " + ms(job.median_rtt_s.value_or(0));
}

std::string unit_list(const Job& job, const std::vector<size_t>& units) {
  std::string text;
  for (const size_t unit : units) text += (text.empty() ? "" : ", ") + job.units[unit].who();
  return text;
}

std::string link_name(const Job& job, size_t a, size_t b) {
  return job.units[a].who() + " and " + job.units[b].who();
}

// Whether a link's path is as long as its mean says, and no receiver's delay.
bool is_long_path(const Link& link, const Thresholds& limits) {
  return link.min_share() >= limits.queue_min_share &&
         (link.both_measured || link.rtt_min_s.value_or(0) >= limits.delayed_ack_s);
}

// Whether the flows that `touches` selects are the busy ones.
template <class Touches>
bool are_busy(const Job& job, Touches&& touches) {
  double here = 0, elsewhere = 0;
  for (const Directed& one : job.flows()) {
    if (!one.flow->judged) continue;
    double& busiest = touches(one) ? here : elsewhere;
    busiest = std::max(busiest, one.flow->busy_share);
  }
  return here >= job.limits.convincing_busy_share && here >= job.limits.busy_ratio * elsewhere;
}

// Whether slow means are the network's; see kDelayedAckS.
bool is_convincing(const Job& job, size_t unit) {
  const auto links = job.active_links(unit);
  const bool long_paths = std::ranges::all_of(
      links, [&job](const Link* link) { return !link->rtt_s || is_long_path(*link, job.limits); });
  return long_paths ||
         are_busy(job, [unit](const Directed& one) { return one.from == unit || one.to == unit; });
}
bool is_convincing(const Job& job, const Link& link) {
  if (is_long_path(link, job.limits)) return true;
  return link.rtt_s.value_or(0) >= job.limits.delayed_ack_s && are_busy(job, [&link](const Directed& one) {
           return link.touches(one.from) && link.touches(one.to);
         });
}

// The units that all of these pairs have in common.
std::vector<size_t> common_units(const std::vector<Directed>& flows) {
  std::vector<size_t> common{flows.front().from, flows.front().to};
  std::erase_if(common, [&](size_t unit) {
    return !std::ranges::all_of(flows,
                                [unit](const Directed& one) { return one.from == unit || one.to == unit; });
  });
  return common;
}

void name_unit(JobVerdict& verdict, Kind kind, size_t unit) {
  verdict.kind = kind;
  verdict.culprits.push_back(unit);
}

// Segments that the kernel counts as sent, and none of them again: they never left (see is_stalled).
bool is_refused(const Directed& one) {
  constexpr double kTries = 2;
  return one.flow->retransmits <= 0 && one.flow->data_segments >= kTries;
}

// Rule 1, stall: bytes queued to a peer, no ACK for 2 s, and nobody else gets on any more. Where such flows
// meet is the fault; where there is one only, segments sent in vain say that it is the network. Without them
// it may be a receiver that does not read, and then the queues run back from it around the ring: no one is
// named. Hardly a counter moves in a stall, so the queues are the evidence.
bool judge_stall(const Job& job, JobVerdict& verdict) {
  std::vector<Directed> stalled, in_vain;
  for (const Directed& one : job.flows()) {
    if (one.flow->late_active) return false;
    if (!one.flow->stalled && !one.flow->late_stalled) continue;
    stalled.push_back(one);
    if (one.flow->retransmits + one.flow->data_segments > 0) in_vain.push_back(one);
  }
  if (stalled.empty()) return false;
  const std::vector<Directed>& evidence = in_vain.empty() ? stalled : in_vain;
  verdict.kind = Kind::stalled;
  const bool late = !std::ranges::all_of(evidence, [](const Directed& one) { return one.flow->stalled; });
  double queue_bytes = 0;
  for (const Directed& one : evidence) queue_bytes += one.flow->queue_bytes;
  const std::string how = print("%s queued and not one ACK for %.3g s", kilobytes(queue_bytes).c_str(),
                                late ? job.limits.stall_s : job.window_s);
  const std::vector<size_t> common = common_units(evidence);
  if (common.size() == 1) {
    verdict.culprits = common;
    verdict.why = print("all %zu stalled flows begin or end at %s (%s); the others wait", evidence.size(),
                        job.units[common.front()].who().c_str(), how.c_str());
  } else if (common.size() == 2) {
    const auto refused = std::ranges::find_if(evidence, is_refused);
    const bool one_sender = std::ranges::count_if(evidence, is_refused) == 1 && job.units.size() > 2;
    const Directed& one = one_sender ? *refused : evidence.front();
    if (one_sender) {
      verdict.culprits.push_back(one.from);
      verdict.why = print("%s, sending to %s: %s, and its own interface refuses what it tries to send",
                          job.units[one.from].who().c_str(), job.units[one.to].who().c_str(), how.c_str());
    } else if (evidence.size() == 1 && !in_vain.empty() && job.units.size() > 2) {
      verdict.culprits.push_back(one.from);
      verdict.why = print("%s, sending to %s in vain: %s; its outbound or the other's inbound path",
                          job.units[one.from].who().c_str(), job.units[one.to].who().c_str(), how.c_str());
    } else {
      verdict.links.emplace_back(std::min(one.from, one.to), std::max(one.from, one.to));
      verdict.why = print("from %s to %s: %s; the path is dead, or the receiver does not read",
                          job.units[one.from].who().c_str(), job.units[one.to].who().c_str(), how.c_str());
    }
  } else {
    verdict.why =
        print("%zu flows have no rank in common (%s); the network is dead, or one rank does not read",
              evidence.size(), how.c_str());
  }
  return true;
}

// Rule 2, by RTT: a unit none of whose links is healthy, where others have one.
bool judge_rtt_of_units(const Job& job, JobVerdict& verdict) {
  std::vector<size_t> suspects;
  for (size_t i = 0; i < job.units.size(); ++i) {
    if (job.is_slow(job.units[i].best_rtt_s.value_or(0))) suspects.push_back(i);
  }
  std::erase_if(suspects, [&job](size_t unit) { return !is_convincing(job, unit); });
  const std::vector<size_t> all = suspects;
  // The end of a chain has one link: slow, where its neighbour is the culprit.
  std::erase_if(suspects, [&](size_t unit) {
    const auto links = job.active_links(unit);
    if (links.size() != 1) return false;
    const size_t neighbour = links.front()->other(unit);
    return std::ranges::find(all, neighbour) != all.end() && job.units[neighbour].active_links > 1;
  });
  if (suspects.empty()) return false;
  const auto rtt_of = [&](size_t unit) { return *job.units[unit].best_rtt_s; };
  const size_t worst = *std::ranges::max_element(suspects, {}, rtt_of);
  const UnitEvidence& unit = job.units[worst];
  const auto links = job.active_links(worst);
  if (links.size() == 1 && job.units[links.front()->other(worst)].active_links == 1) {
    // Both ends have this link only: either may be the culprit.
    const Link& link = *links.front();
    verdict.kind = Kind::link;
    verdict.cause = why_slow(job, worst, links, unit.busy_share, unit.queue_bytes);
    verdict.links.emplace_back(link.first, link.second);
    verdict.why = print("%s talk to each other only, and slowly (%s; %s)",
                        link_name(job, link.first, link.second).c_str(), ms(link.rtt_s.value_or(0)).c_str(),
                        reference(job).c_str());
    return true;
  }
  name_unit(verdict, why_slow(job, worst, links, unit.busy_share, unit.queue_bytes), worst);
  for (const size_t suspect : suspects) {
    if (suspect == worst || rtt_of(suspect) < job.limits.runner_up_share * rtt_of(worst)) continue;
    // As slow, also without what it has with the worst: a culprit of its own.
    const auto own = job.active_links(suspect);
    double best_s = std::numeric_limits<double>::infinity();
    bool any = false;
    for (const Link* link : own) {
      if (link->touches(worst) || !link->rtt_s) continue;
      any = true;
      best_s = std::min(best_s, *link->rtt_s);
    }
    if (any && job.is_slow(best_s) && best_s >= job.limits.runner_up_share * rtt_of(worst)) {
      verdict.culprits.push_back(suspect);
    }
  }
  std::ranges::sort(verdict.culprits);
  std::string detail;
  if (verdict.kind == Kind::throttle && unit.busy_share > job.limits.throttle_busy_share) {
    detail = print("; busy %s of the time, %s queued", percent(unit.busy_share).c_str(),
                   kilobytes(unit.queue_bytes).c_str());
  } else if (unit.min_rtt_s) {
    detail = "; least " + ms(*unit.min_rtt_s);
  }
  const std::string slow = unit.active_links == 1
                               ? print("the only active link of %s, to %s, is slow", unit.who().c_str(),
                                       job.units[links.front()->other(worst)].who().c_str())
                               : print("all %zu active links of %s are slow", unit.active_links,
                                       unit_list(job, verdict.culprits).c_str());
  verdict.why = print("%s (%s or more%s); %s", slow.c_str(), ms(rtt_of(worst)).c_str(), detail.c_str(),
                      reference(job).c_str());
  return true;
}

// Rule 5, by busy share alone, where a queue does not show in the RTT (BBR, MPI's own buffers): one unit is
// busy most of the time, the next far less, though it sends no more than they do.
bool judge_busy(const Job& job, JobVerdict& verdict) {
  struct Sender {
    size_t unit;
    double busy_share, data_per_s;
  };
  std::vector<Sender> senders;
  for (const Directed& one : job.flows()) {
    if (!one.flow->judged) continue;
    auto at = std::ranges::find(senders, one.from, &Sender::unit);
    if (at == senders.end()) at = senders.insert(at, {one.from, 0, 0});
    // Added up: a rank that serves its peers in turn (MPI's pairwise exchange) is busy with one of them at a
    // time.
    at->busy_share = std::min(at->busy_share + one.flow->busy_share, 1.0);
    at->data_per_s += one.flow->data_per_s;
  }
  if (senders.size() < 3) return false;
  std::ranges::sort(senders, std::greater(), &Sender::busy_share);
  const Sender& busiest = senders[0];
  std::vector<double> rates;
  for (size_t i = 1; i < senders.size(); ++i) rates.push_back(senders[i].data_per_s);
  const auto stands_out = [&](double share, double ratio) {
    return busiest.busy_share > share && busiest.busy_share > ratio * senders[1].busy_share;
  };
  if ((!stands_out(job.limits.busy_share, job.limits.busy_ratio) &&
       !stands_out(job.limits.far_busy_share, job.limits.far_busy_ratio)) ||
      job.units[busiest.unit].queue_bytes < job.limits.throttle_queue_floor_bytes ||
      busiest.data_per_s > job.limits.same_work_ratio * lower_median(std::move(rates))) {
    return false;
  }
  name_unit(verdict, Kind::throttle, busiest.unit);
  verdict.why =
      print("%s had data in flight or queued %s of the time, the next %s, and sends no more than the others",
            job.units[busiest.unit].who().c_str(), percent(busiest.busy_share).c_str(),
            percent(senders[1].busy_share).c_str());
  return true;
}

// Whether all the slow links are this unit's, and none of its links is known to be healthy.
bool explains(const Job& job, size_t unit, const std::vector<const Link*>& slow) {
  return std::ranges::all_of(slow, [unit](const Link* link) { return link->touches(unit); }) &&
         std::ranges::none_of(job.active_links(unit),
                              [](const Link* link) { return link->rtt_s && !link->slow; });
}

// Rule 3, one slow link, both ends of which have a healthy one to others.
bool judge_rtt_of_links(const Job& job, JobVerdict& verdict) {
  std::vector<const Link*> slow;
  size_t active = 0;
  for (const Link& link : job.links) {
    if (link.active()) ++active;
    if (link.slow && is_convincing(job, link)) slow.push_back(&link);
  }
  if (slow.empty()) return false;
  JobVerdict busy;
  if (judge_busy(job, busy) && explains(job, busy.culprits.front(), slow)) {
    verdict.kind = busy.kind;
    verdict.culprits = busy.culprits;
    verdict.why = busy.why;
    return true;
  }
  const Link& worst = **std::ranges::max_element(slow, {}, [](const Link* link) { return *link->rtt_s; });
  const Flow& fuller = worst.out.queue_bytes >= worst.back.queue_bytes ? worst.out : worst.back;
  verdict.cause = why_slow(job, &fuller == &worst.out ? worst.first : worst.second, slow, fuller.busy_share,
                           fuller.queue_bytes);
  if (static_cast<double>(slow.size()) > job.limits.max_named_links) {
    verdict.kind = Kind::job_wide;
    verdict.why = print("%zu of %zu active links are slow (up to %s; %s), and no rank has slow ones only",
                        slow.size(), active, ms(worst.rtt_s.value_or(0)).c_str(), reference(job).c_str());
    return true;
  }
  verdict.kind = Kind::link;
  std::string names;
  for (const Link* link : slow) {
    verdict.links.emplace_back(link->first, link->second);
    names += (names.empty() ? "" : ", and ") + link_name(job, link->first, link->second);
  }
  verdict.why = print("%s are slow to each other (%s; %s), and each has a healthy link to another",
                      names.c_str(), ms(worst.rtt_s.value_or(0)).c_str(), reference(job).c_str());
  return true;
}

// Rule 4, loss: data segments sent again, far beyond the others. Only the sender knows, so an outbound path
// that drops and the receiver's inbound one look alike; what else the two exchange tells them apart: a flow
// without loss clears its sender's outbound and its receiver's inbound path, a second lossy one accuses.
// Where nothing does, the sender is named, and the sentence says to whom. After the RTT rules, because a full
// queue drops, too.
class LossRule {
 public:
  LossRule(const Job& job, JobVerdict& verdict) : job_(job), verdict_(verdict) {
    const Thresholds& limits = job.limits;
    std::vector<double> shares;
    for (const Directed& one : job.flows()) {
      if (!one.flow->active) continue;
      active_.push_back(one);
      const double share = one.flow->retransmit_share();
      // One segment is no share: of a flow that answers with few it would be more than a lossy network's.
      shares.push_back(one.flow->retransmits < kFewRetransmits ? 0 : share);
      if (one.flow->retransmits < limits.min_retransmits || share <= limits.loss_share) continue;
      if (one.flow->lasting_retransmits < limits.min_lasting_retransmits) continue;
      lossy_.push_back(one);
      worst_ = std::max(worst_, shares.back());
    }
    usual_ = lower_median(std::move(shares));
    for (const Directed& one : active_) {
      const double share = one.flow->retransmit_share();
      // A few segments neither clear nor accuse.
      if (share <= limits.loss_share && one.flow->data_segments * worst_ >= 2 * limits.min_retransmits) {
        clean_.push_back(one);
      } else if (share > limits.loss_share && one.flow->retransmits >= kFewRetransmits) {
        suspect_.push_back(one);
      }
    }
  }

  bool judge() {
    if (lossy_.empty()) return false;
    const Thresholds& limits = job_.limits;
    verdict_.cause = Kind::loss;
    if (worst_ <= limits.loss_ratio * std::max(usual_, limits.loss_floor))
      return everybody("as the others do");
    const std::vector<size_t> common = common_units(lossy_);
    if (common.empty()) return everybody("and no rank has a part in all of these");
    std::vector<size_t> left = common;
    std::erase_if(left, [this](size_t unit) { return is_cleared(unit); });
    if (left.empty()) return links();
    if (left.size() == 2) {
      std::erase_if(left, [this](size_t unit) { return !is_accused(unit); });
      if (left.size() != 1 && lossy_.size() > 1) return links();  // both ways of one link
      if (left.size() != 1) left = {lossy_.front().from};
    }
    name_unit(verdict_, Kind::loss, left.front());
    const Directed& one = lossy_.front();
    verdict_.why =
        lossy_.size() > 1 ? print("all %zu lossy flows begin or end at %s: %s", lossy_.size(),
                                  job_.units[left.front()].who().c_str(), how().c_str())
        : left.front() == one.from
            ? print("%s, sending to %s: %s; its outbound path%s", job_.units[one.from].who().c_str(),
                    job_.units[one.to].who().c_str(), how().c_str(),
                    is_cleared(one.to) || is_accused(one.from) ? "" : ", or the other's inbound one")
            : print("%s, receiving from %s: %s; its inbound path", job_.units[one.to].who().c_str(),
                    job_.units[one.from].who().c_str(), how().c_str());
    return true;
  }

 private:
  static constexpr double kFewRetransmits =
      2;  // enough to accuse an end of a flow that lost many; one is chance

  [[nodiscard]] bool sends_lossy(size_t unit) const {
    return std::ranges::count(lossy_, unit, &Directed::from) > 0;
  }
  [[nodiscard]] bool gets_lossy(size_t unit) const {
    return std::ranges::count(lossy_, unit, &Directed::to) > 0;
  }
  // In each direction in which it has a part, it has a flow without loss.
  [[nodiscard]] bool is_cleared(size_t unit) const {
    return (!sends_lossy(unit) || std::ranges::count(clean_, unit, &Directed::from) > 0) &&
           (!gets_lossy(unit) || std::ranges::count(clean_, unit, &Directed::to) > 0);
  }
  [[nodiscard]] bool is_accused(size_t unit) const {
    return (sends_lossy(unit) && std::ranges::count(suspect_, unit, &Directed::from) > 1) ||
           (gets_lossy(unit) && std::ranges::count(suspect_, unit, &Directed::to) > 1);
  }
  [[nodiscard]] std::string how() const {
    return print("%s of the segments sent again, the median flow %s", percent(worst_).c_str(),
                 percent(usual_).c_str());
  }
  bool everybody(const char* because) {
    verdict_.kind = Kind::job_wide;
    verdict_.why = print("%zu of %zu active flows lose segments, %s: %s", lossy_.size(), active_.size(),
                         because, how().c_str());
    return true;
  }
  bool links() {
    std::set<std::pair<size_t, size_t>> pairs;
    for (const Directed& one : lossy_) pairs.emplace(std::min(one.from, one.to), std::max(one.from, one.to));
    if (static_cast<double>(pairs.size()) > job_.limits.max_named_links) {
      return everybody("but each of their ends has others that do not");
    }
    verdict_.kind = Kind::link;
    verdict_.links.assign(pairs.begin(), pairs.end());
    const auto [a, b] = verdict_.links.front();
    verdict_.why = print("between %s: %s; what they exchange with others is not lost",
                         link_name(job_, a, b).c_str(), how().c_str());
    return true;
  }

  const Job& job_;
  JobVerdict& verdict_;
  std::vector<Directed> active_, lossy_, clean_, suspect_;
  double worst_ = 0, usual_ = 0;
};

// Rule 6, everybody: every link as slow as no healthy network's are, and its minimum, too, or its sender
// busy. There is nobody to compare with, so the limits are absolute.
bool judge_job_wide(const Job& job, JobVerdict& verdict) {
  double best_s = std::numeric_limits<double>::infinity();
  if (!job.median_rtt_s) return false;
  for (const Link& link : job.links) {
    if (!link.active()) continue;
    if (!link.rtt_s || *link.rtt_s < job.limits.job_wide_rtt_s) return false;
    const double busy_share = std::max(link.out.busy_share, link.back.busy_share);
    if (!is_long_path(link, job.limits) && busy_share < job.limits.busy_share) return false;
    best_s = std::min(best_s, *link.rtt_s);
  }
  verdict.kind = Kind::job_wide;
  verdict.cause = Kind::latency;
  verdict.why = print("every active link is slow, the best of them with %s", ms(best_s).c_str());
  return true;
}

void set_healthy(const Job& job, JobVerdict& verdict) {
  verdict.kind = Kind::healthy;
  double retransmit_share = 0, busy_share = 0;
  for (const UnitEvidence& unit : job.units) {
    retransmit_share = std::max(retransmit_share, unit.retransmit_share);
    busy_share = std::max(busy_share, unit.busy_share);
  }
  verdict.why =
      print("no rank differs: %s; at most %s of the segments sent again, busy at most %s of the time",
            job.median_rtt_s ? reference(job).c_str() : "no RTT", percent(retransmit_share).c_str(),
            percent(busy_share).c_str());
}

// Who suffers: units with a slow link, or a queue, to a culprit.
void mark_parts(const Job& job, JobVerdict& verdict) {
  for (const size_t unit : verdict.culprits) verdict.units[unit].part = Part::culprit;
  for (const size_t culprit : verdict.culprits) {
    for (const Link* link : job.active_links(culprit)) {
      UnitEvidence& other = verdict.units[link->other(culprit)];
      const Flow& towards = link->first == culprit ? link->back : link->out;
      const bool suffers = link->slow || towards.queue_bytes > job.limits.throttle_queue_floor_bytes;
      if (!suffers || other.part != Part::none) continue;
      other.part = Part::victim;
      other.victim_of = culprit;
    }
  }
}

// Puts ranks into units and what they sent each other into links.
class Assembly {
 public:
  Assembly(const Window& window, std::string_view name, JobVerdict& verdict, const Thresholds& limits)
      : window_(window), verdict_(verdict), limits_(limits) {
    for (const RankWindow& rank : window.ranks) {
      if (rank.job == name) ranks_.push_back(&rank);
    }
    whole_ = ranks_.size();
    // They have no figures of their own, but others' flows to them have.
    for (const RankWindow& rank : window.partial) {
      if (rank.job == name) ranks_.push_back(&rank);
    }
  }

  Job assemble() {
    Job job{.units = {}, .links = {}, .median_rtt_s = {}, .window_s = 0, .limits = limits_};
    make_units(job);
    map_addresses();
    make_links(job);
    measure(job);
    return job;
  }
  [[nodiscard]] bool has_window() const { return whole_ > 0; }
  [[nodiscard]] bool any_hook() const {
    return std::ranges::any_of(nodes_, [this](size_t node) {
      const std::string& hook = window_.nodes[node].hook;
      return !hook.empty() && hook != "none";
    });
  }
  [[nodiscard]] const std::string& foreign_address() const { return foreign_; }
  // Why no window could be made: the first node's reason.
  [[nodiscard]] std::string problem() const {
    for (const size_t node : nodes_) {
      if (!window_.nodes[node].problem.empty())
        return window_.nodes[node].name + ": " + window_.nodes[node].problem;
    }
    return "its ranks ended, or began, within the window";
  }
  void find_blind_spots(const Job& job);

 private:
  void make_units(Job& job) {
    for (const RankWindow* rank : ranks_) nodes_.insert(rank->node);
    const bool by_node = nodes_.size() > 1;
    std::map<std::string, Ranks> ranks_of;
    for (const RankWindow* rank : ranks_) {
      const std::string key = by_node ? std::to_string(rank->node) : rank->netns;
      ranks_of[key].insert(rank->rank);
      all_ranks_.insert(rank->rank);
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
        if (!added && at->second != unit_of_[i]) at->second = kNobody;
      }
    }
  }

  void make_links(Job& job) {
    std::map<std::pair<size_t, size_t>, Link> links;
    for (size_t i = 0; i < whole_; ++i) {
      const size_t from = unit_of_[i];
      job.window_s = std::max(job.window_s, ranks_[i]->duration_s);
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
    for (auto& [pair, link] : links) {
      measure(link, limits_);
      job.links.push_back(link);
    }
  }

  void say(std::string text) { verdict_.blind_spots.push_back(std::move(text)); }

  const Window& window_;
  JobVerdict& verdict_;
  const Thresholds& limits_;
  std::vector<const RankWindow*> ranks_;
  size_t whole_ = 0;             // the first so many of ranks_ have a window
  std::vector<size_t> unit_of_;  // parallel to ranks_
  std::set<size_t> nodes_;
  Ranks all_ranks_;
  std::map<std::string, size_t> unit_at_;  // address -> unit; kNobody: of several
  std::string foreign_;                    // an address that gets data and is no rank's
  bool shares_ = false;

  friend JobVerdict judge_job(const Window&, const std::string&, const Thresholds&);
};

void Assembly::find_blind_spots(const Job& job) {
  uint64_t world = 0;
  for (const RankWindow* rank : ranks_) world = std::max(world, rank_number(rank->world_size).value_or(0));
  if (world > all_ranks_.size()) {
    verdict_.incomplete = true;
    say(print("%zu of %llu ranks seen (%s)", all_ranks_.size(), static_cast<unsigned long long>(world),
              join_ranks(all_ranks_).c_str()));
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
      verdict_.incomplete = true;
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
    if (node.dropped > 0)
      say("node " + node.name + ": more sockets, processes or series than the agent keeps");
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
  if (shares_) say("ranks that share a node or network namespace are judged as one");
}

JobVerdict judge_job(const Window& window, const std::string& name, const Thresholds& limits) {
  JobVerdict verdict;
  verdict.job = name;
  Assembly assembly(window, name, verdict, limits);
  const Job job = assembly.assemble();
  verdict.ranks = assembly.all_ranks_.size();
  verdict.units = job.units;
  assembly.find_blind_spots(job);
  const auto judged = static_cast<size_t>(
      std::ranges::count_if(job.units, [](const UnitEvidence& unit) { return unit.active_links > 0; }));
  const auto tell = [&](Kind kind, std::string why) {
    verdict.kind = kind;
    verdict.why = std::move(why);
  };
  if (!assembly.has_window()) {
    tell(Kind::no_data, assembly.problem());
  } else if (job.units.size() < 2) {
    const std::string seen =
        verdict.ranks < 2 ? "one rank seen" : "all ranks seen share one network namespace";
    tell(Kind::too_few_ranks, seen + ": give the agents of the job's other nodes too");
  } else if (!assembly.any_hook()) {
    tell(Kind::no_data, "no agent has an RTT hook");
  } else if (!judge_stall(job, verdict)) {
    if (judged == 0) {
      const std::string& address = assembly.foreign_address();
      tell(Kind::no_data,
           "no TCP data between ranks seen: RDMA, or idle" +
               (address.empty() ? "" : "; data goes to " + address + ", which is no rank's address"));
    } else if (judged < 3) {
      tell(Kind::too_few_ranks, "two ends cannot be told apart: see the figures");
    } else {
      const bool named = judge_rtt_of_units(job, verdict) || judge_rtt_of_links(job, verdict) ||
                         LossRule(job, verdict).judge() || judge_busy(job, verdict) ||
                         judge_job_wide(job, verdict);
      if (!named) set_healthy(job, verdict);
    }
  }
  mark_parts(job, verdict);
  return verdict;
}

}  // namespace

std::string UnitEvidence::who() const {
  return (ranks.find_first_of(",-") == std::string::npos ? "rank " : "ranks ") + ranks;
}

std::string UnitEvidence::label() const {
  return who() + (node.starts_with("netns ") ? " (" : " (node ") + node + ')';
}

std::string JobVerdict::named() const {
  std::string text;
  for (const size_t unit : culprits) text += (text.empty() ? "" : ", ") + units[unit].label();
  for (const auto& [a, b] : links) {
    text += (text.empty() ? "" : ", ") + units[a].label() + " - " + units[b].label();
  }
  return text;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::healthy:
      return "healthy";
    case Kind::latency:
      return "latency";
    case Kind::throttle:
      return "throttle";
    case Kind::loss:
      return "loss";
    case Kind::link:
      return "link";
    case Kind::stalled:
      return "stalled";
    case Kind::job_wide:
      return "job-wide";
    case Kind::too_few_ranks:
      return "too few ranks";
    case Kind::no_data:
      return "no data";
  }
  return "no data";
}

std::vector<JobVerdict> judge(const Window& window, const Thresholds& thresholds) {
  std::set<std::string> jobs;
  for (const auto* list : {&window.ranks, &window.partial}) {
    for (const RankWindow& rank : *list) jobs.insert(rank.job);
  }
  std::vector<JobVerdict> verdicts;
  verdicts.reserve(jobs.size());
  for (const std::string& job : jobs) verdicts.push_back(judge_job(window, job, thresholds));
  return verdicts;
}

}  // namespace kitty::verdict
