#include "procfs/pid_namespace.h"

#include <unistd.h>

#include <array>
#include <charconv>

#include "procfs/file.h"
#include "procfs/text.h"

namespace kitty::procfs {

namespace {

// Whether `self` of that procfs is this process under the number that it has for itself.
bool shows_own_number(int root) {
  std::array<char, 32> link;
  const auto self = read_link_at(root, "self", link);
  if (!self) return false;
  pid_t number = 0;
  const auto [end, error] = std::from_chars(self->data(), self->data() + self->size(), number);
  return error == std::errc{} && end == self->data() + self->size() && number == getpid();
}

}  // namespace

std::optional<uint64_t> parse_pid_link(std::string_view link) { return parse_bracketed(link, "pid:["); }

ReadExpected<uint64_t> read_pid_namespace(int root) {
  std::array<char, 64> text;
  const auto link = read_link_at(root, shows_own_number(root) ? "self/ns/pid" : "1/ns/pid", text);
  if (!link) return std::unexpected(link.error());
  const auto inode = parse_pid_link(*link);
  if (!inode) return std::unexpected(ReadResult{ReadStatus::malformed, 0});
  return *inode;
}

}  // namespace kitty::procfs
