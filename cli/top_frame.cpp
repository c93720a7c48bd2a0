#include "cli/top_frame.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "verdict/thresholds.h"

namespace kitty::cli {

namespace {

using verdict::JobVerdict;
using verdict::Part;

constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kEraseLine = "\x1b[K";
constexpr std::string_view kEraseBelow = "\x1b[J";

enum class Tone { plain, alarm, notice };

struct Line {
  std::string text;
  Tone tone = Tone::plain;
};

[[gnu::format(printf, 1, 2)]] std::string print(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<size_t>(std::max(vsnprintf(nullptr, 0, format, arguments), 0)), '\0');
  (void)vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(arguments);
  va_end(again);
  return text;
}

// Latin, Greek and Cyrillic letters take one column each on every terminal. Of other scripts, combining
// marks, and what turns the direction of writing that cannot be said.
bool takes_one_column(std::string_view code_point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(code_point[i]); };
  if (code_point.size() == 1) return byte(0) >= 0x20 && byte(0) < 0x7f;
  if (code_point.size() != 2) return false;
  const unsigned value = (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
  constexpr unsigned kSoftHyphen = 0xad;
  return (value > 0xa0 && value < 0x300 && value != kSoftHyphen) || (value >= 0x370 && value < 0x483) ||
         (value >= 0x48a && value < 0x530);
}

// As many columns as characters.
std::string fit(std::string_view text, bool utf8) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = std::max<size_t>(code_point_bytes(text), 1);
    const std::string_view one = text.substr(0, bytes);
    const bool keep = takes_one_column(one) && (utf8 || bytes == 1);
    out += keep ? one : "?";
    text.remove_prefix(bytes);
  }
  return out;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

// The bytes of the first so many characters.
size_t bytes_of(std::string_view text, size_t columns) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && columns-- == 0) break;
  }
  return at;
}

std::string cut(std::string text, size_t columns) {
  if (columns_of(text) <= columns) return text;
  if (columns == 0) return {};
  text.resize(bytes_of(text, columns - 1));
  return text + '~';
}

// Names differ at either end: "10.20.~3:9100".
std::string cut_middle(std::string text, size_t columns) {
  const size_t whole = columns_of(text);
  if (whole <= columns) return text;
  if (columns < 3) return cut(std::move(text), columns);
  const size_t tail = (columns - 1) / 2;
  return text.substr(0, bytes_of(text, columns - 1 - tail)) + '~' + text.substr(bytes_of(text, whole - tail));
}

[[gnu::noinline]] void put(std::vector<Line>& out, std::string text, size_t columns,
                           Tone tone = Tone::plain) {
  out.push_back({cut(std::move(text), columns), tone});
}

// At blanks where there are some; what `lines` lines do not hold is cut off.
void wrap(std::vector<Line>& out, std::string_view text, size_t columns, size_t lines, Tone tone) {
  constexpr std::string_view kIndent = "  ";
  for (bool first = true; lines > 0 && !text.empty(); first = false, --lines) {
    std::string line(first || columns < 20 ? "" : kIndent);
    const size_t room = columns - line.size();
    const bool last = columns_of(text) <= room || lines == 1;
    size_t end = last ? text.size() : bytes_of(text, room);
    const size_t blank = text.substr(0, end + 1).rfind(' ');
    if (!last && blank != std::string_view::npos && blank > end / 2) end = blank;
    line += text.substr(0, end);
    put(out, std::move(line), columns, tone);
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  }
}

// One character a value. The scale is the same for every rank and job: 0.1 ms and below is the lowest, each
// step up three times it, 0.2 s and above the highest.
std::string sparkline(std::span<const double> values, size_t columns, bool utf8) {
  constexpr std::array kAboveS = {0.00017, 0.00052, 0.0016, 0.0047,
                                  0.014,   0.042,   0.13};  // halfway between steps
  constexpr std::string_view kAscii = ".:-=+*#@";
  values = values.last(std::min(values.size(), columns));
  std::string out(columns - values.size(), ' ');
  for (const double value : values) {
    if (value <= 0) {
      out += ' ';
      continue;
    }
    const auto level =
        static_cast<size_t>(std::ranges::count_if(kAboveS, [value](double limit) { return value > limit; }));
    if (utf8) {
      out += "\xe2\x96";  // U+2581 to U+2588
      out += static_cast<char>(0x81 + level);
    } else {
      out += kAscii[level];
    }
  }
  return out;
}

double mean(std::span<const double> values) {
  double sum = 0, count = 0;
  for (const double value : values) {
    sum += value;
    count += value > 0 ? 1 : 0;
  }
  return count > 0 ? sum / count : 0;
}

// How many doublings `value` is above `reference`.
int doublings(double value, double reference) {
  int count = 0;
  for (; value >= 2 * reference && count < 32; ++count) value /= 2;
  return count;
}

// Where each unit stands: by its part, then in steps of two by the mean of its RTTs shown, above the others'
// median, or by its retransmits. Coarse, so that noise moves no row.
std::vector<int> suspicions(const LiveJob& job) {
  constexpr double kNotableRttS = 0.001;
  constexpr double kNotableRetransmits = 0.001;
  constexpr int kVictim = 100, kCulprit = 200;
  std::vector<double> means;
  means.reserve(job.units.size());
  for (const LiveUnit& unit : job.units) means.push_back(mean(unit.rtts_s));
  std::vector<double> sorted = means;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>((sorted.size() - 1) / 2);
  std::ranges::nth_element(sorted, middle);
  const double median = *middle;
  std::vector<int> list;
  for (size_t i = 0; i < job.units.size(); ++i) {
    const verdict::UnitEvidence& figures = job.units[i].figures;
    int suspicion = std::max(doublings(means[i], std::max(median, kNotableRttS)),
                             doublings(figures.retransmit_share, kNotableRetransmits));
    if (figures.part == Part::victim) suspicion += kVictim;
    if (figures.part == Part::culprit) suspicion += kCulprit;
    list.push_back(suspicion);
  }
  return list;
}

// Where the values stand, the greatest first; equal ones keep their order.
std::vector<size_t> falling(const std::vector<int>& values) {
  std::vector<size_t> order;
  for (int level = std::ranges::max(values); order.size() < values.size();) {
    int next = -1;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] == level) order.push_back(i);
      if (values[i] < level) next = std::max(next, values[i]);
    }
    level = next;
  }
  return order;
}

struct Column {
  EvidenceColumn cell;
  std::string_view title;
  int keep;  // the lowest goes first where there is no room
};
constexpr std::array kColumns = {
    Column{kRank, "RANK", 9},        Column{kNode, "NODE", 8},   Column{kRtt, "RTT", 7},
    Column{kTimesMedian, "xMED", 3}, Column{kLeast, "LEAST", 0}, Column{kRetransmits, "RETR%", 6},
    Column{kQueue, "TXQ", 2},        Column{kBusy, "BUSY", 5},   Column{kLinks, "LINKS", 1},
};
constexpr size_t kLeastNode = 6;
constexpr size_t kMostRank = 12;
constexpr size_t kLeastSparkline = 8;
constexpr std::string_view kSparklineTitle = "TREND";

// A table of the rows at `shown`; the widths fit these.
class Table {
 public:
  Table(const LiveJob& job, std::span<const size_t> shown, const FrameStyle& style)
      : job_(job), shown_(shown), style_(style) {
    for (const size_t at : shown) {
      std::vector<std::string> row = evidence_cells(job.units[at].figures);
      for (std::string& cell : row) cell = fit(cell, style.utf8);
      const Part part = job.units[at].figures.part;
      row[kRank] = cut(std::move(row[kRank]), kMostRank);
      row[kRank] += part == Part::culprit ? '*' : part == Part::victim ? 'v' : ' ';
      marks_ = std::max(marks_, columns_of(fit(job.units[at].mark, style.utf8)));
      cells_.push_back(std::move(row));
    }
    for (const Column& column : kColumns) {
      size_t& width = widths_[column.cell];
      width = column.title.size() + (column.cell == kRank ? 1 : 0);
      for (const std::vector<std::string>& row : cells_)
        width = std::max(width, columns_of(row[column.cell]));
    }
    // First the sparkline gives way, then the node's name, then columns.
    const size_t node = widths_[kNode];
    widths_[kNode] = std::min(node, kLeastNode);
    for (int keep = 0; used() + kLeastSparkline > style.columns && keep < 7; ++keep) {
      for (const Column& column : kColumns) {
        if (column.keep == keep) widths_[column.cell] = 0;
      }
    }
    const size_t spare = style.columns - std::min(style.columns, used() + kLeastSparkline);
    widths_[kNode] = std::min(node, widths_[kNode] + spare);
    size_t left = style.columns - std::min(style.columns, used());
    with_marks_ = marks_ > 0 && left >= kLeastSparkline + 1 + marks_;
    if (with_marks_) left -= marks_ + 1;
    sparkline_ = std::min(left, kRttHistory);
  }

  void append_to(std::vector<Line>& out) const {
    std::string title;
    for (const Column& column : kColumns) add_cell(title, column, std::string(column.title));
    if (sparkline_ >= kSparklineTitle.size()) title += kSparklineTitle;
    put(out, std::move(title), style_.columns);
    for (size_t i = 0; i < shown_.size(); ++i) {
      const LiveUnit& unit = job_.units[shown_[i]];
      std::string text;
      for (const Column& column : kColumns) add_cell(text, column, cells_[i][column.cell]);
      text += sparkline(unit.rtts_s, sparkline_, style_.utf8);
      if (with_marks_) text += ' ' + fit(unit.mark, style_.utf8);
      const Part part = unit.figures.part;
      const Tone tone = part == Part::culprit  ? Tone::alarm
                        : part == Part::victim ? Tone::notice
                                               : Tone::plain;
      put(out, std::move(text), style_.columns, tone);
    }
  }

 private:
  [[nodiscard]] size_t used() const {
    size_t sum = 0;
    for (const size_t width : widths_) sum += width > 0 ? width + 1 : 0;
    return sum;
  }
  // Figures stand at the right, names at the left.
  void add_cell(std::string& text, const Column& column, std::string cell) const {
    const size_t width = widths_[column.cell];
    if (width == 0) return;
    const bool name = column.cell == kNode;
    if (column.cell == kRank && cell == column.title) cell += ' ';
    cell = name ? cut_middle(std::move(cell), width) : cut(std::move(cell), width);
    const std::string pad(width - columns_of(cell), ' ');
    text += name ? cell + pad + ' ' : pad + cell + ' ';
  }

  const LiveJob& job_;
  std::span<const size_t> shown_;
  const FrameStyle& style_;
  std::vector<std::vector<std::string>> cells_;
  std::array<size_t, kColumns.size()> widths_{};
  size_t marks_ = 0, sparkline_ = 0;
  bool with_marks_ = false;
};

std::string verdict_text(const LiveJob& job) {
  return job.settled ? headline(job.report.verdict) : std::string("WATCHING");
}

Tone tone_of(const LiveJob& job) {
  const JobVerdict& verdict = job.report.verdict;
  if (!job.settled) return Tone::plain;
  if (verdict.is_straggler() || verdict.kind == verdict::Kind::stalled) return Tone::alarm;
  return verdict.kind == verdict::Kind::job_wide ? Tone::alarm : Tone::plain;
}

// "10:00:41Z", with its date where that is another than today's.
std::string short_time(double time_s, double now_s) {
  const std::string whole = clock_time(time_s);
  constexpr size_t kDateBytes = 10;
  const bool today = whole.substr(0, kDateBytes) == clock_time(now_s).substr(0, kDateBytes);
  return today ? whole.substr(kDateBytes + 1) : whole;
}

// At most `rows` lines of one job: what matters most first, and the table's rows by suspicion.
void append_job(std::vector<Line>& out, const LiveJob& job, double now_s, size_t rows,
                const FrameStyle& style) {
  if (rows == 0) return;
  const size_t begin = out.size();
  const auto left = [&] { return rows - (out.size() - begin); };
  const JobVerdict& verdict = job.report.verdict;
  const bool roomy = rows >= 12;

  // A long name of the job must not push the verdict off the line.
  const std::string title =
      cut_middle(fit(job_title(verdict), style.utf8), std::max<size_t>(style.columns / 3, 12));
  std::string said = verdict_text(job);
  if (job.settled && job.report.since_s && verdict.is_straggler())
    said += "  since " + short_time(*job.report.since_s, now_s);
  std::string text = title + "  ";
  if (style.columns >= 60) text += counted(verdict.ranks, "rank") + "  ";
  constexpr std::string_view kWord = "VERDICT: ";
  if (columns_of(text) + kWord.size() + said.size() <= style.columns) text += kWord;
  text += said;
  wrap(out, fit(text, style.utf8), style.columns, std::min<size_t>(left(), rows >= 6 ? 2 : 1), tone_of(job));
  wrap(out, "why: " + fit(verdict.why, style.utf8), style.columns, std::min<size_t>(left(), roomy ? 3 : 2),
       Tone::plain);

  std::vector<std::string> notes;
  if (!job.now.empty()) notes.push_back("now: " + job.now);
  for (const std::string& blind : job.blind_spots) notes.push_back("not seen: " + blind);
  const size_t kept_notes = std::min(notes.size(), left() / 5);

  if (job.units.size() > 1 && left() - kept_notes >= 2) {
    const std::vector<int> suspicion = suspicions(job);
    const std::vector<size_t> order = falling(suspicion);
    const size_t room = left() - kept_notes - 1;
    const size_t shown = order.size() <= room ? order.size() : room - 1;
    if (shown > 0) Table(job, std::span(order).first(shown), style).append_to(out);
    if (shown < order.size()) {
      const auto hidden = std::span(order).subspan(shown);
      const auto suspicious = std::ranges::count_if(hidden, [&](size_t at) { return suspicion[at] > 0; });
      const bool single = std::ranges::all_of(hidden, [&](size_t at) {
        return job.units[at].figures.ranks.find_first_of(",-") == std::string::npos;
      });
      const std::string more = counted(hidden.size(), single ? "more rank" : "more row");
      put(out,
          suspicious == 0 ? print("  %s, none suspicious", more.c_str())
                          : print("  %s, %td suspicious", more.c_str(), suspicious),
          style.columns);
    }
  }
  for (size_t i = 0; i < notes.size() && left() > 0; ++i) {
    const size_t more = notes.size() - i;
    const bool last = left() == 1 && more > 1;
    put(out, last ? print("%zu more notes: kitty diagnose prints them", more) : fit(notes[i], style.utf8),
        style.columns);
    if (last) break;
  }
}

void append_problems(std::vector<Line>& out, const TopState& state, size_t rows, const FrameStyle& style) {
  const std::vector<TargetProblem>& problems = state.problems;
  for (size_t i = 0; i < problems.size() && rows > 0; ++i, --rows) {
    const size_t more = problems.size() - i;
    const TargetProblem& one = problems[i];
    const std::string text = rows == 1 && more > 1
                                 ? print("not judged: %zu more targets", more)
                                 : print("not judged: %s: %s", one.target.c_str(), one.problem.c_str());
    put(out, fit(text, style.utf8), style.columns, Tone::notice);
  }
}

}  // namespace

std::string plain_summary(const TopState& state) {
  const size_t answering = state.targets - std::min(state.targets, state.problems.size());
  std::string text = print("%zu of %s answer, %s", answering, counted(state.targets, "target").c_str(),
                           counted(state.jobs.size(), "job").c_str());
  if (state.jobs_left_out > 0) text += print(" and %zu more left out", state.jobs_left_out);
  return text;
}

std::string plain_line(const LiveJob& job, bool with_why) {
  const JobVerdict& verdict = job.report.verdict;
  std::string line = print("%s %s %s", job_title(verdict).c_str(), counted(verdict.ranks, "rank").c_str(),
                           verdict_text(job).c_str());
  if (with_why) line += ": " + printable(verdict.why);
  if (line.size() > kMaxPlainBytes) {
    size_t end = kMaxPlainBytes - 3;
    while (!begins_character(line[end])) --end;
    line.resize(end);
    line += "...";
  }
  return line;
}

std::string top_frame(const TopState& state, const FrameStyle& style) {
  std::vector<Line> lines;
  std::string title =
      print("%s  %s", short_time(state.time_s, state.time_s).c_str(), plain_summary(state).c_str());
  constexpr std::string_view kKeys = "q quits";
  if (title.size() + 2 + kKeys.size() <= style.columns) {
    title.resize(style.columns - kKeys.size(), ' ');
    title += kKeys;
  }
  put(lines, std::move(title), style.columns);

  const bool roomy = style.rows >= 16;
  const size_t problems = std::min(state.problems.size(), std::max<size_t>(style.rows / 5, 1));
  size_t left_rows = style.rows - std::min(style.rows, 1 + problems);
  const auto add_blank = [&] {
    if (!roomy || left_rows < 4) return;
    lines.emplace_back();
    --left_rows;
  };
  if (state.jobs.empty()) {
    add_blank();
    const size_t before = lines.size();
    wrap(lines, "no watched rank seen: ranks are processes with KITTY_WATCH=1 and RANK in their environment",
         style.columns, left_rows, Tone::plain);
    left_rows -= lines.size() - before;
  }
  for (size_t i = 0; i < state.jobs.size() && left_rows > 0; ++i) {
    const size_t behind = state.jobs.size() - 1 - i;
    if (left_rows == 1 && behind > 0) {
      lines.push_back({cut(
          counted(behind + 1, "more job") + ", the worst: " + fit(verdict_text(*state.jobs[i]), style.utf8),
          style.columns)});
      break;
    }
    add_blank();
    // The jobs behind keep a third of the screen, and a line at least.
    const size_t before = lines.size();
    const size_t kept = std::max(std::min(behind * 3, left_rows / 3), std::min<size_t>(behind, 1));
    append_job(lines, *state.jobs[i], state.time_s, left_rows - kept, style);
    left_rows -= lines.size() - before;
  }
  if (problems > 0) {
    if (left_rows > 0) add_blank();
    append_problems(lines, state, problems, style);
  }

  std::string out(kHome);
  const size_t shown = std::min(lines.size(), style.rows);
  for (size_t i = 0; i < shown; ++i) {
    const Line& line = lines[i];
    const bool toned = style.colour && line.tone != Tone::plain;
    if (toned) out += line.tone == Tone::alarm ? "\x1b[1;31m" : "\x1b[33m";
    out += line.text;
    if (toned) out += "\x1b[0m";
    // Behind a full line the cursor stands on its last character, which erasing would take.
    if (columns_of(line.text) < style.columns) out += kEraseLine;
    if (i + 1 < shown) out += "\r\n";
  }
  // Likewise where the last line is full.
  if (shown < style.rows) (out += "\r\n") += kEraseBelow;
  return out;
}

}  // namespace kitty::cli
