// /proc/PID/net/tcp and net/tcp6: the TCP sockets of the network namespace the process lives in
// (get_tcp4_sock in net/ipv4/tcp_ipv4.c, get_tcp6_sock in net/ipv6/tcp_ipv6.c). One row a line:
//
//   sl: ADDR:PORT ADDR:PORT ST TX:RX TR:WHEN RETR UID TIMEOUT INODE [...]
//
// The parser takes the file in chunks of any size, holds at most one unfinished line, and allocates nothing.
// A row that cannot be read is counted and skipped. A parser serves one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "procfs/address.h"
#include "procfs/function_ref.h"
#include "procfs/read_status.h"

namespace kitty::procfs {

// Rows are padded to 149 bytes; the widest tcp6 row with every number at its maximum stays below 360.
inline constexpr size_t kMaxTcpLineBytes = 512;

// Holds several of the pages that the kernel gives a read at most.
inline constexpr size_t kTcpTableBufferBytes = size_t{16} * 1024;

// include/net/tcp_states.h
enum class TcpState : uint8_t {
  established = 1,
  syn_sent = 2,
  syn_recv = 3,
  fin_wait1 = 4,
  fin_wait2 = 5,
  time_wait = 6,
  close = 7,
  close_wait = 8,
  last_ack = 9,
  listen = 10,
  closing = 11,
};

struct TcpRow {
  IpAddress local{};
  IpAddress remote{};
  uint16_t local_port = 0;
  uint16_t remote_port = 0;
  uint8_t state = 0;  // a TcpState, or a number that a later kernel adds
  bool ipv6 = false;  // from a row of net/tcp6, v4-mapped ones included
  uint32_t uid = 0;
  uint64_t tx_queue_bytes = 0;  // as printed: see queued_tx_bytes
  uint64_t rx_queue_bytes = 0;
  uint64_t inode = 0;  // 0: no file yet or no more (not accepted, orphaned, TIME_WAIT, SYN_RECV)

  [[nodiscard]] bool is(TcpState which) const { return state == static_cast<uint8_t>(which); }
  friend bool operator==(const TcpRow&, const TcpRow&) = default;
};

// Bytes of data in the send queue, unsent or not yet acknowledged. The file prints write_seq - snd_una, in
// which an unacknowledged SYN or FIN counts one; a listener's queues are connections, not bytes; SYN_RECV,
// TIME_WAIT and CLOSE have none.
[[nodiscard]] uint64_t queued_tx_bytes(const TcpRow& row);

// The row at the fixed places that the kernel's format gives it, counted from the colon after `sl`; false
// when the shape differs in any way. `line` is without its newline; `terminated` says that there was one:
// without it, a number at the end may be cut and does not count. On false `row` holds nothing of use. For the
// parser and its tests.
[[nodiscard]] bool parse_tcp_row_fixed(std::string_view line, bool terminated, TcpRow& row);

// The same row token by token, whatever the widths. Reads all that parse_tcp_row_fixed reads, to the same
// values.
[[nodiscard]] bool parse_tcp_row_tokens(std::string_view line, bool terminated, TcpRow& row);

class TcpTableParser {
 public:
  using OnRow = FunctionRef<void(const TcpRow&)>;

  // The next bytes of the file, cut anywhere. A first line that begins with "sl" is the header.
  void feed(std::string_view chunk, OnRow on_row);
  // The end of the file: what is left is a last line without newline.
  void finish(OnRow on_row);

  [[nodiscard]] uint64_t rows() const { return rows_; }
  // Lines that are no row, those longer than kMaxTcpLineBytes included.
  [[nodiscard]] uint64_t errors() const { return errors_; }
  // Of the rows, those that took the token walk.
  [[nodiscard]] uint64_t irregular_rows() const { return irregular_rows_; }

 private:
  void take_line(std::string_view line, bool terminated, OnRow on_row);
  void keep(std::string_view part);

  TcpRow row_;  // the latest: here rather than cleared for every line
  std::array<char, kMaxTcpLineBytes> carry_;
  size_t carry_size_ = 0;
  bool skipping_ = false;  // inside a line that was too long
  bool first_line_ = true;
  uint64_t rows_ = 0;
  uint64_t errors_ = 0;
  uint64_t irregular_rows_ = 0;
};

enum class TcpTable : uint8_t { tcp, tcp6 };

struct TcpTableRead {
  ReadResult result;
  bool absent = false;  // ok, and the kernel has no such table: net/tcp6 with ipv6.disable=1
  uint64_t rows = 0;
  uint64_t errors = 0;
};

// Reads the table of the network namespace of the process behind `pid_dirfd` through `buffer`
// (kTcpTableBufferBytes) and calls back for every row. Rows already reported stand when the read ends with an
// error. The kernel walks its hash table between two reads: rows may be missing or come twice, so count by
// inode. Costs about 2 us of kernel time a row, and milliseconds for the sockets of other namespaces.
[[nodiscard]] TcpTableRead read_tcp_table(int pid_dirfd, TcpTable table, std::span<char> buffer,
                                          TcpTableParser::OnRow on_row);

}  // namespace kitty::procfs
