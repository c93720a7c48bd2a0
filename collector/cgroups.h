// The control groups of the watched processes: for how long each held its processes back. A group is read
// once a look, however many processes are in it or below it. One thread uses it.
//
// What is counted is a group's, and a process may be moved to another one: then its figures go on from where
// they were, by what the new group adds. They begin with what the first group has.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collector/cgroup_reader.h"
#include "collector/condition.h"
#include "collector/expendable.h"
#include "collector/hang.h"
#include "collector/process_state.h"

namespace kitty::collector {

// Groups read at one look, those above the processes' own included. Where there are more, users take turns at
// having one of their processes served, so that nobody's crowd of groups costs another user his figures.
inline constexpr size_t kMaxCgroupsRead = 1024;
// After a look that took long there is none for so many times as long, so that they cost half a percent of a
// core, but for this long at most.
inline constexpr int kCgroupsShare = 200;
inline constexpr std::chrono::seconds kMaxCgroupsPause{5};
// Where no hierarchy is mounted, it is looked for again after so long.
inline constexpr std::chrono::seconds kCgroupTreesPause{60};

// How long after a look there is none, given what it cost. Pure.
[[nodiscard]] std::chrono::nanoseconds cgroups_pause(std::chrono::nanoseconds cost);

class Cgroups {
 public:
  struct Member {
    procfs::ProcessId id;
    uid_t uid = kUnknownUid;
    const CgroupPaths* paths = nullptr;  // null: not to be read, and not to be forgotten
    Condition* condition = nullptr;      // whose throttled_us and pressure_us are filled in
  };

  // `procfs_root`: whose self/mountinfo tells where hierarchies are mounted. `reads`: owned by the caller.
  // `pauses`: not for tests.
  Cgroups(Root procfs_root, Expendable& reads, bool pauses = true);

  // Reads the groups of these; within the pause after the latest look, what that one told. What is remembered
  // of processes that are not among them is forgotten.
  void read(std::span<const Member> members);
  // Processes that there was no room for at the latest look.
  [[nodiscard]] uint64_t dropped() const { return dropped_; }
  // A thread of ours waits in the kernel for one.
  [[nodiscard]] bool holds_a_thread() const { return hang_.holds_a_thread(); }

 private:
  // A counter of a process, made of those of the groups that it was in.
  class Figure {
   public:
    uint64_t take(uint64_t inode, uint64_t count);

   private:
    bool begun_ = false;
    uint64_t inode_ = 0;
    uint64_t count_ = 0;  // the group's, at the latest look
    uint64_t value_ = 0;
  };
  struct Of {
    Figure throttled;
    std::array<Figure, kResources> pressure;
    // What the latest look told.
    std::optional<uint64_t> throttled_us;
    std::array<std::optional<uint64_t>, kResources> pressure_us;
    uint64_t seen = 0;
  };
  using Batch = ReadBatch<CgroupReader>;
  using Items = std::unordered_map<std::string, size_t>;  // path -> which of the batch
  // Which of the batch a process's are: its own group first, then those above.
  struct Chain {
    size_t member = 0;
    std::vector<size_t> throttled;
    std::optional<size_t> pressure;
  };

  bool find_trees(uint64_t now_ns);
  void look(std::span<const Member> members, uint64_t now_ns);
  void ask(std::span<const Member> members);
  std::optional<Chain> ask_for(const Member& member);
  std::optional<size_t> ask_for(const Tree& tree, const std::string& path, uid_t uid, bool throttled,
                                bool pressure);
  void take(std::span<const Member> members);
  [[nodiscard]] const CgroupReader::Answer* answer_of(size_t item) const;

  const Root procfs_root_;
  Expendable& reads_;
  const bool pauses_;
  Expendable::Outcome outcome_;
  Tree unified_, cpu_;
  uint64_t find_ns_ = 0;  // trees are not looked for before
  uint64_t look_ns_ = 0;  // nor groups
  Hang hang_;
  std::unordered_map<procfs::ProcessId, Of, ProcessIdHash> known_;
  uint64_t dropped_ = 0;
  uint64_t looks_ = 0;
  // Of the look under way.
  std::shared_ptr<Batch> batch_;
  Items unified_items_, cpu_items_;
  std::vector<Chain> chains_;
};

}  // namespace kitty::collector
