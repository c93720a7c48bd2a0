#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "procfs/tcp_table.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

// As the kernel pads a row of net/tcp.
std::string pad(std::string row) {
  row.resize(std::max<size_t>(row.size(), 149), ' ');
  return row + '\n';
}

const std::string kHeader =
    pad("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode");
const std::string kHeader6 =
    "  sl  local_address                         remote_address                        st tx_queue rx_queue "
    "tr tm->when "
    "retrnsmt   uid  timeout inode\n";
const std::string kListen =
    pad("   0: 0100007F:1389 00000000:0000 0A 00000000:00000003 00:00000000 00000000     0        0 316847 4 "
        "0000000091db104c 100 0 0 10 0");
const std::string kNotAccepted =
    pad("   4: 0100007F:1389 0100007F:A044 01 00000000:0000000A 00:00000000 00000000     0        0 0 1 "
        "00000000ca000f25 20 4 "
        "30 10 -1");
const std::string kTimeWait =
    pad("   1: 020200C0:ACCC 507100CB:0050 06 00000000:00000000 03:00001408 00000000     0        0 0 3 "
        "00000000468a13f3");
const std::string kWide =
    pad("1234567: 0100007F:9942 0100007F:1E61 01 FFFFFFFF:7FFFFFFF 01:100000000 00000003 4294967294      255 "
        "4294967295 12 "
        "(____ptrval____) 12000 4 30 65535 2147483647");
const std::string kShort = "   5: 0100007F:1389 0100007F:A044 01\n";
const std::string kTcp6 =
    "   0: 000080FE00000000FFADE15609667CFE:1F90 0000000000000000FFFF00000100007F:C350 01 00000010:00000020 "
    "00:00000000 "
    "00000000  1000        0 98765 1 0000000000000000 20 4 30 10 -1\n";

IpAddress v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

TcpRow row(IpAddress local, uint16_t local_port, IpAddress remote, uint16_t remote_port, TcpState state,
           uint64_t tx, uint64_t rx, uint32_t uid, uint64_t inode) {
  TcpRow row;
  row.local = local;
  row.remote = remote;
  row.local_port = local_port;
  row.remote_port = remote_port;
  row.state = static_cast<uint8_t>(state);
  row.uid = uid;
  row.tx_queue_bytes = tx;
  row.rx_queue_bytes = rx;
  row.inode = inode;
  return row;
}

const TcpRow kListenRow = row(v4(127, 0, 0, 1), 5001, v4(0, 0, 0, 0), 0, TcpState::listen, 0, 3, 0, 316847);
const TcpRow kNotAcceptedRow =
    row(v4(127, 0, 0, 1), 5001, v4(127, 0, 0, 1), 41028, TcpState::established, 0, 10, 0, 0);
const TcpRow kTimeWaitRow =
    row(v4(192, 0, 2, 2), 44236, v4(203, 0, 113, 80), 80, TcpState::time_wait, 0, 0, 0, 0);
const TcpRow kWideRow = row(v4(127, 0, 0, 1), 39234, v4(127, 0, 0, 1), 7777, TcpState::established,
                            4294967295, 2147483647, 4294967294, 4294967295);

TcpRow tcp6_row() {
  TcpRow expected = row({0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x56, 0xe1, 0xad, 0xff, 0xfe, 0x7c, 0x66, 0x09}, 8080,
                        v4(127, 0, 0, 1), 50000, TcpState::established, 16, 32, 1000, 98765);
  expected.ipv6 = true;
  return expected;
}

struct Outcome {
  std::vector<TcpRow> rows;
  uint64_t errors = 0;
  uint64_t counted_rows = 0;
  uint64_t irregular_rows = 0;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome parse(const std::vector<std::string_view>& chunks) {
  Outcome outcome;
  TcpTableParser parser;
  const auto on_row = [&](const TcpRow& row) { outcome.rows.push_back(row); };
  for (const std::string_view chunk : chunks) {
    const GuardPage page(chunk);
    parser.feed(page.text(), on_row);
  }
  parser.finish(on_row);
  outcome.errors = parser.errors();
  outcome.counted_rows = parser.rows();
  outcome.irregular_rows = parser.irregular_rows();
  return outcome;
}

struct Case {
  const char* name;
  std::string text;
  std::vector<TcpRow> rows;
  uint64_t errors;
  uint64_t irregular_rows;
};

std::string without_newline(std::string text) {
  text.pop_back();
  return text;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  text.replace(text.find(what), what.size(), by);
  return text;
}

TcpRow changed(TcpRow row, auto change) {
  change(row);
  return row;
}

const Case kCases[] = {
    {"EmptyFile", "", {}, 0, 0},
    {"HeaderOnly", kHeader, {}, 0, 0},
    {"Header6Only", kHeader6, {}, 0, 0},
    {"HeaderCut", "  sl  local_add", {}, 0, 0},
    {"Listen", kHeader + kListen, {kListenRow}, 0, 0},
    {"NotAcceptedYet", kHeader + kNotAccepted, {kNotAcceptedRow}, 0, 0},
    {"TimeWait", kHeader + kTimeWait, {kTimeWaitRow}, 0, 0},
    {"WideValues", kHeader + kWide, {kWideRow}, 0, 1},
    {"NoHeader",
     kListen + kNotAccepted + kTimeWait + kWide,
     {kListenRow, kNotAcceptedRow, kTimeWaitRow, kWideRow},
     0,
     1},
    {"Tcp6", kHeader6 + kTcp6, {tcp6_row()}, 0, 0},
    {"Tcp6MappedEqualsTcp",
     "   0: 0000000000000000FFFF00000100007F:1389 0000000000000000FFFF00000100007F:A044 01 00000000:0000000A "
     "00:00000000 "
     "00000000     0        0 0 1 0000000000000000 20 4 30 10 -1\n",
     {changed(kNotAcceptedRow, [](TcpRow& row) { row.ipv6 = true; })},
     0,
     0},
    {"ShortRowBetweenGoodOnes", kHeader + kListen + kShort + kTimeWait, {kListenRow, kTimeWaitRow}, 1, 0},
    {"EmptyLine", kHeader + "\n" + kListen, {kListenRow}, 1, 0},
    {"HeaderAgainIsNoRow", kHeader + kListen + kHeader, {kListenRow}, 1, 0},
    {"LastRowWithoutNewline",
     kHeader + kListen + without_newline(kTimeWait),
     {kListenRow, kTimeWaitRow},
     0,
     0},
    {"LastRowCutInInode",
     kHeader + kListen + kListen.substr(0, kListen.find("316847") + 4),
     {kListenRow},
     1,
     0},
    {"LastRowCutBehindInode", kHeader + kListen.substr(0, kListen.find("316847") + 6), {}, 1, 0},
    {"InodeEndsTheLine", kListen.substr(0, kListen.find("316847") + 6) + "\n", {kListenRow}, 0, 0},
    {"InodeOf64Bits",
     replaced(kListen, "316847", "18446744073709551615"),
     {changed(kListenRow, [](TcpRow& row) { row.inode = 18446744073709551615u; })},
     0,
     0},
    {"InodeTooLarge", replaced(kListen, "316847", "18446744073709551616"), {}, 1, 0},
    {"InodeNotDecimal", replaced(kListen, "316847", "31684x"), {}, 1, 0},
    {"NegativeTimeout", replaced(kListen, "    0        0", "    0       -1"), {kListenRow}, 0, 0},
    {"UidTooLarge", replaced(kListen, "    0        0", "4294967296    0"), {}, 1, 0},
    {"LowerCaseHex", replaced(kNotAccepted, "A044", "a044"), {kNotAcceptedRow}, 0, 0},
    {"UnknownState",
     replaced(kListen, " 0A ", " 0D "),
     {changed(kListenRow, [](TcpRow& row) { row.state = 13; })},
     0,
     0},
    {"NoHexInAddress", replaced(kListen, "0100007F", "0100007G"), {}, 1, 0},
    {"NoHexInPort", replaced(kListen, "1389", "138:"), {}, 1, 0},
    {"NoHexInState", replaced(kListen, " 0A ", " 0. "), {}, 1, 0},
    {"NoHexInQueue", replaced(kListen, "00000003", "0000 003"), {}, 1, 0},
    {"NoHexInWhen", replaced(kListen, "00:00000000", "00:0000 000"), {}, 1, 0},
    {"HighBitInQueue", replaced(kListen, "00000003", "0000000\xb3"), {}, 1, 0},
    {"MixedFamilies", replaced(kListen, "00000000:0000", "00000000000000000000000000000000:0000"), {}, 1, 0},
    {"SlotMissing", replaced(kListen, "   0:", "    :"), {}, 1, 0},
    {"SlotNotDecimal", replaced(kListen, "   0:", "   x:"), {}, 1, 0},
    {"LineOfLimit",
     [] {
       std::string line = without_newline(kListen);
       line.resize(kMaxTcpLineBytes, ' ');
       return line + "\n" + kTimeWait;
     }(),
     {kListenRow, kTimeWaitRow},
     0,
     0},
    {"LineAboveLimit",
     [] {
       std::string line = without_newline(kListen);
       line.resize(kMaxTcpLineBytes + 1, ' ');
       return line + "\n" + kTimeWait;
     }(),
     {kTimeWaitRow},
     1,
     0},
    {"EndlessLine",
     kHeader + std::string(5 * kMaxTcpLineBytes, 'x') + "\n" + kTimeWait,
     {kTimeWaitRow},
     1,
     0},
    {"EndlessLineAtTheEnd",
     kHeader + kTimeWait + std::string(5 * kMaxTcpLineBytes, 'x'),
     {kTimeWaitRow},
     1,
     0},
};

class TcpTableTest : public testing::TestWithParam<Case> {
 protected:
  static Outcome expected() {
    const Case& c = GetParam();
    return {c.rows, c.errors, c.rows.size(), c.irregular_rows};
  }
};

TEST_P(TcpTableTest, Whole) { EXPECT_EQ(parse({GetParam().text}), expected()); }

TEST_P(TcpTableTest, CutInTwoAtEveryByte) {
  const std::string_view text = GetParam().text;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    ASSERT_EQ(parse({text.substr(0, cut), text.substr(cut)}), expected()) << "cut at " << cut;
  }
}

TEST_P(TcpTableTest, ByteByByte) {
  const std::string_view text = GetParam().text;
  std::vector<std::string_view> chunks;
  for (size_t i = 0; i < text.size(); ++i) chunks.push_back(text.substr(i, 1));
  EXPECT_EQ(parse(chunks), expected());
}

INSTANTIATE_TEST_SUITE_P(TcpTable, TcpTableTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(TcpTable, BothWaysOfReadingAgreeOnEveryDamage) {
  uint64_t read_by_both = 0;
  uint64_t refused_by_both = 0;
  for (const std::string& line : {kListen, kTimeWait, kTcp6}) {
    const std::string good = without_newline(line);
    for (size_t at = 0; at < good.size(); ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string damaged = good;
        damaged[at] = static_cast<char>(byte);
        TcpRow fixed;
        TcpRow tokens;
        const bool by_fixed = parse_tcp_row_fixed(damaged, true, fixed);
        const bool by_tokens = parse_tcp_row_tokens(damaged, true, tokens);
        if (by_fixed) {
          ASSERT_TRUE(by_tokens) << damaged;
          ASSERT_EQ(fixed, tokens) << damaged;
        }
        read_by_both += by_fixed && by_tokens;
        refused_by_both += !by_fixed && !by_tokens;
      }
    }
  }
  EXPECT_GT(read_by_both, 0u);
  EXPECT_GT(refused_by_both, 0u);
}

TEST(TcpTable, HexDigitsInEveryPlace) {
  constexpr std::string_view kDigits = "0123456789ABCDEFabcdef";
  const std::string good = without_newline(kListen);
  const size_t tx = good.find("00000000:00000003");
  for (size_t place = 0; place < 8; ++place) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string line = good;
      line[tx + place] = static_cast<char>(byte);
      const bool is_digit = byte != 0 && kDigits.find(static_cast<char>(byte)) != std::string_view::npos;
      TcpRow row;
      ASSERT_EQ(parse_tcp_row_fixed(line, true, row), is_digit) << "byte " << byte << " in place " << place;
      if (!is_digit) continue;
      ASSERT_EQ(row.tx_queue_bytes, std::stoull(line.substr(tx, 8), nullptr, 16));
    }
  }
}

struct QueueCase {
  const char* name;
  TcpState state;
  uint64_t tx;
  uint64_t bytes;
};

const QueueCase kQueueCases[] = {
    {"Established", TcpState::established, 100, 100},
    {"EstablishedEmpty", TcpState::established, 0, 0},
    {"SynSent", TcpState::syn_sent, 1, 0},
    {"SynSentWithData", TcpState::syn_sent, 101, 100},
    {"SynRecv", TcpState::syn_recv, 1, 0},
    {"FinWait1", TcpState::fin_wait1, 101, 100},
    {"FinWait1Empty", TcpState::fin_wait1, 0, 0},
    {"FinWait2", TcpState::fin_wait2, 0, 0},
    {"TimeWait", TcpState::time_wait, 5, 0},
    {"Close", TcpState::close, 5, 0},
    {"CloseWait", TcpState::close_wait, 100, 100},
    {"LastAck", TcpState::last_ack, 101, 100},
    {"Listen", TcpState::listen, 128, 0},
    {"Closing", TcpState::closing, 1, 0},
};

class QueuedBytesTest : public testing::TestWithParam<QueueCase> {};

TEST_P(QueuedBytesTest, CountsDataOnly) {
  TcpRow row;
  row.state = static_cast<uint8_t>(GetParam().state);
  row.tx_queue_bytes = GetParam().tx;
  EXPECT_EQ(queued_tx_bytes(row), GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(TcpTable, QueuedBytesTest, testing::ValuesIn(kQueueCases),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kitty::procfs
