# shellcheck shell=bash
# ./dev site: builds the docs as a searchable website with versions, in build-site/html. This script creates the Python
# environment with the site generator; tools/site/build.py builds the site.

command_site() {
  local folder=$PWD/build-site/env
  if [[ ! -f $folder/made ]] || ! cmp -s requirements/site.txt "$folder/made"; then
    python3 -c 'import venv, ensurepip' 2>/dev/null || fail "python3 has no venv module; on Debian: apt-get install python3-venv"
    step "Python environment: installing the generator of the site (30 MB to download)"
    rm -rf "$folder"
    mkdir -p build-site
    python3 -m venv "$folder"
    "$folder/bin/pip" --quiet install -r requirements/site.txt || fail "pip could not install requirements/site.txt"
    cp requirements/site.txt "$folder/made"
  fi
  "$folder/bin/python" tools/site/build.py "$@"
}
