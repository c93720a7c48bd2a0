#include "cli/gather.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "cli/read_scrape.h"
#include "http/exposition.h"

namespace kitty::cli {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using verdict::Scrape;

constexpr const char* kLocalAgent = "127.0.0.1:9100";
// Whoever takes them does so every few seconds; what is older than a window is of no use.
constexpr size_t kMaxUntaken = 8;

Result<std::string> read_file(const std::string& path, double& modified_s) {
  // Without O_NONBLOCK opening a FIFO would wait for a writer.
  const Fd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0) return fail("read file", {}, errno);
  if (!S_ISREG(status.st_mode)) return fail("read file", {}, 0, "not a regular file");
  modified_s = static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) / 1e9;
  std::string text;
  std::array<char, 65536> block;
  for (;;) {
    // Nobody holds a lock here. NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
    const ssize_t n = read(file.get(), block.data(), block.size());
    if (n < 0) return fail("read file", {}, errno);
    if (n == 0) return text;
    text.append(block.data(), static_cast<size_t>(n));
    if (text.size() > http::kMaxTextBytes)
      return fail("read file", {}, 0, "more than 4 MiB: not a scrape of kitty");
  }
}

bool exists(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0;
}

Result<Scrape> fetch(const Target& target) {
  double time_s = 0;
  const Result<std::string> text =
      target.url ? http::get(*target.url, kFetchTimeout) : read_file(target.name, time_s);
  if (!text) return std::unexpected(text.error());
  Result<Scrape> scrape = read_scrape(*text);
  if (!scrape) return scrape;
  scrape->target = target.name;
  scrape->live = target.url.has_value();
  scrape->time_s = scrape->live ? steady_seconds() : time_s;
  return scrape;
}

Status read_target(Target& target, SavedScrapes saved) {
  if (exists(target.name)) {
    if (saved == SavedScrapes::taken) return {};
    return fail("read target", target.name, 0, "a file: kitty diagnose judges saved scrapes");
  }
  Result<http::Url> url = http::parse_url(target.name);
  if (!url) return std::unexpected(std::move(url.error()));
  target.url = std::move(*url);
  return {};
}

}  // namespace

Result<std::vector<Target>> read_targets(std::span<const std::string> names, SavedScrapes saved) {
  const std::string local(kLocalAgent);
  if (names.empty()) names = std::span(&local, 1);
  std::vector<Target> targets(names.size());
  bool any = false;
  for (size_t i = 0; i < names.size(); ++i) {
    Target& target = targets[i];
    target.name = names[i];
    const Status read = read_target(target, saved);
    if (!read) target.problem = read.error().message();
    any = any || read;
  }
  if (!any) return std::unexpected(read_target(targets.front(), saved).error());
  return targets;
}

double steady_seconds() {
  const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
  static const double offset_s =
      seconds(std::chrono::system_clock::now().time_since_epoch()) - seconds(Clock::now().time_since_epoch());
  return seconds(Clock::now().time_since_epoch()) + offset_s;
}

Gathering::Gathering(std::span<const Target> targets, std::optional<milliseconds> window,
                     milliseconds interval)
    : targets_(targets), window_(window), interval_(interval), gathered_(targets.size()) {
  const Clock::time_point start = Clock::now();
  for (size_t i = 0; i < targets_.size(); ++i) {
    gathered_[i].problem = targets_[i].problem;
    gathered_[i].answered_s = steady_seconds();
  }
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].url) threads_.emplace_back([this, i, start] { follow(i, start); });
    if (!targets_[i].url && targets_[i].problem.empty()) follow(i, start);
  }
}

Gathering::~Gathering() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  join();
}

void Gathering::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Gathering::follow(size_t at, Clock::time_point start) {
  Gathered& gathered = gathered_[at];
  std::unique_lock lock(mutex_);
  for (Clock::time_point next = start; !window_ || next <= start + *window_;) {
    if (wake_.wait_until(lock, next, [this] { return stopping_; })) return;
    lock.unlock();
    Result<Scrape> scrape = fetch(targets_[at]);
    lock.lock();
    if (scrape) {
      gathered.answered_s = scrape->time_s;
      gathered.answered = true;
      gathered.scrapes.push_back(std::move(*scrape));
      if (!window_) gathered.problem.clear();
      if (!window_ && gathered.scrapes.size() > kMaxUntaken) gathered.scrapes.erase(gathered.scrapes.begin());
    } else {
      gathered.problem = scrape.error().message();
    }
    if (window_ && (!gathered.answered || !targets_[at].url)) return;
    next += interval_ * (std::max(Clock::now() - next, Clock::duration::zero()) / interval_ + 1);
  }
}

std::vector<Gathered> Gathering::finish() {
  join();
  return std::move(gathered_);
}

std::vector<Scrape> Gathering::take() {
  std::vector<Scrape> taken;
  const std::lock_guard lock(mutex_);
  for (Gathered& one : gathered_) {
    std::ranges::move(one.scrapes, std::back_inserter(taken));
    one.scrapes.clear();
  }
  return taken;
}

std::vector<TargetProblem> Gathering::problems(double silence_s) const {
  std::vector<TargetProblem> problems;
  const double now_s = steady_seconds();
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < targets_.size(); ++i) {
    const Gathered& one = gathered_[i];
    const double silent_s = now_s - one.answered_s;
    if (one.problem.empty() && silent_s <= silence_s) continue;
    TargetProblem& problem = problems.emplace_back(TargetProblem{targets_[i].name, one.problem});
    if (!one.problem.empty()) continue;
    problem.problem = one.answered ? "no answer for " : "no answer yet, after ";
    problem.problem += std::to_string(static_cast<int>(silent_s)) + " s";
  }
  return problems;
}

}  // namespace kitty::cli
