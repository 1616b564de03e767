# shellcheck shell=bash
# ./dev bench: measures ddprun against torchrun, and ddptrain against Python's DistributedDataParallel.

source tools/shared/build.sh

command_bench() {
  setup
  setup_python whole
  build release ddprun ddptrain
  "$python" bench/bench.py "$@"
}
