# shellcheck shell=bash
# ./dev completion bash: prints a completion script for bash. The commands and options are extracted from the output of help(),
# so that they are listed in only one place.

source tools/shared/build.sh

command_completion() {
  [[ ${1:-} == bash ]] || fail "unknown shell '${1:-}': expected ./dev completion bash"
  local suites
  suites=$(grep -o '"[a-z]*": [a-z_]*\.run' bench/bench.py | cut -d'"' -f2 | paste -sd' ')
  echo '_ddprun_dev() {'
  echo '  local words='
  echo '  case $COMP_CWORD:${COMP_WORDS[1]} in'
  help | awk -v presets="${presets[*]}" -v suites="$suites" '
    BEGIN { words["build"] = presets; words["bench"] = suites; words["completion"] = "bash"; words["package"] = "x86_64 aarch64" }
    /^  [a-z]/ { command = $1; commands = commands " " command }
    /^       --/ { words[command] = words[command] " " $1 }
    /^  [a-z].*\[--/ { option = $0; sub(/.*\[/, "", option); sub(/\].*/, "", option); words[command] = words[command] " " option }
    END {
      printf "    1:*) words=\"%s\" ;;\n", substr(commands, 2)
      fflush()
      for (command in words) printf "    *:%s) words=\"%s\" ;;\n", command, words[command] | "sort"
    }'
  echo '  esac'
  echo '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")'
  echo '}'
  echo 'complete -o default -F _ddprun_dev dev'
}
