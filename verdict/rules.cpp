#include "verdict/rules.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "verdict/figures.h"

namespace kitty::verdict {

namespace {

// What the others have queued to each other, by their median. Not to `unit`: what is sent to a throttled rank
// waits there for its ACKs, which stand in the same queue as its data.
double usual_queue(const Job& job, size_t unit) {
  std::vector<double> queues(job.units.size());
  for (const Directed& one : job.flows()) {
    if (one.to != unit) queues[one.from] += one.flow->queue_bytes;
  }
  std::vector<double> values;
  for (size_t i = 0; i < job.units.size(); ++i) {
    if (i != unit && job.units[i].active_links > 0) values.push_back(queues[i]);
  }
  return lower_median(std::move(values));
}

// Whether everything that these links measured from either end has the same least RTT: a longer path raises
// all of it alike, while in a queue the flows wait in turn, and each finds as much of it as the others left.
bool have_like_minima(const std::vector<const Link*>& links, const Thresholds& limits) {
  double least_s = std::numeric_limits<double>::infinity(), greatest_s = 0;
  for (const Link* link : links) {
    for (const Flow* flow : {&link->out, &link->back}) {
      if (!flow->rtt_min_s || flow->rtt_count < limits.min_rtt_samples) continue;
      least_s = std::min(least_s, *flow->rtt_min_s);
      greatest_s = std::max(greatest_s, *flow->rtt_min_s);
    }
  }
  return least_s >= limits.path_like_share * greatest_s || greatest_s - least_s <= limits.path_spread_s;
}

// Why these links of a unit are slow. A standing queue at a sender that is nearly always busy is a throttle,
// unless the minimum has risen like the mean; so are minima that differ, and a mean far above the minimum,
// where the queue stands elsewhere (an inbound throttle). What is left is a longer path.
Kind why_slow(const Job& job, size_t unit, const std::vector<const Link*>& links, double busy_share,
              double queue_bytes) {
  const Thresholds& limits = job.limits;
  double min_share = 1;
  for (const Link* link : links) {
    if (link->rtt_s) min_share = std::min(min_share, link->min_share());
  }
  const double usual_queue_bytes = std::max(limits.throttle_queue_floor_bytes, usual_queue(job, unit));
  const bool queued = busy_share > limits.throttle_busy_share &&
                      queue_bytes > limits.throttle_queue_ratio * usual_queue_bytes;
  if (queued && min_share < limits.path_min_share) return Kind::throttle;
  if (!have_like_minima(links, limits)) return Kind::throttle;
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

// The flows that say how busy they are, the busiest first: for asking again and again who else is.
class BusyFlows {
 public:
  explicit BusyFlows(const Job& job) : limits_(job.limits), flows_(job.flows()) {
    std::erase_if(flows_, [](const Directed& one) { return !one.flow->judged; });
    std::ranges::sort(flows_, std::greater(), share_of);
  }

  // Whether those of these links are busy, and the others, which `touches` does not select, far less.
  template <class Touches>
  [[nodiscard]] bool are(std::span<const Link* const> links, Touches&& touches) const {
    double here = 0;
    for (const Link* link : links) {
      for (const Flow* flow : {&link->out, &link->back}) {
        if (flow->judged) here = std::max(here, flow->busy_share);
      }
    }
    const auto other = std::ranges::find_if_not(flows_, touches);
    const double elsewhere = other == flows_.end() ? 0 : share_of(*other);
    return here >= limits_.convincing_busy_share && here >= limits_.busy_ratio * elsewhere;
  }

 private:
  static double share_of(const Directed& one) { return one.flow->busy_share; }

  const Thresholds& limits_;
  std::vector<Directed> flows_;
};

// Whether slow means are the network's; see kDelayedAckS.
bool is_convincing(const Job& job, const BusyFlows& busy, size_t unit) {
  const auto links = job.active_links(unit);
  const bool long_paths = std::ranges::all_of(
      links, [&job](const Link* link) { return !link->rtt_s || is_long_path(*link, job.limits); });
  return long_paths ||
         busy.are(links, [unit](const Directed& one) { return one.from == unit || one.to == unit; });
}
bool is_convincing(const Job& job, const BusyFlows& busy, const Link& link) {
  if (is_long_path(link, job.limits)) return true;
  const Link* const links[] = {&link};
  return link.rtt_s.value_or(0) >= job.limits.delayed_ack_s && busy.are(links, [&link](const Directed& one) {
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

}  // namespace

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
  const BusyFlows busy(job);
  std::erase_if(suspects, [&](size_t unit) { return !is_convincing(job, busy, unit); });
  std::vector<bool> is_suspect(job.units.size());
  for (const size_t suspect : suspects) is_suspect[suspect] = true;
  // The end of a chain has one link: slow, where its neighbour is the culprit.
  std::erase_if(suspects, [&](size_t unit) {
    const auto links = job.active_links(unit);
    if (links.size() != 1) return false;
    const size_t neighbour = links.front()->other(unit);
    return is_suspect[neighbour] && job.units[neighbour].active_links > 1;
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

namespace {

// Whether all the slow links are this unit's, and none of its links is known to be healthy.
bool explains(const Job& job, size_t unit, const std::vector<const Link*>& slow) {
  return std::ranges::all_of(slow, [unit](const Link* link) { return link->touches(unit); }) &&
         std::ranges::none_of(job.active_links(unit),
                              [](const Link* link) { return link->rtt_s && !link->slow; });
}

}  // namespace

// Rule 3, one slow link, both ends of which have a healthy one to others.
bool judge_rtt_of_links(const Job& job, JobVerdict& verdict) {
  const BusyFlows busy_flows(job);
  std::vector<const Link*> slow;
  size_t active = 0;
  for (const Link& link : job.links) {
    if (link.active()) ++active;
    if (link.slow && is_convincing(job, busy_flows, link)) slow.push_back(&link);
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

namespace {

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

}  // namespace

bool judge_loss(const Job& job, JobVerdict& verdict) { return LossRule(job, verdict).judge(); }

// Rule 5, by busy share alone, where a queue does not show in the RTT (BBR, MPI's own buffers): one unit is
// busy most of the time, the next far less, though it sends no more than they do.
bool judge_busy(const Job& job, JobVerdict& verdict) {
  struct Sender {
    size_t unit;
    double busy_share, data_per_s;
  };
  std::vector<Sender> senders;
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::vector<size_t> sender_of(job.units.size(), kNone);
  for (const Directed& one : job.flows()) {
    if (!one.flow->judged) continue;
    if (sender_of[one.from] == kNone) {
      sender_of[one.from] = senders.size();
      senders.push_back({one.from, 0, 0});
    }
    Sender& sender = senders[sender_of[one.from]];
    // Added up: a rank that serves its peers in turn (MPI's pairwise exchange) is busy with one of them at a
    // time.
    sender.busy_share = std::min(sender.busy_share + one.flow->busy_share, 1.0);
    sender.data_per_s += one.flow->data_per_s;
  }
  if (senders.size() < 3) return false;
  std::ranges::sort(senders, std::greater(), &Sender::busy_share);
  const Sender& busiest = senders[0];
  std::vector<double> rates;
  for (size_t i = 1; i < senders.size(); ++i) rates.push_back(senders[i].data_per_s);
  const auto stands_out = [&](double share, double ratio) {
    return busiest.busy_share > share && busiest.busy_share > ratio * senders[1].busy_share;
  };
  const UnitEvidence& unit = job.units[busiest.unit];
  const bool has_queue = unit.queue_bytes >= job.limits.throttle_queue_floor_bytes;
  const bool is_slower = unit.best_rtt_s && unit.times_median >= job.limits.slower_ratio;
  const bool is_busy = has_queue && stands_out(job.limits.busy_share, job.limits.busy_ratio);
  const bool is_far_busier =
      (has_queue || is_slower) && stands_out(job.limits.far_busy_share, job.limits.far_busy_ratio);
  if ((!is_busy && !is_far_busier) ||
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

}  // namespace kitty::verdict
