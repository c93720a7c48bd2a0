// What `kitty check` found, as people and as scripts read it, and what follows from it: what the agent would
// serve, what it would not, and the one command that changes that. Pure. No text of another process can break
// a line or steer a terminal.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collector/process_state.h"
#include "collector/rtt_hook.h"
#include "loader/explain.h"
#include "privileges/capabilities.h"
#include "privileges/user.h"

namespace kitty::cli {

enum class StartedBy { host, container, kubernetes };

// How this very program was started, and whether it could gain capabilities by being started again.
struct StartFacts {
  std::string program;                   // as it was called: "./kitty"
  StartedBy by = StartedBy::host;        // a container engine's file in the root, or the environment, says so
  uid_t uid = 0;                         // effective
  bool no_new_privileges = false;        // PR_GET_NO_NEW_PRIVS: neither setcap nor sudo helps
  bool nosuid = false;                   // the program's filesystem ignores setcap
  privileges::CapabilitySet held;        // effective
  privileges::CapabilitySet obtainable;  // the bounding set
};

enum class Processes { unknown, of_host, of_container };

struct ProcfsFacts {
  std::string path;
  std::string problem;                       // why nothing can be read there, in one line
  uint64_t listed = 0;                       // processes
  std::string hidepid;                       // the mount option as it is written; empty: not known
  Processes processes = Processes::unknown;  // whose they are
};

enum class AddressState { free, kitty, node_exporter, other, unusable };

struct AddressFacts {
  std::string address;
  AddressState state = AddressState::free;  // who answers there
  std::string problem;                      // why it cannot be listened on, in one line
  std::string instead;                      // an address that can be, where this one is taken
  std::vector<std::string> left_out;        // what the kitty there has no room for: "608 sockets of uid 1001"
  bool privileged_port = false;             // unusable for want of CAP_NET_BIND_SERVICE
};

struct CheckFacts {
  std::string release;  // uname -r
  std::string machine;  // uname -m
  loader::HostFacts host;
  std::string btf_path;
  bool btf_given = false;   // by --btf
  uint64_t btf_bytes = 0;   // 0: not known
  std::string wanted_hook;  // as --rtt-hook
  collector::HookTrials hooks;
  std::vector<std::string> symbols;  // kallsyms' word on the functions that could not be attached to
  StartFacts start;
  ProcfsFacts procfs;
  AddressFacts address;
  std::shared_ptr<const collector::ProcessState>
      state;               // what one scan found; null where procfs has a problem
  uint32_t own_netns = 0;  // of this program; 0: not known
};

// The exit status of `kitty check`.
enum class CheckOutcome { full = 0, degraded = 1, useless = 2 };

struct CheckSummary {
  CheckOutcome outcome = CheckOutcome::full;
  std::string hook;                // that the agent would take, or "none"
  std::vector<std::string> works;  // a clause each
  std::vector<std::string> lost;
  std::string fix;  // one command or setting for all that can be fixed; empty: nothing can
};

[[nodiscard]] CheckSummary summarize(const CheckFacts& facts);

// `summary` is of these facts. One screen, 80 columns wide but for the command, which is to be copied.
[[nodiscard]] std::string check_text(const CheckFacts& facts, const CheckSummary& summary);
[[nodiscard]] std::string check_json(const CheckFacts& facts, const CheckSummary& summary);

// The value of hidepid= of the procfs whose superblock has this "MAJOR:MINOR", from /proc/PID/mountinfo
// (proc(5)): "off" where the option is not there, empty where the mount is not.
[[nodiscard]] std::string hidepid_of(std::string_view mountinfo, std::string_view device);

}  // namespace kitty::cli
