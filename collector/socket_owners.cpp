#include "collector/socket_owners.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <optional>
#include <tuple>
#include <unordered_set>

#include "collector/clock.h"
#include "collector/socket_rows.h"

namespace kitty::collector {

namespace {

// A socket with both ends known and data able to flow or on its way (include/net/tcp_states.h).
bool is_connection(uint8_t state) {
  using procfs::TcpState;
  switch (static_cast<TcpState>(state)) {
    case TcpState::established:
    case TcpState::fin_wait1:
    case TcpState::fin_wait2:
    case TcpState::close_wait:
    case TcpState::last_ack:
    case TcpState::closing:
      return true;
    default:
      return false;
  }
}

Connection connection_of(const procfs::TcpRow& row) {
  return {.local = row.local,
          .remote = row.remote,
          .local_port = row.local_port,
          .remote_port = row.remote_port,
          .tx_queue_bytes = procfs::queued_tx_bytes(row)};
}

procfs::TcpRow table_row(const kitty_socket_row& row) {
  procfs::TcpRow out;
  std::memcpy(out.local.data(), row.local, sizeof out.local);
  std::memcpy(out.remote.data(), row.remote, sizeof out.remote);
  out.local_port = row.local_port;
  out.remote_port = row.remote_port;
  out.state = static_cast<uint8_t>(row.state);
  out.tx_queue_bytes = row.tx_queue_bytes;
  return out;
}

}  // namespace

SocketOwners::SocketOwners(uint64_t agent_start_ticks, SocketRows* rows, Expendable& reads)
    : agent_start_ticks_(agent_start_ticks),
      rows_(rows),
      reads_(reads),
      foreign_(std::make_shared<const std::vector<uint64_t>>()) {}

// What a pass lists anyway is not.
bool SocketOwners::is_due(const Listing& listing, Which which) {
  return !listing.ever || (which == Which::all && !listing.from_rows);
}

bool SocketOwners::is_forbidden(const Holder& holder, const Listing& listing) {
  return holder.hangs || listing.hang.forbids(monotonic_ns());
}

// A worker's sockets are its parent's as long as it opens none, and then it has one descriptor more. Until
// then, and until its turn, there is nothing to be listed of it.
std::vector<const SocketOwners::Holder*> SocketOwners::without_resting(Holders holders) {
  std::vector<const Holder*> rest;
  std::vector<const Holder*> workers;
  const auto batch = std::make_shared<ReadBatch<DescriptorReader>>();
  for (const Holder* holder : holders) {
    if (!holder->is_worker) {
      rest.push_back(holder);
    } else if (Listing& listing = listings_[holder->id];
               !is_forbidden(*holder, listing) && (!listing.ever || ++listing.age % kWorkerCountAge == 0)) {
      workers.push_back(holder);
      batch->requests.push_back(
          {.handle = holder->handle, .uid = holder->uid, .count_only = true, .known = {}});
    }
  }
  batch->answers.resize(workers.size());
  reads_.run(batch, outcome_);
  for (const Expendable::Left& left : outcome_.left)
    listings_[workers[left.item]->id].hang.begin(left.read, monotonic_ns());
  for (size_t i = 0; i < workers.size(); ++i) {
    if (outcome_.ends[i] != ReadEnd::read) continue;
    Listing& listing = listings_[workers[i]->id];
    const std::optional<uint64_t> descriptors = batch->answers[i].count;
    const bool same = descriptors && *descriptors == listing.descriptors;
    if (listing.ever && same && listing.age < kMaxWorkerListingAge) continue;
    listing.descriptors = descriptors.value_or(0);
    rest.push_back(workers[i]);
  }
  return rest;
}

bool SocketOwners::list_rows(const Holder& holder, Listing& listing) {
  if (!rows_) return false;
  scratch_.clear();
  bool unseen = false;
  const procfs::ReadResult result = rows_->list(holder.id, [this, &unseen](const kitty_socket_row& row) {
    if ((row.flags & KITTY_ROW_UNSEEN) != 0) {
      unseen = true;
      return;
    }
    const procfs::TcpRow as_in_table = table_row(row);
    Listed& listed = scratch_.emplace_back();
    listed.inode = row.inode;
    listed.handed = (row.flags & KITTY_ROW_HANDED) != 0;
    listed.connected = is_connection(as_in_table.state);
    listed.connection = connection_of(as_in_table);
    listed.connection.hash = row.hash;
    listed.connection.counters = row.counters;
  });
  if (!result.ok()) return false;
  listing.result = {};
  listing.sockets.swap(scratch_);
  listing.unseen = unseen;
  return true;
}

// What was known stays known when the descriptors cannot be listed for want of our own, or hang. `all`: also
// where their number says that they are the same.
void SocketOwners::list_descriptors(Holders holders, bool all) {
  const uint64_t now_ns = monotonic_ns();
  const auto batch = std::make_shared<ReadBatch<DescriptorReader>>();
  auto known = std::make_shared<std::vector<uint64_t>>();
  for (const auto& [inode, socket] : sockets_) {
    if (socket.protocol != Protocol::unknown) known->push_back(inode);
  }
  std::ranges::sort(*known);
  std::vector<Listing*> asked;
  std::vector<const Holder*> whose;
  for (const Holder* holder : holders) {
    Listing& listing = listings_[holder->id];
    if (is_forbidden(*holder, listing)) {
      listing.result = {procfs::ReadStatus::stuck, 0};
      continue;
    }
    asked.push_back(&listing);
    whose.push_back(holder);
    batch->requests.push_back(
        {.handle = holder->handle,
         .uid = holder->uid,
         .may_be_unchanged = !all && !holder->is_worker && listing.ever && listing.age + 1 < kMaxListingAge,
         .descriptors = listing.descriptors,
         .always_listed = kAlwaysListedDescriptors,
         .known = known});
  }
  batch->answers.resize(batch->requests.size());
  reads_.run(batch, outcome_);
  for (const Expendable::Left& left : outcome_.left) {
    asked[left.item]->hang.begin(left.read, monotonic_ns());
    asked[left.item]->result = {procfs::ReadStatus::stuck, 0};
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    if (outcome_.ends[i] != ReadEnd::read) continue;
    Listing& listing = *asked[i];
    const DescriptorReader::Answer& answer = batch->answers[i];
    listing.hang.end();
    if (answer.unchanged) {
      ++listing.age;
      continue;
    }
    listing.result = answer.walk.result;
    if (listing.result.status == procfs::ReadStatus::failed) continue;
    listing.sockets.clear();
    listing.unseen = false;
    for (const DescriptorReader::Socket& socket : answer.sockets) {
      const auto found = sockets_.find(socket.inode);
      const bool asked_before = socket.protocol == Protocol::unknown && found != sockets_.end();
      const Protocol protocol = asked_before ? found->second.protocol : socket.protocol;
      listing.unseen = listing.unseen || protocol == Protocol::mptcp;
      listing.sockets.push_back({.inode = socket.inode, .protocol = protocol, .connection = {}});
    }
    if (!whose[i]->is_worker) listing.descriptors = answer.walk.fds;
    note_listed(*whose[i], listing, now_ns);
  }
}

void SocketOwners::note_listed(const Holder& holder, Listing& listing, uint64_t now_ns) {
  // The first time at its own place in the round, so that a crowd is not listed in one pass.
  listing.age =
      holder.is_worker && !listing.ever ? static_cast<unsigned>(holder.id.pid) % kMaxWorkerListingAge : 0;
  listing.listed_ns = now_ns;
  listing.first = !listing.ever;
  listing.ever = true;
}

// True if there was anything to list.
bool SocketOwners::list_these(Holders holders, bool all) {
  const std::vector<const Holder*> due = without_resting(holders);
  std::vector<const Holder*> by_descriptors;
  for (const Holder* holder : due) {
    const uint64_t now_ns = monotonic_ns();
    Listing& listing = listings_[holder->id];
    listing.from_rows = list_rows(*holder, listing);
    if (listing.from_rows) {
      note_listed(*holder, listing, now_ns);
    } else {
      by_descriptors.push_back(holder);
    }
  }
  if (!by_descriptors.empty()) list_descriptors(by_descriptors, all);
  return !due.empty();
}

// Sets the quotas, where there are more sockets than there is room for.
void SocketOwners::share_sockets(std::span<Claimant> eldest_first) {
  size_t listed = 0;
  for (const Claimant& one : eldest_first) {
    one.listing->owned = one.listing->dropped = 0;
    listed += one.listing->sockets.size();
  }
  if (listed <= kMaxOwnedSockets) return;
  std::unordered_set<uint64_t> seen;  // children list their parents' once more
  seen.reserve(listed);
  for (const Claimant& one : eldest_first) {
    for (const Listed& socket : one.listing->sockets)
      one.listing->owned += seen.insert(socket.inode).second ? 1U : 0U;
  }
  if (seen.size() <= kMaxOwnedSockets) return;

  std::unordered_map<uid_t, std::vector<Share>> processes;  // by user; keys are places in eldest_first
  for (size_t i = 0; i < eldest_first.size(); ++i)
    processes[eldest_first[i].holder->uid].push_back({.key = i, .wanted = eldest_first[i].listing->owned});
  std::vector<Share> users;
  for (const auto& [uid, list] : processes) {
    Share& user = users.emplace_back(Share{.key = uid});
    for (const Share& one : list) user.wanted += one.wanted;
  }
  share_out(kMaxOwnedSockets, users);
  for (const Share& user : users) {
    std::vector<Share>& list = processes[static_cast<uid_t>(user.key)];
    share_out(user.granted, list);
    for (const Share& one : list) eldest_first[one.key].quota = one.granted;
  }
}

void SocketOwners::claim_for(const Claimant& claimant) {
  const Holder& holder = *claimant.holder;
  Listing& listing = *claimant.listing;
  const bool older = listing.first && holder.id.start_time_ticks < agent_start_ticks_;
  listing.owned = 0;
  const auto is_elders = [this](uint64_t inode) {
    const auto found = sockets_.find(inode);
    if (found != sockets_.end() && found->second.claimed == claim_) return true;
    const auto left_out = left_out_.find(inode);
    return left_out != left_out_.end() && left_out->second == claim_;
  };
  // What is followed already has its place first.
  const bool shared = claimant.quota != UINT64_MAX;
  std::unordered_set<uint64_t> followed;  // a socket may be at several descriptors
  for (const Listed& listed : shared ? std::span(listing.sockets) : std::span<Listed>())
    if (sockets_.contains(listed.inode) && !is_elders(listed.inode)) followed.insert(listed.inode);
  // NOLINTBEGIN(misc-const-correctness): counted down below
  uint64_t old_places = std::min<uint64_t>(claimant.quota, followed.size());
  uint64_t new_places = claimant.quota - old_places;
  // NOLINTEND(misc-const-correctness)
  for (const Listed& listed : listing.sockets) {
    if (is_elders(listed.inode)) continue;
    ++listing.owned;
    auto found = sockets_.find(listed.inode);
    uint64_t& places = found != sockets_.end() && shared ? old_places : new_places;
    if (places == 0) {
      ++listing.dropped;
      left_out_[listed.inode] = claim_;
      continue;
    }
    --places;
    if (found == sockets_.end()) {
      found = sockets_.try_emplace(listed.inode).first;
      // One that was left out begins where it is: what it did meanwhile is in nobody's sums, or in them
      // already.
      found->second.older_than_agent = older || left_out_.contains(listed.inode);
      found->second.handed = listed.handed;
      found->second.found_pass = pass_;
    }
    Socket& socket = found->second;
    if (listed.protocol != Protocol::unknown) socket.protocol = listed.protocol;
    socket.claimed = claim_;
    socket.owner = holder.id;
    socket.listed_ns = listing.listed_ns;
    if (!listing.from_rows) continue;
    socket.connected = listed.connected;
    socket.connection = listed.connection;
    socket.counted = pass_;
  }
}

void SocketOwners::claim(std::span<const Holder> holders) {
  struct Candidate {
    const Holder* holder;
    unsigned generation;  // how many of the holders are its ancestors
  };
  const auto parent_of = [holders](const Holder& holder) -> const Holder* {
    const auto found = std::ranges::find(holders, holder.parent, [](const Holder& h) { return h.id.pid; });
    // A parent started first; anything else has the number of a parent that is gone.
    const bool real = found != holders.end() && found->id.start_time_ticks <= holder.id.start_time_ticks;
    return real && &*found != &holder ? &*found : nullptr;
  };
  std::vector<Candidate> eldest_first;
  eldest_first.reserve(holders.size());
  for (const Holder& holder : holders) eldest_first.push_back({&holder, 0});
  std::ranges::sort(eldest_first, {}, [](const Candidate& c) { return c.holder->id.start_time_ticks; });
  // Start times count in hundredths of a second: within one, ancestors come before descendants.
  for (size_t i = 0; i < eldest_first.size(); ++i) {
    const uint64_t start = eldest_first[i].holder->id.start_time_ticks;
    const bool tied =
        (i > 0 && eldest_first[i - 1].holder->id.start_time_ticks == start) ||
        (i + 1 < eldest_first.size() && eldest_first[i + 1].holder->id.start_time_ticks == start);
    if (!tied) continue;
    const Holder* ancestor = parent_of(*eldest_first[i].holder);
    for (; ancestor && ancestor->id.start_time_ticks == start && eldest_first[i].generation < holders.size();
         ancestor = parent_of(*ancestor)) {
      ++eldest_first[i].generation;
    }
  }
  std::ranges::sort(eldest_first, {}, [](const Candidate& c) {
    return std::tuple(c.holder->id.start_time_ticks, c.generation, c.holder->id.pid);
  });

  std::vector<Claimant> claimants;
  claimants.reserve(eldest_first.size());
  for (const Candidate& candidate : eldest_first) {
    const auto listing = listings_.find(candidate.holder->id);
    if (listing != listings_.end()) claimants.push_back({candidate.holder, &listing->second});
  }
  ++claim_;
  dropped_ = 0;
  share_sockets(claimants);
  for (const Claimant& claimant : claimants) {
    claim_for(claimant);
    dropped_ += claimant.listing->dropped;
  }
  std::erase_if(sockets_, [this](const auto& entry) { return entry.second.claimed != claim_; });
  std::erase_if(left_out_, [this](const auto& entry) { return entry.second != claim_; });
}

void SocketOwners::forget_others(std::span<const Holder> holders) {
  ++generation_;
  for (const Holder& holder : holders) listings_[holder.id].seen = generation_;
  std::erase_if(listings_, [this](const auto& entry) { return entry.second.seen != generation_; });
}

void SocketOwners::list(std::span<const Holder> holders, Which which) {
  forget_others(holders);
  std::vector<const Holder*> due;
  for (const Holder& holder : holders) {
    if (is_due(listings_[holder.id], which)) due.push_back(&holder);
  }
  list_these(due, false);
  claim(holders);
}

// False: it is nobody's.
bool SocketOwners::take_row(const procfs::TcpRow& row, uint32_t netns) {
  const auto found = sockets_.find(row.inode);
  if (found == sockets_.end()) return false;
  Socket& socket = found->second;
  socket.row_netns = netns;
  socket.connected = is_connection(row.state);
  socket.connection = connection_of(row);
  socket.counted = pass_;
  return true;
}

void SocketOwners::take_tables(const TableReader::Answer& answer, uint32_t netns) {
  parse_errors_ += answer.errors;
  for (const procfs::TcpRow& row : answer.owned) take_row(row, netns);
  foreign_now_.insert(foreign_now_.end(), answer.others.begin(), answer.others.end());
  for (const procfs::TcpRow& row : answer.unknown) {
    if (unknown_rows_.size() < kMaxUnknownRows) unknown_rows_.push_back({row, netns});
  }
}

// A row of a socket never seen before is a reason to list descriptors at once: a connection made anew must
// not hide its queue until the next discovery.
void SocketOwners::take_unknown_rows(std::span<const Holder> holders) {
  if (!unknown_rows_.empty()) {
    std::vector<const Holder*> by_descriptors;
    for (const Holder& holder : holders) {
      if (!listings_[holder.id].from_rows) by_descriptors.push_back(&holder);
    }
    list_these(by_descriptors, true);
    claim(holders);
    for (const UnknownRow& unknown : unknown_rows_) take_row(unknown.row, unknown.netns);
  }
  unknown_rows_.clear();
  std::erase_if(foreign_now_, [this](uint64_t inode) { return sockets_.contains(inode); });
  std::ranges::sort(foreign_now_);
  foreign_ = std::make_shared<const std::vector<uint64_t>>(std::move(foreign_now_));
  foreign_now_.clear();
}

// Each namespace's once, through one of its processes; where that one has died or hangs, through the next.
void SocketOwners::read_tables(std::span<const Holder> holders) {
  struct Group {
    uint32_t netns;
    std::vector<const Holder*> members;
    size_t reader = 0;  // of these
    bool complete = false;
  };
  std::vector<Group> groups;
  for (const Holder& holder : holders) {
    if (listings_[holder.id].from_rows) continue;
    // A namespace without a number cannot be told from another.
    auto group = holder.netns == 0 ? groups.end() : std::ranges::find(groups, holder.netns, &Group::netns);
    if (group == groups.end()) group = groups.insert(group, Group{holder.netns, {}});
    group->members.push_back(&holder);
  }
  auto owned = std::make_shared<std::vector<uint64_t>>();
  owned->reserve(groups.empty() ? 0 : sockets_.size());
  if (!groups.empty()) {
    for (const auto& [inode, socket] : sockets_) owned->push_back(inode);
  }
  std::ranges::sort(*owned);
  for (;;) {
    const auto batch = std::make_shared<ReadBatch<TableReader>>();
    std::vector<Group*> asked;
    for (Group& group : groups) {
      while (group.reader < group.members.size() &&
             is_forbidden(*group.members[group.reader], listings_[group.members[group.reader]->id]))
        ++group.reader;
      if (group.complete || group.reader == group.members.size()) continue;
      const Holder& holder = *group.members[group.reader];
      asked.push_back(&group);
      batch->requests.push_back(
          {.handle = holder.handle, .uid = holder.uid, .owned = owned, .foreign = foreign_});
    }
    if (asked.empty()) break;
    batch->answers.resize(batch->requests.size());
    reads_.run(batch, outcome_);
    for (const Expendable::Left& left : outcome_.left) {
      const Group& group = *asked[left.item];
      listings_[group.members[group.reader]->id].hang.begin(left.read, monotonic_ns());
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      Group& group = *asked[i];
      const bool read = outcome_.ends[i] == ReadEnd::read;
      if (read) take_tables(batch->answers[i], group.netns);
      group.complete = read && batch->answers[i].complete;
      if (!group.complete && !(read && batch->answers[i].gone)) pass_ok_ = false;
      if (!group.complete) ++group.reader;
    }
  }
  for (const Group& group : groups) {
    for (const Holder* holder : group.members) {
      if (group.complete) listings_[holder->id].tables_read = pass_;
    }
  }
}

void SocketOwners::pass(std::span<const Holder> holders) {
  const uint64_t start_ns = monotonic_ns();
  ++pass_;
  forget_others(holders);
  std::vector<const Holder*> due;
  for (const Holder& holder : holders) {
    const Listing& listing = listings_[holder.id];
    if (!listing.ever || listing.from_rows) due.push_back(&holder);
  }
  if (list_these(due, false)) claim(holders);
  pass_ok_ = true;
  read_tables(holders);
  take_unknown_rows(holders);
  pass_seconds_ = seconds_since(start_ns);
}

bool SocketOwners::has_sockets(const procfs::ProcessId& id) const {
  const auto found = listings_.find(id);
  return found != listings_.end() && found->second.owned != 0;
}

uint64_t SocketOwners::listed_ns(const procfs::ProcessId& id) const {
  const auto found = listings_.find(id);
  return found == listings_.end() ? 0 : found->second.listed_ns;
}

// Whether a TCP socket without a row in this pass's tables may be connected in another namespace. One that
// its owner's namespace has shown before is closed; a new one is given until the pass after it was found.
bool SocketOwners::is_hidden(const Socket& socket, const WatchedProcess& owner) const {
  if (socket.protocol != Protocol::tcp && socket.protocol != Protocol::mptcp) return false;
  if (socket.counted == pass_ || socket.found_pass == pass_) return false;
  return socket.row_netns == 0 || socket.row_netns != owner.netns;
}

void SocketOwners::describe(ProcessState& state, LeftOutByUser& left_out) const {
  const auto listing_of = [this](const WatchedProcess& process) {
    const auto found = listings_.find(process.id);
    return found == listings_.end() ? nullptr : &found->second;
  };
  for (WatchedProcess& process : state.processes) {
    const Listing* listing = listing_of(process);
    if (!listing) continue;
    // For want of the agent's own descriptors they are what they were.
    const bool listed = listing->result.ok() || listing->result.status == procfs::ReadStatus::failed;
    process.sockets_known = listing->ever && listed && listing->dropped == 0;
    process.flows_unseen = listing->unseen;
    if (listing->unseen) ++state.report.unreadable.mptcp;
    // What an MPTCP socket has taken and not yet given to a subflow is in no table.
    process.tx_queue_known = process.sockets_known && !listing->unseen && pass_ != 0 &&
                             (listing->from_rows || listing->tables_read == pass_);
    if (listing->dropped != 0) left_out[process.uid].sockets += listing->dropped;
    // One that hangs the scanner's own reads is counted there.
    const bool counted = listing->result.status == procfs::ReadStatus::stuck && process.stuck;
    if (!listing->result.ok() && listing->result.status != procfs::ReadStatus::gone && !counted)
      state.report.unreadable.count(listing->result);
  }
  for (const auto& [inode, socket] : sockets_) {
    const auto owner = std::ranges::lower_bound(state.processes, socket.owner, {}, &WatchedProcess::id);
    if (owner == state.processes.end() || owner->id != socket.owner) continue;
    OwnedSocket& owned = owner->sockets.emplace_back();
    owned.inode = inode;
    owned.older_than_agent = socket.older_than_agent;
    owned.handed = socket.handed;
    if (const Listing* listing = listing_of(*owner);
        listing && !listing->from_rows && is_hidden(socket, *owner))
      owner->tx_queue_known = false;
    owned.listed_ns = socket.listed_ns;
    if (socket.counted != pass_ || !socket.connected) continue;
    owned.connected = true;
    owned.connection = socket.connection;
  }
  for (WatchedProcess& process : state.processes) {
    for (const OwnedSocket& socket : process.sockets) {
      if (socket.connected) process.addresses.push_back(socket.connection.local);
    }
    std::ranges::sort(process.addresses);
    const auto doubles = std::ranges::unique(process.addresses);
    process.addresses.erase(doubles.begin(), doubles.end());
    if (process.addresses.size() <= kMaxLocalAddresses) continue;
    state.report.dropped_addresses += process.addresses.size() - kMaxLocalAddresses;
    process.addresses.resize(kMaxLocalAddresses);
  }
  state.report.tcp_parse_errors = parse_errors_;
  state.report.dropped_sockets = dropped_;
  state.report.socket_pass_ok = pass_ok_;
  state.report.socket_pass_seconds = pass_seconds_;
}

}  // namespace kitty::collector
