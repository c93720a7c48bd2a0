// Why a function cannot be attached to by name: is it absent, inlined, or there more than once? For `kitty
// check` after a failure only: the file has 100,000-200,000 lines and takes the kernel over 100 ms to write.
// Pure scan beside a thin reader; thread-safe: no state is shared. Format: proc(5), "ffffffff81000000 T name
// [module]"; suffixes: GCC's -fipa-sra (.isra), -fipa-cp (.constprop), -fpartial-inlining (.part), .cold;
// Clang's .llvm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace kitty::loader {

struct SymbolPresence {
  uint32_t exact = 0;                 // functions of exactly this name; more than 1: ambiguous
  std::vector<std::string> variants;  // "tcp_rtt_estimator.isra.0", first kMaxVariants of them
  uint32_t variants_dropped = 0;      // beyond kMaxVariants
  uint64_t lines = 0;                 // lines read; 0 where the kernel shows none
};

// Collects what is known of one name while the text goes by in pieces cut anywhere.
class SymbolScan {
 public:
  static constexpr size_t kMaxVariants = 8;
  static constexpr size_t kMaxLineBytes =
      1024;  // KSYM_NAME_LEN 512, the module's name 64; longer lines are skipped

  explicit SymbolScan(std::string_view symbol) : symbol_(symbol) {}
  void feed(std::string_view piece);
  // Call once, after the last piece.
  [[nodiscard]] SymbolPresence finish();

 private:
  void line(std::string_view text);

  std::string symbol_;
  std::string partial_;  // of a line cut by the end of a piece
  bool skipping_ = false;
  SymbolPresence presence_;
};

// Reads /proc/kallsyms.
[[nodiscard]] Result<SymbolPresence> find_symbol(std::string_view symbol);

// "tcp_x: inlined or optimised into tcp_x.isra.0, whose arguments may differ"
[[nodiscard]] std::string describe(std::string_view symbol, const SymbolPresence& presence);

}  // namespace kitty::loader
