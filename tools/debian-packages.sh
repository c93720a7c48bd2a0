# Sourced: Debian packages of any suite, downloaded and not installed, by private-apt.sh.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/private-apt.sh"

die() { echo "${0##*/}: $*" >&2; exit 1; }

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || die "$1 not found: install Debian's package $2"
}

# use_suite FOLDER SUITE: reads the indexes of a suite and of its security updates; FOLDER holds lists and downloads.
use_suite() {
  private_apt "$1" "$2" deb || die "cannot read $apt_missing"
  # One suite may be missing on the mirror while the other serves: what is really absent shows when a package is asked for.
  apt-get "${apt[@]}" update >"$1/update.log" 2>&1 || grep -E '^[EW]:' "$1/update.log" >&2 || true
}

# depends PACKAGE: names of what the newest version of PACKAGE depends on, one a line.
depends() {
  apt-cache "${apt[@]}" show --no-all-versions "$1" 2>/dev/null |
    sed -n 's/^Depends: //p' | tr ',|' '\n\n' | sed 's/^ *//; s/ .*//'
}

# download FOLDER PACKAGE...: the newest versions' .deb files, into FOLDER/download.
download() {
  local folder=$1
  shift
  (cd "$folder/download" && apt-get "${apt[@]}" download "$@") >"$folder/download.log" 2>&1 ||
    { cat "$folder/download.log" >&2; die "cannot download $*"; }
}
