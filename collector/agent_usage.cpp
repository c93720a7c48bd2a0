#include "collector/agent_usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/log.h"
#include "procfs/directory.h"
#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::collector {

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

AgentUsage read_agent_usage() {
  AgentUsage usage;
  rusage self{};
  if (getrusage(RUSAGE_SELF, &self) == 0) usage.cpu_seconds = seconds(self.ru_utime) + seconds(self.ru_stime);

  std::array<char, 256> statm{};
  if (const auto text = procfs::read_text_at(AT_FDCWD, "/proc/self/statm", statm)) {
    procfs::Tokens tokens(*text);
    (void)tokens.next();  // total size
    usage.resident_bytes =
        procfs::parse_decimal(tokens.next()).value_or(0) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  if (const auto fds = procfs::open_at(AT_FDCWD, "/proc/self/fd", O_DIRECTORY)) {
    std::array<char, 4096> buffer;
    uint64_t count = 0;
    (void)procfs::walk_directory(fds->get(), buffer, [&count](const char*, uint64_t) { ++count; });
    usage.open_fds = count - (count > 0 ? 1 : 0);  // less the one that looks
  }
  usage.log_lines_dropped = log::lines_dropped();
  return usage;
}

}  // namespace kitty::collector
