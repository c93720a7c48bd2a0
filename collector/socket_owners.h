// Which watched process owns which socket, and what the kernel says of it. Two steps, each of use alone: the
// sockets at a process's descriptors, and the connections behind them. Both come from the text files under
// /proc, or where the kernel has it from one BPF iterator that gives both at once and whose cost does not
// grow with the host's other sockets. One thread uses it.
//
// A socket held by several watched processes is owned by the one that started first: children inherit
// sockets, parents do not.
//
// Of more sockets than kMaxOwnedSockets users have fair shares, and of a user's his processes. Within one the
// sockets that are followed already stay, so that their counts go on. A process of which one is left out has
// no sums any more: they are not known.
//
// Net/tcp shows one namespace, and a process may hold sockets of others (setns or unshare after connect). A
// TCP socket that its holder's namespace has never shown is not known to be idle, and then the process's
// queue is not known. Nor are the subflows of an MPTCP socket, which share an inode number there.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "collector/expendable.h"
#include "collector/hang.h"
#include "collector/process_reader.h"
#include "collector/process_state.h"
#include "collector/socket_reader.h"
#include "procfs/process.h"
#include "procfs/tcp_table.h"

namespace kitty::collector {

class SocketRows;

// A process with at most so many descriptors has them listed at every discovery (3 us each); one with more
// when their number changes, when a table shows a socket nobody is known to hold, and else at every
// kMaxListingAge-th discovery: one descriptor may have been passed away and another opened.
inline constexpr uint64_t kAlwaysListedDescriptors = 256;
inline constexpr unsigned kMaxListingAge = 6;
// A worker (WatchedProcess::is_worker) has its descriptors counted at every so many chances to list them, and
// listed when their number has changed, and else at so many chances; where the kernel does not count them
// (before Linux 6.2) at each count that fails.
inline constexpr unsigned kWorkerCountAge = 4;
inline constexpr unsigned kMaxWorkerListingAge = 24;

class SocketOwners {
 public:
  struct Holder {
    procfs::ProcessId id;
    pid_t parent = 0;  // when it was first seen
    uint32_t netns = 0;
    uid_t uid = kUnknownUid;
    bool is_worker = false;
    Handle handle;
    bool hangs = false;  // not to be read: an earlier read hung
  };
  enum class Which { all, unlisted };

  // `rows` may be null: text files only, which `reads` reads. `agent_start_ticks`: on the clock of
  // ProcessId::start_time_ticks.
  SocketOwners(uint64_t agent_start_ticks, SocketRows* rows, Expendable& reads);

  // Brings up to date which sockets the holders have: of those never listed, or of all. Holders that are not
  // named are forgotten.
  void list(std::span<const Holder> holders, Which which);
  // Brings up to date what the sockets' connections are and have queued.
  void pass(std::span<const Holder> holders);
  // Whether the process has a socket that no elder is known to hold.
  [[nodiscard]] bool has_sockets(const procfs::ProcessId& id) const;
  // When its descriptors were last listed, CLOCK_MONOTONIC; 0: never.
  [[nodiscard]] uint64_t listed_ns(const procfs::ProcessId& id) const;
  // Fills in the processes' sockets, addresses and what of them is known, and the report's socket fields;
  // and whose sockets were left out.
  void describe(ProcessState& state, LeftOutByUser& left_out) const;

 private:
  using Protocol = DescriptorReader::Protocol;
  struct Listed {
    uint64_t inode = 0;
    Protocol protocol = Protocol::unknown;  // known here only where descriptors were listed
    bool handed = false;                    // here, only where the iterator listed it
    bool connected = false;
    Connection connection;  // known here only where the iterator listed it
  };
  // What one holder was found to hold.
  struct Listing {
    std::vector<Listed> sockets;
    bool ever = false;
    bool first = false;      // it was listed once only
    bool from_rows = false;  // by the iterator
    bool unseen = false;     // some subflows were not listed
    uint64_t listed_ns = 0;  // when that began
    uint64_t descriptors = 0;
    unsigned age = 0;  // discoveries since
    procfs::ReadResult result;
    uint64_t owned = 0;        // sockets that no elder holds
    uint64_t dropped = 0;      // of them, beyond the process's share of kMaxOwnedSockets
    uint64_t tables_read = 0;  // the pass_ that last read its namespace's tables
    Hang hang;                 // of its descriptors or tables
    uint64_t seen = 0;
  };
  struct Socket {
    procfs::ProcessId owner;
    bool older_than_agent = false;
    bool handed = false;
    Protocol protocol = Protocol::unknown;
    uint64_t listed_ns = 0;
    bool connected = false;
    Connection connection;
    uint32_t row_netns = 0;   // the namespace whose table last showed it
    uint64_t found_pass = 0;  // the latest pass when it was first listed
    uint64_t counted = 0;     // the pass_ that last saw its row
    uint64_t claimed = 0;     // the claim_ that last saw a holder
  };
  struct UnknownRow {
    procfs::TcpRow row;
    uint32_t netns = 0;
  };
  struct Claimant {
    const Holder* holder = nullptr;
    Listing* listing = nullptr;
    uint64_t quota = UINT64_MAX;  // of sockets
  };

  using Holders = std::span<const Holder* const>;
  static bool is_due(const Listing& listing, Which which);
  static bool is_forbidden(const Holder& holder, const Listing& listing);
  bool list_these(Holders holders, bool all);
  std::vector<const Holder*> without_resting(Holders holders);
  bool list_rows(const Holder& holder, Listing& listing);
  void list_descriptors(Holders holders, bool all);
  static void note_listed(const Holder& holder, Listing& listing, uint64_t now_ns);
  void forget_others(std::span<const Holder> holders);
  void claim(std::span<const Holder> holders);
  void share_sockets(std::span<Claimant> eldest_first);
  void claim_for(const Claimant& claimant);
  [[nodiscard]] bool is_hidden(const Socket& socket, const WatchedProcess& owner) const;
  void read_tables(std::span<const Holder> holders);
  void take_tables(const TableReader::Answer& answer, uint32_t netns);
  bool take_row(const procfs::TcpRow& row, uint32_t netns);
  void take_unknown_rows(std::span<const Holder> holders);

  const uint64_t agent_start_ticks_;
  SocketRows* const rows_;
  Expendable& reads_;
  Expendable::Outcome outcome_;
  std::unordered_map<procfs::ProcessId, Listing, ProcessIdHash> listings_;
  std::unordered_map<uint64_t, Socket> sockets_;  // by inode
  std::vector<UnknownRow> unknown_rows_;          // of the pass under way, and nobody's
  TableReader::Inodes foreign_;                   // inodes that the pass before found to be nobody's
  std::vector<uint64_t> foreign_now_;             // of the pass under way
  std::vector<Listed> scratch_;
  uint64_t generation_ = 0;
  uint64_t claim_ = 0;
  uint64_t pass_ = 0;
  uint64_t parse_errors_ = 0;
  uint64_t dropped_ = 0;
  std::unordered_map<uint64_t, uint64_t> left_out_;  // inodes beyond a share -> the claim_ that left them out
  double pass_seconds_ = 0;
  bool pass_ok_ = false;
};

}  // namespace kitty::collector
