// The proof that a hook sees data: a TCP pair on 127.0.0.1 that exchanges a few bytes while the hook is
// attached. Attaching alone proves nothing, for the probed functions also serve handshakes and may be inlined
// where it matters.
#pragma once

#include "base/error.h"
#include "collector/flow_maps.h"

namespace kitty::collector {

inline constexpr int kSelfTestRounds = 20;   // each gives one data ACK, one of them late with tcp_probe
inline constexpr int kSelfTestSamples = 10;  // least number accepted

// Returns which of the kernel's own counters (enum kitty_have) came with the samples. Errors say what was
// seen instead. Leaves no entry behind. Takes a few milliseconds; at most a few seconds where loopback
// traffic is dropped.
[[nodiscard]] Result<uint32_t> run_self_test(FlowMaps& maps);

}  // namespace kitty::collector
