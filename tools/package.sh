# shellcheck shell=bash
# ./dev package: builds the packages that users install.

source tools/shared/build.sh

package_packages=(binutils cmake ninja-build git python3 python3-venv)

# command_package [OPTION...]: uses a separate Python environment, because the compiler for the packages is itself a Python
# package.
command_package() {
  install_packages "${package_packages[@]}"
  local folder=$PWD/build-wheel/env
  if [[ ! -f $folder/made ]] || ! cmp -s requirements/package.txt "$folder/made"; then
    step "Python environment: installing the tools that build wheels (100 MB to download)"
    rm -rf "$folder"
    "$(base_python)" -m venv "$folder"
    "$folder/bin/pip" --quiet install -r requirements/package.txt || fail "pip could not install requirements/package.txt"
    cp requirements/package.txt "$folder/made"
  fi
  if [[ " $* " == *" --trainer "* ]]; then
    setup
    build release ddptrain
  fi
  "$folder/bin/python" packaging/package.py "$@"
}
