#include "cli/check_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string>
#include <vector>

namespace kitty::cli {
namespace {

using collector::HookTrial;
using privileges::Capability;
using privileges::CapabilitySet;

constexpr CapabilitySet kFour = {Capability::bpf, Capability::perfmon, Capability::sys_ptrace,
                                 Capability::dac_read_search};

HookTrial& trial(CheckFacts& facts, std::string_view hook) {
  return *std::ranges::find(facts.hooks.hooks, hook, &HookTrial::hook);
}

void refuse(CheckFacts& facts, std::string_view hook, std::string reason, int err = 0) {
  trial(facts, hook).reason = std::move(reason);
  trial(facts, hook).err = err;
}

void refuse_rungs(CheckFacts& facts, const std::string& reason, int err) {
  for (const std::string_view hook : collector::rtt_hook_names()) refuse(facts, hook, reason, err);
}

void obstruct(CheckFacts& facts, const std::string& reason, int err) {
  facts.hooks.hooks.clear();
  facts.hooks.obstacle = {{}, reason, err};
}

void without_btf(CheckFacts& facts) {
  obstruct(facts, "read kernel BTF '/sys/kernel/btf/vmlinux': No such file or directory", ENOENT);
  facts.hooks.has_btf = false;
}

// A current kernel with every hook, root's rights, and one watched process in a namespace of its own.
CheckFacts everything() {
  CheckFacts facts;
  facts.release = "6.12.1-amd64";
  facts.machine = "x86_64";
  facts.host.effective_capabilities = kFour.bits();
  facts.host.last_capability = 40;
  facts.host.initial_user_namespace = true;
  facts.host.seccomp_mode = 0;
  facts.host.lockdown = loader::Lockdown::none;
  facts.host.perf_event_paranoid = 2;
  facts.host.memlock_limit_bytes = 8 << 20;
  facts.host.kernel_major = 6;
  facts.host.kernel_minor = 12;
  facts.btf_path = "/sys/kernel/btf/vmlinux";
  facts.btf_bytes = 6 << 20;
  facts.wanted_hook = "auto";
  facts.hooks.has_btf = true;
  for (const std::string_view hook : collector::rtt_hook_names()) facts.hooks.hooks.push_back({hook, {}, 0});
  for (const std::string_view hook :
       {"raw_tp/tcp_retransmit_skb", "raw_tp/sched_process_exec", "tp_btf/tcp_probe for time",
        "tp_btf/tcp_rcv_space_adjust", "iter/task_file"})
    facts.hooks.hooks.push_back({hook, {}, 0});
  facts.start.program = "./kitty";
  facts.start.held = facts.start.obtainable = CapabilitySet(0x1ffffffffff);
  facts.procfs.path = "/proc";
  facts.procfs.listed = 120;
  facts.procfs.hidepid = "off";
  facts.procfs.processes = Processes::of_host;
  facts.address.address = ":9100";
  auto state = std::make_shared<collector::ProcessState>();
  collector::WatchedProcess process;
  process.id = {.pid = 4242, .start_time_ticks = 1};
  process.comm = "python3";
  process.labels = {.rank = "3", .job = "gpt2", .local_rank = {}, .world_size = {}};
  process.netns = 4026532179;
  state->processes.push_back(process);
  facts.state = state;
  facts.own_netns = 4026531840;
  return facts;
}

std::shared_ptr<collector::ProcessState> copy_of_state(const CheckFacts& facts) {
  return std::make_shared<collector::ProcessState>(*facts.state);
}

void make_unreadable(CheckFacts& facts, uint64_t processes) {
  auto state = copy_of_state(facts);
  state->report.unreadable.permission = processes;
  facts.state = state;
}

void unprivileged(CheckFacts& facts) {
  facts.start.uid = 65534;
  facts.start.held = {};
  obstruct(facts, "create map 'owned': Operation not permitted: missing CAP_BPF", EPERM);
  make_unreadable(facts, 100);
}

void as_5_10(CheckFacts& facts) {
  facts.host.kernel_major = 5;
  facts.host.kernel_minor = 10;
  facts.host.memlock_limit_bytes = 64 << 10;
}

struct Case {
  const char* name;
  std::function<void(CheckFacts&)> change;
  CheckOutcome outcome;
  std::string fix;
  std::string lost;  // the first of them; empty: none
};

TEST(CheckSummary, WhatIsLostAndTheOneCommand) {
  using enum CheckOutcome;
  const std::vector<Case> cases = {
      {"everything", [](CheckFacts&) {}, full, "", ""},
      {"nothing watched",
       [](CheckFacts& facts) { facts.state = std::make_shared<collector::ProcessState>(); }, full,
       "KITTY_WATCH=1 RANK=0 JOB_NAME=demo ./train", ""},
      {"tcp_probe alone",
       [](CheckFacts& facts) {
         refuse_rungs(facts, "absent", ENOENT);
         refuse(facts, "tp_btf/tcp_probe", "");
       },
       degraded, "", "every RTT sample: no better hook"},
      {"no hook on this kernel", [](CheckFacts& facts) { refuse_rungs(facts, "absent", ENOENT); }, degraded,
       "", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"a hook by name that does not work",
       [](CheckFacts& facts) {
         refuse(facts, "kprobe/tcp_rtt_estimator", "absent", ENOENT);
         facts.wanted_hook = "kprobe/tcp_rtt_estimator";
       },
       degraded, "", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"no hook wanted",
       [](CheckFacts& facts) {
         unprivileged(facts);
         make_unreadable(facts, 0);
         facts.wanted_hook = "none";
       },
       full, "", ""},
      {"no retransmit tracepoint",
       [](CheckFacts& facts) { refuse(facts, "raw_tp/tcp_retransmit_skb", "no tracepoint", ENOENT); },
       degraded, "", "retransmits while no ACK comes: no raw_tp/tcp_retransmit_skb"},
      {"no socket iterator costs, but loses nothing",
       [](CheckFacts& facts) { refuse(facts, "iter/task_file", "Linux 6.1 can", EINVAL); }, full, "", ""},

      {"nobody", unprivileged, degraded,
       "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep ./kitty",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"nobody, nosuid",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.start.nosuid = true;
       },
       degraded, "sudo ./kitty", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"nobody, port taken",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.address.state = AddressState::node_exporter;
         facts.address.instead = ":9101";
       },
       useless,
       "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep ./kitty && ./kitty "
       "--web.listen-address=:9101",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"nobody, no_new_privs",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.start.no_new_privileges = true;
       },
       degraded,
       "set CapabilityBoundingSet= and AmbientCapabilities= of the unit that starts kitty to "
       "CAP_BPF CAP_PERFMON CAP_SYS_PTRACE CAP_DAC_READ_SEARCH",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"root without CAP_SYS_PTRACE",
       [](CheckFacts& facts) {
         facts.start.held =
             facts.start.obtainable = {Capability::bpf, Capability::perfmon, Capability::dac_read_search};
         make_unreadable(facts, 7);
       },
       degraded,
       "set CapabilityBoundingSet= and AmbientCapabilities= of the unit that starts kitty to "
       "CAP_BPF CAP_PERFMON CAP_SYS_PTRACE CAP_DAC_READ_SEARCH",
       "unreadable processes (7), should they be ranks"},
      {"a capability that nothing needs now",
       [](CheckFacts& facts) {
         facts.start.held = {Capability::bpf, Capability::perfmon, Capability::dac_read_search};
       },
       full, "", ""},
      {"CAP_SYS_ADMIN stands for two",
       [](CheckFacts& facts) {
         facts.start.held = {Capability::sys_admin, Capability::sys_ptrace, Capability::dac_read_search};
         refuse_rungs(facts, "policy", EPERM);
       },
       degraded, "", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"unreadable in spite of all capabilities", [](CheckFacts& facts) { make_unreadable(facts, 1); },
       degraded, "", "unreadable processes (1), should they be ranks"},
      {"container",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.start.by = StartedBy::container;
       },
       degraded,
       "docker run --user=0 --cap-add=BPF --cap-add=PERFMON --cap-add=SYS_PTRACE --cap-add=DAC_READ_SEARCH "
       "IMAGE",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"Kubernetes",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.start.by = StartedBy::kubernetes;
       },
       degraded,
       "securityContext: {runAsUser: 0, capabilities: {add: [BPF, PERFMON, SYS_PTRACE, DAC_READ_SEARCH]}}",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"before 5.8",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.host.last_capability = 37;
         facts.host.kernel_major = 5;
         facts.host.kernel_minor = 4;
         facts.host.memlock_limit_bytes.reset();
       },
       degraded, "sudo setcap cap_sys_ptrace,cap_dac_read_search,cap_sys_admin+ep ./kitty",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"before 5.11 with a limit",
       [](CheckFacts& facts) {
         unprivileged(facts);
         as_5_10(facts);
       },
       degraded,
       "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_sys_resource+ep ./kitty",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},

      {"memlock",
       [](CheckFacts& facts) {
         facts.start.held = kFour;
         as_5_10(facts);
         obstruct(facts, "RLIMIT_MEMLOCK is 64 KiB", EPERM);
       },
       degraded, "ulimit -l unlimited && ./kitty", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"memlock in a container",
       [](CheckFacts& facts) {
         facts.start.held = kFour;
         facts.start.by = StartedBy::container;
         as_5_10(facts);
         obstruct(facts, "RLIMIT_MEMLOCK is 64 KiB", EPERM);
       },
       degraded, "docker run --ulimit=memlock=-1 IMAGE", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"lockdown",
       [](CheckFacts& facts) {
         facts.host.lockdown = loader::Lockdown::confidentiality;
         refuse_rungs(facts, "lockdown", EPERM);
       },
       degraded, "nothing at run time: kernel lockdown is 'confidentiality'; boot with lockdown=integrity",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"seccomp in a container",
       [](CheckFacts& facts) {
         facts.start.by = StartedBy::container;
         facts.host.seccomp_mode = 2;
         obstruct(facts, "a seccomp filter is on", EPERM);
       },
       degraded, "docker run --security-opt=seccomp=unconfined IMAGE",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"user namespace",
       [](CheckFacts& facts) {
         facts.host.initial_user_namespace = false;
         facts.start.by = StartedBy::container;
         obstruct(facts, "inside a user namespace", EPERM);
       },
       degraded, "start the container as the host's root, not rootless",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"perf_event_paranoid",
       [](CheckFacts& facts) {
         facts.start.held = kFour;
         facts.host.perf_event_paranoid = 3;
         refuse_rungs(facts, "paranoid", EACCES);
         refuse(facts, "tp_btf/tcp_probe", "");
       },
       degraded, "sudo sysctl kernel.perf_event_paranoid=2", "every RTT sample: no better hook"},
      {"no BTF", without_btf, degraded, "./kitty --btf=FILE", "RTT, kitty_tcp_* and kitty_peer_*: no hook"},

      {"port taken",
       [](CheckFacts& facts) {
         facts.address.state = AddressState::other;
         facts.address.instead = ":9102";
       },
       useless, "./kitty --web.listen-address=:9102", "serving on :9100"},
      {"kitty serves there",
       [](CheckFacts& facts) {
         facts.address.state = AddressState::kitty;
         facts.address.instead = ":9101";
       },
       full, "", ""},
      {"an address of another host",
       [](CheckFacts& facts) {
         facts.address.state = AddressState::unusable;
         facts.address.problem = "listen on '10.9.9.9:9100': Cannot assign requested address";
       },
       useless, "", "serving on :9100"},
      {"an address of another host needs no capability that is missing elsewhere",
       [](CheckFacts& facts) {
         unprivileged(facts);
         facts.address.state = AddressState::unusable;
       },
       useless, "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep ./kitty",
       "RTT, kitty_tcp_* and kitty_peer_*: no hook"},
      {"a port below 1024",
       [](CheckFacts& facts) {
         facts.start.uid = 1000;
         facts.start.held = kFour;
         facts.address.state = AddressState::unusable;
         facts.address.privileged_port = true;
       },
       useless,
       "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_net_bind_service+ep ./kitty",
       "serving on :9100"},
      {"no procfs",
       [](CheckFacts& facts) {
         facts.state.reset();
         facts.procfs.problem = "open procfs '/proc': No such file or directory";
       },
       useless, "sudo mount -t proc proc /proc", "watching processes: /proc cannot be read"},
      {"a wrong procfs path",
       [](CheckFacts& facts) {
         facts.state.reset();
         facts.procfs.path = "/host";
         facts.procfs.problem = "/host: no procfs is mounted there";
       },
       useless, "./kitty --path.procfs=/proc", "watching processes: /host cannot be read"},
      {"hidepid",
       [](CheckFacts& facts) {
         facts.start.uid = 1000;
         facts.start.held = {Capability::bpf, Capability::perfmon, Capability::dac_read_search};
         facts.procfs.hidepid = "invisible";
       },
       degraded, "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep ./kitty",
       "ranks of other users: hidepid=invisible hides them"},
      {"a watched process that may not be traced",
       [](CheckFacts& facts) {
         facts.start.held = {Capability::bpf, Capability::perfmon, Capability::dac_read_search};
         facts.start.uid = 1000;
         auto state = copy_of_state(facts);
         state->processes.front().netns = 0;
         facts.state = state;
       },
       degraded, "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep ./kitty",
       "sockets of 1 of the watched: they may not be traced"},
      {"hidepid does not bind CAP_SYS_PTRACE", [](CheckFacts& facts) { facts.procfs.hidepid = "invisible"; },
       full, "", ""},
  };
  for (const Case& c : cases) {
    CheckFacts facts = everything();
    c.change(facts);
    const CheckSummary summary = summarize(facts);
    EXPECT_EQ(summary.outcome, c.outcome) << c.name;
    EXPECT_EQ(summary.fix, c.fix) << c.name;
    EXPECT_EQ(summary.lost.empty() ? "" : summary.lost.front(), c.lost) << c.name;
    EXPECT_EQ(summary.lost.empty(), summary.outcome == CheckOutcome::full) << c.name;
  }
}

std::string text_of(const CheckFacts& facts) { return check_text(facts, summarize(facts)); }

size_t columns_of(std::string_view line) {
  return static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; }));
}

void expect_a_screen(const std::string& text, size_t most_lines) {
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    at += line.size() + 1;
    EXPECT_TRUE(line.starts_with("to fix:") || columns_of(line) <= 80) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
  EXPECT_LE(lines, most_lines) << text;
}

#define EXPECT_SHOWS(text, wanted) EXPECT_NE((text).find(wanted), std::string::npos) << (text)

TEST(CheckSummary, WhatHasNoRoomIsSaidWithWhoseItIs) {
  CheckFacts facts = everything();
  auto state = copy_of_state(facts);
  state->report.dropped_processes = 79;
  state->report.dropped_sockets = 608;
  collector::LeftOut one;
  one.uid = 65533;
  one.processes = 76;
  one.sockets = 608;
  collector::LeftOut rest;
  rest.processes = 3;
  state->report.left_out = {one, rest};
  facts.state = state;
  facts.address.state = AddressState::kitty;
  facts.address.left_out = {"21 series of uid 65533"};
  const CheckSummary summary = summarize(facts);
  EXPECT_EQ(summary.outcome, CheckOutcome::degraded);
  for (const char* said :
       {"79 watched processes beyond the limit: 76 of uid 65533, 3 of others",
        "608 sockets of the watched beyond the limit: 608 of uid 65533",
        "21 series of uid 65533: the kitty there has no room for what is beyond a fair share"}) {
    EXPECT_EQ(std::ranges::count(summary.lost, said), 1) << said;
  }
}

TEST(CheckText, FitsAScreenAndEndsInTheOutcome) {
  const std::string text = text_of(everything());
  expect_a_screen(text, 32);
  EXPECT_TRUE(text.starts_with("kitty      " KITTY_VERSION " on Linux 6.12.1-amd64 x86_64\n")) << text;
  EXPECT_SHOWS(text, "BTF        /sys/kernel/btf/vmlinux, 6144 KiB\n");
  EXPECT_SHOWS(text, "  works    kprobe/tcp_rtt_estimator\n");
  EXPECT_SHOWS(text, "  works    tp_btf/tcp_probe: degraded\n");
  EXPECT_SHOWS(text, "  held     CAP_SYS_PTRACE: environment and sockets of other users' processes\n");
  EXPECT_SHOWS(text, "procfs     /proc shows 120 processes of the host; hidepid off\n");
  EXPECT_SHOWS(text, "address    :9100 is free\n");
  EXPECT_SHOWS(text, "  4242     3     gpt2                    python3          4026532179\n");
  EXPECT_SHOWS(text, "works:     RTT by kprobe/tcp_rtt_estimator;");
  EXPECT_TRUE(text.ends_with("to fix:    nothing\noutcome:   full, exit status 0\n")) << text;
}

TEST(CheckText, AReasonIsSaidOnceAndWrapped) {
  CheckFacts facts = everything();
  const std::string reason =
      "attach: this kernel has no kprobes (CONFIG_KPROBE_EVENTS): "
      "/sys/bus/event_source/devices/kprobe/type is missing";
  refuse(facts, "kprobe/tcp_rtt_estimator", reason);
  refuse(facts, "kprobe/tcp_ack_update_rtt", reason);
  facts.symbols = {"tcp_rtt_estimator: only as tcp_rtt_estimator.isra.0, whose arguments may differ"};
  const std::string text = text_of(facts);
  expect_a_screen(text, 36);
  EXPECT_SHOWS(text,
               "  no       kprobe/tcp_rtt_estimator: attach: this kernel has no kprobes\n"
               "           (CONFIG_KPROBE_EVENTS): /sys/bus/event_source/devices/kprobe/type is\n"
               "           missing\n");
  EXPECT_SHOWS(text, "  no       kprobe/tcp_ack_update_rtt: as kprobe/tcp_rtt_estimator\n");
  EXPECT_SHOWS(text, "symbol     tcp_rtt_estimator: only as tcp_rtt_estimator.isra.0, whose arguments\n");
  EXPECT_SHOWS(text, "hooks      each tried, then detached; kitty takes fentry/tcp_rtt_estimator\n");
}

TEST(CheckText, RootIsToldWhetherTheAgentStaysRoot) {
  CheckFacts facts = everything();
  EXPECT_SHOWS(text_of(facts), "privileges uid 0, which the agent gives up when it serves\n");
  facts.start.held = kFour;
  EXPECT_SHOWS(text_of(facts),
               "privileges uid 0, which the agent keeps: missing CAP_SETUID, CAP_SETGID: grant\n");
}

TEST(CheckText, MissingCapabilitiesSayWhatIsLost) {
  CheckFacts facts = everything();
  unprivileged(facts);
  const std::string text = text_of(facts);
  expect_a_screen(text, 32);
  EXPECT_SHOWS(text, "hooks      create map 'owned': Operation not permitted: missing CAP_BPF\n");
  EXPECT_SHOWS(text, "privileges uid 65534\n");
  EXPECT_SHOWS(text, "  missing  CAP_PERFMON: attaching the hooks; without: no RTT, no kitty_tcp_*, no\n");
  EXPECT_SHOWS(text, ", 100 unreadable by permission");
  EXPECT_SHOWS(text, "outcome:   degraded, exit status 1\n");
}

TEST(CheckText, ManyWatchedProcessesAreCountedAndSharedNamespacesMarked) {
  CheckFacts facts = everything();
  auto state = copy_of_state(facts);
  const collector::WatchedProcess first = state->processes.front();
  for (int i = 1; i < 25; ++i) {
    state->processes.push_back(first);
    state->processes.back().id.pid += i;
  }
  state->processes.back().netns = facts.own_netns;
  facts.state = state;
  const std::string text = text_of(facts);
  expect_a_screen(text, 46);
  EXPECT_SHOWS(text, "watched    25\n");
  EXPECT_SHOWS(text,
               "  4251     3     gpt2                    python3          4026532179 *\n  and 15 more\n");
  EXPECT_SHOWS(text, "  *        shares its network namespace:");
}

TEST(CheckText, NothingOfAnotherProcessSteersTheTerminal) {
  CheckFacts facts = everything();
  auto state = copy_of_state(facts);
  state->processes.front().labels.job = "a\x1b[2J\nb\xff" + std::string(200, 'x');
  state->processes.front().labels.rank = "";
  state->processes.front().comm =
      "\xc2\x9b"
      "31m\r";
  facts.state = state;
  facts.procfs.path = "/x\x1b]0;y\a";
  const std::string text = text_of(facts);
  EXPECT_EQ(text.find_first_of("\x1b\a\r"), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
  expect_a_screen(text, 32);
  EXPECT_SHOWS(text, "  4242     -     a?[2J?b?xxxxxxxxxxxxxxx ?31m?");
}

TEST(CheckJson, SaysWhatTheTextSays) {
  CheckFacts facts = everything();
  auto state = copy_of_state(facts);
  state->processes.front().labels.job = "a\"b\\\n\xff";
  facts.state = state;
  unprivileged(facts);
  const std::string json = check_json(facts, summarize(facts));
  EXPECT_SHOWS(json,
               R"("outcome":1,"outcome_name":"degraded","hook":"none","works":["retransmits and segments)");
  EXPECT_SHOWS(json,
               R"("fix":"sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep ./kitty")");
  EXPECT_SHOWS(json,
               R"({"what":"capability","name":"CAP_BPF","state":"missing","detail":"maps and programs)");
  EXPECT_SHOWS(json,
               R"("job":"a\"b\\\u000a\ufffd","comm":"python3","netns":4026532179,"netns_shared":false)");
  EXPECT_TRUE(json.ends_with("}]}\n")) << json;
}

TEST(Hidepid, OfTheMountWithThatDevice) {
  struct HidepidCase {
    const char* name;
    std::string_view mountinfo, want;
  };
  const HidepidCase cases[] = {
      {"off", "22 27 0:21 / /proc rw,relatime - proc proc rw\n", "off"},
      {"by name", "22 27 0:21 / /proc rw - proc proc rw,gid=5,hidepid=invisible\n", "invisible"},
      {"by number", "22 27 0:21 / /proc rw - proc proc rw,hidepid=2,gid=5\n", "2"},
      {"zero", "22 27 0:21 / /proc rw - proc proc rw,hidepid=0", "off"},
      {"optional fields", "22 27 0:21 / /proc rw shared:5 master:1 - proc proc rw,hidepid=1\n", "1"},
      {"another procfs first",
       "9 1 0:20 / /old rw - proc proc rw,hidepid=2\n22 27 0:21 / /proc rw - proc proc rw\n", "off"},
      {"another type", "22 27 0:21 / /proc rw - tmpfs tmpfs rw,hidepid=2\n", ""},
      {"longer number", "22 27 0:211 / /proc rw - proc proc rw,hidepid=2\n", ""},
      {"garbage", "\n \nx\n22 27\n22 27 0:21\n0:21 - proc \n", ""},
      {"empty", "", ""},
  };
  for (const HidepidCase& c : cases) EXPECT_EQ(hidepid_of(c.mountinfo, "0:21"), c.want) << c.name;
}

}  // namespace
}  // namespace kitty::cli
