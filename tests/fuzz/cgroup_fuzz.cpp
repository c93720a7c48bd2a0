// Any bytes as cpu.stat, a pressure file, /proc/PID/cgroup and mountinfo: no read outside the input, and no
// path that leads out of the mounted hierarchy.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "procfs/cgroup.h"
#include "procfs/cgroup_mounts.h"
#include "procfs/cgroup_stat.h"

namespace {

using namespace kitty::procfs;

void expect_inside(std::string_view part, std::string_view whole) {
  if (part.empty()) return;
  if (part.data() < whole.data() || part.size() > whole.size() ||
      static_cast<size_t>(part.data() - whole.data()) > whole.size() - part.size()) {
    std::abort();
  }
}

void expect_below(std::string_view relative) {
  if (relative.empty()) return;
  const std::string framed = "/" + std::string(relative) + "/";
  if (framed.find("/../") != std::string::npos || framed.find("/./") != std::string::npos ||
      framed.find("//") != std::string::npos || framed.find('\0') != std::string::npos) {
    std::abort();
  }
}

void resolve(std::string_view root, std::string_view path) {
  for (const std::string_view known : {"", "a", "a/b", "a/../b", "../x"}) {
    const auto below = path_below(root, known, path);
    if (!below) continue;
    expect_inside(below->rest, path);
    expect_below(below->above);
    expect_below(below->rest);
    if (below->rest.size() > kMaxCgroupPathBytes) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // What a cut file still gives is what the whole file gives.
  const std::string_view cut = text.substr(0, size - (size > 0 ? 1 : 0));
  if (const auto part = parse_throttled_us(cut); part && part != parse_throttled_us(text)) std::abort();
  if (const auto part = parse_pressure_us(cut); part && part != parse_pressure_us(text)) std::abort();

  const Cgroup cgroup = parse_cgroup(text);
  for (const std::string_view path : {cgroup.unified_path, cgroup.cpu_path}) {
    expect_inside(path, text);
    for (const std::string_view root : {"/", "/..", "/../..", "/a", "/../a"}) resolve(root, path);
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() < rest.size() ? line.size() + 1 : line.size());
    const auto mount = parse_mount(line);
    if (!mount) continue;
    expect_inside(mount->root, line);
    expect_inside(mount->point, line);
    std::array<char, 64> buffer;
    const auto root = unescape(mount->root, buffer);
    if (!root) continue;
    expect_inside(*root, {buffer.data(), buffer.size()});
    resolve(*root, cgroup.unified_path);
  }
  return 0;
}
