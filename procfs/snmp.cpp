#include "procfs/snmp.h"

#include <array>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {
namespace {

constexpr std::string_view kPrefix = "Tcp:";
constexpr uint64_t kFirstNegative = uint64_t{1} << 63;

struct Column {
  std::string_view name;
  std::optional<uint64_t> SnmpTcp::* value;
};

constexpr std::array kColumns{
    Column{"ActiveOpens", &SnmpTcp::active_opens},
    Column{"PassiveOpens", &SnmpTcp::passive_opens},
    Column{"AttemptFails", &SnmpTcp::attempt_fails},
    Column{"EstabResets", &SnmpTcp::estab_resets},
    Column{"CurrEstab", &SnmpTcp::curr_estab},
    Column{"InSegs", &SnmpTcp::in_segs},
    Column{"OutSegs", &SnmpTcp::out_segs},
    Column{"RetransSegs", &SnmpTcp::retrans_segs},
    Column{"InErrs", &SnmpTcp::in_errs},
    Column{"OutRsts", &SnmpTcp::out_rsts},
    Column{"InCsumErrors", &SnmpTcp::in_csum_errors},
};

SnmpError parse_pair(std::string_view names_line, std::string_view values_line, SnmpTcp& tcp) {
  Tokens names(names_line);
  Tokens values(values_line);
  SnmpTcp parsed;
  uint32_t seen = 0;
  for (;;) {
    const std::string_view name = names.next();
    const std::string_view value = values.next();
    if (name.empty() != value.empty()) return SnmpError::column_count;
    if (name.empty()) break;
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (name != kColumns[i].name) continue;
      const uint32_t bit = uint32_t{1} << i;
      if ((seen & bit) != 0) return SnmpError::duplicate_column;
      seen |= bit;
      const auto number = parse_decimal(value);
      if (!number) return SnmpError::bad_number;
      if (*number >= kFirstNegative) {
        ++parsed.invalid_columns;
      } else {
        parsed.*kColumns[i].value = number;
      }
      break;
    }
  }
  tcp = parsed;
  return SnmpError::none;
}

}  // namespace

SnmpError parse_snmp(std::string_view text, SnmpTcp& tcp) {
  if (text.empty()) return SnmpError::no_tcp;
  if (!text.ends_with('\n')) return SnmpError::unterminated;
  std::string_view names;
  std::string_view values;
  bool have_names = false;
  bool have_values = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    const bool is_tcp = line.starts_with(kPrefix);
    if (have_names && !have_values) {
      if (!is_tcp) return SnmpError::unpaired;
      values = line.substr(kPrefix.size());
      have_values = true;
    } else if (is_tcp) {
      if (have_names) return SnmpError::unpaired;
      names = line.substr(kPrefix.size());
      have_names = true;
    }
  }
  if (!have_names) return SnmpError::no_tcp;
  if (!have_values) return SnmpError::unpaired;
  return parse_pair(names, values, tcp);
}

ReadResult read_snmp(int pid_dirfd, std::span<char> buffer, SnmpTcp& tcp) {
  const auto text = read_text_at(pid_dirfd, "net/snmp", buffer);
  if (!text) return text.error();
  if (parse_snmp(*text, tcp) != SnmpError::none) return {ReadStatus::malformed, 0};
  return {};
}

}  // namespace kitty::procfs
