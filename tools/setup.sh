# shellcheck shell=bash
# ./dev setup: installs Debian packages and LibTorch.

source tools/shared/build.sh

command_setup() {
  setup
  step "Ready: LibTorch $torch_version in $libtorch"
}
