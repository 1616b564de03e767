# shellcheck shell=bash
# ./dev build [PRESET]: builds one preset, with all its targets.

source tools/shared/build.sh

# Creates compile_commands.json at the root for clangd. It is a link to the file of the debug preset. A build that joins source
# files has no compile command for a single file.
write_compile_commands() {
  if [[ ! -f build-debug/compile_commands.json ]]; then
    step "Configuring debug in build-debug/ for clangd"
    cmake --preset debug "-DLIBTORCH=$libtorch" >/dev/null || return 0
  fi
  ln -sfn build-debug/compile_commands.json compile_commands.json
}

command_build() {
  local preset=${1:-release}
  case $preset in
    launcher)
      need "${launcher_needs[@]}" --wanted "${launcher_wants[@]}"
      build launcher ;;
    release | debug | asan | tsan)
      setup
      build "$preset"
      write_compile_commands ;;
    readers)
      setup "${reader_test_packages[@]}"
      build readers readers ;;
    *) fail "unknown preset '$preset': expected release, debug, asan, tsan, readers or launcher" ;;
  esac
  step "Done: $(build_folder "$preset")/bin"
}
