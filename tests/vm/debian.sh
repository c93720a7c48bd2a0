# Sourced by fetch-kernel and build-kernel: Debian packages of any suite, without touching the machine's own apt lists.
# The mirror is the one this machine's apt already uses; signatures are checked against debian-archive-keyring.

die() { echo "${0##*/}: $*" >&2; exit 1; }

need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || die "$1 not found: install Debian's package $2"
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# private_apt FOLDER SUITE: fills apt=(options) for the suite and its security updates; FOLDER holds lists and cache.
# A suite named a-backports has no security suite. apt's own user must be able to enter FOLDER.
private_apt() {
  local folder=$1 suite=$2 codename targets site security
  [ -r $keyring ] || die "$keyring not found: install Debian's package debian-archive-keyring"
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  # Without release info the targets are listed even where apt-get update never ran, as in fresh containers.
  targets=$(apt-get indextargets --no-release-info --format '$(SITE) $(RELEASE) $(COMPONENT) $(CREATED_BY)')
  site=$(awk -v release="$codename" '$2 == release && $3 == "main" && $4 == "Packages" { print $1; exit }' <<<"$targets")
  security=$(awk -v release="$codename-security" '$2 == release && $3 == "main" { print $1; exit }' <<<"$targets")
  [ -n "$site" ] || die "no mirror for '$codename main' among this machine's apt sources (see: apt-get indextargets)"

  mkdir -p "$folder"/{lists,cache,download}
  echo "deb [signed-by=$keyring] $site $suite main" >"$folder/sources.list"
  if [ -n "$security" ] && [ "${suite%-backports}" = "$suite" ]; then
    echo "deb [signed-by=$keyring] $security $suite-security main" >>"$folder/sources.list"
  fi
  : >"$folder/status" # Nothing counts as installed: the machine's own packages play no part.
  chmod 755 "$folder"
  if [ "$(id -u)" = 0 ] && id _apt >/dev/null 2>&1; then chown _apt "$folder/download"; fi
  apt=(-q -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$folder/lists"
    -o "Dir::State::Status=$folder/status" -o "Dir::Cache=$folder/cache")
  # One suite may be missing on the mirror while the other serves: what is really absent shows when a package is asked for.
  apt-get "${apt[@]}" update >"$folder/update.log" 2>&1 || grep -E '^[EW]:' "$folder/update.log" >&2 || true
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
