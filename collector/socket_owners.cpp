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
#include "procfs/directory.h"

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
  return {.local = row.local, .remote = row.remote, .tx_queue_bytes = procfs::queued_tx_bytes(row)};
}

procfs::TcpRow table_row(const kitty_socket_row& row) {
  procfs::TcpRow out;
  std::memcpy(out.local.data(), row.local, sizeof out.local);
  std::memcpy(out.remote.data(), row.remote, sizeof out.remote);
  out.state = static_cast<uint8_t>(row.state);
  out.tx_queue_bytes = row.tx_queue_bytes;
  return out;
}

}  // namespace

SocketOwners::SocketOwners(uint64_t agent_start_ticks, SocketRows* rows)
    : agent_start_ticks_(agent_start_ticks),
      rows_(rows),
      buffer_(std::max(procfs::kDirectoryBufferBytes, procfs::kTcpTableBufferBytes)) {}

bool SocketOwners::due(const Holder& holder, Listing& listing, Which which) const {
  if (!listing.ever) return true;
  if (which == Which::unlisted || listing.from_rows) return false;  // the next pass lists it anyway
  if (holder.is_worker) return !rests(holder, listing);
  const std::optional<uint64_t> descriptors = holder.handle->fd_count();
  return !descriptors || *descriptors != listing.descriptors || *descriptors <= kAlwaysListedDescriptors ||
         ++listing.age >= kMaxListingAge;
}

// Its sockets are its parent's as long as it opens none, and then it has one descriptor more.
bool SocketOwners::rests(const Holder& holder, Listing& listing) const {
  if (!holder.is_worker || !listing.ever) return false;
  if (++listing.age % kWorkerCountAge != 0) return true;
  const std::optional<uint64_t> descriptors = holder.handle->fd_count();
  return descriptors && *descriptors == listing.descriptors && listing.age < kMaxWorkerListingAge;
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

// Asked once: a socket's protocol does not change.
SocketOwners::Protocol SocketOwners::protocol_of(const Holder& holder, uint64_t inode, const char* fd) const {
  const auto known = sockets_.find(inode);
  if (known != sockets_.end() && known->second.protocol != Protocol::unknown) return known->second.protocol;
  std::array<char, procfs::kSocketProtocolBytes> buffer;
  const auto name = holder.handle->read_socket_protocol(fd, buffer);
  if (!name) return Protocol::unknown;
  if (*name == "TCP" || *name == "TCPv6") return Protocol::tcp;
  return *name == "MPTCP" || *name == "MPTCPv6" ? Protocol::mptcp : Protocol::other;
}

// What was known stays known when the descriptors cannot be listed for want of our own.
void SocketOwners::list_descriptors(const Holder& holder, Listing& listing) {
  scratch_.clear();
  bool unseen = false;
  const procfs::FdWalk walk =
      holder.handle->walk_socket_fds(buffer_, [this, &holder, &unseen](uint64_t inode, const char* fd) {
        const Protocol protocol = protocol_of(holder, inode, fd);
        unseen = unseen || protocol == Protocol::mptcp;
        scratch_.push_back({.inode = inode, .protocol = protocol, .connection = {}});
      });
  listing.result = walk.result;
  if (walk.result.status == procfs::ReadStatus::failed) return;
  listing.sockets.swap(scratch_);
  listing.unseen = unseen;
  if (!holder.is_worker) listing.descriptors = walk.fds;
}

void SocketOwners::list_one(const Holder& holder, Listing& listing) {
  const uint64_t now_ns = monotonic_ns();
  if (holder.is_worker) listing.descriptors = holder.handle->fd_count().value_or(0);
  listing.from_rows = list_rows(holder, listing);
  if (!listing.from_rows) list_descriptors(holder, listing);
  // The first time at its own place in the round, so that a crowd is not listed in one pass.
  listing.age =
      holder.is_worker && !listing.ever ? static_cast<unsigned>(holder.id.pid) % kMaxWorkerListingAge : 0;
  if (listing.result.status == procfs::ReadStatus::failed) return;
  listing.listed_ns = now_ns;
  listing.first = !listing.ever;
  listing.ever = true;
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
  uint64_t old_places = std::min<uint64_t>(claimant.quota, followed.size());
  uint64_t new_places = claimant.quota - old_places;
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
  for (const Holder& holder : holders) {
    Listing& listing = listings_[holder.id];
    if (due(holder, listing, which)) list_one(holder, listing);
  }
  claim(holders);
}

void SocketOwners::take_row(const procfs::TcpRow& row, uint32_t netns) {
  if (row.inode == 0) return;
  const auto found = sockets_.find(row.inode);
  if (found != sockets_.end()) {
    Socket& socket = found->second;
    // An MPTCP socket's subflows are rows of one number.
    const uint64_t of_others =
        socket.protocol == Protocol::mptcp && socket.counted == pass_ && socket.connected
            ? socket.connection.tx_queue_bytes
            : 0;
    socket.row_netns = netns;
    socket.connected = is_connection(row.state);
    socket.connection = connection_of(row);
    socket.connection.tx_queue_bytes += of_others;
    socket.counted = pass_;
    return;
  }
  foreign_now_.push_back(row.inode);
  if (unknown_rows_.size() < kMaxUnknownRows && !std::ranges::binary_search(foreign_, row.inode))
    unknown_rows_.push_back({row, netns});
}

bool SocketOwners::read_tables(const Holder& holder) {
  bool complete = true;
  for (const procfs::TcpTable table : {procfs::TcpTable::tcp, procfs::TcpTable::tcp6}) {
    const procfs::TcpTableRead read = holder.handle->read_tcp_table(
        table, buffer_, [this, &holder](const procfs::TcpRow& row) { take_row(row, holder.netns); });
    parse_errors_ += read.errors;
    complete = complete && read.result.ok();
  }
  return complete;
}

// A row of a socket never seen before is a reason to list descriptors at once: a connection made anew must
// not hide its queue until the next discovery.
void SocketOwners::take_unknown_rows(std::span<const Holder> holders) {
  if (!unknown_rows_.empty()) {
    for (const Holder& holder : holders) {
      Listing& listing = listings_[holder.id];
      if (!listing.from_rows && !rests(holder, listing)) list_one(holder, listing);
    }
    claim(holders);
    for (const UnknownRow& unknown : unknown_rows_) {
      if (sockets_.contains(unknown.row.inode)) take_row(unknown.row, unknown.netns);
    }
  }
  unknown_rows_.clear();
  std::erase_if(foreign_now_, [this](uint64_t inode) { return sockets_.contains(inode); });
  std::ranges::sort(foreign_now_);
  std::swap(foreign_, foreign_now_);
  foreign_now_.clear();
}

void SocketOwners::pass(std::span<const Holder> holders) {
  const uint64_t start_ns = monotonic_ns();
  ++pass_;
  forget_others(holders);
  bool listed = false;
  for (const Holder& holder : holders) {
    Listing& listing = listings_[holder.id];
    if (listing.ever && !listing.from_rows) continue;
    if (rests(holder, listing)) continue;
    list_one(holder, listing);
    listed = true;
  }
  if (listed) claim(holders);

  struct Table {
    uint32_t netns;
    bool complete;
  };
  std::vector<Table> tables;  // read in this pass
  pass_ok_ = true;
  for (const Holder& holder : holders) {
    Listing& listing = listings_[holder.id];
    if (listing.from_rows) continue;
    auto table = std::ranges::find(tables, holder.netns, &Table::netns);
    // A namespace without a number cannot be told from another, and one whose reader died is read through the
    // next.
    if (table == tables.end() || holder.netns == 0 || !table->complete) {
      const bool complete = read_tables(holder);
      if (!complete && holder.handle->alive()) pass_ok_ = false;
      tables.push_back({holder.netns, complete});
      table = std::prev(tables.end());
    }
    if (table->complete) listing.tables_read = pass_;
  }
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
    process.tx_queue_known = process.sockets_known && pass_ != 0 &&
                             (listing->from_rows ? !listing->unseen : listing->tables_read == pass_);
    if (listing->dropped != 0) left_out[process.uid].sockets += listing->dropped;
    if (!listing->result.ok() && listing->result.status != procfs::ReadStatus::gone)
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
