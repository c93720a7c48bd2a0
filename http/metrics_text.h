// Renders one tick's Metrics as the exposition: the only place where the exported names, types and help texts
// stand. Keeps the label strings of the latest ProcessState, so a steady tick allocates nothing. Decides who
// gets room before it writes (text_plan.h). One thread uses it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collector/agent_usage.h"
#include "collector/metrics.h"
#include "http/exposition.h"
#include "http/text_plan.h"

namespace kitty::http {

// What stays the same for the life of the agent.
struct AgentInfo {
  std::string version;
  std::string rtt_hook;       // the rung taken, or "none"
  std::string socket_source;  // what lists the sockets of a process: "iter/task_file" or "procfs"
  struct Refusal {
    std::string hook, reason;
  };
  std::vector<Refusal> refused_hooks;
  double start_time_seconds = 0;  // since the epoch
};

class MetricsText {
 public:
  explicit MetricsText(AgentInfo info);

  // Writes everything into `writer`, from begin() on.
  void render(const collector::Metrics& metrics, const collector::AgentUsage& usage,
              ExpositionWriter& writer);

 private:
  void label(const collector::ProcessState& state);
  void plan(const collector::Metrics& metrics, size_t room);
  [[nodiscard]] bool writes(TextPart part, size_t process) const;
  void render_left_out(ExpositionWriter& writer);
  void render_processes(const collector::Metrics& metrics, ExpositionWriter& writer);
  void render_conditions(const collector::Metrics& metrics, ExpositionWriter& writer);
  void render_time(const collector::Metrics& metrics, ExpositionWriter& writer);
  void render_peers(const collector::Metrics& metrics, ExpositionWriter& writer);
  void render_identities(const collector::ProcessState& state, ExpositionWriter& writer);
  void render_agent(const collector::Metrics& metrics, const collector::AgentUsage& usage,
                    ExpositionWriter& writer);

  AgentInfo info_;
  HistogramBounds rtt_bounds_;
  double ticks_per_second_;  // sysconf(_SC_CLK_TCK)
  std::shared_ptr<const collector::ProcessState> labelled_;
  std::vector<std::string> labels_;      // pid, rank, job of each process of labelled_
  std::vector<std::string> identities_;  // the same and all else of kitty_process_info
  std::vector<ProcessText> texts_;       // of the text being written
  collector::LeftOutByUser left_out_;    // likewise
  uint64_t series_dropped_ = 0;          // by the text's limit
  uint64_t addresses_dropped_ = 0;       // likewise counted once a text
};

}  // namespace kitty::http
