#include "cli/diagnose.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "cli/read_scrape.h"
#include "http/client.h"
#include "http/exposition.h"
#include "verdict/judge.h"
#include "verdict/watch.h"
#include "verdict/window.h"

namespace kitty::cli {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using verdict::Scrape;
using verdict::Thresholds;

constexpr int kUsage = 3;
constexpr const char* kLocalAgent = "127.0.0.1:9100";
// Of one fetch, everything included. 4 MiB in 5 s is 7 Mbit/s.
constexpr milliseconds kFetchTimeout{5000};
constexpr milliseconds kMinInterval{500};  // the agent's tick: asking more often shows nothing new
constexpr milliseconds kMaxWindow{3600 * 1000};
// Fetches come a little late; a window of 3 s shall still hold the scrape of 3 s ago.
constexpr double kJitterS = 0.25;

struct Threshold {
  std::string_view name;
  double Thresholds::* field;
};

constexpr std::array kThresholds = {
    Threshold{"active_segments_per_s", &Thresholds::active_segments_per_s},
    Threshold{"min_rtt_samples", &Thresholds::min_rtt_samples},
    Threshold{"segments_per_sample", &Thresholds::segments_per_sample},
    Threshold{"rtt_ratio", &Thresholds::rtt_ratio},
    Threshold{"rtt_floor_s", &Thresholds::rtt_floor_s},
    Threshold{"runner_up_share", &Thresholds::runner_up_share},
    Threshold{"job_wide_rtt_s", &Thresholds::job_wide_rtt_s},
    Threshold{"delayed_ack_s", &Thresholds::delayed_ack_s},
    Threshold{"convincing_busy_share", &Thresholds::convincing_busy_share},
    Threshold{"throttle_busy_share", &Thresholds::throttle_busy_share},
    Threshold{"throttle_queue_ratio", &Thresholds::throttle_queue_ratio},
    Threshold{"throttle_queue_floor_bytes", &Thresholds::throttle_queue_floor_bytes},
    Threshold{"path_min_share", &Thresholds::path_min_share},
    Threshold{"queue_min_share", &Thresholds::queue_min_share},
    Threshold{"loss_share", &Thresholds::loss_share},
    Threshold{"loss_ratio", &Thresholds::loss_ratio},
    Threshold{"loss_floor", &Thresholds::loss_floor},
    Threshold{"min_retransmits", &Thresholds::min_retransmits},
    Threshold{"min_lasting_retransmits", &Thresholds::min_lasting_retransmits},
    Threshold{"busy_share", &Thresholds::busy_share},
    Threshold{"busy_ratio", &Thresholds::busy_ratio},
    Threshold{"far_busy_share", &Thresholds::far_busy_share},
    Threshold{"far_busy_ratio", &Thresholds::far_busy_ratio},
    Threshold{"same_work_ratio", &Thresholds::same_work_ratio},
    Threshold{"stall_s", &Thresholds::stall_s},
    Threshold{"max_named_links", &Thresholds::max_named_links},
    Threshold{"stale_s", &Thresholds::stale_s},
};

std::optional<double> parse_number(std::string_view text) {
  const std::string terminated(text);
  char* end = nullptr;
  const double value = strtod(terminated.c_str(), &end);
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.eE-+") == std::string_view::npos;
  if (!plain || end != terminated.c_str() + terminated.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

// "10" or "10s".
Status set_duration(milliseconds& to, std::string_view name, std::string_view value, milliseconds least) {
  if (value.ends_with('s')) value.remove_suffix(1);
  const auto seconds = parse_number(value);
  const double limit_s = std::chrono::duration<double>(kMaxWindow).count();
  if (!seconds || *seconds > limit_s || *seconds < std::chrono::duration<double>(least).count()) {
    return fail("read flag", name, 0,
                "seconds, as in 10 or 2.5s; from " + std::to_string(least.count()) + " ms to one hour");
  }
  to = milliseconds(std::llround(*seconds * 1000));
  return {};
}

Status set_threshold(Thresholds& thresholds, std::string_view setting) {
  const size_t equals = setting.find('=');
  const auto found = std::ranges::find(kThresholds, setting.substr(0, equals), &Threshold::name);
  if (found == kThresholds.end()) {
    return fail("read flag", "--threshold", 0, "NAME=VALUE, with a name of kitty diagnose --help");
  }
  const auto value =
      equals == std::string_view::npos ? std::nullopt : parse_number(setting.substr(equals + 1));
  if (!value)
    return fail("read flag", "--threshold=" + std::string(setting), 0, "a number from 0 on is needed");
  thresholds.*found->field = *value;
  return {};
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

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
    const ssize_t n = read(file.get(), block.data(), block.size());
    if (n < 0) return fail("read file", {}, errno);
    if (n == 0) return text;
    text.append(block.data(), static_cast<size_t>(n));
    if (text.size() > http::kMaxTextBytes)
      return fail("read file", {}, 0, "more than 4 MiB: not a scrape of kitty");
  }
}

// What one target gave.
struct Gathered {
  std::vector<Scrape> scrapes;
  std::optional<Error> error;  // the latest
};

void gather_file(const std::string& path, Gathered& out) {
  double modified_s = 0;
  const Result<std::string> text = read_file(path, modified_s);
  Result<Scrape> scrape = text ? read_scrape(*text) : std::unexpected(text.error());
  if (!scrape) {
    out.error = scrape.error();
    return;
  }
  scrape->target = path;
  scrape->time_s = modified_s;
  out.scrapes.push_back(std::move(*scrape));
}

// Until the window is over, or from the start nothing comes. A failure later on is the window's gap.
void gather_live(const std::string& target, const http::Url& url, const DiagnoseFlags& flags, Gathered& out) {
  const Clock::time_point start = Clock::now();
  for (Clock::time_point next = start; next <= start + flags.window;) {
    std::this_thread::sleep_until(next);
    const Result<std::string> text = http::get(url, kFetchTimeout);
    Result<Scrape> scrape = text ? read_scrape(*text) : std::unexpected(text.error());
    if (scrape) {
      scrape->target = target;
      scrape->time_s = wall_seconds();
      scrape->live = true;
      out.scrapes.push_back(std::move(*scrape));
    } else {
      out.error = scrape.error();
      if (out.scrapes.empty()) return;
    }
    next = std::max(next + flags.interval, Clock::now());
  }
}

bool exists(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0;
}

Result<std::vector<Gathered>> gather(const DiagnoseFlags& flags) {
  std::vector<std::string> targets = flags.targets;
  if (targets.empty()) targets.emplace_back(kLocalAgent);
  std::vector<Gathered> gathered(targets.size());
  std::vector<std::optional<http::Url>> urls(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (exists(targets[i])) continue;
    Result<http::Url> url = http::parse_url(targets[i]);
    if (!url) return std::unexpected(url.error());
    urls[i] = std::move(*url);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!urls[i]) {
      gather_file(targets[i], gathered[i]);
      continue;
    }
    threads.emplace_back([&, i] { gather_live(targets[i], *urls[i], flags, gathered[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return gathered;
}

void say(const std::string& text) { std::fputs(("kitty: " + text + '\n').c_str(), stderr); }

}  // namespace

Result<DiagnoseFlags> parse_diagnose_flags(std::span<const std::string_view> arguments) {
  DiagnoseFlags flags;
  bool only_targets = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (only_targets || !argument.starts_with('-')) {
      if (argument.empty()) return fail("read target", {}, 0, "it is empty");
      flags.targets.emplace_back(argument);
      if (flags.targets.size() > kMaxTargets) return fail("read targets", {}, 0, "more than 1024");
      continue;
    }
    if (argument == "--") {
      only_targets = true;
      continue;
    }
    if (argument == "--json" || argument == "--help" || argument == "-h") {
      (argument == "--json" ? flags.json : flags.show_help) = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    if (name != "--window" && name != "--interval" && name != "--job" && name != "--threshold") {
      return fail("read flag", argument, 0, "unknown; see kitty diagnose --help");
    }
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (value.empty()) return fail("read flag", name, 0, "it needs a value");
    Status set;
    if (name == "--window") set = set_duration(flags.window, name, value, milliseconds(1000));
    if (name == "--interval") set = set_duration(flags.interval, name, value, kMinInterval);
    if (name == "--job") flags.job = value;
    if (name == "--threshold") set = set_threshold(flags.thresholds, value);
    if (!set) return std::unexpected(set.error());
  }
  if (flags.interval > flags.window) return fail("read flag", "--interval", 0, "longer than the window");
  return flags;
}

std::string diagnose_help_text() {
  std::string text = R"(kitty diagnose says which rank's network slows a training job, why, and since when.

usage: kitty diagnose [flags] [TARGET...]

A target is an agent of one of the job's nodes, HOST:PORT or http://HOST:PORT/PATH, or a saved scrape. Name the agents
of all nodes. Without a target it asks 127.0.0.1:9100. Hosts are numeric addresses or names of /etc/hosts. Saved
scrapes: two or more files of each node, taken some seconds apart and with their times kept (curl -so n0-1.txt
http://n0:9100/metrics; cp -p); files belong together that show the same processes.

  --window=10s            how long to watch live targets
  --interval=1s           how often to ask them
  --job=NAME              judge this job only
  --json                  one JSON object for scripts
  --threshold=NAME=VALUE  a limit of the rules; may be repeated
  --help                  print this and exit

RTT is the mean of a rank's best active link, xMED that over the median of the ranks, LEAST the least RTT of that link;
RETR% the segments sent again, TXQ the bytes queued, BUSY the time with data in flight or queued: all towards ranks of
the job on other nodes, or in other network namespaces where the job is on one node.

exit status: 0 healthy, 1 a rank or link was named, 2 could not tell, 3 wrong usage

thresholds and their defaults:
)";
  const Thresholds defaults;
  for (const Threshold& one : kThresholds) {
    char value[32];
    std::snprintf(value, sizeof value, "=%.6g\n", defaults.*one.field);
    text += "  ";
    text += one.name;
    text += value;
  }
  return text;
}

Report report_on(std::span<const Scrape> scrapes, std::vector<TargetProblem> problems,
                 const DiagnoseFlags& flags) {
  Report report{.jobs = {}, .problems = std::move(problems)};
  const std::vector<verdict::NodeScrapes> nodes = verdict::group_by_node(scrapes);

  // The whole, for saved scrapes and short windows.
  const verdict::Window whole = verdict::make_window(nodes, flags.thresholds.stall_s);
  for (const verdict::NodeWindow& node : whole.nodes) {
    report.window_s = std::max(report.window_s, node.end_s - node.begin_s);
    if (!node.problem.empty()) report.problems.push_back({node.name, node.problem});
  }

  double first_s = 0, last_s = 0;
  bool live = false;
  for (const Scrape& scrape : scrapes) {
    if (!scrape.live) continue;
    first_s = live ? std::min(first_s, scrape.time_s) : scrape.time_s;
    last_s = live ? std::max(last_s, scrape.time_s) : scrape.time_s;
    live = true;
  }
  verdict::Watch watch;
  for (double begin_s = first_s; live && begin_s + verdict::kWindowS <= last_s + kJitterS;
       begin_s += verdict::kSlideS) {
    const auto part = verdict::between(nodes, begin_s - kJitterS, begin_s + verdict::kWindowS + kJitterS);
    watch.add(begin_s,
              verdict::judge(verdict::make_window(part, flags.thresholds.stall_s), flags.thresholds));
  }

  for (verdict::JobVerdict& verdict : verdict::judge(whole, flags.thresholds)) {
    if (!flags.job.empty() && verdict.job != flags.job) continue;
    JobReport job{.verdict = std::move(verdict), .since_s = std::nullopt};
    const auto found = watch.jobs().find(job.verdict.job);
    if (found != watch.jobs().end() && found->second.judged >= verdict::kInARow) {
      const verdict::Watch::Standing& standing = found->second;
      if (standing.verdict) {
        const bool incomplete = job.verdict.incomplete;
        job.verdict = *standing.verdict;
        job.verdict.incomplete = job.verdict.incomplete || incomplete;
        job.since_s = standing.since_s;
      } else {
        job.verdict.kind = verdict::Kind::no_data;
        job.verdict.culprits.clear();
        job.verdict.links.clear();
        for (verdict::UnitEvidence& unit : job.verdict.units) unit.part = verdict::Part::none;
        job.verdict.why = "no two windows of 3 s in a row agree (" + standing.seen + "): watch longer";
      }
    }
    report.jobs.push_back(std::move(job));
  }
  return report;
}

int diagnose(std::span<const std::string_view> arguments) {
  const Result<DiagnoseFlags> flags = parse_diagnose_flags(arguments);
  if (!flags) {
    say(flags.error().message());
    return kUsage;
  }
  if (flags->show_help) {
    std::fputs(diagnose_help_text().c_str(), stdout);
    return 0;
  }
  std::signal(SIGPIPE, SIG_IGN);
  Result<std::vector<Gathered>> gathered = gather(*flags);
  if (!gathered) {
    say(gathered.error().message());
    return kUsage;
  }
  std::vector<Scrape> scrapes;
  std::vector<TargetProblem> problems;
  for (size_t i = 0; i < gathered->size(); ++i) {
    Gathered& one = (*gathered)[i];
    if (one.error) {
      problems.push_back({flags->targets.empty() ? kLocalAgent : flags->targets[i], one.error->message()});
    }
    std::ranges::move(one.scrapes, std::back_inserter(scrapes));
  }
  const Report report = report_on(scrapes, std::move(problems), *flags);
  const std::string text = flags->json ? json_report(report) : text_report(report);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    say("write the report: " + errno_text(errno));
    return static_cast<int>(Outcome::unknown);
  }
  return static_cast<int>(outcome(report));
}

}  // namespace kitty::cli
