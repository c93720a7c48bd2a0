#include "privileges/user.h"

#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <limits>
#include <optional>

namespace kitty::privileges {

namespace {

// A number that is an id: not root's, and not the one that stands for "as it is" in setresuid(2).
std::optional<uint32_t> parse_id(std::string_view text) {
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (id == 0 || id == std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return id;
}

std::unexpected<Error> failed(std::string_view operation, uint32_t id) {
  const int err = errno;
  return fail(operation, std::to_string(id), err,
              err == EINVAL ? "this user namespace has no such id: choose another with --user" : "");
}

}  // namespace

Result<User> parse_user(std::string_view text) {
  const size_t colon = text.find(':');
  const auto uid = parse_id(text.substr(0, colon));
  const auto gid = colon == std::string_view::npos ? uid : parse_id(text.substr(colon + 1));
  if (!uid || !gid)
    return fail("read user", text, 0, "write UID or UID:GID, numbers above 0 and below 2^32 - 1");
  return User{.uid = *uid, .gid = *gid};
}

bool is_root() {
  uid_t real = 0, effective = 0, saved = 0;
  return getresuid(&real, &effective, &saved) != 0 || real == 0 || effective == 0 || saved == 0;
}

std::string why_root_stays(CapabilitySet held) {
  constexpr CapabilitySet kForBecoming = {Capability::setuid, Capability::setgid};
  if (const CapabilitySet missing = kForBecoming.without(held); missing != CapabilitySet())
    return "missing " + missing.names() + ": grant CAP_SETUID and CAP_SETGID, which are given up then";
  if (const CapabilitySet missing = kForProcfs.without(held); missing != CapabilitySet())
    return "missing " + missing.names() + ", without which only root may read root's processes";
  return {};
}

Status become(const User& user) {
  // Else the permitted set would go with the last uid that is 0.
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail("keep capabilities", {}, errno);
  if (setgroups(0, nullptr) != 0) return fail("give up supplementary groups", {}, errno);
  if (setresgid(user.gid, user.gid, user.gid) != 0) return failed("become group", user.gid);
  if (setresuid(user.uid, user.uid, user.uid) != 0) return failed("become user", user.uid);
  return {};
}

}  // namespace kitty::privileges
