# shellcheck shell=bash
# Sets up a build with LibTorch, and builds the presets in CMakePresets.json.

source tools/shared/environment.sh

# shellcheck disable=SC2034  # ./dev completion reads it
presets=(release debug asan tsan readers launcher)

# setup [PACKAGE...]: installs everything that a build needs, and the named Debian packages.
setup() {
  need "${launcher_needs[@]}" "${tests_need[@]}" "${trainer_needs[@]}" --wanted "${launcher_wants[@]}" "${trainer_wants[@]}"
  (($# == 0)) || install_packages "$@"
  setup_libtorch
}

# files_at_a_time MEGABYTES: prints how many files to compile in parallel: one per core, if each can use that much memory. The
# compiler needs up to 2.5 GB for a file that includes LibTorch.
files_at_a_time() {
  local megabytes_each=$1 megabytes cores by_memory
  if [[ -n ${DDPRUN_JOBS:-} ]]; then
    echo "$DDPRUN_JOBS"
    return
  fi
  megabytes=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  cores=$(nproc)
  by_memory=$((megabytes / megabytes_each))
  by_memory=$((by_memory < 1 ? 1 : by_memory))
  echo $((cores < by_memory ? cores : by_memory))
}

build_folder() { [[ $1 == release ]] && echo build || echo "build-$1"; }

# build PRESET [TARGET...]: configures the build if the settings have changed (ninja itself handles changed CMake files), and
# then builds.
build() {
  local preset=$1 folder settings megabytes_each=1500
  shift
  folder=$(build_folder "$preset")
  local configure=(cmake --preset "$preset")
  case $preset in
    release | debug | readers)
      configure+=("-DLIBTORCH=$libtorch")
      megabytes_each=2500 ;;
    asan) [[ -z ${DDPRUN_LONG_TESTS:-} ]] || configure+=(-DDDPRUN_SANITIZE_ALL=ON) ;;
    launcher | tsan) ;;
  esac
  settings="${configure[*]} in $PWD with $(sha256sum <CMakePresets.json | cut -c1-16)"
  if [[ ! -f $folder/build.ninja || ! -f $folder/dev-settings || $(<"$folder/dev-settings") != "$settings" ]]; then
    step "Configuring $preset in $folder/"
    "${configure[@]}" --fresh >.configure.log 2>&1 || {
      cat .configure.log >&2
      rm -f .configure.log
      fail "CMake could not configure $preset; its messages are above"
    }
    mv .configure.log "$folder/configure.log"
    printf '%s' "$settings" >"$folder/dev-settings"
  fi
  local parallel
  parallel=$(files_at_a_time "$megabytes_each")
  step "Building $preset in $folder/, $parallel files at a time"
  local targets=()
  (($# == 0)) || targets=(--target "$@")
  cmake --build "$folder" --parallel "$parallel" "${targets[@]}" ||
    fail "the build of $preset failed; the compiler's messages are above"
}
