// What the text files of one process say of sockets, as functions of a request that give an answer
// (expendable.h): the sockets at its descriptors, and the connections of its network namespace.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collector/expendable.h"
#include "collector/process_reader.h"
#include "procfs/fd_links.h"
#include "procfs/tcp_table.h"

namespace kitty::collector {

// Rows of a table that are nobody's and were not there at the pass before: so many are remembered with all
// they say until descriptors have been listed again; the rest wait for the next pass.
inline constexpr size_t kMaxUnknownRows = 4096;

using Inodes = std::shared_ptr<const std::vector<uint64_t>>;  // ascending

// The sockets at a process's descriptors.
class DescriptorReader {
 public:
  enum class Protocol : uint8_t { unknown, tcp, mptcp, other };
  struct Socket {
    uint64_t inode = 0;
    Protocol protocol = Protocol::unknown;
  };
  struct Request {
    Handle handle;
    uid_t uid = 0;
    bool count_only = false;
    // Not listed again where it has as many descriptors as `descriptors`, and more than `always_listed`.
    bool may_be_unchanged = false;
    uint64_t descriptors = 0;
    uint64_t always_listed = 0;
    Inodes known;  // sockets whose protocol need not be asked: it does not change
  };
  struct Answer {
    std::optional<uint64_t> count;  // with count_only, where the kernel tells it
    bool unchanged = false;
    procfs::FdWalk walk;
    std::vector<Socket> sockets;
  };
  Answer read(const Request& request, Turns& turns);

 private:
  std::array<char, procfs::kDirectoryBufferBytes> buffer_;
};

// The rows of net/tcp and net/tcp6 that somebody may want.
class TableReader {
 public:
  using Inodes = collector::Inodes;
  struct Request {
    Handle handle;
    uid_t uid = 0;
    Inodes owned;    // all rows of these are wanted
    Inodes foreign;  // and of the rest all but these, kMaxUnknownRows at most
  };
  struct Answer {
    bool complete = false;
    bool gone = false;  // the process is
    uint64_t errors = 0;
    std::vector<procfs::TcpRow> owned;
    std::vector<procfs::TcpRow> unknown;
    std::vector<uint64_t> others;  // inodes of all rows that are not owned
  };
  Answer read(const Request& request, Turns& turns);

 private:
  std::array<char, procfs::kTcpTableBufferBytes> buffer_;
};

}  // namespace kitty::collector
