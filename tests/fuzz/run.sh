#!/usr/bin/env bash
# Runs the fuzzers of build-readers/ (./dev build readers): tests/fuzz/run.sh [SECONDS [NAME...]]. Each runs for SECONDS (60) and
# begins with corpus/NAME; its new inputs stay in build-readers/found/NAME, its log in build-readers/found/NAME.log. A crash leaves
# its input in build-readers/found/: fix the reader and add the input to corpus/NAME.
# Prints a line for each: the seed, executions, coverage (edges of the code) and the size of the corpus.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
seconds=${1:-60}
(($# == 0)) || shift
names=("$@")
if ((${#names[@]} == 0)); then
  mapfile -t names < <(cd build-readers/bin && printf '%s\n' fuzz_* | sed 's/^fuzz_//')
fi
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0  # LibTorch keeps memory until the end
failed=0
for name in "${names[@]}"; do
  found=build-readers/found/$name
  mkdir -p "$found"
  seed=$RANDOM
  code=0
  "build-readers/bin/fuzz_$name" -seed="$seed" -max_total_time="$seconds" -rss_limit_mb=2000 -malloc_limit_mb=1000 -timeout=10 \
    -max_len=65536 -print_final_stats=1 -artifact_prefix="$found-" "$found" "tests/fuzz/corpus/$name" 2>"$found.log" || code=$?
  if ((code != 0)); then
    tail -n 40 "$found.log"
    echo "fuzz_$name, seed $seed: failed with exit code $code; its input is $(ls -t "$found"-* 2>/dev/null | head -1)"
    failed=1
    continue
  fi
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$found.log")
  covered=$(grep -o 'cov: [0-9]*' "$found.log" | tail -1 | tr -dc 0-9)
  echo "fuzz_$name: seed $seed, $executed executions in $seconds s, $covered edges covered, no finding"
done
exit $failed
