#!/usr/bin/env bash
# Builds the libFuzzer targets with clang into build-fuzz/ and runs each for SECONDS (60): tests/fuzz/run.sh [SECONDS]. They begin
# with corpus/; what they find in addition stays in build-fuzz/. A crash leaves its input there: mend it and add it to corpus/.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
seconds=${1:-60}
folder=build-fuzz
mkdir -p $folder
flags=(-std=c++20 -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -I.)
machines=(common/channel/codec.cpp rendezvous/wire/*.cpp rendezvous/{protocol,presence,member,coordinator,node}/*.cpp)  # the pure ones
objects=()
for machine in "${machines[@]}"; do
  object=$folder/${machine//\//_}.o
  clang++ "${flags[@]}" -c "$machine" -o "$object"
  objects+=("$object")
done
for target in channel codec coordinator member; do
  clang++ "${flags[@]}" -fsanitize=fuzzer "tests/fuzz/${target}_fuzzer.cpp" "${objects[@]}" -o "$folder/fuzz_$target"
  mkdir -p "$folder/found_$target"
  echo "fuzz_$target for $seconds s"
  "$folder/fuzz_$target" -max_total_time="$seconds" -rss_limit_mb=2000 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$folder/" "$folder/found_$target" "tests/fuzz/corpus/$target" 2>"$folder/$target.log" || {
    tail -30 "$folder/$target.log"
    exit 1
  }
  tail -n 8 "$folder/$target.log" | grep -E 'executed|units'
done
