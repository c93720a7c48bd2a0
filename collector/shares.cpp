#include "collector/shares.h"

#include <algorithm>
#include <tuple>

namespace kitty::collector {

void share_out(uint64_t room, std::span<Share> shares) {
  std::ranges::sort(shares, {}, [](const Share& share) { return std::tuple(share.wanted, share.key); });
  // Who wants least is served first; what he leaves of his part is the others'.
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i].granted = std::min(shares[i].wanted, room / (shares.size() - i));
    room -= shares[i].granted;
  }
}

std::vector<LeftOut> who_left_out_most(const LeftOutByUser& users) {
  std::vector<LeftOut> list;
  list.reserve(users.size());
  for (const auto& [uid, one] : users) {
    if (one.all() == 0) continue;
    list.push_back(one);
    list.back().uid = uid;
  }
  std::ranges::sort(list, {}, [](const LeftOut& one) { return std::tuple(UINT64_MAX - one.all(), one.uid); });
  if (list.size() <= kMaxLeftOutUsers) return list;
  LeftOut rest;
  for (size_t i = kMaxLeftOutUsers; i < list.size(); ++i) {
    rest.processes += list[i].processes;
    rest.sockets += list[i].sockets;
    rest.series += list[i].series;
  }
  list.resize(kMaxLeftOutUsers);
  list.push_back(rest);
  return list;
}

void Places::clear() {
  taken_ = 0;
  held_.clear();
}

const Places::Held* Places::of(uid_t uid) const {
  const auto found = std::ranges::find(held_, uid, &Held::uid);
  return found == held_.end() ? nullptr : &*found;
}

Places::Held& Places::of(uid_t uid) {
  const auto found = std::ranges::find(held_, uid, &Held::uid);
  return found == held_.end() ? held_.emplace_back(Held{.uid = uid}) : *found;
}

void Places::take(uid_t uid, bool worker) {
  Held& held = of(uid);
  ++held.places;
  held.workers += worker ? 1 : 0;
  ++taken_;
}

void Places::give_up(uid_t uid, bool worker) {
  Held& held = of(uid);
  --held.places;
  held.workers -= worker ? 1 : 0;
  --taken_;
}

Places::Answer Places::ask(uid_t uid, bool worker) const {
  if (taken_ < limit_) return {.granted = true};
  if (held_.empty()) return {};
  const Held* own = of(uid);
  const Held& most = std::ranges::max(held_, {}, &Held::places);
  // With a difference of one the other would have as good a claim to it then.
  if (most.uid != uid && most.places >= (own ? own->places : 0) + 2)
    return {.granted = true, .from = most.uid};
  if (!worker && own && own->workers > 0) return {.granted = true, .from = uid};
  return {};
}

}  // namespace kitty::collector
