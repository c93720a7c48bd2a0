// /proc/PID/net/snmp: the counters of the network *namespace* the process lives in (net/ipv4/proc.c), shared
// by all processes of that namespace. Columns are found by name, because kernels insert new ones in the
// middle. The parser owns and allocates nothing; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "procfs/read_status.h"

namespace kitty::procfs {

// What the file takes is about 1.3 KB; the rest is room for more columns and IcmpMsg lines.
inline constexpr size_t kSnmpBufferBytes = size_t{16} * 1024;

// The counters of the `Tcp:` lines (RFC 4022). A column that this kernel does not have, or whose value is
// 2^63 or more (a sum over CPUs caught while negative), is absent rather than 0. 32-bit kernels wrap at 2^32.
struct SnmpTcp {
  std::optional<uint64_t> active_opens;
  std::optional<uint64_t> passive_opens;
  std::optional<uint64_t> attempt_fails;
  std::optional<uint64_t> estab_resets;
  std::optional<uint64_t> curr_estab;
  std::optional<uint64_t> in_segs;
  std::optional<uint64_t> out_segs;
  std::optional<uint64_t> retrans_segs;
  std::optional<uint64_t> in_errs;
  std::optional<uint64_t> out_rsts;
  std::optional<uint64_t> in_csum_errors;
  uint32_t invalid_columns = 0;  // of the above, present but 2^63 or more

  friend bool operator==(const SnmpTcp&, const SnmpTcp&) = default;
};

enum class SnmpError : uint8_t {
  none,
  no_tcp,            // there are no `Tcp:` lines
  unpaired,          // `Tcp:` names not followed by `Tcp:` values, or more than one such pair
  column_count,      // more names than values or the other way round
  duplicate_column,  // a wanted name twice
  bad_number,        // a wanted value that is no unsigned 64-bit decimal
  unterminated,      // the last line lacks its newline: the file was cut
};

// Parses the whole text, then assigns `tcp`; on any error `tcp` stays as it was.
[[nodiscard]] SnmpError parse_snmp(std::string_view text, SnmpTcp& tcp);

// Reads net/snmp of the process behind `pid_dirfd` through `buffer` and parses it; malformed on a SnmpError.
// `tcp` is assigned only when ok. A zombie has no net directory: gone.
[[nodiscard]] ReadResult read_snmp(int pid_dirfd, std::span<char> buffer, SnmpTcp& tcp);

}  // namespace kitty::procfs
