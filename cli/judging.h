// A thread that judges, so that whoever waits for keys and signals never waits for a verdict, however much
// there is to judge. One judgement at a time. Used by one thread; what it is asked to judge, and what comes
// of it, changes hands whole.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "cli/live_jobs.h"
#include "cli/report.h"
#include "verdict/scrape.h"

namespace kitty::cli {

struct JudgeRequest {
  std::vector<verdict::Scrape> scrapes;  // that are new
  double end_s = 0;                      // of the window to judge
  std::vector<TargetProblem> problems;   // of targets that do not answer
};

struct Judged {
  std::vector<LiveJob> jobs;  // the worst first
  size_t left_out = 0;
  std::vector<TargetProblem> problems;
};

class Judging {
 public:
  using Judge = std::function<Judged(JudgeRequest)>;
  explicit Judging(Judge judge);  // which is called by the thread
  ~Judging();                     // waits for a judgement under way
  Judging(const Judging&) = delete;
  Judging& operator=(const Judging&) = delete;

  // Whether a judgement is under way, or not taken yet; ask only while not.
  [[nodiscard]] bool is_busy() const { return busy_; }
  void ask(JudgeRequest request);

  // To be polled: readable once there is something to take.
  [[nodiscard]] const Fd& done() const { return done_; }
  [[nodiscard]] Judged take();

 private:
  void run();

  const Judge judge_;
  const Fd done_;
  bool busy_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  bool stopping_ = false;
  std::optional<JudgeRequest> asked_;
  Judged judged_;
  std::thread thread_;
};

// The judge of `kitty top`: keeps what it knows of jobs from one request to the next.
[[nodiscard]] Judging::Judge live_judge(const VerdictFlags& flags);

}  // namespace kitty::cli
