#include "collector/flow_maps.h"

#include <algorithm>
#include <cerrno>

#include "collector/clock.h"

namespace kitty::collector {

namespace {

constexpr uint32_t kLruEntriesPerCpu = 128;  // kernel/bpf/bpf_lru_list.c: LOCAL_FREE_TARGET

Result<size_t> find(const loader::Object& object, std::string_view name) {
  const size_t index = object.find_map(name);
  if (index == object.maps().size()) return fail("find map", name, 0, "not in the embedded BPF object");
  return index;
}

Status expect_size(const loader::Map& map, uint32_t value_size) {
  if (map.value_size() == value_size) return {};
  return fail("check map", map.name(), 0,
              "the agent and the embedded BPF object disagree on its value's size");
}

}  // namespace

Result<FlowMaps> FlowMaps::create(const loader::Object& object) {
  const Result<uint32_t> cpus = loader::possible_cpus();
  if (!cpus) return std::unexpected(cpus.error());

  FlowMaps self;
  struct Name {
    std::string_view name;
    size_t FlowMaps::* index;
    uint32_t value_size;
  };
  const Name names[] = {
      {"owned", &FlowMaps::owned_, sizeof(kitty_flow)},
      {"pending", &FlowMaps::pending_, sizeof(kitty_flow)},
      {"watched_netns", &FlowMaps::watched_netns_, 4},
      {"misses", &FlowMaps::misses_, 8},
      {".data", &FlowMaps::settings_, sizeof(kitty_settings)},
      {".bss", &FlowMaps::execs_, sizeof(uint64_t)},
      {"exec_log", &FlowMaps::exec_log_, sizeof(kitty_exec)},
      {"timed", &FlowMaps::timed_, sizeof(kitty_timed)},
      {"accounts", &FlowMaps::accounts_, sizeof(kitty_account)},
  };
  for (const Name& name : names) {
    const Result<size_t> index = find(object, name.name);
    if (!index) return std::unexpected(index.error());
    self.*name.index = *index;
  }
  self.maps_.reserve(object.maps().size());
  for (size_t i = 0; i < object.maps().size(); ++i) {
    loader::MapSpec spec = object.maps()[i];
    if (i == self.pending_) spec.max_entries = std::max(spec.max_entries, kLruEntriesPerCpu * *cpus);
    Result<loader::Map> map = loader::Map::create(spec);
    if (!map) return std::unexpected(map.error());
    self.maps_.push_back(std::move(*map));
  }
  for (const Name& name : names) {
    if (Status ok = expect_size(self.maps_[self.*name.index], name.value_size); !ok)
      return std::unexpected(ok.error());
  }
  self.per_cpu_.resize(*cpus);
  return self;
}

bool FlowMaps::readable() const {
  kitty_settings settings{};
  return maps_[settings_].lookup(uint32_t{0}, settings).value_or(false);
}

uint64_t FlowMaps::memory_bytes() const {
  uint64_t sum = 0;
  for (const loader::Map& map : maps_) sum += map.memlock_bytes().value_or(0);
  return sum;
}

OwnResult FlowMaps::own(uint64_t inode) {
  static constexpr kitty_flow kZero{};
  const Status status = maps_[owned_].update(inode, kZero, BPF_NOEXIST);
  if (status || status.error().err == EEXIST) return OwnResult::owned;
  return status.error().err == E2BIG ? OwnResult::table_full : OwnResult::failed;
}

bool FlowMaps::read_owned(uint64_t inode, kitty_flow& flow) const {
  return maps_[owned_].lookup(inode, flow).value_or(false);
}

void FlowMaps::disown(uint64_t inode) { (void)maps_[owned_].remove(inode); }

bool FlowMaps::read_pending(uint64_t inode, kitty_flow& flow) const {
  return maps_[pending_].lookup(inode, flow).value_or(false);
}

void FlowMaps::drop_pending(uint64_t inode) { (void)maps_[pending_].remove(inode); }

bool FlowMaps::watch_netns(uint32_t netns) {
  return maps_[watched_netns_].update(netns, uint32_t{1}).has_value();
}

void FlowMaps::unwatch_netns(uint32_t netns) { (void)maps_[watched_netns_].remove(netns); }

bool FlowMaps::set_tick(uint32_t tick) {
  const kitty_settings settings{.tick = tick, .jiffy_us = static_cast<uint32_t>(jiffy_ns() / 1000)};
  return maps_[settings_].update(uint32_t{0}, settings).has_value();
}

bool FlowMaps::open_account(uint32_t number, uint64_t now_us) {
  kitty_account account{};
  account.last_us = now_us;
  return maps_[accounts_].update(number, account).has_value();
}

bool FlowMaps::read_account(uint32_t number, kitty_account& account) const {
  return maps_[accounts_].lookup(number, account).value_or(false);
}

bool FlowMaps::time_flow(uint64_t inode, uint32_t account, uint16_t peer) {
  kitty_timed timed{};
  timed.account = account;
  timed.peer = peer;
  return maps_[timed_].update(inode, timed).has_value();
}

bool FlowMaps::read_timed(uint64_t inode, kitty_timed& timed) const {
  return maps_[timed_].lookup(inode, timed).value_or(false);
}

void FlowMaps::stop_timing(uint64_t inode) { (void)maps_[timed_].remove(inode); }

uint64_t FlowMaps::execs() const {
  uint64_t count = 0;
  (void)maps_[execs_].lookup(uint32_t{0}, count);
  return count;
}

bool FlowMaps::read_exec(uint64_t n, kitty_exec& exec) const {
  const uint32_t slot = n % KITTY_EXEC_SLOTS;
  return maps_[exec_log_].lookup(slot, exec).value_or(false) && exec.number == n + 1;
}

std::array<uint64_t, KITTY_MISS_COUNT> FlowMaps::misses() {
  std::array<uint64_t, KITTY_MISS_COUNT> sums{};
  for (uint32_t which = 0; which < KITTY_MISS_COUNT; ++which) {
    if (!maps_[misses_].lookup_per_cpu(which, std::span(per_cpu_)).value_or(false)) continue;
    for (const uint64_t value : per_cpu_) sums[which] += value;
  }
  return sums;
}

}  // namespace kitty::collector
