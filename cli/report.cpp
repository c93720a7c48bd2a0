#include "cli/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/utc.h"
#include "cli/text.h"

namespace kitty::cli {

namespace {

using verdict::JobVerdict;
using verdict::Kind;
using verdict::Part;
using verdict::UnitEvidence;

[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  out.append(text, std::min<size_t>(static_cast<size_t>(std::max(length, 0)), sizeof text - 1));
}

std::string upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

std::string milliseconds(const std::optional<double>& seconds) {
  std::string text;
  if (!seconds) return "-";
  append(text, *seconds < 0.1 ? "%.2fms" : "%.0fms", *seconds * 1000);
  return text;
}

// Columns as wide as their widest cell; the first is aligned right, like numbers.
void append_table(std::string& out, const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      line += i == 0 ? pad + row[i] : row[i] + pad;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
}

// At most this many healthy units are listed; culprits and victims always are.
constexpr size_t kMaxHealthyRows = 32;

void append_evidence(std::string& out, const JobVerdict& verdict) {
  std::vector<std::vector<std::string>> rows{
      {"RANK", "NODE", "RTT", "xMED", "LEAST", "RETR%", "TXQ", "BUSY", "SLOW/LINKS", ""}};
  size_t healthy = 0;
  for (const UnitEvidence& unit : verdict.units) {
    if (unit.part == Part::none && ++healthy > kMaxHealthyRows) continue;
    std::vector<std::string> row = evidence_cells(unit);
    row.front() += unit.part == Part::culprit ? '*' : ' ';
    row.push_back(printable(part(verdict, unit)));
    rows.push_back(std::move(row));
  }
  append_table(out, rows);
  if (healthy > kMaxHealthyRows) append(out, "  and %zu more\n", healthy - kMaxHealthyRows);
}

bool could_not_tell(const JobVerdict& verdict) { return verdict.kind != Kind::healthy || verdict.incomplete; }

void append_json_unit(std::string& out, const JobVerdict& verdict, const UnitEvidence& unit) {
  out += '{';
  append_json(out, "ranks", unit.ranks);
  out += ',';
  append_json(out, "node", unit.node);
  const auto optional = [&out](const char* name, const std::optional<double>& value) {
    if (value) {
      append(out, ",\"%s\":%.9g", name, *value);
    } else {
      append(out, ",\"%s\":null", name);
    }
  };
  optional("best_link_rtt_seconds", unit.best_rtt_s);
  optional("least_rtt_seconds", unit.min_rtt_s);
  append(out, ",\"times_median\":%.6g,\"retransmit_ratio\":%.6g,\"tx_queue_bytes\":%.0f,\"busy_ratio\":%.6g",
         unit.times_median, unit.retransmit_share, unit.queue_bytes, unit.busy_share);
  append(out, ",\"slow_links\":%zu,\"active_links\":%zu,", unit.slow_links, unit.active_links);
  append_json(out, "part", part(verdict, unit));
  out += '}';
}

// `each` writes the element at an index.
template <class Each>
void append_json_list(std::string& out, const char* name, size_t size, Each&& each) {
  append(out, "\"%s\":[", name);
  for (size_t i = 0; i < size; ++i) {
    if (i > 0) out += ',';
    each(i);
  }
  out += ']';
}

void append_json_job(std::string& out, const JobReport& job) {
  const JobVerdict& verdict = job.verdict;
  const auto named = [&](size_t unit) { append_json(out, verdict.units[unit].ranks); };
  out += '{';
  append_json(out, "job", verdict.job);
  out += ',';
  append_json(out, "uid", verdict.uid);
  append(out, ",\"ranks\":%zu,", verdict.ranks);
  append_json(out, "verdict", verdict::kind_name(verdict.kind));
  out += ',';
  const bool has_cause = verdict.cause != Kind::no_data;
  append_json(out, "cause", has_cause ? verdict::kind_name(verdict.cause) : "");
  out += ',';
  append_json_list(out, "culprits", verdict.culprits.size(), [&](size_t i) { named(verdict.culprits[i]); });
  out += ',';
  append_json_list(out, "links", verdict.links.size(), [&](size_t i) {
    out += '[';
    named(verdict.links[i].first);
    out += ',';
    named(verdict.links[i].second);
    out += ']';
  });
  out += ',';
  append_json(out, "named", verdict.named());
  out += ',';
  append_json(out, "why", verdict.why);
  if (job.since_s) append(out, ",\"since_seconds\":%.3f", *job.since_s);
  out += verdict.incomplete ? ",\"complete\":false," : ",\"complete\":true,";
  append_json_list(out, "units", verdict.units.size(),
                   [&](size_t i) { append_json_unit(out, verdict, verdict.units[i]); });
  out += ',';
  append_json_list(out, "blind_spots", verdict.blind_spots.size(),
                   [&](size_t i) { append_json(out, verdict.blind_spots[i]); });
  out += '}';
}

}  // namespace

std::string job_title(const JobVerdict& verdict) {
  std::string title = "job " + (verdict.job.empty() ? "(no JOB_NAME)" : printable(verdict.job));
  if (verdict.name_shared)
    title += " (uid " + (verdict.uid.empty() ? std::string("unknown") : printable(verdict.uid)) + ')';
  return title;
}

std::string counted(size_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + std::string(noun) + (count == 1 ? "" : "s");
}

std::string headline(const JobVerdict& verdict) {
  std::string text = upper(verdict::kind_name(verdict.kind));
  if (verdict.is_straggler()) text += (verdict.culprits.empty() ? " " : " at ") + verdict.named();
  const bool has_cause =
      verdict.cause != Kind::no_data && (verdict.kind == Kind::link || verdict.kind == Kind::job_wide);
  if (has_cause) text += ": " + upper(verdict::kind_name(verdict.cause));
  if (verdict.kind == Kind::healthy && verdict.incomplete) text += ", as far as seen";
  return printable(text);
}

std::string clock_time(double seconds) { return utc_text(static_cast<int64_t>(seconds)) + 'Z'; }

std::string part(const JobVerdict& verdict, const UnitEvidence& unit) {
  if (unit.part == Part::culprit) return "culprit";
  if (unit.part == Part::victim) return "victim of " + verdict.units[unit.victim_of].ranks;
  return {};
}

std::vector<std::string> evidence_cells(const UnitEvidence& unit) {
  std::vector<std::string> cells(kLinks + 1);
  cells[kRank] = printable(unit.ranks);
  cells[kNode] = printable(unit.node);
  cells[kRtt] = milliseconds(unit.best_rtt_s);
  append(cells[kTimesMedian], unit.best_rtt_s ? "%.1fx" : "-", unit.times_median);
  cells[kLeast] = milliseconds(unit.min_rtt_s);
  append(cells[kRetransmits], "%.2f", unit.retransmit_share * 100);
  append(cells[kQueue], "%.0fK", unit.queue_bytes / 1000);
  append(cells[kBusy], "%.0f%%", unit.busy_share * 100);
  append(cells[kLinks], "%zu/%zu", unit.slow_links, unit.active_links);
  return cells;
}

Outcome outcome(const Report& report) {
  const auto& jobs = report.jobs;
  if (std::ranges::any_of(jobs, [](const JobReport& job) { return job.verdict.is_straggler(); })) {
    return Outcome::straggler;
  }
  const bool unknown =
      jobs.empty() || !report.problems.empty() ||
      std::ranges::any_of(jobs, [](const JobReport& job) { return could_not_tell(job.verdict); });
  return unknown ? Outcome::unknown : Outcome::healthy;
}

std::string text_report(const Report& report) {
  std::string out;
  for (const JobReport& job : report.jobs) {
    const JobVerdict& verdict = job.verdict;
    if (!out.empty()) out += '\n';
    out += job_title(verdict) + "  " + counted(verdict.ranks, "rank") + "  VERDICT: " + headline(verdict);
    if (job.since_s && verdict.is_straggler()) out += "  since " + clock_time(*job.since_s);
    out += "\nwhy: " + printable(verdict.why) + '\n';
    if (verdict.units.size() > 1) append_evidence(out, verdict);
    for (const std::string& blind : verdict.blind_spots) out += "not seen: " + printable(blind) + '\n';
  }
  if (report.jobs.empty()) {
    out +=
        "VERDICT: NO DATA\nwhy: no watched rank seen: ranks are processes with KITTY_WATCH=1 and RANK in "
        "their environment\n";
  }
  for (const TargetProblem& one : report.problems) {
    out += "not judged: " + printable(one.target) + ": " + printable(one.problem) + '\n';
  }
  return out;
}

std::string json_report(const Report& report) {
  std::string out = "{";
  append(out, "\"outcome\":%d,\"window_seconds\":%.3f,", static_cast<int>(outcome(report)), report.window_s);
  append_json_list(out, "jobs", report.jobs.size(), [&](size_t i) { append_json_job(out, report.jobs[i]); });
  out += ',';
  append_json_list(out, "not_judged", report.problems.size(), [&](size_t i) {
    out += '{';
    append_json(out, "target", report.problems[i].target);
    out += ',';
    append_json(out, "problem", report.problems[i].problem);
    out += '}';
  });
  out += "}\n";
  return out;
}

}  // namespace kitty::cli
