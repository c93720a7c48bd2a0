#include "collector/roles.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "collector/identity.h"

namespace kitty::collector {

namespace {

constexpr size_t kNobody = SIZE_MAX;

// TASK_COMM_LEN without its NUL (include/linux/sched.h).
constexpr size_t kCommBytes = 15;

constexpr std::array<std::string_view, 31> kLauncherNames = {"mpirun",
                                                             "mpiexec",
                                                             "orterun",
                                                             "prterun",
                                                             "prun",
                                                             "prte",
                                                             "prted",
                                                             "orted",
                                                             "oshrun",
                                                             "mpiexec.hydra",
                                                             "mpirun_rsh",
                                                             "mpispawn",
                                                             "hydra_pmi_proxy",
                                                             "hydra_bstrap_proxy",
                                                             "palsd",
                                                             "aprun",
                                                             "srun",
                                                             "slurmstepd",
                                                             "slurm_script",
                                                             "jsrun",
                                                             "jskd",
                                                             "flux",
                                                             "flux-shell",
                                                             "flux-broker",
                                                             "torchrun",
                                                             "horovodrun",
                                                             "deepspeed",
                                                             "accelerate",
                                                             "colossalai",
                                                             "raylet",
                                                             "gcs_server"};

// How far up a relative is looked for; more forks than lie between any two processes of a job.
constexpr int kMaxGenerations = 16;

using Addresses = std::vector<procfs::IpAddress>;  // ascending, each once

struct Node {
  WatchedProcess* process = nullptr;
  Addresses local, remote;  // of its connections
  size_t parent = kNobody;
  size_t holder = kNobody;           // whose claim it has, or the first of those without one
  const RankClaim* claim = nullptr;  // of its family
  bool connected = false;            // ever
  bool launcher = false;
  bool unranked = true;   // its family has no rank, or none that is a process's
  bool numbered = false;  // to be, or already
  std::string rank = {};
  std::string_view from = {};

  bool family_connected_below = false;
  // Of the families that begin below.
  bool any_below = false, torchrun_below = false, connected_below = false, several_below = false;
  std::string_view rank_below = {};
  // Of its own children's.
  bool starts_torchrun = false, starts_several = false;
  std::string_view started = {};
  // Of connected relatives below without a rank.
  bool has_relatives = false, meets_relatives = false;

  void lose_rank() {
    unranked = true;
    rank.clear();
  }
  [[nodiscard]] bool is_rank() const { return numbered || (!unranked && !launcher); }
};

Addresses addresses_of(const WatchedProcess& process, procfs::IpAddress Connection::* end) {
  Addresses list;
  for (const OwnedSocket& socket : process.sockets) {
    if (socket.connected) list.push_back(socket.connection.*end);
  }
  std::ranges::sort(list);
  const auto doubles = std::ranges::unique(list);
  list.erase(doubles.begin(), doubles.end());
  return list;
}

bool meet(const Addresses& a, const Addresses& b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) return true;
    *x < *y ? ++x : ++y;
  }
  return false;
}

// Both are connected to one address, or one of them to an address of the other.
bool meet(const Node& a, const Node& b) {
  return meet(a.remote, b.remote) || meet(a.remote, b.local) || meet(a.local, b.remote);
}

// How many processes have an address, at either end of their connections.
class Crowd {
 public:
  void add(const Node& node) {
    for (const procfs::IpAddress& address : node.local) ++counts_[address].local;
    for (const procfs::IpAddress& address : node.remote) ++counts_[address].remote;
  }
  // Whether one that was added meets another.
  [[nodiscard]] bool meets(const Node& node) const {
    const auto is_met = [&](const procfs::IpAddress& address, size_t own_remote) {
      return counts_.at(address).remote > own_remote;
    };
    return is_connected_to_one(node) ||
           std::ranges::any_of(node.remote, [&](const auto& address) { return is_met(address, 1); }) ||
           std::ranges::any_of(node.local, [&](const auto& address) {
             return is_met(address, std::ranges::binary_search(node.remote, address) ? 1 : 0);
           });
  }
  // Whether it is connected to an address that another one has.
  [[nodiscard]] bool is_connected_to_one(const Node& node) const {
    return std::ranges::any_of(node.remote, [&](const auto& address) {
      return counts_.at(address).local > (std::ranges::binary_search(node.local, address) ? 1 : 0);
    });
  }

 private:
  struct Count {
    size_t local = 0, remote = 0;
  };
  std::map<procfs::IpAddress, Count> counts_;
};

class Family {
 public:
  explicit Family(std::vector<WatchedProcess>& processes) {
    nodes_.reserve(processes.size());
    for (WatchedProcess& process : processes) {
      nodes_.push_back({.process = &process,
                        .local = addresses_of(process, &Connection::local),
                        .remote = addresses_of(process, &Connection::remote)});
    }
    // Parents first. One that started later has the number of a parent that is gone.
    std::ranges::sort(nodes_, [](const Node& a, const Node& b) { return order(a) < order(b); });
    std::unordered_map<pid_t, size_t> at;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto found = at.find(nodes_[i].process->parent);
      if (found != at.end()) nodes_[i].parent = found->second;
      at.insert_or_assign(nodes_[i].process->id.pid, i);
    }
  }

  std::vector<Node>& nodes() { return nodes_; }

  void tell() {
    for (size_t i = 0; i < nodes_.size(); ++i) take_claim(i);
    complete_local_ranks();
    for (size_t i = nodes_.size(); i-- > 0;) tell_parent(nodes_[i]);
    for (Node& node : nodes_) decide(node);
    share_out_ranks();
    number();
  }

 private:
  static std::tuple<uint64_t, pid_t> order(const Node& node) {
    return {node.process->id.start_time_ticks, node.process->id.pid};
  }

  void take_claim(size_t i) {
    Node& node = nodes_[i];
    const Node* parent = node.parent == kNobody ? nullptr : &nodes_[node.parent];
    const std::vector<RankClaim>& claims = node.process->labels.claims;
    const auto is_own = [&](const RankClaim& claim) {
      return parent == nullptr ||
             std::ranges::find(parent->process->labels.claims, claim) == parent->process->labels.claims.end();
    };
    const auto own = std::ranges::find_if(claims, is_own);
    if (own != claims.end()) {
      node.claim = &*own;
      node.holder = i;
    } else if (parent != nullptr && (!claims.empty() || parent->claim == nullptr)) {
      node.claim = parent->claim;
      node.holder = parent->holder;
    } else {
      node.holder = i;
    }
    if (node.claim == nullptr) return;
    node.rank = node.claim->value;
    node.from = node.claim->variable;
    node.unranked = node.rank.empty();
  }

  // Siblings with nothing but LOCAL_RANK and NODE_RANK: where theirs are 1 to n, the parent is 0.
  void complete_local_ranks() {
    std::map<size_t, std::vector<size_t>> siblings;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.holder == i && node.parent != kNobody && node.from == kFromLocalRank)
        siblings[node.parent].push_back(i);
    }
    for (const auto& [parent, children] : siblings) {
      std::set<uint64_t> locals, on_node;
      std::set<std::optional<uint64_t>> nodes, worlds;
      for (const size_t child : children) {
        const RankLabels& labels = nodes_[child].process->labels;
        if (const auto local = rank_number(nodes_[child].claim->local_rank)) locals.insert(*local);
        nodes.insert(rank_number(labels.node_rank));
        worlds.insert(rank_number(nodes_[child].claim->world_size));
      }
      const bool is_lead = !locals.empty() && *locals.begin() == 1 && nodes_[parent].unranked;
      const uint64_t size = locals.size() + (is_lead ? 1 : 0);
      const bool whole = locals.size() == children.size() && *locals.rbegin() == size - 1;
      const bool agreed =
          nodes.size() == 1 && *nodes.begin() && worlds.size() == 1 &&
          (!*worlds.begin() || **worlds.begin() % size == 0);  // NOLINT(bugprone-unchecked-optional-access)
      if (!whole || !agreed) continue;
      const uint64_t first = **nodes.begin() * size;  // NOLINT(bugprone-unchecked-optional-access)
      for (const size_t child : children)
        // NOLINTNEXTLINE(bugprone-unchecked-optional-access)
        give(nodes_[child], first + *rank_number(nodes_[child].claim->local_rank));
      if (is_lead) give(nodes_[parent], first);
    }
    // Those that inherit the claim.
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (node.from != kFromLocalRank || node.holder == i || node.claim == nullptr) continue;
      node.rank = nodes_[node.holder].rank;
      node.unranked = node.rank.empty();
    }
  }

  static void give(Node& node, uint64_t rank) {
    node.rank = std::to_string(rank);
    node.from = kFromLocalRank;
    node.unranked = false;
    node.numbered = false;
  }

  // Called for descendants first.
  void tell_parent(Node& node) {
    if (node.parent == kNobody) return;
    Node& parent = nodes_[node.parent];
    const bool same = node.holder == parent.holder && node.rank == parent.rank;
    if (same) {
      parent.family_connected_below =
          parent.family_connected_below || node.connected || node.family_connected_below;
    }
    if (node.any_below) add_below(parent, node.rank_below, node);
    if (same) return;
    if (node.rank.empty()) return;
    parent.starts_torchrun =
        parent.starts_torchrun || (node.process->labels.by_torchrun && !parent.process->labels.by_torchrun);
    parent.starts_several = parent.starts_several || (!parent.started.empty() && parent.started != node.rank);
    parent.started = node.rank;
    add_below(parent, node.rank, node);
    parent.torchrun_below = parent.torchrun_below || parent.starts_torchrun;
    parent.connected_below = parent.connected_below || node.connected || node.family_connected_below;
  }

  static void add_below(Node& parent, std::string_view rank, const Node& node) {
    parent.several_below =
        parent.several_below || node.several_below || (parent.any_below && parent.rank_below != rank);
    parent.any_below = true;
    parent.rank_below = rank;
    parent.torchrun_below = parent.torchrun_below || node.torchrun_below;
    parent.connected_below = parent.connected_below || node.connected_below;
  }

  static void decide(Node& node) {
    const bool is_lead = node.from == kFromLocalRank && node.claim == nullptr;
    if (is_launcher_name(node.process->comm) || node.starts_torchrun) {
      node.launcher = true;
    } else if (is_lead) {
      return;
    } else if (!node.any_below) {
      node.launcher = !node.connected && node.family_connected_below;
    } else if (!node.connected) {
      node.launcher = node.unranked || node.torchrun_below || node.family_connected_below ||
                      node.connected_below || another_below(node);
    } else if (!node.unranked && node.claim->is_workers_own()) {
      node.launcher = node.starts_several;
    } else if (node.unranked || another_below(node)) {
      node.launcher = node.torchrun_below || node.several_below || node.connected_below;
      if (node.launcher) return;
      node.rank = node.rank_below;
      node.from = kFromDescendant;
      node.unranked = false;
    } else {
      node.launcher = node.torchrun_below;
    }
  }

  static bool another_below(const Node& node) { return node.several_below || node.rank_below != node.rank; }

  // What several processes inherit from one that is not connected itself, and are connected to each other or
  // to the same, is none of theirs: it was the node's or pod's.
  void share_out_ranks() {
    std::map<size_t, std::vector<size_t>> heads;  // of each family: connected, without such an ancestor in it
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      if (node.unranked || node.launcher || !node.connected || node.claim == nullptr) continue;
      if (node.from == kFromDescendant || node.claim->is_workers_own()) continue;
      if (has_ancestor(node, [](const Node& one) { return one.connected; })) continue;
      heads[node.holder].push_back(i);
    }
    for (const auto& [holder, list] : heads) {
      Crowd crowd;
      for (const size_t i : list) crowd.add(nodes_[i]);
      const auto is_shared = [&](size_t i) { return nodes_[i].numbered || crowd.meets(nodes_[i]); };
      if (list.size() < 2 || std::ranges::none_of(list, is_shared)) continue;
      for (const size_t i : list) {
        if (is_shared(i)) nodes_[i].lose_rank();
      }
      // Nor is it one of those that only help them.
      for (Node& node : nodes_) {
        if (node.holder == holder && !node.connected) node.lose_rank();
      }
    }
  }

  // Whether `wanted` holds for an ancestor of the family.
  template <typename Wanted>
  [[nodiscard]] bool has_ancestor(const Node& node, Wanted wanted) const {
    size_t at = node.parent;
    for (int i = 0; i < kMaxGenerations && at != kNobody; ++i, at = nodes_[at].parent) {
      if (nodes_[at].holder != node.holder) return false;
      if (wanted(nodes_[at])) return true;
    }
    return false;
  }

  // Whom to number.
  void number() {
    std::map<size_t, Crowd> families;
    for (const Node& node : nodes_) {
      families[node.holder].add(node);
      if (!is_candidate(node)) continue;
      size_t at = node.parent;
      for (int i = 0; i < kMaxGenerations && at != kNobody && nodes_[at].holder == node.holder; ++i) {
        Node& above = nodes_[at];
        above.has_relatives = true;
        above.meets_relatives = above.meets_relatives || meet(above, node);
        at = above.parent;
      }
    }
    for (Node& node : nodes_) {
      if (!is_candidate(node)) {
        node.numbered = false;
      } else if (!node.numbered) {
        const bool below_rank = has_ancestor(node, [](const Node& one) { return one.is_rank(); });
        node.numbered = below_rank ? families[node.holder].is_connected_to_one(node)
                                   : !node.has_relatives || node.meets_relatives;
      }
    }
  }

  static bool is_candidate(const Node& node) { return node.unranked && !node.launcher && node.connected; }

  std::vector<Node> nodes_;
};

void set_rank(RankLabels& labels, const Node& node) {
  labels.rank = node.launcher || node.unranked ? std::string() : node.rank;
  labels.rank_from = labels.rank.empty() ? std::string_view() : node.from;
  if (labels.rank.empty() || node.claim == nullptr) return;
  if (!node.claim->local_rank.empty()) labels.local_rank = node.claim->local_rank;
  if (!node.claim->world_size.empty()) labels.world_size = node.claim->world_size;
}

}  // namespace

bool is_launcher_name(std::string_view comm) {
  return std::ranges::any_of(kLauncherNames,
                             [comm](std::string_view name) { return name.substr(0, kCommBytes) == comm; });
}

void Roles::assign(std::vector<WatchedProcess>& processes) {
  ++calls_;
  Family family(processes);
  struct Numbers {
    std::set<unsigned> taken;
    bool grows = false;    // a process was to be numbered for the first time
    bool overdue = false;  // one has waited long enough
  };
  std::map<std::pair<std::string_view, uid_t>, Numbers> jobs;  // by job and user
  const auto numbers_of = [&](const Node& node) -> Numbers& {
    return jobs[{node.process->labels.job, node.process->uid}];
  };
  for (Node& node : family.nodes()) {
    Known& known = known_[node.process->id];
    known.seen = calls_;
    node.connected = known.connected = known.connected || !node.remote.empty();
    node.numbered = known.number.has_value();
  }
  family.tell();
  for (const Node& node : family.nodes()) {
    Known& known = known_[node.process->id];
    if (!node.numbered) {
      known.number.reset();
      known.waits = 0;
    } else if (known.number) {
      numbers_of(node).taken.insert(*known.number);
    } else {
      Numbers& numbers = numbers_of(node);
      numbers.grows = numbers.grows || known.waits == 0;
      numbers.overdue = numbers.overdue || known.waits >= kMostWaits;
      ++known.waits;
    }
  }
  for (Node& node : family.nodes()) {
    Known& known = known_[node.process->id];
    const bool newcomer = node.numbered && !known.number;
    if (newcomer && (!numbers_of(node).grows || numbers_of(node).overdue)) {
      std::set<unsigned>& taken = numbers_of(node).taken;
      unsigned number = 0;
      while (taken.contains(number)) ++number;
      taken.insert(number);
      known.number = number;
    }
    if (known.number) {
      node.rank = kOwnRankMark + std::to_string(*known.number);
      node.from = kFromOrder;
      node.unranked = false;
    }
    set_rank(node.process->labels, node);
    if (newcomer) node.process->labels.rank_from = kFromOrder;
  }
  std::erase_if(known_, [this](const auto& entry) { return entry.second.seen != calls_; });
}

}  // namespace kitty::collector
