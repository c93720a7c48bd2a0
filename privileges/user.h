// The user that the agent becomes once its hooks are attached, where it was started as uid 0: what belongs to
// root is then somebody else's, and capabilities alone say what it may. Facts: credentials(7),
// capabilities(7), "Effect of user ID changes on capabilities".
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "privileges/capabilities.h"

namespace kitty::privileges {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  bool operator==(const User&) const = default;
};

// Nobody else's: login users end at 60000, systemd's dynamic users at 65519, subordinate ids begin at 65536
// or later (systemd, docs/UIDS-GIDS.md), and Debian gives away none from 65000 to 65533 (policy, 9.2.2).
// nobody, 65534, is shared with whatever else runs as that, and 65532 is what distroless images call nonroot.
// Below 65536, for a user namespace often has no more ids.
inline constexpr User kOwnUser = {.uid = 65525, .gid = 65525};

// "UID" or "UID:GID", in decimal; without GID it is the same number. Not root's.
[[nodiscard]] Result<User> parse_user(std::string_view text);

// Whether any of the user ids of this process is 0.
[[nodiscard]] bool is_root();

// Why root that holds these capabilities stays root, and what to do about it; empty where it need not.
// Without CAP_SETUID and CAP_SETGID it cannot become anybody; without those for reading other processes only
// root may read root's.
[[nodiscard]] std::string why_root_stays(CapabilitySet held);

// Becomes that user, in all user and group ids, without supplementary groups. Needs CAP_SETUID and CAP_SETGID
// in use. Capabilities stay permitted, but none is in use afterwards. Fails where the ids are not mapped in
// this user namespace; some of it may be done then. For the calling thread, and those to come.
[[nodiscard]] Status become(const User& user);

}  // namespace kitty::privileges
