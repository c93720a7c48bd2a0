// Max-min fair shares: what is bounded is divided among users so that nobody gets more than he wants, and who
// gets less than he wants gets no less than anybody else. One user's crowd cannot take another one's part.
// Pure; no thread-safety needed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace kitty::collector {

// Nobody's number ((uid_t)-1, as setreuid(2) takes it): the user could not be read.
inline constexpr uid_t kUnknownUid = static_cast<uid_t>(-1);

struct Share {
  uint64_t key = 0;  // whose it is; the caller's
  uint64_t wanted = 0;
  uint64_t granted = 0;
};

// Sets `granted` of each: no more than is wanted, and no more than `room` in all. Puts them into ascending
// order of what they want, then of key.
void share_out(uint64_t room, std::span<Share> shares);

// What was left out of one user's: as shares are fair, only his who wanted more than his.
struct LeftOut {
  uid_t uid = kUnknownUid;  // of the entry for all beyond kMaxLeftOutUsers, too
  uint64_t processes = 0;   // not watched: beyond the limit
  uint64_t sockets = 0;     // not followed: beyond the limit
  uint64_t series = 0;      // not in the text: beyond its size

  [[nodiscard]] uint64_t all() const { return processes + sockets + series; }
};

using LeftOutByUser = std::unordered_map<uid_t, LeftOut>;

// Users named; one may have 65,536 of them (subuid(5)).
inline constexpr size_t kMaxLeftOutUsers = 15;

// The users with most, the most first; the rest, where there is any, are one entry of kUnknownUid.
[[nodiscard]] std::vector<LeftOut> who_left_out_most(const LeftOutByUser& users);

// The places of watched processes, of which there are so many. Granting one may cost another user's, or the
// same user's for a worker; never one that the other would get back by the same rule, so it comes to rest.
class Places {
 public:
  explicit Places(size_t limit) : limit_(limit) {}

  void clear();
  void take(uid_t uid, bool worker);
  void give_up(uid_t uid, bool worker);

  struct Answer {
    bool granted = false;
    // Where all are taken: of whom one is to be given up; of the same user a worker.
    std::optional<uid_t> from = {};
  };
  [[nodiscard]] Answer ask(uid_t uid, bool worker) const;

 private:
  struct Held {
    uid_t uid = kUnknownUid;
    size_t places = 0;
    size_t workers = 0;  // of them
  };
  [[nodiscard]] const Held* of(uid_t uid) const;
  [[nodiscard]] Held& of(uid_t uid);

  const size_t limit_;
  size_t taken_ = 0;
  std::vector<Held> held_;
};

}  // namespace kitty::collector
