#!/usr/bin/env bash
# Runs the fuzzers of build-readers/ (./dev build readers).
#
# usage: tests/fuzz/run.sh [SECONDS [NAME...]]
#
# Each fuzzer runs for SECONDS (default 60) and starts with the inputs in corpus/NAME. It writes new inputs to
# build-readers/found/NAME, and its log to build-readers/found/NAME.log. After a crash, the input is in build-readers/found/:
# fix the reader and add the input to corpus/NAME. With DDPRUN_FUZZ_EXECUTIONS=N, a fuzzer continues after SECONDS until it has
# executed N inputs. Prints one line for each fuzzer: the seed, the executions, the time, and the coverage in edges of the code.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
seconds=${1:-60}
(($# == 0)) || shift
names=("$@")
if ((${#names[@]} == 0)); then
  mapfile -t names < <(cd build-readers/bin && printf '%s\n' fuzz_* | sed 's/^fuzz_//')
fi
# LibTorch keeps memory until the process ends, so leaks are not reported. Short stack traces and a small quarantine for freed
# memory make the fuzzers a third faster.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0:malloc_context_size=4:quarantine_size_mb=16

# run NAME SEED SECONDS: runs a fuzzer once and appends to its log. The entropic schedule of libFuzzer is off, because it took
# more than half of the time of fuzz_member. Inputs are limited to 4 KiB, which is enough for every construct of these formats.
run() {
  "build-readers/bin/fuzz_$1" -seed="$2" -max_total_time="$3" -rss_limit_mb=2000 -malloc_limit_mb=1000 -timeout=10 -max_len=4096 \
    -entropic=0 -print_final_stats=1 -artifact_prefix="build-readers/found/$1-" "build-readers/found/$1" "tests/fuzz/corpus/$1" \
    2>>"build-readers/found/$1.log"
}
executed() { awk '/^stat::number_of_executed_units:/ {sum += $2} END {print sum + 0}' "build-readers/found/$1.log"; }

failed=0
for name in "${names[@]}"; do
  mkdir -p "build-readers/found/$name"
  : >"build-readers/found/$name.log"
  seed=$RANDOM
  code=0
  start=$SECONDS
  run "$name" "$seed" "$seconds" || code=$?
  for ((more = 1; code == 0 && $(executed "$name") < ${DDPRUN_FUZZ_EXECUTIONS:-0}; more++)); do
    run "$name" $((seed + more)) 60 || code=$?
  done
  if ((code != 0)); then
    tail -n 40 "build-readers/found/$name.log"
    echo "fuzz_$name, seed $seed: failed with exit code $code; its input is $(ls -t "build-readers/found/$name"-* 2>/dev/null | head -1)"
    failed=1
    continue
  fi
  covered=$(grep -o 'cov: [0-9]*' "build-readers/found/$name.log" | tail -1 | tr -dc 0-9)
  echo "fuzz_$name: seed $seed, $(executed "$name") executions in $((SECONDS - start)) s, $covered edges covered, no finding"
done
exit $failed
