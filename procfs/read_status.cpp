#include "procfs/read_status.h"

#include <cerrno>

namespace kitty::procfs {

ReadResult read_failure(int err) {
  switch (err) {
    case ENOENT:
    case ESRCH:
      return {ReadStatus::gone, err};
    case EACCES:
    case EPERM:
      return {ReadStatus::denied, err};
    default:
      return {ReadStatus::failed, err};
  }
}

std::string_view status_name(ReadStatus status) {
  switch (status) {
    case ReadStatus::ok:
      return "ok";
    case ReadStatus::gone:
      return "gone";
    case ReadStatus::denied:
      return "denied";
    case ReadStatus::malformed:
      return "malformed";
    case ReadStatus::too_long:
      return "too_long";
    case ReadStatus::stuck:
      return "stuck";
    case ReadStatus::failed:
      break;
  }
  return "failed";
}

}  // namespace kitty::procfs
