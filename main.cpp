// kitty: one agent's life. Everything is constructed in order on this stack and goes in reverse: HTTP stops
// first, then the collectors, then the hooks detach and the maps close.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/standard_streams.h"
#include "cli/check.h"
#include "cli/diagnose.h"
#include "cli/ending.h"
#include "cli/flags.h"
#include "cli/top.h"
#include "collector/agent_usage.h"
#include "collector/clock.h"
#include "collector/embedded_object.h"
#include "collector/process_watch.h"
#include "collector/rtt_hook.h"
#include "collector/ticker.h"
#include "http/listener.h"
#include "http/metrics_text.h"
#include "http/server.h"
#include "privileges/confine.h"
#include "procfs/file.h"
#include "procfs/pid_namespace.h"

namespace {

using namespace kitty;

enum ExitStatus { kStopped = 0, kNothingToServe = 1 };

// Descriptors of the agent's own: BPF, /proc, the listener, a few for reading.
constexpr uint64_t kOwnDescriptors = 40;

// Every watched process costs a descriptor, and so does every connection; the soft limit is often 1024 where
// the hard one is far above. What even the hard one leaves for each is divided here.
struct DescriptorBudget {
  size_t processes = collector::kMaxWatchedProcesses;
  size_t connections = http::kMaxConnections;
};

DescriptorBudget divide_descriptors() {
  DescriptorBudget budget;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return budget;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return budget;
  const uint64_t wanted = kOwnDescriptors + budget.processes + budget.connections;
  if (limit.rlim_cur >= wanted) return budget;
  const uint64_t left = limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, kOwnDescriptors);
  budget.connections = std::clamp<uint64_t>(left / 3, 1, http::kMaxConnections);
  budget.processes = std::min<uint64_t>(left - std::min(left, budget.connections), budget.processes);
  log::warn("open files limit is low: raise it (LimitNOFILE=, ulimit -n)",
            {{"limit", std::to_string(limit.rlim_cur)},
             {"wanted", std::to_string(wanted)},
             {"watched_processes_at_most", std::to_string(budget.processes)}});
  return budget;
}

// Blocked in every thread, because all threads are made later; main waits for them.
sigset_t block_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

void log_hook(const collector::RttHook& hook) {
  for (const collector::Refusal& refusal : hook.refusals) {
    log::info("rtt hook not taken", {{"hook", refusal.hook}, {"reason", refusal.reason}});
  }
  for (const collector::Refusal& missing : hook.missing) {
    log::warn("tracepoint not attached", {{"hook", missing.hook}, {"reason", missing.reason}});
  }
  if (hook.name == collector::kHookNone) {
    log::warn("no round-trip times: serving what procfs tells", {{"hook", hook.name}});
  } else if (collector::is_degraded(hook.name)) {
    log::warn("rtt hook taken; degraded: each sample shows with the packet after it", {{"hook", hook.name}});
  } else {
    log::info("rtt hook taken", {{"hook", hook.name}});
  }
}

void log_socket_source(const collector::RttSource& source) {
  if (!source.rows && !source.rows_refusal.empty()) {
    log::info("listing sockets through procfs, which costs more on hosts with many",
              {{"reason", source.rows_refusal}});
  }
}

http::AgentInfo describe(const collector::RttSource& source) {
  const collector::RttHook& hook = source.hook;
  http::AgentInfo info{.version = KITTY_VERSION,
                       .rtt_hook = hook.name,
                       .socket_source = source.rows ? "iter/task_file" : "procfs",
                       .refused_hooks = {},
                       .start_time_seconds = collector::unix_seconds()};
  for (const collector::Refusal& refusal : hook.refusals)
    info.refused_hooks.push_back({refusal.hook, refusal.reason});
  return info;
}

void drop_privileges(const collector::FlowMaps* maps, const privileges::User& user) {
  const privileges::Confinement confinement =
      privileges::confine(maps ? [maps] { return maps->readable(); } : std::function<bool()>(), user);
  const std::string kept = confinement.kept.names();
  const std::string uid = std::to_string(confinement.uid);
  if (confinement.problem.empty()) {
    log::info("privileges dropped", {{"kept", kept}, {"uid", uid}});
  } else {
    log::warn("privileges only partly dropped",
              {{"kept", kept}, {"uid", uid}, {"reason", confinement.problem}});
  }
  if ((confinement.kept & privileges::kForProcfs) != privileges::kForProcfs) {
    log::warn("processes of other users cannot be read: grant CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
              {{"kept", kept}});
  }
}

void log_first_scan(const collector::ProcessState& state) {
  log::info("processes listed", {{"watched", std::to_string(state.processes.size())}});
  if (!state.processes.empty()) return;
  log::info(
      "nothing is watched yet: start a program with KITTY_WATCH=1 in its environment, as in "
      "KITTY_WATCH=1 RANK=0 JOB_NAME=demo ./train");
}

// Threads that read of these are left behind in the kernel. Most such waits end with this program; one that
// does not keeps the dead program in the list of processes until it ends.
void log_waited_for(const std::vector<collector::StuckProcess>& stuck) {
  for (const collector::StuckProcess& process : stuck) {
    log::warn("a thread that reads of this process under /proc is left behind in the kernel",
              {{"pid", std::to_string(process.pid)}, {"comm", process.comm}});
  }
}

int run_agent(const cli::Flags& flags) {
  const sigset_t stop_signals = block_stop_signals();
  const DescriptorBudget budget = divide_descriptors();
  const Result<Fd> procfs_root = procfs::open_root(flags.procfs_path.c_str());
  if (!procfs_root) return cli::refuse(kNothingToServe, procfs_root.error());
  // While there are privileges: a port below 1024 takes one.
  Result<http::Listener> listener = http::Listener::open(flags.listen_address);
  if (!listener) return cli::refuse(kNothingToServe, listener.error());
  const std::string address = listener->address;

  const collector::RttSource rtt =
      collector::open_rtt_source(collector::embedded_object(), flags.btf_path, flags.rtt_hook);
  log_hook(rtt.hook);
  log_socket_source(rtt);

  const collector::FlowMaps* maps = rtt.maps.get();
  if (!flags.keep_privileges) drop_privileges(maps, flags.user);

  // The first scan is not waited for: a process may hang whoever reads of it.
  collector::ProcessWatch processes(
      collector::Scanner(procfs_root->get(), rtt.rows.get(), budget.processes),
      collector::ExecLog(maps, procfs::read_pid_namespace(procfs_root->get()).value_or(0)), log_first_scan);

  http::MetricsText metrics_text(describe(rtt));
  http::ExpositionWriter writer;
  http::TextSlot latest;
  const collector::Ticker ticker(collector::Tick(processes, rtt.maps.get(), rtt.hook.have),
                                 [&](const collector::Metrics& metrics) {
                                   metrics_text.render(metrics, collector::read_agent_usage(), writer);
                                   (void)latest.publish(writer.text());
                                 });

  auto server =
      http::Server::start(std::move(*listener), {.telemetry_path = flags.telemetry_path,
                                                 .text = &latest,
                                                 .allowed_hosts = flags.allowed_hosts,
                                                 .ready = [&processes] { return processes.fresh(); },
                                                 .max_connections = budget.connections});
  if (!server) return cli::refuse(kNothingToServe, server.error());
  log::info("serving", {{"address", address}, {"path", flags.telemetry_path}});

  int signal = 0;
  sigwait(&stop_signals, &signal);
  log::info("stopping", {{"signal", signal == SIGTERM ? "SIGTERM" : "SIGINT"}});
  server->reset();  // the port is free, whoever is waited for
  log_waited_for(processes.stop());
  return kStopped;
}

}  // namespace

int main(int argc, char** argv) {
  if (Status opened = open_standard_streams(); !opened) return cli::refuse(kNothingToServe, opened.error());
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "diagnose")
    return cli::diagnose(std::span(arguments).subspan(1));
  if (!arguments.empty() && arguments.front() == "top") return cli::top(std::span(arguments).subspan(1));
  if (!arguments.empty() && arguments.front() == "check") return cli::check(std::span(arguments).subspan(1));
  log::never_wait();
  const Result<cli::Flags> flags = cli::parse_flags(arguments);
  if (!flags) return cli::refuse(cli::kWrongUsage, flags.error());
  if (flags->show_help || flags->show_version) {
    const std::string_view text = flags->show_help ? cli::help_text() : "kitty " KITTY_VERSION "\n";
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? kStopped : kNothingToServe;
  }
  log::set_level(flags->log_level);
  const int status = run_agent(*flags);
  // Not exit(): threads that were left behind may come back while the program's objects are torn down.
  std::fflush(nullptr);
  _exit(status);
}
