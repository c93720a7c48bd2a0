// One scrape of one agent as plain data, and its builder, which is fed sample by sample so that it knows
// nothing of the exposition format. Pure; no thread-safety needed.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kitty::verdict {

// What an agent keeps at most (docs/ARCHITECTURE.md, Bounds); a text with more is not one of its.
inline constexpr size_t kMaxProcesses = 1024;
inline constexpr size_t kMaxPeers = 64 + 1;  // of a process; the last is "other"
inline constexpr size_t kMaxAddresses = 64;  // of a process

// What a process's own sockets did towards one remote address. Counters are totals of the agent's life; a
// series the agent did not export is absent.
struct PeerScrape {
  std::string address;
  std::optional<double> rtt_sum_s, rtt_count;
  std::optional<double> rtt_min_s;  // of the latest 500 ms with samples
  std::optional<double> retransmits, data_segments;
  std::optional<double> busy_s;
  std::optional<double> queue_bytes;
};

// Whether an agent has made the rank up, by the order of processes on its node: another node has the same.
[[nodiscard]] inline bool is_made_up(std::string_view rank) { return rank.starts_with('?'); }

struct ProcessScrape {
  std::string pid, rank, job;
  bool identified = false;  // kitty_process_info was there
  std::string role, start_time, netns, world_size;
  std::string uid;  // empty: not known, or of an agent that does not say
  std::vector<std::string> addresses;
  std::vector<PeerScrape> peers;

  [[nodiscard]] bool is_rank() const {
    return identified && role != "launcher" && role != "worker" && !rank.empty();
  }
};

// What an agent has no room for now: so many processes, sockets or series of a user, or of "other" ones.
struct LeftOut {
  std::string uid, what;
  double count = 0;
};
[[nodiscard]] std::string describe(const LeftOut& one);  // "608 sockets of uid 1001"
// An agent names fewer.
inline constexpr size_t kMaxLeftOut = 64;
inline constexpr size_t kMaxLeftOutBytes = 32;

struct Scrape {
  std::string target;         // where it came from, as the user wrote it
  double time_s = 0;          // when; only differences within one node are used
  bool live = false;          // fetched now, as opposed to a saved file
  size_t fingerprint = 0;     // equal for equal texts: the same 500 ms of the same agent
  std::string version;        // of the agent
  double agent_start_s = 0;   // counters are comparable only within one life of an agent
  std::string hook;           // empty: an agent that does not say
  double unreadable = 0;      // processes that it could not read
  double dropped = 0;         // processes, sockets and flows beyond its bounds
  double series_dropped = 0;  // likewise, out of its text
  std::vector<LeftOut> left_out;
  double watched = 0;  // processes, as it counts them
  std::vector<ProcessScrape> processes;
};

class ScrapeBuilder {
 public:
  // The value of a sample's label; empty where it has none.
  using LabelOf = std::function<std::string_view(std::string_view name)>;

  // Takes what it knows and passes over the rest. Null, or what is wrong with the sample: kitty exports
  // neither such values, nor a series twice, nor more of them than its bounds.
  [[nodiscard]] const char* add(std::string_view name, double value, const LabelOf& label);

  // The scrape; `target`, `time_s`, `live` and `fingerprint` are the caller's to set. Null in `problem`, or
  // why the samples are not one whole scrape of an agent.
  [[nodiscard]] Scrape finish(const char*& problem);

 private:
  // Null beyond a bound, which `beyond_` then says.
  ProcessScrape* process(const LabelOf& label);
  PeerScrape* peer(const LabelOf& label);

  Scrape scrape_;
  std::map<std::string, size_t> index_;  // of a process by its labels; of a peer by them and its address
  std::string key_;
  const char* beyond_ = nullptr;
  bool ours_ = false;
  bool has_peers_ = false;
};

}  // namespace kitty::verdict
