#include "procfs/net_namespace.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {

std::optional<uint64_t> parse_net_link(std::string_view link) { return parse_bracketed(link, "net:["); }

ReadExpected<uint64_t> read_net_namespace(int pid_dirfd) {
  std::array<char, 64> text;
  const auto link = read_link_at(pid_dirfd, "ns/net", text);
  if (!link) return std::unexpected(link.error());
  const auto inode = parse_net_link(*link);
  if (!inode) return std::unexpected(ReadResult{ReadStatus::malformed, 0});
  return *inode;
}

ReadExpected<uint64_t> read_net_files_inode(int pid_dirfd) {
  struct stat status;
  if (::fstatat(pid_dirfd, "net/snmp", &status, 0) != 0) return std::unexpected(read_failure(errno));
  return static_cast<uint64_t>(status.st_ino);
}

}  // namespace kitty::procfs
