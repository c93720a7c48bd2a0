# shellcheck shell=bash disable=SC2034 # what it sets is for whoever sources it
# Sourced, by bash: Debian packages of any suite, without touching the machine's own apt lists. The mirror is the one
# that this machine's apt already uses; signatures are checked against Debian's own keyring.

# private_apt FOLDER SUITE TYPE: fills the array apt with apt-get's options for a suite and its security updates; lists
# and cache live in FOLDER, and FOLDER/download is where apt's own user may write. TYPE is deb or deb-src. A suite named
# a-backports has no security suite. Returns 1 where it cannot, with what is missing, and why, in apt_missing. Reads no
# index yet: apt-get "${apt[@]}" update.
private_apt() {
  local folder=$1 suite=$2 type=$3 keyring='' file archive='' security='' label release uri codename
  for file in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
    if [ -r "$file" ]; then keyring=$file; break; fi
  done
  if [ -z "$keyring" ]; then
    apt_missing='/usr/share/keyrings/debian-archive-keyring.gpg: no such file (Debian package debian-archive-keyring)'
    return 1
  fi
  # By the archives' own names; where apt-get update never ran, as in fresh containers, by the suites' in the sources.
  while IFS='|' read -r label uri; do
    case $label in
    Debian) archive=${archive:-$uri} ;;
    Debian-Security) security=${security:-$uri} ;;
    esac
  done < <(apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian')
  if [ -z "$archive" ]; then
    security=
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    while IFS='|' read -r release uri; do
      case $release in
      "$codename") archive=${archive:-$uri} ;;
      "$codename-security") security=${security:-$uri} ;;
      esac
    done < <(apt-get indextargets --no-release-info --format '$(RELEASE)|$(REPO_URI)' 'Created-By: Packages' 'Component: main')
  fi
  if [ -z "$archive" ]; then
    apt_missing='the apt sources: no Debian archive among them (see: apt-get indextargets)'
    return 1
  fi

  mkdir -p "$folder"/{lists/partial,cache/archives/partial,download}
  private_apt_source "$type" "$archive" "$suite" "$keyring" >"$folder/debian.sources"
  if [ -n "$security" ] && [ "${suite%-backports}" = "$suite" ]; then
    private_apt_source "$type" "$security" "$suite-security" "$keyring" >>"$folder/debian.sources"
  fi
  : >"$folder/status" # Nothing counts as installed: the machine's own packages play no part.
  chmod 755 "$folder"
  if [ "$(id -u)" = 0 ] && id _apt >/dev/null 2>&1; then chown _apt "$folder/download"; fi
  apt=(-q -o "Dir::Etc::SourceList=$folder/debian.sources" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$folder/lists"
    -o "Dir::State::Status=$folder/status" -o "Dir::Cache=$folder/cache" -o Acquire::Retries=2)
}

private_apt_source() { # private_apt_source TYPE URI SUITE KEYRING: an entry of sources.list(5)
  printf 'Types: %s\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n\n' "$@"
}
