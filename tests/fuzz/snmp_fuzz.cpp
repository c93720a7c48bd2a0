// Any bytes as net/snmp: no read outside the input, nothing published on an error, no negative sum published.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "procfs/snmp.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kitty::procfs;
  SnmpTcp before;
  before.out_segs = 123456789;
  SnmpTcp tcp = before;
  if (parse_snmp({reinterpret_cast<const char*>(data), size}, tcp) != SnmpError::none) {
    if (tcp != before) std::abort();
    return 0;
  }
  for (const std::optional<uint64_t>& value :
       {tcp.active_opens, tcp.passive_opens, tcp.attempt_fails, tcp.estab_resets, tcp.curr_estab, tcp.in_segs,
        tcp.out_segs, tcp.retrans_segs, tcp.in_errs, tcp.out_rsts, tcp.in_csum_errors}) {
    if (value && *value >> 63 != 0) std::abort();
  }
  return 0;
}
