#include "collector/socket_reader.h"

#include <algorithm>
#include <optional>

namespace kitty::collector {

namespace {

// Between two signs of life: some milliseconds of reading.
constexpr uint64_t kSignsOfLife = 1024;

DescriptorReader::Protocol protocol_of(const procfs::ProcessHandle& process, const char* fd) {
  using Protocol = DescriptorReader::Protocol;
  std::array<char, procfs::kSocketProtocolBytes> buffer;
  const auto name = process.read_socket_protocol(fd, buffer);
  if (!name) return Protocol::unknown;
  if (*name == "TCP" || *name == "TCPv6") return Protocol::tcp;
  return *name == "MPTCP" || *name == "MPTCPv6" ? Protocol::mptcp : Protocol::other;
}

}  // namespace

DescriptorReader::Answer DescriptorReader::read(const Request& request, Turns& turns) {
  Answer answer;
  const procfs::ProcessHandle& process = *request.handle;
  if (!turns.may_hang({.owner = request.uid, .start_time_ticks = process.id().start_time_ticks},
                      2 * kMaxHungReadsOfUser))
    return answer;
  if (request.count_only) {
    answer.count = process.fd_count();
    return answer;
  }
  if (request.may_be_unchanged) {
    const std::optional<uint64_t> descriptors = process.fd_count();
    answer.unchanged = descriptors == request.descriptors && *descriptors > request.always_listed;
    if (answer.unchanged) return answer;
  }
  answer.walk = process.walk_socket_fds(buffer_, [&](uint64_t inode, const char* fd) {
    const bool known = request.known && std::ranges::binary_search(*request.known, inode);
    answer.sockets.push_back({inode, known ? Protocol::unknown : protocol_of(process, fd)});
    if (answer.sockets.size() % kSignsOfLife == 0) turns.goes_on();
  });
  return answer;
}

TableReader::Answer TableReader::read(const Request& request, Turns& turns) {
  Answer answer;
  const procfs::ProcessHandle& process = *request.handle;
  if (!turns.may_hang({.owner = request.uid, .start_time_ticks = process.id().start_time_ticks},
                      2 * kMaxHungReadsOfUser))
    return answer;
  answer.complete = true;
  uint64_t rows = 0;
  for (const procfs::TcpTable table : {procfs::TcpTable::tcp, procfs::TcpTable::tcp6}) {
    const procfs::TcpTableRead read = process.read_tcp_table(table, buffer_, [&](const procfs::TcpRow& row) {
      if (++rows % kSignsOfLife == 0) turns.goes_on();
      if (row.inode == 0) return;
      if (std::ranges::binary_search(*request.owned, row.inode)) {
        answer.owned.push_back(row);
        return;
      }
      answer.others.push_back(row.inode);
      if (answer.unknown.size() < kMaxUnknownRows && !std::ranges::binary_search(*request.foreign, row.inode))
        answer.unknown.push_back(row);
    });
    answer.errors += read.errors;
    answer.complete = answer.complete && read.result.ok();
  }
  answer.gone = !answer.complete && !process.alive();
  return answer;
}

}  // namespace kitty::collector
