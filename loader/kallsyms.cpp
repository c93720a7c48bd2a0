#include "loader/kallsyms.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/fd.h"

namespace kitty::loader {

namespace {
constexpr const char* kPath = "/proc/kallsyms";
constexpr size_t kPieceBytes = 65536;
}  // namespace

void SymbolScan::feed(std::string_view piece) {
  while (!piece.empty()) {
    const size_t newline = piece.find('\n');
    const std::string_view part = piece.substr(0, newline);
    if (!skipping_ && part.size() > kMaxLineBytes - partial_.size()) {
      skipping_ = true;
      partial_.clear();
    }
    if (newline == piece.npos) {
      if (!skipping_) partial_ += part;
      return;
    }
    if (skipping_) {
      skipping_ = false;
    } else if (partial_.empty()) {
      line(part);
    } else {
      partial_ += part;
      line(partial_);
      partial_.clear();
    }
    piece.remove_prefix(newline + 1);
  }
}

SymbolPresence SymbolScan::finish() {
  if (!partial_.empty()) line(partial_);
  partial_.clear();
  return std::move(presence_);
}

void SymbolScan::line(std::string_view text) {
  ++presence_.lines;
  // address, type, name[, module]
  const size_t first = text.find(' ');
  if (first == text.npos || text.size() - first < 4 || text[first + 2] != ' ') return;
  const char type = text[first + 1];
  if (type != 't' && type != 'T' && type != 'w' && type != 'W') return;
  std::string_view name = text.substr(first + 3);
  name = name.substr(0, name.find_first_of("\t "));
  if (!name.starts_with(symbol_)) return;
  if (name.size() == symbol_.size()) {
    ++presence_.exact;
  } else if (name[symbol_.size()] == '.') {
    if (presence_.variants.size() < kMaxVariants) {
      presence_.variants.emplace_back(name);
    } else {
      ++presence_.variants_dropped;
    }
  }
}

Result<SymbolPresence> find_symbol(std::string_view symbol) {
  const Fd fd(open(kPath, O_RDONLY | O_CLOEXEC));
  if (!fd) return fail("read", kPath, errno);
  SymbolScan scan(symbol);
  std::array<char, kPieceBytes> piece;
  for (;;) {
    const ssize_t count = read(fd.get(), piece.data(), piece.size());
    if (count == 0) return scan.finish();
    if (count < 0) {
      if (errno == EINTR) continue;
      return fail("read", kPath, errno);
    }
    scan.feed(std::string_view(piece.data(), static_cast<size_t>(count)));
  }
}

std::string describe(std::string_view symbol, const SymbolPresence& presence) {
  std::string text(symbol);
  if (presence.lines == 0) return text + ": the kernel shows no symbols";
  if (presence.exact == 1) return text + ": present";
  if (presence.exact > 1) {
    return text + ": ambiguous, " + std::to_string(presence.exact) + " functions have this name";
  }
  if (presence.variants.empty()) return text + ": absent or inlined everywhere";
  text += ": only as ";
  for (size_t i = 0; i < presence.variants.size(); ++i) text += (i > 0 ? ", " : "") + presence.variants[i];
  if (presence.variants_dropped > 0) text += " and " + std::to_string(presence.variants_dropped) + " more";
  return text + ", whose arguments may differ";
}

}  // namespace kitty::loader
