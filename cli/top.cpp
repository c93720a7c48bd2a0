#include "cli/top.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "cli/ending.h"
#include "cli/gather.h"
#include "cli/judging.h"
#include "cli/live_jobs.h"
#include "cli/terminal.h"
#include "cli/top_frame.h"
#include "cli/verdict_flags.h"

namespace kitty::cli {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSlide{static_cast<int>(verdict::kSlideS * 1000)};
// Behind the fetches: what answers within that is in the same second's verdict.
constexpr milliseconds kMaxSettle{400};
constexpr double kHeartbeatS = 10 - verdict::kSlideS / 2;  // each ten, by a clock that jitters

// Every signal that ends, stops or resizes, as a descriptor: nothing is interrupted, nothing gets lost.
Fd take_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCONT, SIGWINCH}) sigaddset(&signals, one);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

// As if SIGTSTP had never been blocked; returns once the process goes on, or at once where nobody could
// continue it.
void stop_here() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  (void)raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

class Output {
 public:
  Output() = default;
  virtual ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // False where nobody reads any more, as flush().
  [[nodiscard]] virtual bool show(const TopState& state) = 0;
  // What is to be polled to write more, and then flush().
  [[nodiscard]] virtual pollfd output() const = 0;
  [[nodiscard]] virtual bool flush() = 0;
  // What is to be polled for keys, and then read_keys(): false where one of them ends the program.
  [[nodiscard]] virtual pollfd input() const { return {.fd = -1, .events = 0, .revents = 0}; }
  [[nodiscard]] virtual bool read_keys() { return true; }
  virtual void stop() { stop_here(); }
  virtual void go_on() {}
};

// A screen that is drawn anew each time.
class Screen final : public Output {
 public:
  [[nodiscard]] bool show(const TopState& state) override {
    const auto [columns, rows] = Terminal::size();
    return terminal_.draw(
        top_frame(state, {.columns = columns, .rows = rows, .utf8 = utf8_, .colour = colour_}));
  }
  [[nodiscard]] pollfd output() const override {
    const int events = terminal_.has_waiting() ? POLLOUT : 0;
    return {.fd = terminal_.out(), .events = static_cast<short>(events), .revents = 0};
  }
  [[nodiscard]] bool flush() override { return terminal_.flush(); }
  [[nodiscard]] pollfd input() const override {
    return {.fd = terminal_.has_keys() ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
  }
  [[nodiscard]] bool read_keys() override { return terminal_.read_keys(); }
  void stop() override {
    terminal_.give_back();
    stop_here();
  }
  void go_on() override { terminal_.take(); }

 private:
  static bool wants_colour() {
    // Nobody sets a variable. NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* const no_color = getenv("NO_COLOR");
    return no_color == nullptr || *no_color == '\0';
  }
  Terminal terminal_;
  bool utf8_ = locale_is_utf8();
  bool colour_ = wants_colour();
};

// What was last said of a job or of a target.
struct Said {
  std::string of, what;
};

// Whether `list` has the same already; removes it, so that what is left is of those that are gone.
bool take_same(std::vector<Said>& list, const Said& now) {
  const auto found = std::ranges::find(list, now.of, &Said::of);
  if (found == list.end()) return false;
  const bool same = found->what == now.what;
  list.erase(found);
  return same;
}

// Lines for a pipe or a file: one for each change, and a heartbeat.
class Lines final : public Output {
 public:
  [[nodiscard]] bool show(const TopState& state) override {
    time_s_ = state.time_s;
    std::vector<Said> jobs, problems;
    for (const LiveJob* job : state.jobs) {
      jobs.push_back({job->report.verdict.key(), plain_line(*job, false)});
      if (!take_same(jobs_, jobs.back())) add(plain_line(*job, true));
    }
    for (const Said& one : jobs_) add(one.what + ": gone, not seen for a minute");
    jobs_ = std::move(jobs);
    for (const TargetProblem& one : state.problems) {
      problems.push_back({one.target, {}});
      if (!take_same(problems_, problems.back()))
        add("not judged: " + printable(one.target) + ": " + printable(one.problem));
    }
    for (const Said& one : problems_) add("answers: " + printable(one.of));
    problems_ = std::move(problems);
    if (state.time_s - summary_s_ >= kHeartbeatS) {
      add(plain_summary(state));
      summary_s_ = state.time_s;
    }
    return flush();
  }
  [[nodiscard]] pollfd output() const override {
    const int events = waiting_.empty() ? 0 : POLLOUT;
    return {.fd = STDOUT_FILENO, .events = static_cast<short>(events), .revents = 0};
  }
  // A pipe that says it takes something takes PIPE_BUF bytes at least (pipe(7)), so that writing these never
  // waits: a reader that has stopped cannot hold up the end.
  [[nodiscard]] bool flush() override {
    while (!waiting_.empty()) {
      pollfd out{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      if (poll(&out, 1, 0) <= 0) return true;
      if ((out.revents & POLLOUT) == 0) return false;
      size_t bytes = waiting_.size();
      if (bytes > PIPE_BUF) bytes = waiting_.rfind('\n', PIPE_BUF - 1) + 1;
      const ssize_t n = write(STDOUT_FILENO, waiting_.data(), bytes);
      if (n < 0) return errno == EINTR || errno == EAGAIN;
      waiting_.erase(0, static_cast<size_t>(n));
    }
    return true;
  }

 private:
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;
  static constexpr size_t kTimeBytes = 32;

  void add(std::string line) {
    if (waiting_.size() > kMaxWaitingBytes) {
      left_out_ = true;
      return;
    }
    if (std::exchange(left_out_, false)) waiting_ += "(lines left out: the reader is slow)\n";
    line.resize(std::min<size_t>(line.size(), PIPE_BUF - kTimeBytes));
    waiting_ += clock_time(time_s_) + ' ' + line + '\n';
  }

  std::string waiting_;
  std::vector<Said> jobs_, problems_;
  double time_s_ = 0, summary_s_ = 0;
  bool left_out_ = false;
};

// Until q, a signal, or the reader's end.
void follow(Output& output, Gathering& gathering, Judging& judging, size_t targets, const Fd& signals,
            const VerdictFlags& flags) {
  const milliseconds settle = std::min(flags.interval / 2, kMaxSettle);
  const milliseconds slide = std::max(kSlide, flags.interval);
  Judged judged;
  TopState state;
  state.targets = targets;
  const auto show = [&] {
    state.time_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    return output.show(state);
  };
  for (Clock::time_point next = Clock::now() + settle;;) {
    const Clock::time_point now = Clock::now();
    if (now >= next) {
      const double end_s = steady_seconds() - std::chrono::duration<double>(settle).count();
      if (!judging.is_busy()) {
        std::vector<verdict::Scrape> scrapes = gathering.take();
        judging.ask({.scrapes = std::move(scrapes),
                     .end_s = end_s,
                     .problems = gathering.problems(verdict::kWindowS)});
      }
      next += slide * ((now - next) / slide + 1);
    }
    std::array polled = {pollfd{.fd = signals.get(), .events = POLLIN, .revents = 0}, output.output(),
                         output.input(), pollfd{.fd = judging.done().get(), .events = POLLIN, .revents = 0}};
    const auto wait = std::chrono::ceil<milliseconds>(next - Clock::now());
    if (poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(wait.count(), 0))) < 0)
      continue;
    if ((polled[1].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return;
    if (polled[1].revents != 0 && !output.flush()) return;
    if (polled[2].revents != 0 && !output.read_keys()) return;
    if (polled[3].revents != 0) {
      judged = judging.take();
      state.problems = std::move(judged.problems);
      state.jobs.clear();
      for (const LiveJob& job : judged.jobs) state.jobs.push_back(&job);
      state.jobs_left_out = judged.left_out;
      if (!show()) return;
    }
    signalfd_siginfo signal{};
    while (read(signals.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
      const int number = static_cast<int>(signal.ssi_signo);
      if (number == SIGINT || number == SIGTERM || number == SIGHUP) return;
      if (number == SIGTSTP) output.stop();
      if (number != SIGWINCH) output.go_on();
      if (!show()) return;
    }
  }
}

}  // namespace

int top(std::span<const std::string_view> arguments) {
  const Result<VerdictFlags> flags = parse_verdict_flags(VerdictCommand::top, arguments);
  if (!flags) return refuse(kWrongUsage, flags.error());
  if (flags->show_help) {
    std::fputs(verdict_help_text(VerdictCommand::top).c_str(), stdout);
    return 0;
  }
  const Result<std::vector<Target>> targets = read_targets(flags->targets, SavedScrapes::refused);
  if (!targets) return refuse(kWrongUsage, targets.error());
  const Fd signals = take_signals();  // before there are threads, which inherit what is blocked
  Gathering gathering(*targets, std::nullopt, flags->interval);
  Judging judging(live_judge(*flags));
  {
    std::unique_ptr<Output> output;
    if (Terminal::is_usable()) {
      output = std::make_unique<Screen>();
    } else {
      output = std::make_unique<Lines>();
    }
    follow(*output, gathering, judging, targets->size(), signals, *flags);
  }
  // Fetches may be under way for as long as kFetchTimeout, and so may a judgement: nobody waits for them.
  std::_Exit(0);
}

}  // namespace kitty::cli
