# shellcheck shell=bash
# ./dev clean: removes the build folders.

command_clean() {
  rm -rf build build-debug build-asan build-tsan build-readers build-launcher build-lint build-wheel
  step "Removed the build folders; .env/ (LibTorch) and runs/ are kept"
}
