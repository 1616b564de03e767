# shellcheck shell=bash
# ./dev lint: runs clang-tidy over the launcher side and the trainer's file readers.

source tools/shared/build.sh

command_lint() {
  setup clang-tidy
  # This uses the debug preset, which does not join source files, because each file is checked alone.
  cmake --preset debug -B build-lint "-DLIBTORCH=$libtorch" -DDDPRUN_BUILD_TESTS=OFF >/dev/null ||
    fail "CMake could not configure build-lint; its messages are above"
  cmake --build build-lint --target write_version >/dev/null || fail "the header that names the commit could not be written"
  local -a files
  mapfile -t files < <(git ls-files -- 'common/*.cpp' 'rendezvous/*.cpp' 'launcher/*.cpp' 'cmd/ddprun/*.cpp' \
    'trainer/'{data,tokens,tables,image_files,checkpoint,exported}'/*.cpp')
  step "clang-tidy over ${#files[@]} files: the launcher side, and the trainer's file readers"
  # clang-tidy does not know some of GCC's warning options.
  printf '%s\0' "${files[@]}" |
    xargs -0 -n 1 -P "$(files_at_a_time 1500)" clang-tidy --quiet -p build-lint --extra-arg=-Wno-unknown-warning-option ||
    fail "clang-tidy reported the problems above"
  step "No problems found"
}
