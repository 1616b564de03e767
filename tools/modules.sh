# shellcheck shell=bash
# ./dev modules: writes docs/internals/modules.md, which lists the modules and draws their dependencies.

source tools/shared/build.sh

command_modules() {
  setup
  cmake --preset release "-DLIBTORCH=$libtorch" -B build >/dev/null || fail "CMake could not configure build; its messages are above"
  python3 cmake/modules_page.py build/modules.txt >docs/internals/modules.md
  step "Written: docs/internals/modules.md"
}
