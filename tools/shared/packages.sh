# shellcheck shell=bash
# Debian packages: lists the packages that a build needs, finds the missing ones, and installs them.
# shellcheck disable=SC2034  # other scripts use the lists

# An entry PACKAGE:WHAT contains a Debian package, and what the build needs from it: a header, a program, a file, or a Python
# module. WHAT may also come from another package or folder. The packages in the lists named `..._wants` are optional.
launcher_needs=(g++:"${CXX:-g++}" cmake:cmake ninja-build:ninja python3:python3 libboost-dev:boost/asio/as_tuple.hpp
                libcli11-dev:CLI/CLI.hpp nlohmann-json3-dev:nlohmann/json.hpp libssl-dev:openssl/ssl.h libxxhash-dev:xxhash.h
                libprotozero-dev:protozero/pbf_builder.hpp)
launcher_wants=(git:git ccache:ccache libhwloc-dev:hwloc.h)
tests_need=(libgtest-dev:gtest/gtest.h)
trainer_needs=(python3-venv:import-ensurepip libgloo-dev:gloo/config.h zlib1g-dev:zlib.h libdeflate-dev:libdeflate.h
               libjpeg-dev:jpeglib.h libpng-dev:png.h)
trainer_wants=(dataset-fashion-mnist:/usr/share/datasets/fashion-mnist)
cmake_at_least=3.25
test_packages=(iproute2 procps nftables slurmctld slurmd slurm-client munge openssh-client openssh-server openmpi-bin
               fonts-dejavu-core)
reader_test_packages=(clang libclang-rt-14-dev)  # needed for the sanitizers and fuzzers of the file readers

missing_packages() {
  printf '%s\n' "$@" | grep -vxFf <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p') || true
}

# Sets as_root to the words that precede a command that needs root. Fails if this user cannot become root.
as_root=()
may_be_root() {
  as_root=()
  ((EUID != 0)) || return 0
  as_root=(sudo)
  command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }
}

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "$@" </dev/null; }

update_package_lists() { apt update || step "apt-get update failed; continuing with the existing package lists"; }

install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    step "This is not a Debian system: assuming that the equivalents of these packages are installed: $*"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if ((${#missing[@]} == 0)); then
    return
  fi
  if ! may_be_root; then
    fail "these Debian packages are missing, and installing them requires root or sudo:
  ${missing[*]}
Ask an administrator to run this, then run ./dev again:
  apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  step "Debian packages: installing ${missing[*]}"
  update_package_lists
  apt install -y --no-install-recommends "${missing[@]}" || fail "apt-get could not install ${missing[*]}; its messages are above"
}

# is_here WHAT: succeeds if the header, program, file or module exists on this machine. Searches the folders of CMake, too.
is_here() {
  local what=$1 folder
  case $what in
    /*) [[ -e $what ]] ;;
    import-*) python3 -c "import ${what#import-}" 2>/dev/null || /usr/bin/python3 -c "import ${what#import-}" 2>/dev/null ;;
    *.h | *.hpp)
      local prefixes
      IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}:${BOOST_ROOT:-}:/usr/local:/usr"
      for folder in "${prefixes[@]/%//include}" ${BOOST_ROOT:+"$BOOST_ROOT"} /usr/include/*-linux-gnu; do
        [[ ! -f $folder/$what ]] || return 0
      done
      return 1 ;;
    *) command -v "$what" >/dev/null ;;
  esac
}

# not_here PACKAGE:WHAT...: prints the entries that are missing on this machine.
not_here() {
  local each
  for each in "$@"; do
    is_here "${each#*:}" || echo "$each"
  done
}

# packages_of PACKAGE:WHAT...: prints the packages. Debian 12's default Boost package is too old, so libboost1.81-dev replaces
# it where it exists.
packages_of() {
  local each
  for each in "$@"; do
    each=${each%%:*}
    if [[ $each == libboost-dev && -n $(apt-cache show libboost1.81-dev 2>/dev/null) ]]; then
      each=libboost1.81-dev
    fi
    echo "$each"
  done
}

# need PACKAGE:WHAT... [--wanted PACKAGE:WHAT...]: installs the missing packages if this user may do so. If a needed package is
# still missing, prints all missing packages and exits with code 1. Packages after --wanted are optional.
need() {
  local each needed=() wanted=() missing packages
  while (($# > 0)) && [[ $1 != --wanted ]]; do needed+=("$1") && shift; done
  (($# == 0)) || { shift && wanted=("$@"); }
  mapfile -t missing < <(not_here "${needed[@]}" "${wanted[@]}")
  if ((${#missing[@]} > 0)) && command -v apt-get >/dev/null && may_be_root; then
    step "Debian packages: installing the packages that contain ${missing[*]#*:}"
    update_package_lists
    mapfile -t packages < <(packages_of "${missing[@]}")
    apt install -y --no-install-recommends "${packages[@]}" || step "apt-get could not install ${packages[*]}; its messages are above"
  fi
  mapfile -t missing < <(not_here "${wanted[@]}")
  ((${#missing[@]} == 0)) || step "Not installed, continuing without: ${missing[*]#*:}"
  mapfile -t missing < <(not_here "${needed[@]}")
  if ((${#missing[@]} > 0)); then
    echo "dev: the build needs these programs and libraries, which are not installed:" >&2
    for each in "${missing[@]}"; do
      printf '  %-32s Debian package %s%s\n' "${each#*:}" "$(packages_of "$each")" \
             "$([[ $each != libboost-dev:* ]] || echo ", Boost 1.81 or newer")" >&2
    done
    echo "Ask an administrator to run this, or put them into a folder in CMAKE_PREFIX_PATH or PATH, then run ./dev again:" >&2
    echo "  apt-get install -y --no-install-recommends $(packages_of "${missing[@]}" | paste -sd' ')" >&2
    exit 1
  fi
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  [[ $(printf '%s\n' "$cmake_at_least" "$version" | sort -V | head -1) == "$cmake_at_least" ]] ||
    fail "CMake $version is installed, but $cmake_at_least or newer is required; \"pip install --user cmake\" installs one"
}
