#include "http/text_plan.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace kitty::http {

uint64_t plan_text(uint64_t room, std::span<ProcessText> processes, collector::LeftOutByUser& left_out) {
  uint64_t all = 0;
  for (ProcessText& process : processes) {
    for (ProcessText::Part& part : process.parts) {
      all += part.bytes;
      part.granted = true;
    }
  }
  if (all <= room) return 0;

  std::unordered_map<uid_t, uint64_t> wanted;
  for (const ProcessText& process : processes) {
    for (const ProcessText::Part& part : process.parts) wanted[process.uid] += part.bytes;
  }
  std::vector<collector::Share> users;
  users.reserve(wanted.size());
  for (const auto& [uid, bytes] : wanted) users.push_back({.key = uid, .wanted = bytes});
  collector::share_out(room, users);
  std::unordered_map<uid_t, uint64_t> left;
  for (const collector::Share& user : users) left[static_cast<uid_t>(user.key)] = user.granted;

  std::vector<size_t> ordered(processes.size());
  std::iota(ordered.begin(), ordered.end(), size_t{0});
  std::ranges::sort(ordered, {}, [&](size_t i) { return std::tuple(processes[i].order, i); });
  uint64_t series = 0;
  for (size_t which = 0; which < kTextParts; ++which) {
    for (const size_t i : ordered) {
      ProcessText::Part& part = processes[i].parts[which];
      uint64_t& rest = left[processes[i].uid];
      part.granted = part.bytes <= rest;
      if (part.granted) {
        rest -= part.bytes;
        continue;
      }
      series += part.series;
      left_out[processes[i].uid].series += part.series;
    }
  }
  return series;
}

}  // namespace kitty::http
