// Verdicts of windows that slide, turned into one that holds: somebody is named once two windows in a row
// agree, and cleared once two in a row are healthy. Windows without data neither confirm nor clear, so that a
// job whose steps are longer than a window is still judged. Pure; one thread.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "verdict/judge.h"

namespace kitty::verdict {

// A window of 3 s holds six ticks of the agent; recorded faults were named within 3.2 s of their start.
inline constexpr double kWindowS = 3;
inline constexpr double kSlideS = 1;
inline constexpr size_t kInARow = 2;

class Watch {
 public:
  struct Standing {
    std::optional<JobVerdict> verdict;  // none yet: no two windows in a row agreed
    double since_s = 0;                 // begin of the first window that agreed with it
    size_t judged = 0;                  // windows that said healthy or named somebody
    std::string seen;                   // what they said, the latest last, where they differed
  };

  // The verdicts of the window that began then; windows in the order of time.
  void add(double begin_s, const std::vector<JobVerdict>& verdicts);

  // Of the job, as JobVerdict::key() says.
  [[nodiscard]] const std::map<std::string, Standing>& jobs() const { return jobs_; }

 private:
  struct Run {
    std::string said;
    size_t length = 0;
    double begin_s = 0;
  };
  std::map<std::string, Standing> jobs_;
  std::map<std::string, Run> runs_;
};

}  // namespace kitty::verdict
