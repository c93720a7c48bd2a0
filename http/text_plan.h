// Who gets room in a text of bounded size, decided before it is written: a family's series stand together
// (prometheus.io/docs/instrumenting/exposition_formats), so whoever is written last must not be the one that
// is left out. Users have fair shares; in a user's, identities come before figures and these before
// histograms. Pure; no thread-safety needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collector/shares.h"

namespace kitty::http {

enum class TextPart : uint8_t { identity, figures, histogram };
inline constexpr size_t kTextParts = 3;

// What one process has to say. A part is written whole or not at all.
struct ProcessText {
  struct Part {
    uint64_t bytes = 0;  // at most
    uint64_t series = 0;
    bool granted = false;
  };
  uid_t uid = collector::kUnknownUid;
  // Among one user's the lower goes first, then the earlier in the list.
  uint64_t order = 0;
  std::array<Part, kTextParts> parts{};

  [[nodiscard]] Part& part(TextPart which) { return parts[static_cast<size_t>(which)]; }
  [[nodiscard]] const Part& part(TextPart which) const { return parts[static_cast<size_t>(which)]; }
};

// Grants what fits into `room` bytes in all. Counts the series of the rest, whose they are in `left_out`, and
// returns how many. Allocates only where something is left out.
uint64_t plan_text(uint64_t room, std::span<ProcessText> processes, collector::LeftOutByUser& left_out);

}  // namespace kitty::http
