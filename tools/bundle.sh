# shellcheck shell=bash
# ./dev bundle: makes third_party/headers.tar.xz, the headers of other projects for machines without them.

source tools/shared/build.sh

command_bundle() {
  need "${launcher_needs[@]}"
  python3 third_party/bundle.py
}
