#include "cli/check_report.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <initializer_list>
#include <span>
#include <utility>

#include "cli/text.h"
#include "collector/roles.h"

namespace kitty::cli {

namespace {

using namespace std::string_view_literals;  // their lengths are known here, at every one of many calls

using collector::HookTrial;
using collector::WatchedProcess;
using loader::HostFacts;
using loader::Lockdown;
using privileges::Capability;
using privileges::CapabilitySet;

constexpr uint32_t kSeccompFilter = 2;      // SECCOMP_MODE_FILTER
constexpr uint32_t kLastOfSplitAdmin = 39;  // CAP_BPF: cap_last_cap is at least that since 5.8
constexpr std::string_view kWatchSomething = "KITTY_WATCH=1 RANK=0 JOB_NAME=demo ./train";
constexpr size_t kMaxListed = 10;  // watched processes on the screen
constexpr size_t kColumns = 80;
constexpr size_t kLabelColumns = 11;

// Decimal digits without a string of their own.
struct Digits {
  explicit Digits(uint64_t value) : end(std::to_chars(text.data(), text.data() + text.size(), value).ptr) {}
  [[nodiscard]] std::string_view view() const {
    return {text.data(), static_cast<size_t>(end - text.data())};
  }

  std::array<char, 20> text;
  char* end;
};

using Pieces = std::initializer_list<std::string_view>;

[[gnu::noinline]] void append(std::string& out, Pieces pieces) {
  for (const std::string_view piece : pieces) out += piece;
}

[[gnu::noinline]] void add(std::vector<std::string>& list, Pieces pieces) {
  append(list.emplace_back(), pieces);
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) append(text, {text.empty() ? ""sv : between, part});
  return text;
}

bool is_before(const HostFacts& host, uint32_t major, uint32_t minor) {
  return host.kernel_major != 0 &&
         (host.kernel_major < major || (host.kernel_major == major && host.kernel_minor < minor));
}

bool splits_admin(const HostFacts& host) {
  return host.last_capability ? *host.last_capability >= kLastOfSplitAdmin : !is_before(host, 5, 8);
}

bool charges_memlock(const HostFacts& host) {
  return is_before(host, 5, 11) && host.memlock_limit_bytes.has_value();
}

// Capabilities

struct Purpose {
  Capability capability;
  std::string_view what;
  std::string_view lost;
};

constexpr std::string_view kNoHook = "no RTT, no kitty_tcp_*, no kitty_peer_*"sv;
constexpr std::array kPurposes = {
    Purpose{Capability::bpf, "maps and programs of the hooks"sv, kNoHook},
    Purpose{Capability::perfmon, "attaching the hooks"sv, kNoHook},
    Purpose{Capability::sys_admin, "loading and attaching the hooks, before Linux 5.8"sv, kNoHook},
    Purpose{Capability::sys_ptrace, "environment and sockets of other users' processes"sv,
            "these are not found"sv},
    Purpose{Capability::dac_read_search, "the directories that these are in"sv, "these are not found"sv},
    Purpose{Capability::sys_resource, "raising RLIMIT_MEMLOCK, before Linux 5.11"sv,
            "no maps where that limit is small"sv},
    Purpose{Capability::net_bind_service, "listening on a port below 1024"sv,
            "another address is to be chosen"sv},
};

// What this kernel asks for, whatever the address.
CapabilitySet needed(const HostFacts& host) {
  CapabilitySet set = splits_admin(host) ? CapabilitySet{Capability::bpf, Capability::perfmon}
                                         : CapabilitySet{Capability::sys_admin};
  set.add(Capability::sys_ptrace);
  set.add(Capability::dac_read_search);
  if (charges_memlock(host)) set.add(Capability::sys_resource);
  return set;
}

constexpr CapabilitySet kOfHooks = {Capability::bpf, Capability::perfmon, Capability::sys_admin};
constexpr CapabilitySet kOfProcfs = {Capability::sys_ptrace, Capability::dac_read_search};

// What this kernel and the address ask for.
CapabilitySet needed(const CheckFacts& facts) {
  CapabilitySet set = needed(facts.host);
  if (facts.address.privileged_port) set.add(Capability::net_bind_service);
  return set;
}

// CAP_SYS_ADMIN stands for those that were split from it (include/linux/capability.h, bpf_capable).
bool holds(const StartFacts& start, Capability capability) {
  const bool by_admin = kOfHooks.has(capability) && start.held.has(Capability::sys_admin);
  return by_admin || start.held.has(capability);
}

bool lacks_any(const CheckFacts& facts, CapabilitySet of) {
  const CapabilitySet wanted = needed(facts) & of;
  return std::ranges::any_of(privileges::all_used(),
                             [&](Capability one) { return wanted.has(one) && !holds(facts.start, one); });
}

enum class Style { full, upper, lower };  // CAP_BPF, BPF, cap_bpf

// Each with something in front, and something between them.
std::string names(CapabilitySet set, Style style, std::string_view front, std::string_view between) {
  constexpr size_t kPrefix = std::string_view("CAP_"sv).size();
  std::string text;
  for (const Capability one : privileges::all_used()) {
    if (!set.has(one)) continue;
    const std::string_view name = privileges::name(one);
    append(text, {text.empty() ? ""sv : between, front, style == Style::upper ? name.substr(kPrefix) : name});
  }
  if (style != Style::lower) return text;
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

// Hooks

bool is_rung(const HookTrial& trial) { return collector::is_rtt_hook(trial.hook); }

std::string_view taken_hook(const CheckFacts& facts) {
  for (const HookTrial& trial : facts.hooks.hooks) {
    const bool wanted = facts.wanted_hook == collector::kHookAuto || facts.wanted_hook == trial.hook;
    if (wanted && is_rung(trial) && trial.reason.empty()) return trial.hook;
  }
  return collector::kHookNone;
}

bool works(const CheckFacts& facts, std::string_view hook) {
  return std::ranges::any_of(facts.hooks.hooks, [hook](const HookTrial& trial) {
    return trial.hook == hook && trial.reason.empty();
  });
}

bool is_denied(const HookTrial& trial) { return trial.err == EPERM || trial.err == EACCES; }

// Watched processes that may be looked at, but not traced: no namespace, no sockets (ptrace(2)).
uint64_t count_untraceable(const CheckFacts& facts) {
  if (!facts.state) return 0;
  return static_cast<uint64_t>(std::ranges::count(facts.state->processes, 0U, &WatchedProcess::netns));
}

bool hides_processes(const CheckFacts& facts) {
  const std::string& hidepid = facts.procfs.hidepid;
  return !hidepid.empty() && hidepid != "off"sv && !facts.start.held.has(Capability::sys_ptrace);
}

// The fix, gathered piece by piece

struct Command {
  std::string before;  // commands to run first
  std::string engine;  // options of docker run
  std::string front;   // what the program is started by
  std::string flags;   // of the program
  std::string words;   // where no command does it
};

void grant_capabilities(const CheckFacts& facts, Command& command) {
  const StartFacts& start = facts.start;
  const CapabilitySet all = needed(facts);
  if (start.by == StartedBy::kubernetes) {
    append(command.words, {"securityContext: {runAsUser: 0, capabilities: {add: ["sv,
                           names(all, Style::upper, ""sv, ", "sv), "]}}"sv});
  } else if (start.by == StartedBy::container) {
    append(command.engine,
           {start.uid == 0 ? ""sv : " --user=0"sv, names(all, Style::upper, " --cap-add="sv, ""sv)});
  } else if (start.no_new_privileges || (start.obtainable & all) != all) {
    append(command.words,
           {"set CapabilityBoundingSet= and AmbientCapabilities= of the unit that starts kitty to "sv,
            names(all, Style::full, ""sv, " "sv)});
  } else if (start.nosuid || start.uid == 0) {
    command.front = "sudo "sv;
  } else {
    append(command.before,
           {"sudo setcap "sv, names(all, Style::lower, ""sv, ","sv), "+ep "sv, start.program});
  }
}

// Of hooks that all capabilities are there for.
void lift_restriction(const CheckFacts& facts, Command& command) {
  const HostFacts& host = facts.host;
  const StartedBy by = facts.start.by;
  // The self-test's connection is the only thing that needs a network.
  if (std::ranges::count(facts.hooks.hooks, ENETUNREACH, &HookTrial::err) != 0) {
    command.before = "sudo ip link set lo up"sv;
  } else if (host.initial_user_namespace == false) {
    command.words = by == StartedBy::host ? "run kitty outside of this user namespace"sv
                                          : "start the container as the host's root, not rootless"sv;
  } else if (charges_memlock(host) && is_denied(facts.hooks.obstacle)) {
    if (by == StartedBy::host) {
      command.before = "ulimit -l unlimited"sv;
    } else {
      command.engine += " --ulimit=memlock=-1"sv;
    }
  } else if (host.lockdown == Lockdown::confidentiality) {
    command.words =
        "nothing at run time: kernel lockdown is 'confidentiality'; boot with lockdown=integrity"sv;
  } else if (host.seccomp_mode == kSeccompFilter) {
    if (by == StartedBy::container) {
      command.engine += " --security-opt=seccomp=unconfined"sv;
    } else {
      command.words =
          by == StartedBy::kubernetes
              ? "securityContext: {seccompProfile: {type: Unconfined}}"sv
              : "allow bpf and perf_event_open in the seccomp filter (SystemCallFilter= of a unit)"sv;
    }
  }
}

// Distributions that know values above 2 refuse kprobes then.
bool is_paranoid(const CheckFacts& facts) {
  return facts.host.perf_event_paranoid.value_or(0) > 2 && !facts.start.held.has(Capability::sys_admin) &&
         std::ranges::any_of(facts.hooks.hooks, [](const HookTrial& trial) {
           return trial.hook.starts_with("kprobe/"sv) && is_denied(trial);
         });
}

std::string written(const CheckFacts& facts, const Command& command) {
  std::string text = command.words;
  if (!text.empty()) {
    if (!command.flags.empty()) append(text, {"; and start kitty with"sv, command.flags});
  } else if (!command.engine.empty()) {
    append(text, {"docker run"sv, command.engine, " IMAGE"sv, command.flags});
  } else {
    text = command.before;
    // A limit holds for what the same shell starts.
    const bool run = !command.flags.empty() || !command.front.empty() || text.starts_with("ulimit"sv);
    if (run)
      append(text, {text.empty() ? ""sv : " && "sv, command.front, facts.start.program, command.flags});
  }
  return text;
}

std::string fix(const CheckFacts& facts) {
  Command command;
  const std::string_view hook = taken_hook(facts);
  const bool no_hook = hook == collector::kHookNone && facts.wanted_hook != collector::kHookNone;
  const bool unread = (facts.state && facts.state->report.unreadable.permission != 0) ||
                      hides_processes(facts) || count_untraceable(facts) != 0;
  const bool lacks = (no_hook && facts.hooks.has_btf && lacks_any(facts, kOfHooks)) ||
                     (unread && lacks_any(facts, kOfProcfs)) ||
                     (facts.address.privileged_port && lacks_any(facts, {Capability::net_bind_service}));
  if (lacks && facts.host.initial_user_namespace != false) {
    grant_capabilities(facts, command);
  } else if (no_hook && facts.hooks.has_btf) {
    lift_restriction(facts, command);
  } else if (collector::is_degraded(hook) && is_paranoid(facts)) {
    command.before = "sudo sysctl kernel.perf_event_paranoid=2"sv;
  }
  if (no_hook && !facts.hooks.has_btf) command.flags += " --btf=FILE"sv;
  if (!facts.state) {
    if (facts.procfs.path != "/proc"sv) {
      command.flags += " --path.procfs=/proc"sv;
    } else if (facts.start.by == StartedBy::host) {
      append(command.before, {command.before.empty() ? ""sv : " && "sv, "sudo mount -t proc proc /proc"sv});
    } else {
      command.flags += " --path.procfs=/host/proc"sv;
    }
  }
  const AddressFacts& address = facts.address;
  if (address.state != AddressState::kitty && !address.instead.empty())
    append(command.flags, {" --web.listen-address="sv, address.instead});
  return written(facts, command);
}

void summarize_hooks(const CheckFacts& facts, CheckSummary& summary) {
  summary.hook = taken_hook(facts);
  if (facts.wanted_hook == collector::kHookNone) return;
  if (summary.hook == collector::kHookNone) {
    add(summary.lost, {"RTT, kitty_tcp_* and kitty_peer_*: no hook"sv});
    return;
  }
  const bool degraded = collector::is_degraded(summary.hook);
  add(summary.works, {"RTT by "sv, summary.hook,
                      degraded ? " (degraded: each sample shows with the packet after it)"sv : ""sv});
  add(summary.works, {"retransmits, segments and bytes of each process and peer"sv});
  if (degraded) add(summary.lost, {"every RTT sample: no better hook"sv});
  if (!works(facts, "raw_tp/tcp_retransmit_skb"sv))
    add(summary.lost, {"retransmits while no ACK comes: no raw_tp/tcp_retransmit_skb"sv});
  for (const std::string_view hook : {"tp_btf/tcp_probe for time"sv, "tp_btf/tcp_rcv_space_adjust"sv}) {
    if (!works(facts, hook)) add(summary.lost, {"where each process's time goes: no "sv, hook});
  }
  if (!works(facts, "raw_tp/sched_process_exec"sv))
    add(summary.lost, {"finding a process within 1 s (5 s instead): no raw_tp/sched_process_exec"sv});
}

// ": 76 of uid 1001, 3 of others".
std::string whose(const collector::ScanReport& report, uint64_t collector::LeftOut::* count) {
  std::string text;
  for (const collector::LeftOut& one : report.left_out) {
    if (one.*count == 0) continue;
    append(text, {text.empty() ? ": "sv : ", "sv, Digits(one.*count).view(), " of "sv});
    if (one.uid == collector::kUnknownUid) {
      text += "others"sv;
    } else {
      append(text, {"uid "sv, Digits(one.uid).view()});
    }
  }
  return text;
}

// "4711 (python3), 4712 (unknown) and 3 more"
std::string stuck_names(const std::vector<collector::StuckProcess>& stuck) {
  std::string text;
  for (size_t i = 0; i < stuck.size() && i < kMaxListed; ++i) {
    append(text, {i == 0 ? ""sv : ", "sv, Digits(static_cast<uint64_t>(stuck[i].pid)).view(), " ("sv,
                  stuck[i].comm.empty() ? "name unknown"sv : std::string_view(stuck[i].comm), ")"sv});
  }
  if (stuck.size() > kMaxListed)
    append(text, {" and "sv, Digits(stuck.size() - kMaxListed).view(), " more"sv});
  return text;
}

void summarize_procfs(const CheckFacts& facts, CheckSummary& summary) {
  const ProcfsFacts& procfs = facts.procfs;
  if (!facts.state) {
    add(summary.lost, {"watching processes: "sv, procfs.path, " cannot be read"sv});
    return;
  }
  const collector::ScanReport& report = facts.state->report;
  add(summary.works, {"retransmits and segments of each network namespace, send queues"sv});
  const collector::Unreadable& unreadable = report.unreadable;
  if (!report.stuck.empty()) {
    std::string text("processes that hang whoever reads of them under "sv);
    append(text, {procfs.path, ": "sv, stuck_names(report.stuck)});
    summary.lost.push_back(std::move(text));
  }
  if (const uint64_t count = unreadable.permission + unreadable.open_files + unreadable.too_long +
                             unreadable.waiting + unreadable.other;
      count != 0)
    add(summary.lost, {"unreadable processes ("sv, Digits(count).view(), "), should they be ranks"sv});
  if (unreadable.overwritten != 0)
    add(summary.lost, {"processes with an overwritten environment ("sv, Digits(unreadable.overwritten).view(),
                       "), should they be ranks: an agent that runs when they start knows them"sv});
  if (const uint64_t count = count_untraceable(facts); count != 0)
    add(summary.lost, {"sockets of "sv, Digits(count).view(), " of the watched: they may not be traced"sv});
  if (hides_processes(facts))
    add(summary.lost, {"ranks of other users: hidepid="sv, procfs.hidepid, " hides them"sv});
  const auto made_up = static_cast<uint64_t>(
      std::ranges::count(facts.state->processes, collector::kFromOrder,
                         [](const WatchedProcess& process) { return process.labels.rank_from; }));
  if (made_up != 0) {
    add(summary.lost, {"the ranks of "sv, Digits(made_up).view(),
                       " processes, numbered ?0, ?1, ... instead: set RANK, or LOCAL_RANK, NODE_RANK and "
                       "LOCAL_WORLD_SIZE, before each starts"sv});
  }
  if (report.dropped_processes != 0) {
    add(summary.lost, {Digits(report.dropped_processes).view(), " watched processes beyond the limit"sv,
                       whose(report, &collector::LeftOut::processes)});
  }
  if (report.dropped_sockets != 0) {
    add(summary.lost, {Digits(report.dropped_sockets).view(), " sockets of the watched beyond the limit"sv,
                       whose(report, &collector::LeftOut::sockets)});
  }
}

void summarize_address(const AddressFacts& address, CheckSummary& summary) {
  if (address.state == AddressState::free) {
    add(summary.works, {"serving on "sv, address.address});
  } else if (address.state == AddressState::kitty) {
    add(summary.works, {"a kitty already serves on "sv, address.address});
    for (const std::string& one : address.left_out)
      add(summary.lost, {one, ": the kitty there has no room for what is beyond a fair share"sv});
  } else {
    add(summary.lost, {"serving on "sv, address.address});
  }
}

// What was found, line by line, for both forms of the report

struct Row {
  std::string_view what;   // "kernel", "hook"
  std::string_view name;   // of one of several: "kprobe/tcp_rtt_estimator"; else empty
  std::string_view state;  // of that one: "works", "no"
  std::string detail;
};

class Page {
 public:
  [[gnu::noinline]] Page& row(std::string_view what, std::string_view name = {},
                              std::string_view state = {}) {
    rows_.push_back({what, name, state, {}});
    return *this;
  }
  // To the latest row.
  [[gnu::noinline]] Page& add(std::string_view text) {
    rows_.back().detail += text;
    return *this;
  }
  [[gnu::noinline]] Page& add(uint64_t number) { return add(Digits(number).view()); }
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;
};

// A label and a text, which is wrapped behind it; a word longer than a line stays whole.
[[gnu::noinline]] void append_wrapped(std::string& out, Pieces label, std::string_view text) {
  const std::string shown = printable(text);
  std::string line;
  append(line, label);
  line.resize(std::max(line.size() + 1, kLabelColumns), ' ');
  std::string_view rest = shown;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (line.size() + word.size() > kColumns && line.find_last_not_of(' ') >= kLabelColumns) {
      line.back() = '\n';
      out += line;
      line.assign(kLabelColumns, ' ');
    }
    append(line, {word, " "sv});
  }
  line.erase(line.find_last_not_of(' ') + 1);
  append(out, {line, "\n"sv});
}

constexpr std::array<std::string_view, 4> kLockdownNames = {"unknown"sv, "none"sv, "integrity"sv,
                                                            "confidentiality"sv};

std::string_view lockdown_name(const HostFacts& host) {
  return kLockdownNames[static_cast<size_t>(host.lockdown)];
}

void show_kernel(const CheckFacts& facts, Page& page) {
  const HostFacts& host = facts.host;
  constexpr uint64_t kKilo = 1024;
  page.row("BTF"sv);
  if (facts.hooks.has_btf) {
    page.add(facts.btf_given ? "--btf="sv : ""sv).add(facts.btf_path);
    if (facts.btf_bytes != 0) page.add(", "sv).add(facts.btf_bytes / kKilo).add(" KiB"sv);
  } else {
    page.add("missing: "sv).add(facts.hooks.obstacle.reason);
  }
  page.row("lockdown"sv).add(lockdown_name(host));
  if (host.lockdown == Lockdown::unknown) page.add(" (/sys/kernel/security is not mounted)"sv);
  if (host.lockdown == Lockdown::integrity) page.add(" (forbids nothing that kitty does)"sv);
  page.row("memlock"sv);
  if (host.memlock_limit_bytes) {
    page.add(*host.memlock_limit_bytes / kKilo).add(" KiB"sv);
    if (!is_before(host, 5, 11)) page.add(" (does not count since Linux 5.11)"sv);
  } else {
    page.add("unlimited"sv);
  }
  page.row("seccomp"sv)
      .add(host.seccomp_mode == kSeccompFilter ? "a filter is on"sv
           : host.seccomp_mode                 ? "no filter"sv
                                               : "unknown"sv);
  if (host.initial_user_namespace == false)
    page.row("user ns"sv).add("not the host's: capabilities do not count for BPF"sv);
}

void show_hooks(const CheckFacts& facts, std::string_view taken, Page& page) {
  page.row("hooks"sv);
  const collector::HookTrials& trials = facts.hooks;
  if (!trials.obstacle.reason.empty()) {
    page.add(trials.has_btf ? trials.obstacle.reason : "none: they need BTF"sv);
    return;
  }
  page.add("each tried, then detached; kitty takes "sv).add(taken);
  for (const HookTrial& trial : trials.hooks) {
    page.row("hook"sv, trial.hook, trial.reason.empty() ? "works"sv : "no"sv);
    if (trial.reason.empty()) {
      if (collector::is_degraded(trial.hook)) page.add("degraded"sv);
      continue;
    }
    const HookTrial& first = *std::ranges::find(trials.hooks, trial.reason, &HookTrial::reason);
    if (trial.hook == "iter/task_file"sv) page.add("sockets are listed through procfs, at a higher cost; "sv);
    page.add(&first == &trial ? ""sv : "as "sv).add(&first == &trial ? trial.reason : first.hook);
  }
  for (const std::string& symbol : facts.symbols) {
    page.row("symbol"sv).add(symbol);
  }
}

void show_capabilities(const CheckFacts& facts, Page& page) {
  page.row("privileges"sv).add("uid "sv).add(facts.start.uid);
  if (facts.start.no_new_privileges) page.add(", no_new_privs"sv);
  if (facts.start.uid == 0) {
    const std::string why = privileges::why_root_stays(facts.start.held);
    page.add(why.empty() ? ", which the agent gives up when it serves"sv : ", which the agent keeps: "sv)
        .add(why);
  }
  const CapabilitySet wanted = needed(facts);
  for (const Purpose& purpose : kPurposes) {
    if (!wanted.has(purpose.capability)) continue;
    const bool held = holds(facts.start, purpose.capability);
    page.row("capability"sv, privileges::name(purpose.capability), held ? "held"sv : "missing"sv);
    page.add(purpose.what);
    if (held && !facts.start.held.has(purpose.capability)) page.add("; held as CAP_SYS_ADMIN"sv);
    if (!held) page.add("; without: "sv).add(purpose.lost);
  }
}

void show_procfs(const CheckFacts& facts, Page& page) {
  const ProcfsFacts& procfs = facts.procfs;
  page.row("procfs"sv);
  page.add(procfs.problem);
  if (!facts.state) return;
  page.add(procfs.path)
      .add(" shows "sv)
      .add(procfs.listed)
      .add(procfs.listed == 1 ? " process"sv : " processes"sv);
  if (procfs.processes == Processes::of_host) page.add(" of the host"sv);
  if (procfs.processes == Processes::of_container)
    page.add(" of this container alone (hostPID, --pid=host or shareProcessNamespace shows more)"sv);
  const collector::Unreadable& unreadable = facts.state->report.unreadable;
  if (unreadable.permission != 0)
    page.add(", "sv).add(unreadable.permission).add(" unreadable by permission"sv);
  if (unreadable.open_files != 0)
    page.add(", "sv).add(unreadable.open_files).add(" unreadable by the open files limit"sv);
  if (unreadable.too_long != 0)
    page.add(", "sv).add(unreadable.too_long).add(" whose environment is over 8 MiB"sv);
  if (unreadable.stuck != 0) page.add(", "sv).add(unreadable.stuck).add(" that hang whoever reads"sv);
  if (unreadable.waiting != 0)
    page.add(", "sv).add(unreadable.waiting).add(" not looked at, as too many hang"sv);
  if (unreadable.overwritten != 0)
    page.add(", "sv).add(unreadable.overwritten).add(" whose environment was overwritten (setproctitle)"sv);
  if (unreadable.other != 0) page.add(", "sv).add(unreadable.other).add(" unreadable otherwise"sv);
  page.add("; hidepid "sv).add(procfs.hidepid.empty() ? "unknown"sv : procfs.hidepid);
  if (hides_processes(facts))
    page.add(" hides other users' processes from all but its gid= and CAP_SYS_PTRACE"sv);
}

void show_address(const AddressFacts& address, Page& page) {
  constexpr std::array<std::string_view, 4> kStates = {" is free"sv, ": a kitty serves there already"sv,
                                                       ": node_exporter serves there"sv,
                                                       ": another program listens there"sv};
  page.row("address"sv);
  if (address.state == AddressState::unusable) {
    page.add(address.problem);
    return;
  }
  page.add(address.address).add(kStates[static_cast<size_t>(address.state)]);
  if (address.state != AddressState::kitty && !address.instead.empty())
    page.add("; free is --web.listen-address="sv).add(address.instead);
}

// Whether others count into this process's namespace counters.
bool shares_netns(const CheckFacts& facts, const WatchedProcess& process) {
  return process.netns != 0 &&
         (process.netns == facts.own_netns ||
          std::ranges::count(facts.state->processes, process.netns, &WatchedProcess::netns) > 1);
}

// One column, cut or filled up to its width less the gap.
void append_cell(std::string& line, std::string_view text, size_t width) {
  const size_t end = line.size() + width;
  append(line, {text.empty() ? "-"sv : text.substr(0, width - 1)});
  line.resize(end, ' ');
}

void append_watched(std::string& out, std::string_view pid, std::string_view rank, std::string_view job,
                    std::string_view comm, std::string_view netns) {
  std::string line(2, ' ');
  append_cell(line, pid, 9);
  append_cell(line, rank, 6);
  append_cell(line, job, 24);
  append_cell(line, comm, 17);
  append(out, {printable(line), netns, "\n"sv});
}

void append_watched(std::string& out, const CheckFacts& facts) {
  const std::vector<WatchedProcess>& processes = facts.state->processes;
  if (processes.empty()) {
    append(out, {"watched    none yet; start one as in "sv, kWatchSomething, "\n"sv});
    return;
  }
  append_wrapped(out, {"watched"sv}, Digits(processes.size()).view());
  append_watched(out, "PID"sv, "RANK"sv, "JOB"sv, "COMM"sv, "NETNS"sv);
  bool shared = false;
  for (size_t i = 0; i < processes.size(); ++i) {
    const WatchedProcess& process = processes[i];
    const bool shares = shares_netns(facts, process);
    shared = shared || shares;
    if (i >= kMaxListed) continue;
    std::string netns(Digits(process.netns).view());
    if (shares) netns += " *"sv;
    append_watched(out, Digits(static_cast<uint64_t>(process.id.pid)).view(), process.labels.rank,
                   process.labels.job, process.comm, netns);
  }
  if (processes.size() > kMaxListed)
    append(out, {"  and "sv, Digits(processes.size() - kMaxListed).view(), " more\n"sv});
  if (shared) {
    append_wrapped(
        out, {"  *"sv},
        "shares its network namespace: net_tcp_retransmits_total and net_tcp_out_segs_total count everything "
        "in it, kitty_tcp_* the process alone"sv);
  }
}

Page rows_of(const CheckFacts& facts, const CheckSummary& summary) {
  Page page;
  page.row("kitty"sv).add(KITTY_VERSION " on Linux "sv).add(facts.release).add(" "sv).add(facts.machine);
  show_kernel(facts, page);
  show_hooks(facts, summary.hook, page);
  show_capabilities(facts, page);
  show_procfs(facts, page);
  show_address(facts.address, page);
  return page;
}

constexpr std::array<std::string_view, 3> kOutcomeNames = {"full"sv, "degraded"sv, "useless"sv};

// JSON

// One value after another with the commas between; an element of a list has no name.
class Json {
 public:
  [[gnu::noinline]] void open(std::string_view name, char bracket) {
    start(name);
    out_ += bracket;
    fresh_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    fresh_ = false;
  }
  [[gnu::noinline]] void text(std::string_view name, std::string_view value) {
    start(name);
    append_json(out_, value);
  }
  [[gnu::noinline]] void number(std::string_view name, uint64_t value) {
    start(name);
    out_ += Digits(value).view();
  }
  void truth(std::string_view name, bool value) {
    start(name);
    out_ += value ? "true"sv : "false"sv;
  }
  [[gnu::noinline]] void list(std::string_view name, const std::vector<std::string>& list) {
    open(name, '[');
    for (const std::string& one : list) text({}, one);
    close(']');
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  [[gnu::noinline]] void start(std::string_view name) {
    if (!fresh_) out_ += ',';
    fresh_ = false;
    if (name.empty()) return;
    append_json(out_, name);
    out_ += ':';
  }

  std::string out_;
  bool fresh_ = true;
};

void put_watched(Json& json, const CheckFacts& facts) {
  json.open("watched"sv, '[');
  for (const WatchedProcess& process :
       facts.state ? std::span(facts.state->processes) : std::span<const WatchedProcess>()) {
    json.open({}, '{');
    json.number("pid"sv, static_cast<uint64_t>(process.id.pid));
    json.text("rank"sv, process.labels.rank);
    json.text("job"sv, process.labels.job);
    json.text("comm"sv, process.comm);
    json.number("netns"sv, process.netns);
    json.truth("netns_shared"sv, shares_netns(facts, process));
    json.close('}');
  }
  json.close(']');
}

void put_stuck(Json& json, const CheckFacts& facts) {
  json.open("stuck"sv, '[');
  for (const collector::StuckProcess& process :
       facts.state ? std::span(facts.state->report.stuck) : std::span<const collector::StuckProcess>()) {
    json.open({}, '{');
    json.number("pid"sv, static_cast<uint64_t>(process.pid));
    json.text("comm"sv, process.comm);
    json.number("uid"sv, process.uid);
    json.truth("watched"sv, process.watched);
    json.close('}');
  }
  json.close(']');
}

}  // namespace

CheckSummary summarize(const CheckFacts& facts) {
  CheckSummary summary;
  summarize_hooks(facts, summary);
  summarize_procfs(facts, summary);
  summarize_address(facts.address, summary);
  summary.fix = fix(facts);
  const AddressState state = facts.address.state;
  if (!facts.state || (state != AddressState::free && state != AddressState::kitty)) {
    summary.outcome = CheckOutcome::useless;
  } else if (!summary.lost.empty()) {
    summary.outcome = CheckOutcome::degraded;
  }
  if (summary.lost.empty() && facts.state->processes.empty()) summary.fix = kWatchSomething;
  return summary;
}

std::string check_text(const CheckFacts& facts, const CheckSummary& summary) {
  std::string out;
  const Page page = rows_of(facts, summary);
  for (const Row& row : page.rows()) {
    if (row.name.empty()) {
      append_wrapped(out, {row.what}, row.detail);
    } else {
      std::string text(row.name);
      if (!row.detail.empty()) append(text, {": "sv, row.detail});
      append_wrapped(out, {"  "sv, row.state}, text);
    }
  }
  if (facts.state) append_watched(out, facts);
  out += '\n';
  append_wrapped(out, {"works:"sv}, joined(summary.works, "; "sv));
  if (!summary.lost.empty()) append_wrapped(out, {"does not:"sv}, joined(summary.lost, "; "sv));
  append(out, {"to fix:    "sv, !summary.fix.empty() ? printable(summary.fix)
                                : summary.lost.empty()
                                    ? "nothing"sv
                                    : "nothing that a command changes while this kernel runs"sv});
  const auto status = static_cast<size_t>(summary.outcome);
  append(out, {"\noutcome:   "sv, kOutcomeNames[status], ", exit status "sv, Digits(status).view(), "\n"sv});
  return out;
}

std::string check_json(const CheckFacts& facts, const CheckSummary& summary) {
  Json json;
  json.open({}, '{');
  json.text("version"sv, KITTY_VERSION ""sv);
  json.number("outcome"sv, static_cast<uint64_t>(summary.outcome));
  json.text("outcome_name"sv, kOutcomeNames[static_cast<size_t>(summary.outcome)]);
  json.text("hook"sv, summary.hook);
  json.list("works"sv, summary.works);
  json.list("does_not"sv, summary.lost);
  json.text("fix"sv, summary.fix);
  json.open("checks"sv, '[');
  const Page page = rows_of(facts, summary);
  for (const Row& row : page.rows()) {
    json.open({}, '{');
    json.text("what"sv, row.what);
    json.text("name"sv, row.name);
    json.text("state"sv, row.state);
    json.text("detail"sv, row.detail);
    json.close('}');
  }
  json.close(']');
  put_stuck(json, facts);
  put_watched(json, facts);
  json.close('}');
  return json.take() + '\n';
}

std::string hidepid_of(std::string_view mountinfo, std::string_view device) {
  constexpr std::string_view kOption = "hidepid="sv;
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELDS...] - TYPE SOURCE SUPER_OPTIONS
    std::string_view rest = line;
    for (int skipped = 0; skipped < 2; ++skipped)
      rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
    if (rest.substr(0, rest.find(' ')) != device || line.find(" - proc "sv) == line.npos) continue;
    const std::string_view options = line.substr(line.rfind(' ') + 1);
    const size_t at = options.find(kOption);
    if (at == options.npos) return "off";
    const std::string_view value = options.substr(at + kOption.size());
    return std::string(value.starts_with("0"sv) ? "off"sv : value.substr(0, value.find(',')));
  }
  return {};
}

}  // namespace kitty::cli
