// Targets as the user names them, and their scrapes: saved ones read once, live ones fetched by a thread
// each, so that one that drips or is gone holds up nobody.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/report.h"
#include "http/client.h"
#include "verdict/scrape.h"

namespace kitty::cli {

// Of one fetch, everything included. 4 MiB in 5 s is 7 Mbit/s.
inline constexpr std::chrono::milliseconds kFetchTimeout{5000};
// Fetches come a little late; a window of 3 s shall still hold the scrape of 3 s ago.
inline constexpr double kFetchJitterS = 0.25;

enum class SavedScrapes { taken, refused };

struct Target {
  std::string name;              // as the user wrote it
  std::optional<http::Url> url;  // none: a saved scrape, or unusable
  std::string problem;           // why it is unusable; else empty
};

// `names`, or the agent on this host where there are none. A name that is neither URL nor, where they are
// taken, file, is an unusable target; fails with the first one's reason where all are.
[[nodiscard]] Result<std::vector<Target>> read_targets(std::span<const std::string> names,
                                                       SavedScrapes saved);

// Seconds since the epoch by a clock that never steps: the host's, as it was when this was first asked.
[[nodiscard]] double steady_seconds();

// What one target gave.
struct Gathered {
  std::vector<verdict::Scrape> scrapes;  // the latest last
  std::string problem;    // of the latest failure; while live, of the latest fetch if it failed
  double answered_s = 0;  // when it last gave a scrape, or the beginning
  bool answered = false;
};

// Targets being fetched. Destruction waits for the fetches under way: kFetchTimeout at most. Thread-safe.
class Gathering {
 public:
  // Saved scrapes are read once. Live targets are fetched from now on every `interval`, for as long as
  // `window`; one that is late leaves out what it missed, one that gives nothing at the start is not asked
  // again. Without a window they are fetched until destruction, whatever they give, and each keeps only the
  // latest few scrapes that nobody took. `targets` must outlive this.
  Gathering(std::span<const Target> targets, std::optional<std::chrono::milliseconds> window,
            std::chrono::milliseconds interval);
  ~Gathering();
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  // Waits until the window is over; what each target gave, in their order. Once, and only where there is a
  // window.
  [[nodiscard]] std::vector<Gathered> finish();

  // Takes the scrapes that came since the last call.
  [[nodiscard]] std::vector<verdict::Scrape> take();
  // The targets whose latest fetch failed, or that have not answered for `silence_s`; in their order.
  [[nodiscard]] std::vector<TargetProblem> problems(double silence_s) const;

 private:
  void follow(size_t at, std::chrono::steady_clock::time_point start);
  void join();

  std::span<const Target> targets_;
  std::optional<std::chrono::milliseconds> window_;
  std::chrono::milliseconds interval_;
  mutable std::mutex mutex_;  // of gathered_ and stopping_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::vector<Gathered> gathered_;  // one a target
  std::vector<std::thread> threads_;
};

}  // namespace kitty::cli
