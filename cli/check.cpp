#include "cli/check.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/check_report.h"
#include "cli/ending.h"
#include "cli/flags.h"
#include "cli/read_scrape.h"
#include "cli/text.h"
#include "collector/embedded_object.h"
#include "collector/scanner.h"
#include "http/client.h"
#include "http/listen_address.h"
#include "loader/kallsyms.h"
#include "loader/kernel_btf.h"
#include "loader/sys.h"
#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/pids.h"

namespace kitty::cli {

namespace {

constexpr std::chrono::milliseconds kAskTimeout{2000};  // of each of two requests to who holds the address
constexpr unsigned kPortsTried = 32;                    // behind one that is taken
constexpr size_t kMaxMountinfoBytes = size_t{4} << 20;
constexpr std::string_view kInitialPidNamespace = "pid:[4026531836]";  // PROC_PID_INIT_INO, linux/proc_ns.h

void gather_kernel(const Flags& flags, CheckFacts& facts) {
  utsname name{};
  if (uname(&name) == 0) {
    facts.release = name.release;
    facts.machine = name.machine;
  }
  facts.btf_given = !flags.btf_path.empty();
  facts.btf_path = facts.btf_given ? flags.btf_path : loader::kKernelBtfPath;
  struct stat status{};
  if (stat(facts.btf_path.c_str(), &status) == 0) facts.btf_bytes = static_cast<uint64_t>(status.st_size);
}

// What kallsyms says of the functions that a rung could not be attached to.
std::vector<std::string> look_up_symbols(const collector::HookTrials& hooks) {
  std::vector<std::string_view> functions;
  for (const collector::HookTrial& trial : hooks.hooks) {
    const std::string_view function = trial.hook.substr(trial.hook.find('/') + 1);
    const bool of_function = trial.hook.starts_with("kprobe/") || trial.hook.starts_with("fentry/");
    if (of_function && !trial.reason.empty() && std::ranges::count(functions, function) == 0)
      functions.push_back(function);
  }
  std::vector<std::string> found;
  for (const std::string_view function : functions) {
    if (const auto presence = loader::find_symbol(function))
      found.push_back(loader::describe(function, *presence));
  }
  return found;
}

void gather_hooks(const Flags& flags, CheckFacts& facts) {
  facts.wanted_hook = flags.rtt_hook;
  facts.hooks = collector::try_hooks(collector::embedded_object(), flags.btf_path);
  facts.symbols = look_up_symbols(facts.hooks);
  facts.host = loader::read_host_facts();  // with the limits as trying has left them
}

// A container engine leaves its file in the root; so does a machine image that was made of a container's, but
// there this is the first mount namespace.
bool is_in_container() {
  constexpr ino_t kLastOfBoot = 0xf000000f;  // the namespaces made at boot are numbered from 0xeffffff8
  struct stat status{};
  if (stat("/proc/self/ns/mnt", &status) == 0 && status.st_ino <= kLastOfBoot) return false;
  return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;
}

void gather_start(CheckFacts& facts) {
  StartFacts& start = facts.start;
  // The path given to execve(2): there without /proc too.
  const auto* const program =
      reinterpret_cast<const char*>(getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
  if (program != nullptr) start.program = program;
  start.uid = geteuid();
  start.no_new_privileges = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
  struct statvfs filesystem{};
  start.nosuid = statvfs(start.program.c_str(), &filesystem) == 0 && (filesystem.f_flag & ST_NOSUID) != 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  if (std::getenv("KUBERNETES_SERVICE_HOST") != nullptr) {
    start.by = StartedBy::kubernetes;
  } else if (is_in_container()) {
    start.by = StartedBy::container;
  }
  if (facts.host.effective_capabilities) {
    start.held = privileges::CapabilitySet(*facts.host.effective_capabilities);
  } else {
    start.held = privileges::permitted().value_or(privileges::CapabilitySet());
  }
  for (const privileges::Capability one : privileges::all_used()) {
    if (prctl(PR_CAPBSET_READ, static_cast<unsigned long>(one), 0, 0, 0) == 1) start.obtainable.add(one);
  }
}

// The file a link under /proc names, or nothing.
std::string link_under(const Fd& root, const char* name) {
  std::array<char, 64> buffer;
  const auto link = procfs::read_link_at(root.get(), name, buffer);
  return link ? std::string(*link) : std::string();
}

// The host's where a kernel thread is to be seen as its second process, or kitty is in the host's pid
// namespace and this is that one's procfs.
Processes whose_processes(const Fd& root, std::string_view hidepid) {
  if (link_under(root, "self/ns/pid") == kInitialPidNamespace &&
      link_under(root, "self") == std::to_string(getpid()))
    return Processes::of_host;
  constexpr pid_t kThreadDaemon = 2;  // init/main.c, rest_init()
  // In a container it may be anybody's: stat could hang, status does not.
  std::array<char, 8192> buffer;
  const std::string path = std::to_string(kThreadDaemon) + "/status";
  if (const auto text = procfs::read_text_at(root.get(), path.c_str(), buffer)) {
    const bool is_it = text->starts_with("Name:\tkthreadd\n") && text->contains("\nPPid:\t0\n");
    return is_it ? Processes::of_host : Processes::of_container;
  }
  return hidepid == "off" ? Processes::of_container : Processes::unknown;
}

void gather_watched(const Fd& root, CheckFacts& facts) {
  collector::Scanner scanner(root.get(), nullptr);
  scanner.discover(collector::Scanner::Depth::all);
  facts.state = scanner.snapshot();
  if (const auto self = procfs::open_at(root.get(), "self", O_DIRECTORY)) {
    if (const auto netns = procfs::read_net_namespace(self->get()))
      facts.own_netns = static_cast<uint32_t>(*netns);
  }
}

void gather_procfs(const Flags& flags, CheckFacts& facts) {
  ProcfsFacts& procfs = facts.procfs;
  procfs.path = flags.procfs_path;
  const Result<Fd> root = procfs::open_root(flags.procfs_path.c_str());
  if (!root) {
    procfs.problem = root.error().message();
    return;
  }
  struct statfs filesystem{};
  if (fstatfs(root->get(), &filesystem) != 0 || filesystem.f_type != PROC_SUPER_MAGIC) {
    procfs.problem = procfs.path + ": no procfs is mounted there; see --path.procfs";
    return;
  }
  std::vector<char> buffer(procfs::kDirectoryBufferBytes);
  const auto listed = procfs::walk_pids(root->get(), buffer, [&procfs](pid_t, uint64_t) { ++procfs.listed; });
  if (!listed.ok()) {
    procfs.problem = procfs.path + ": " + errno_text(listed.err);
    return;
  }
  struct stat status{};
  const auto mounts = loader::sys::read_file((procfs.path + "/self/mountinfo").c_str(), kMaxMountinfoBytes);
  if (mounts && fstat(root->get(), &status) == 0) {
    procfs.hidepid = hidepid_of(
        *mounts, std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev)));
  }
  procfs.processes = whose_processes(*root, procfs.hidepid);
  gather_watched(*root, facts);
}

http::Url url_at(const http::ListenAddress& address, std::string path) {
  http::Url url{.host = address.host.empty() || address.host == "0.0.0.0" ? "127.0.0.1" : address.host,
                .port = address.port,
                .path = std::move(path)};
  if (url.host == "::") url.host = "::1";
  return url;
}

// What the agent that serves there says it leaves out, and whose.
std::vector<std::string> left_out_at(const http::ListenAddress& address, const std::string& telemetry_path) {
  const auto text = http::get(url_at(address, telemetry_path), kAskTimeout);
  const auto scrape = text ? read_scrape(*text) : std::unexpected(text.error());
  std::vector<std::string> list;
  if (!scrape) return list;
  for (const verdict::LeftOut& one : scrape->left_out) list.push_back(printable(verdict::describe(one)));
  return list;
}

// Who answers at an address that is taken.
AddressState ask(const http::ListenAddress& address) {
  http::Url url = url_at(address, "/-/healthy");
  if (const auto healthy = http::get(url, kAskTimeout); healthy && healthy->starts_with("kitty "))
    return AddressState::kitty;
  url.path = "/metrics";
  const auto metrics = http::get(url, kAskTimeout);
  if (metrics && metrics->find("\nkitty_build_info{") != std::string::npos) return AddressState::kitty;
  if (metrics && metrics->find("\nnode_exporter_build_info{") != std::string::npos)
    return AddressState::node_exporter;
  return AddressState::other;
}

// The first address behind a taken one that can be listened on; empty where none of those tried can.
std::string free_address(std::string_view text, uint16_t port) {
  const std::string host(text.substr(0, text.rfind(':') + 1));
  for (unsigned next = port + 1U; next <= UINT16_MAX && next <= port + kPortsTried; ++next) {
    std::string candidate = host + std::to_string(next);
    const auto address = http::parse_listen_address(candidate);
    if (address && http::listen_on(*address, candidate)) return candidate;
  }
  return {};
}

void gather_address(const Flags& flags, const http::ListenAddress& wanted, CheckFacts& facts) {
  AddressFacts& address = facts.address;
  address.address = flags.listen_address;
  const Result<Fd> listening = http::listen_on(wanted, flags.listen_address);
  if (listening) return;
  address.problem = listening.error().message();
  if (listening.error().err != EADDRINUSE) {
    address.state = AddressState::unusable;
    address.privileged_port = listening.error().err == EACCES;
    return;
  }
  address.state = ask(wanted);
  if (address.state == AddressState::kitty) address.left_out = left_out_at(wanted, flags.telemetry_path);
  address.instead = free_address(flags.listen_address, wanted.port);
}

// Every watched process found costs a descriptor while the scan lasts.
void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::string_view check_help_text() {
  return R"(kitty check says what the agent would and would not do on this host, and what would change that.

usage: kitty check [flags]

Attaches every hook, one after another, tests it on a loopback connection and detaches it again; listens on the
address for a moment; looks for watched processes once. Leaves nothing behind. Start it as the agent would be started,
with the same flags.

  --json    one JSON object for scripts
  --help    print this and exit
  and the agent's flags, of which --web.listen-address, --path.procfs, --rtt-hook and --btf matter here

exit status: 0 everything works, 1 the agent would serve less than it could, 2 it could not serve, 3 wrong usage
)";
}

int check(std::span<const std::string_view> arguments) {
  std::vector<std::string_view> of_agent(arguments.begin(), arguments.end());
  const bool json = std::erase(of_agent, "--json") != 0;
  const Result<Flags> flags = parse_flags(of_agent);
  if (!flags) return refuse(kWrongUsage, flags.error());
  if (flags->show_help) {
    std::fputs(std::string(check_help_text()).c_str(), stdout);
    return 0;
  }
  const Result<http::ListenAddress> address = http::parse_listen_address(flags->listen_address);
  if (!address) return refuse(kWrongUsage, address.error());
  std::signal(SIGPIPE, SIG_IGN);
  log::set_level(log::Level::error);  // what the scanner would log is in the report
  raise_open_files();

  CheckFacts facts;
  gather_kernel(*flags, facts);
  gather_hooks(*flags, facts);
  gather_start(facts);
  gather_procfs(*flags, facts);
  gather_address(*flags, *address, facts);

  const CheckSummary summary = summarize(facts);
  const std::string text = json ? check_json(facts, summary) : check_text(facts, summary);
  return print_report(text, static_cast<int>(summary.outcome), static_cast<int>(CheckOutcome::useless));
}

}  // namespace kitty::cli
