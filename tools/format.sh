# shellcheck shell=bash
# ./dev format: runs clang-format, and checks the style rules for texts.

source tools/shared/packages.sh

# sources [FILE...]: prints the C, C++ and CUDA files among these files, or among all files of the repository.
sources() {
  local file
  git ls-files --cached --others --exclude-standard -- "${@:-.}" |
    while read -r file; do
      case $file in *.cpp | *.hpp | *.h | *.cu | *.cuh) [[ ! -f $file ]] || echo "$file" ;; esac
    done
}

command_format() {
  local check='' files
  if [[ ${1:-} == --check ]]; then
    check=1
    shift
  fi
  [[ ${1:-} != -* ]] || fail "unknown option of format '$1': expected --check, files, or nothing"
  install_packages clang-format git
  mapfile -t files < <(sources "$@")
  if [[ -z $check ]]; then
    step "Formatting ${#files[@]} files"
    ((${#files[@]} == 0)) || printf '%s\0' "${files[@]}" | xargs -0 clang-format -i
    return
  fi
  step "Checking the format of ${#files[@]} files"
  ((${#files[@]} == 0)) || printf '%s\0' "${files[@]}" | xargs -0 clang-format --dry-run -Werror ||
    fail "the files named above are not formatted; run ./dev format"
  command -v python3 >/dev/null || install_packages python3
  step "Checking the style of texts"
  python3 tests/style/check.py "$@" || fail "the texts named above break a rule of docs/internals/style.md; change them as each line proposes"
}
