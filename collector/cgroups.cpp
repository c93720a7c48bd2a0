#include "collector/cgroups.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "collector/clock.h"

namespace kitty::collector {

namespace {

// The group above; nothing above the mounted one.
std::optional<std::string> parent_of(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

}  // namespace

// The group's count may fall where it is another group of the same place, or where a controller was switched
// off in between.
uint64_t Cgroups::Figure::take(uint64_t inode, uint64_t count) {
  if (!begun_) {
    value_ = count;
  } else if (inode == inode_ && count >= count_) {
    value_ += count - count_;
  }
  begun_ = true;
  inode_ = inode;
  count_ = count;
  return value_;
}

// One that is over within a second is none: looks are a second apart in any case.
std::chrono::nanoseconds cgroups_pause(std::chrono::nanoseconds cost) {
  const auto pause = std::min<std::chrono::nanoseconds>(cost * kCgroupsShare, kMaxCgroupsPause);
  return pause > std::chrono::seconds(1) ? pause : std::chrono::nanoseconds(0);
}

Cgroups::Cgroups(Root procfs_root, Expendable& reads, bool pauses)
    : procfs_root_(std::move(procfs_root)), reads_(reads), pauses_(pauses) {}

bool Cgroups::find_trees(uint64_t now_ns) {
  if (unified_ || cpu_) return true;
  if (now_ns < find_ns_) return false;
  find_ns_ = now_ns + static_cast<uint64_t>(std::chrono::nanoseconds(kCgroupTreesPause).count());
  const auto batch = std::make_shared<ReadBatch<CgroupTreesReader>>();
  batch->requests.push_back(procfs_root_);
  batch->answers.resize(1);
  reads_.run(batch, outcome_);
  for (const Expendable::Left& left : outcome_.left) hang_.begin(left.read, now_ns);
  if (outcome_.ends.front() != ReadEnd::read) return false;
  unified_ = batch->answers.front().unified;
  cpu_ = batch->answers.front().cpu;
  return unified_ || cpu_;
}

// Nothing where there is no room for it.
std::optional<size_t> Cgroups::ask_for(const Tree& tree, const std::string& path, uid_t uid, bool throttled,
                                       bool pressure) {
  Items& items = tree == unified_ ? unified_items_ : cpu_items_;
  const auto found = items.find(path);
  if (found != items.end()) {
    batch_->requests[found->second].pressure |= pressure;
    batch_->requests[found->second].throttled |= throttled;
    return found->second;
  }
  if (batch_->requests.size() >= kMaxCgroupsRead) return std::nullopt;
  const size_t item = batch_->requests.size();
  batch_->requests.push_back(
      {.tree = tree, .path = path, .uid = uid, .throttled = throttled, .pressure = pressure});
  items.emplace(path, item);
  return item;
}

// Nothing where there is no room for all of it. A controller is part of one hierarchy: where version 1 has
// the cpu controller, version 2 knows of no quota.
std::optional<Cgroups::Chain> Cgroups::ask_for(const Member& member) {
  Chain chain;
  const auto path_in = [](const Tree& tree, const std::string& path) {
    return tree ? tree->below(path) : std::nullopt;
  };
  const auto unified = path_in(unified_, member.paths->unified);
  if (unified) {
    chain.pressure = ask_for(unified_, *unified, member.uid, false, true);
    if (!chain.pressure) return std::nullopt;
  }
  const Tree& tree = cpu_ ? cpu_ : unified_;
  for (auto path = cpu_ ? path_in(cpu_, member.paths->cpu) : unified; path; path = parent_of(*path)) {
    const auto item = ask_for(tree, *path, member.uid, true, false);
    if (!item) return std::nullopt;
    chain.throttled.push_back(*item);
  }
  return chain;
}

// Of each user the first process, then of each the second, and so on.
void Cgroups::ask(std::span<const Member> members) {
  batch_ = std::make_shared<Batch>();
  unified_items_.clear();
  cpu_items_.clear();
  chains_.clear();
  dropped_ = 0;
  struct Turn {
    size_t round = 0;
    size_t member = 0;
  };
  std::vector<Turn> turns;
  turns.reserve(members.size());
  std::unordered_map<uid_t, size_t> rounds;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].paths) turns.push_back({rounds[members[i].uid]++, i});
  }
  std::ranges::sort(turns, {}, [](const Turn& turn) { return std::tuple(turn.round, turn.member); });
  for (const Turn& turn : turns) {
    const Member& member = members[turn.member];
    auto chain = ask_for(member);
    if (!chain) {
      ++dropped_;
      continue;
    }
    chain->member = turn.member;
    chains_.push_back(std::move(*chain));
  }
  batch_->answers.resize(batch_->requests.size());
}

const CgroupReader::Answer* Cgroups::answer_of(size_t item) const {
  const bool read = outcome_.ends[item] == ReadEnd::read && batch_->answers[item].result.ok();
  return read ? &batch_->answers[item] : nullptr;
}

// Of a sum of which a part is missing nothing is told: it would be less than before.
void Cgroups::take(std::span<const Member> members) {
  for (const Chain& chain : chains_) {
    const Member& member = members[chain.member];
    Of& of = known_[member.id];
    bool all_read = !chain.throttled.empty();
    bool told = false;
    uint64_t sum_us = 0;
    for (const size_t item : chain.throttled) {
      const CgroupReader::Answer* answer = answer_of(item);
      all_read = all_read && answer != nullptr;
      if (!answer || !answer->throttled_us) continue;
      told = true;
      sum_us += *answer->throttled_us;
    }
    if (all_read && told)
      of.throttled_us = of.throttled.take(batch_->answers[chain.throttled.front()].inode, sum_us);
    const CgroupReader::Answer* own = chain.pressure ? answer_of(*chain.pressure) : nullptr;
    for (size_t i = 0; own && i < kResources; ++i) {
      if (own->pressure_us[i]) of.pressure_us[i] = of.pressure[i].take(own->inode, *own->pressure_us[i]);
    }
  }
}

void Cgroups::look(std::span<const Member> members, uint64_t now_ns) {
  for (auto& [id, of] : known_) {
    of.throttled_us.reset();
    of.pressure_us = {};
  }
  if (hang_.forbids(now_ns) || !find_trees(now_ns)) return;
  const uint64_t start_ns = monotonic_ns();
  ask(members);
  reads_.run(batch_, outcome_);
  if (outcome_.left.empty()) hang_.end();
  for (const Expendable::Left& left : outcome_.left) hang_.begin(left.read, now_ns);
  take(members);
  const uint64_t end_ns = monotonic_ns();
  const auto pause = cgroups_pause(std::chrono::nanoseconds(end_ns - start_ns));
  if (pauses_) look_ns_ = end_ns + static_cast<uint64_t>(pause.count());
}

void Cgroups::read(std::span<const Member> members) {
  ++looks_;
  const uint64_t now_ns = monotonic_ns();
  if (now_ns >= look_ns_) look(members, now_ns);
  for (const Member& member : members) {
    const auto found = known_.find(member.id);
    if (found == known_.end()) continue;
    Of& of = found->second;
    of.seen = looks_;
    if (!member.paths) continue;
    member.condition->throttled_us = of.throttled_us;
    member.condition->pressure_us = of.pressure_us;
  }
  std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != looks_; });
}

}  // namespace kitty::collector
