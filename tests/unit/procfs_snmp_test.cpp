#include <gtest/gtest.h>

#include <string>

#include "procfs/snmp.h"
#include "tests/guard_page.h"

namespace kitty::procfs {
namespace {

using namespace std::literals;

// A whole file of Linux 6.18.
constexpr std::string_view kFile =
    "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards "
    "InDelivers "
    "OutRequests OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails "
    "FragCreates "
    "OutTransmits\n"
    "Ip: 1 64 5012 0 0 0 0 0 5012 4711 0 0 0 0 0 0 0 0 0 4711\n"
    "Icmp: InMsgs InErrors OutMsgs OutErrors OutRateLimitGlobal OutRateLimitHost\n"
    "Icmp: 0 0 0 0 0 0\n"
    "IcmpMsg: InType3 OutType3\n"
    "IcmpMsg: 9 9\n"
    "IcmpMsg: InType8\n"
    "IcmpMsg: 4\n"
    "Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab "
    "InSegs OutSegs "
    "RetransSegs InErrs OutRsts InCsumErrors\n"
    "Tcp: 1 200 120000 -1 63 21 2 5 7 4999 4701 42 3 11 1\n"
    "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti "
    "MemErrors\n"
    "Udp: 13 0 0 13 0 0 0 0 0\n"
    "UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti "
    "MemErrors\n"
    "UdpLite: 0 0 0 0 0 0 0 0 0\n";

SnmpTcp whole() {
  SnmpTcp tcp;
  tcp.active_opens = 63;
  tcp.passive_opens = 21;
  tcp.attempt_fails = 2;
  tcp.estab_resets = 5;
  tcp.curr_estab = 7;
  tcp.in_segs = 4999;
  tcp.out_segs = 4701;
  tcp.retrans_segs = 42;
  tcp.in_errs = 3;
  tcp.out_rsts = 11;
  tcp.in_csum_errors = 1;
  return tcp;
}

SnmpTcp with(std::optional<uint64_t> out_segs, std::optional<uint64_t> retrans_segs, uint32_t invalid = 0) {
  SnmpTcp tcp;
  tcp.out_segs = out_segs;
  tcp.retrans_segs = retrans_segs;
  tcp.invalid_columns = invalid;
  return tcp;
}

struct Case {
  const char* name;
  std::string_view text;
  SnmpError error;
  SnmpTcp tcp;
};

const Case kCases[] = {
    {"WholeFile", kFile, SnmpError::none, whole()},
    {"NewColumnAndNegativeSum",
     "Tcp: RtoAlgorithm NewThing RetransSegs OutSegs MaxConn\nTcp: 1 77 42 18446744073709551615 -1\n",
     SnmpError::none, with(std::nullopt, 42, 1)},
    {"LargestPositive", "Tcp: OutSegs\nTcp: 9223372036854775807\n", SnmpError::none,
     with(9223372036854775807u, std::nullopt)},
    {"SmallestNegative", "Tcp: OutSegs\nTcp: 9223372036854775808\n", SnmpError::none,
     with(std::nullopt, std::nullopt, 1)},
    {"Zero", "Tcp: OutSegs RetransSegs\nTcp: 0 0\n", SnmpError::none, with(0, 0)},
    {"OtherProtocolSameColumn",
     "TcpExt: OutSegs RetransSegs\nTcpExt: 8 9\nTcp: OutSegs\nTcp: 5\nTcpExt: OutSegs\nTcpExt: 7\n",
     SnmpError::none, with(5, std::nullopt)},
    {"ColumnsInAnotherOrder", "Tcp: RetransSegs MaxConn OutSegs\nTcp: 3 -1 4\n", SnmpError::none, with(4, 3)},
    {"NameIsAPrefix", "Tcp: OutSegsX OutSeg\nTcp: 3 4\n", SnmpError::none, with(std::nullopt, std::nullopt)},
    {"NoColumnsAtAll", "Tcp:\nTcp:\n", SnmpError::none, with(std::nullopt, std::nullopt)},
    {"DamageElsewhereIsNotOurs", "Icmp: InMsgs\n\nTcp: OutSegs\nTcp: 5\nUdp\n", SnmpError::none,
     with(5, std::nullopt)},
    {"FewerValues", "Tcp: ActiveOpens RetransSegs\nTcp: 1\n", SnmpError::column_count, {}},
    {"FewerNames", "Tcp: ActiveOpens\nTcp: 1 2\n", SnmpError::column_count, {}},
    {"FewerValuesUnterminated", "Tcp: ActiveOpens RetransSegs\nTcp: 1", SnmpError::unterminated, {}},
    {"ValueMayBeCut", "Tcp: ActiveOpens RetransSegs\nTcp: 1 42", SnmpError::unterminated, {}},
    {"Empty", "", SnmpError::no_tcp, {}},
    {"NoTcp", "Udp: InDatagrams\nUdp: 13\n", SnmpError::no_tcp, {}},
    {"NamesOnly", "Tcp: OutSegs\n", SnmpError::unpaired, {}},
    {"NamesThenOther", "Tcp: OutSegs\nUdp: 13\nTcp: 4\n", SnmpError::unpaired, {}},
    {"TwoPairs", "Tcp: OutSegs\nTcp: 4\nTcp: OutSegs\nTcp: 4\n", SnmpError::unpaired, {}},
    {"ColumnTwice", "Tcp: OutSegs OutSegs\nTcp: 4 5\n", SnmpError::duplicate_column, {}},
    {"NegativeCounter", "Tcp: OutSegs\nTcp: -4\n", SnmpError::bad_number, {}},
    {"Above64Bits", "Tcp: OutSegs\nTcp: 18446744073709551616\n", SnmpError::bad_number, {}},
    {"Hexadecimal", "Tcp: OutSegs\nTcp: 0x10\n", SnmpError::bad_number, {}},
    {"NulInside", "Tcp: OutSegs\nTcp: 4\0005\n"sv, SnmpError::bad_number, {}},
};

class SnmpTest : public testing::TestWithParam<Case> {};

TEST_P(SnmpTest, Parses) {
  const GuardPage page(GetParam().text);
  SnmpTcp before;
  before.in_segs = 111;
  SnmpTcp tcp = before;
  EXPECT_EQ(parse_snmp(page.text(), tcp), GetParam().error);
  EXPECT_EQ(tcp, GetParam().error == SnmpError::none ? GetParam().tcp : before)
      << "an error must not publish half";
}

INSTANTIATE_TEST_SUITE_P(Snmp, SnmpTest, testing::ValuesIn(kCases),
                         [](const auto& each) { return each.param.name; });

TEST(Snmp, CutAtEveryByteIsAnErrorOrTheWhole) {
  // Once the Tcp lines are complete, what follows decides nothing but whether the file was cut.
  const size_t complete = kFile.find("Udp:");
  for (size_t size = 0; size < kFile.size(); ++size) {
    const GuardPage page(kFile.substr(0, size));
    SnmpTcp tcp;
    const SnmpError error = parse_snmp(page.text(), tcp);
    if (size >= complete && kFile[size - 1] == '\n') {
      EXPECT_EQ(error, SnmpError::none) << size;
      EXPECT_EQ(tcp, whole()) << size;
    } else {
      EXPECT_NE(error, SnmpError::none) << size;
      EXPECT_EQ(tcp, SnmpTcp{}) << size;
    }
  }
}

}  // namespace
}  // namespace kitty::procfs
