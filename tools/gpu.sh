# shellcheck shell=bash
# ./dev gpu: runs the tests for a machine with an NVIDIA GPU, or writes the bundle for such a machine.

source tools/shared/build.sh

command_gpu() {
  if [[ ${1:-} == --bundle ]]; then
    (($# == 2)) || fail "gpu --bundle requires one file name, such as build/ddprun-gpu.tar.gz"
    make_gpu_bundle "$2"
    return
  fi
  if ! has_gpu; then
    echo "no NVIDIA GPU on this machine: nothing was checked; './dev gpu --bundle FILE' writes a bundle that can be run on a machine with one"
    return 3
  fi
  setup "${test_packages[@]}"
  setup_python whole
  build release
  step "GPU tests and metrics"
  "$python" tests/gpu/check.py --build build --figures "${1:-build/gpu-metrics}"
}

# make_gpu_bundle FILE: writes the bundle. This needs the whole Python environment: the CUDA module is compiled against headers
# of all GPU libraries of the torch wheel, and the bundle includes pytest.
make_gpu_bundle() {
  setup
  setup_python whole
  # If the build lacks ddptrain_cuda, it was configured before those headers were installed, so it must be configured again.
  grep -q ddptrain_cuda build/build.ninja 2>/dev/null || rm -f build/dev-settings
  build release ddprun ddptrain fake_cuda
  "$python" tests/gpu/make_bundle.py build "$1"
}
