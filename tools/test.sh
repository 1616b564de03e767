# shellcheck shell=bash
# ./dev test: runs the unit tests of all builds and the whole-program tests. The last line counts the results of all of them.

source tools/shared/build.sh
source tools/package.sh

# The folder for the results of each test program and of pytest. The results are counted at the end.
results=$PWD/build/test-results
package_tests=tests/whole_program/test_package.py  # tests the packages that ./dev package builds

# Unpacks etcd from Debian's package for the tests. It is not installed, because an installed etcd would start a server.
setup_etcd() {
  local folder=$environment/etcd
  if command -v etcd >/dev/null || [[ -x $folder/usr/bin/etcd ]] || ! command -v dpkg-deb >/dev/null; then
    return
  fi
  step "Debian packages: fetching etcd-server into .env"
  rm -rf "$folder"
  mkdir -p "$folder/package"
  (cd "$folder/package" && apt-get -q -o Acquire::Retries=3 download etcd-server </dev/null && dpkg-deb -x etcd-server_*.deb ..) ||
    step "apt-get could not fetch etcd-server; the tests that need it are skipped"
  rm -rf "$folder/package"
}

# Prints the test programs that CTest lists for a build folder.
test_programs() {
  ctest --test-dir "$1" --show-only=json-v1 | python3 -c '
import json, sys
tests = json.load(sys.stdin)["tests"]
print("\n".join(sorted({test["command"][0] for test in tests if "command" in test})))'
}

# run_unit_test PROGRAM NAME [FILTER]: runs a GoogleTest program in one process. A program that crashes leaves no results. In
# that case, a file NAME.crashed names the test that was running. Lines about passed tests are not shown.
run_unit_test() {
  local program=$1 name=$2 filter=${3:-} code=0
  timeout --kill-after=10 900 "$program" --gtest_output="xml:$results/$name.xml" \
    ${filter:+--gtest_filter="*$filter*"} </dev/null >"$results/$name.log" 2>&1 || code=$?
  step "Unit tests: $name"
  grep -vE '^(\[ RUN      \]|\[       OK \]|\[-{10}\]|\[  SKIPPED \]|Running main|Note: |$)' "$results/$name.log" || true
  if ((code != 0)) && ! grep -q '<failure' "$results/$name.xml" 2>/dev/null; then
    local last
    last=$(grep -aoP '^\[ RUN      \] \K.*' "$results/$name.log" | tail -n 1)
    echo "$name ended with exit code $code in ${last:-no test}: it crashed, timed out or a sanitizer stopped it" |
      tee "$results/$name.crashed"
  fi
}

# run_unit_tests PRESET [FILTER]: runs the test programs of a preset. As many run in parallel as there are cores, if memory
# suffices.
run_unit_tests() (  # a subshell, so that `wait` waits only for these programs
  local preset=$1 filter=${2:-} program running=0 most
  local -a programs
  most=$(files_at_a_time 2000)
  mapfile -t programs < <(test_programs "$(build_folder "$preset")")
  for program in "${programs[@]}"; do
    [[ -n $program ]] || continue
    if ((running == most)); then
      wait -n || true
      running=$((running - 1))
    fi
    run_unit_test "$program" "$preset-$(basename "$program")" "$filter" &
    running=$((running + 1))
  done
  wait
)

# Tests the file readers with clang's sanitizers: their unit tests, then each fuzzer for 5 s. A finding counts as one failed
# test.
test_readers() {
  local filter=$1
  install_packages "${reader_test_packages[@]}"
  if ! command -v clang++ >/dev/null; then
    step "clang++ is not installed: skipping the sanitizers and fuzzers of file readers"
    return
  fi
  build readers readers
  ASAN_OPTIONS=detect_leaks=0 run_unit_tests readers "$filter"
  [[ -z $filter ]] || return 0
  step "Fuzzers: 5 s each"
  find build-readers/bin -name 'fuzz_*' -printf '%f\n' | sed 's/^fuzz_//' | sort |
    xargs -P "$(nproc)" -I NAME bash -c 'tests/fuzz/run.sh 5 NAME >"$0/fuzz-NAME.log" 2>&1 || cp "$0/fuzz-NAME.log" "$0/fuzz-NAME.crashed"' "$results"
  cat "$results"/fuzz-*.log
}

# Prints the sanitizer builds to test. They are chosen by the changes since the last commit that passed .ci/run on this
# machine. If no such commit is known, all builds are tested.
chosen_sanitizers() {
  if [[ -n ${DDPRUN_LONG_TESTS:-} ]]; then
    echo asan tsan readers
  else
    python3 tests/choose_sanitizers.py "${XDG_CACHE_HOME:-$HOME/.cache}/ddprun/passed" | paste -sd' '
  fi
}

# run_pytest NAME ARGUMENT...: runs at most four files in parallel. Each test starts several processes, so with more files in
# parallel the results would depend on the machine's speed.
run_pytest() {
  local name=$1 parts code=0
  shift
  parts=$(files_at_a_time 4000)
  parts=$((parts > 4 ? 4 : parts))
  step "Whole-program tests: $name, $parts files at a time"
  DDPRUN_BUILD_DIR=$PWD/build timeout --kill-after=10 3600 "$python" -m pytest -q -p no:cacheprovider --timeout=600 \
    --numprocesses "$parts" --dist loadfile --junitxml="$results/$name.xml" "$@" </dev/null || code=$?
  if ((code != 0 && code != 1 && code != 5)); then  # 1: tests failed, which are counted below; 5: the filter matched no test
    echo "$name ended with exit code $code" | tee "$results/$name.crashed"
  fi
}

# Builds the launcher's packages in the background at idle priority, because downloads and tests mostly wait. The job has a
# separate process group, so that the trap can end it together with this script.
begin_packages() {
  install_packages "${package_packages[@]}"
  step "Building the packages in the background, log in ${results#"$PWD"/}/package.log"
  set -m
  (
    chrt --idle --pid 0 "$BASHPID" || true
    command_package
  ) >"$results/package.log" 2>&1 </dev/null &
  packages_job=$!
  set +m
  trap 'kill -- "-$packages_job" 2>/dev/null || true' EXIT
}

# Waits for the launcher's packages, and builds the trainer's packages. A failure counts as one failed test and does not end
# the run.
end_packages() {
  local code=0
  step "Building the packages: waiting for the launcher's packages"
  pgrep -g "$packages_job" | xargs -r -n1 chrt --other --pid 0 2>/dev/null || true
  wait "$packages_job" || code=$?
  trap - EXIT
  cat "$results/package.log"
  if ((code == 0)) && (command_package --trainer); then
    export DDPRUN_PACKAGE_TESTS=1
  else
    echo "./dev package failed; its messages are above" | tee "$results/package.crashed"
  fi
  step "Packages are built"
}

# Prints the steps of the run and its duration on two idle cores.
print_plan() {
  local package=$1 filter=$2 quick=$3
  if [[ -n $quick ]]; then
    step "Plan: release build, its unit tests, and the whole-program files that take at most 15 s"
    return
  fi
  step "Plan: install what is missing (5 GB); build; unit tests; builds with sanitizers; whole-program tests${package:+; packages}"
  if [[ -n $filter ]]; then
    echo "         Runs only the tests whose name contains '$filter'. The builds take most of the time."
  elif [[ -d build/bin ]]; then
    echo "         Builds the changed parts, then runs whole-program tests for 12 to 18 minutes on two cores."
  else
    echo "         About 50 minutes from scratch on two cores, of which whole-program tests take 12 to 18."
  fi
}

command_test() {
  local extent=whole filter='' selection=() package='' quick=''
  while (($# > 0)); do
    case $1 in
      --long) export DDPRUN_LONG_TESTS=1 ;;
      --no-python) extent=small ;;
      --package) package=1 ;;
      --quick) quick=1 ;;
      --filter)
        (($# > 1)) || fail "--filter requires a part of a test's name"
        filter=$2
        shift ;;
      --filter=*) filter=${1#*=} ;;
      *) fail "unknown option of test '$1': expected --quick, --long, --package, --no-python or --filter X" ;;
    esac
    shift
  done
  [[ -z $quick ]] || export DDPRUN_QUICK_TESTS=1
  print_plan "$package" "$filter" "$quick"
  setup "${test_packages[@]}"
  [[ -z ${DDPRUN_LONG_TESTS:-} ]] || install_packages qemu-user libc6-arm64-cross
  rm -rf "$results"
  mkdir -p "$results"
  [[ -z $package ]] || begin_packages
  setup_etcd
  setup_python "$extent"
  [[ -z ${DDPRUN_LONG_TESTS:-} || $extent == small ]] || setup_python_programs
  build release
  run_unit_tests release "$filter"
  local sanitizer sanitizers=''
  [[ -n $quick ]] || sanitizers=$(chosen_sanitizers)
  [[ -n $quick ]] || step "Sanitizer builds of this run: ${sanitizers:-none, since no C++ file of theirs has changed}"
  for sanitizer in $sanitizers; do
    if [[ $sanitizer == readers ]]; then
      test_readers "$filter"
    else
      build "$sanitizer"
      run_unit_tests "$sanitizer" "$filter"
    fi
  done

  [[ $extent == whole ]] || export DDPRUN_NO_TORCH_PYTHON=1
  [[ -z $filter ]] || selection+=(-k "$filter")
  if [[ -n $package ]]; then
    run_pytest pytest tests --ignore "$package_tests" "${selection[@]}"
    end_packages
    run_pytest pytest-package "$package_tests" "${selection[@]}"
  else
    run_pytest pytest tests "${selection[@]}"
  fi
  step "All tests are done"
  python3 tests/count_results.py "$results"
}
