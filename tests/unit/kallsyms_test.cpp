#include "loader/kallsyms.h"

#include <gtest/gtest.h>

#include <string>

namespace kitty::loader {
namespace {

// Looks for tcp_x.
SymbolPresence scan(std::string_view text, size_t piece_bytes) {
  SymbolScan scan("tcp_x");
  for (size_t at = 0; at < text.size(); at += piece_bytes) scan.feed(text.substr(at, piece_bytes));
  return scan.finish();
}

TEST(SymbolScan, TellsPresentFromInlinedAndAmbiguous) {
  struct Case {
    const char* name;
    std::string_view text;
    std::string_view want;
  };
  const Case cases[] = {
      {"present", "ffffffff81000000 T tcp_x\n", "tcp_x: present"},
      {"local", "ffffffff81000000 t tcp_x\n", "tcp_x: present"},
      {"in a module", "ffffffff81000000 t tcp_x\t[tcp_mod]\n", "tcp_x: present"},
      {"addresses hidden", "0000000000000000 T tcp_x\n", "tcp_x: present"},
      {"no last newline", "ffffffff81000000 T tcp_x", "tcp_x: present"},
      {"absent", "ffffffff81000000 T tcp_y\n", "tcp_x: absent or inlined everywhere"},
      {"longer name", "ffffffff81000000 T tcp_xy\n", "tcp_x: absent or inlined everywhere"},
      {"data", "ffffffff81000000 D tcp_x\n", "tcp_x: absent or inlined everywhere"},
      {"twice", "ffffffff81000000 t tcp_x\nffffffff81000040 t tcp_x\n",
       "tcp_x: ambiguous, 2 functions have this name"},
      {"variants", "ffffffff81000000 t tcp_x.isra.0\nffffffff81000040 t tcp_x.constprop.1\n",
       "tcp_x: only as tcp_x.isra.0, tcp_x.constprop.1, whose arguments may differ"},
      {"variant beside it", "ffffffff81000000 t tcp_x.cold\nffffffff81000040 T tcp_x\n", "tcp_x: present"},
      {"many variants",
       "0 t tcp_x.1\n0 t tcp_x.2\n0 t tcp_x.3\n0 t tcp_x.4\n0 t tcp_x.5\n0 t tcp_x.6\n0 t tcp_x.7\n0 t "
       "tcp_x.8\n"
       "0 t tcp_x.9\n0 t tcp_x.10\n",
       "tcp_x: only as tcp_x.1, tcp_x.2, tcp_x.3, tcp_x.4, tcp_x.5, tcp_x.6, tcp_x.7, tcp_x.8 and 2 more, "
       "whose "
       "arguments may differ"},
      {"garbage", "\n \nx\nffffffff81000000\nffffffff81000000 T\nffffffff81000000 T \n",
       "tcp_x: absent or inlined everywhere"},
      {"empty", "", "tcp_x: the kernel shows no symbols"},
  };
  for (const Case& c : cases) {
    for (const size_t piece_bytes : {size_t{1}, size_t{7}, size_t{4096}}) {
      EXPECT_EQ(describe("tcp_x", scan(c.text, piece_bytes)), c.want) << c.name << ", " << piece_bytes;
    }
  }
}

TEST(SymbolScan, SkipsLinesBeyondItsLimitAndGoesOn) {
  const std::string text = "0 T tcp_x" + std::string(SymbolScan::kMaxLineBytes, 'y') + "\n0 T tcp_x\n";
  for (const size_t piece_bytes : {size_t{1}, size_t{100}, size_t{4096}}) {
    EXPECT_EQ(scan(text, piece_bytes).exact, 1U) << piece_bytes;
  }
}

TEST(FindSymbol, FindsWhatEveryKernelHas) {
  const auto presence = find_symbol("tcp_sendmsg");
  if (!presence) GTEST_SKIP() << presence.error().message();
  if (presence->lines == 0) GTEST_SKIP() << "/proc/kallsyms is empty";
  EXPECT_EQ(presence->exact, 1U);
  const auto absent = find_symbol("kitty_no_such_function");
  ASSERT_TRUE(absent) << absent.error().message();
  EXPECT_EQ(absent->exact, 0U);
  // Programs of other tests come and go meanwhile, each a symbol or two.
  EXPECT_NEAR(static_cast<double>(absent->lines), static_cast<double>(presence->lines), 1000);
}

}  // namespace
}  // namespace kitty::loader
