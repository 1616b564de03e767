# shellcheck shell=bash
# Sets up .env/, which contains LibTorch and the Python packages. The finished parts are recorded in .env/stamps, with the
# versions and lists from which they were made.

source tools/shared/packages.sh

environment=$PWD/.env
stamps=$environment/stamps

# with_heartbeat FOLDER LABEL COMMAND...: runs a command that may print nothing for a long time. If stdout is not a terminal, it
# reports every 10 s that the command still runs, and the size of FOLDER.
with_heartbeat() {
  local folder=$1 label=$2 heartbeat="" code=0
  shift 2
  if [[ ! -t 1 ]]; then
    while sleep 10 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
      step "  $label: still running, $(du -sm "$folder" 2>/dev/null | cut -f1) MB in ${folder#"$PWD"/}"
    done </dev/null &
    heartbeat=$!
  fi
  "$@" || code=$?
  if [[ -n $heartbeat ]]; then
    kill "$heartbeat" 2>/dev/null || true
    wait "$heartbeat" 2>/dev/null || true
  fi
  return "$code"
}

has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || nvidia-smi -L >/dev/null 2>&1; }

# Prints a Python for which torch has wheels and which can create environments.
base_python() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  fail "no Python 3.10 to 3.14 with the modules venv and ensurepip was found; on Debian: apt-get install python3-venv"
}

make_environment() {
  if [[ -x $environment/bin/python ]] && "$environment/bin/python" -c 'import pip' 2>/dev/null; then
    return
  fi
  step "Python environment: creating .env"
  rm -rf "$environment"
  "$(base_python)" -m venv "$environment"
  mkdir -p "$stamps"
}

# pip_install LABEL ARGUMENT...: runs pip of the environment. pip's temporary files are in the environment's folder, so the
# growth of that folder shows the progress of a download.
pip_install() {
  local label=$1
  shift
  local quiet=(--quiet)
  [[ ! -t 1 ]] || quiet=()
  mkdir -p "$environment/tmp"
  TMPDIR=$environment/tmp with_heartbeat "$environment" "$label" \
    "$environment/bin/python" -m pip install --no-warn-conflicts "${quiet[@]}" "$@" ||
    fail "pip could not install $label; its messages are above. Run the command again to continue where this one stopped."
  rm -rf "$environment/tmp"
}

# need_space GIGABYTES: fails before a download that would not fit on the disk.
need_space() {
  local gigabytes=$1 free
  free=$(df --output=avail -BG "$PWD" | tail -1 | tr -dc 0-9)
  ((free >= gigabytes)) || fail "$PWD has $free GB of free disk space; at least $gigabytes GB are required"
}

# stamped NAME CONTENT: succeeds if the step NAME was completed with exactly this content.
stamped() { [[ -f $stamps/$1 && $(<"$stamps/$1") == "$2" ]]; }
stamp() { mkdir -p "$stamps"; printf '%s' "$2" >"$stamps/$1"; }

# toolkit_requirements PART...: prints these parts of the CUDA toolkit as pip requirements, in the version that the torch wheel
# requires. Prints nothing if the wheel requires no toolkit.
toolkit_requirements() {
  "$environment/bin/python" - "$@" <<'END'
import re, sys
from importlib.metadata import requires

for line in requires("torch") or []:
    if toolkit := re.match(r"cuda-toolkit\[[^\]]*\]\s*(==[^;\s]*)", line):
        print(f"cuda-toolkit[{','.join(sys.argv[1:])}]{toolkit[1]}")
END
}

# Two small packages of the toolkit, without which libtorch_cpu does not load.
runtime_parts=(cudart cupti)
# Packages (3 MB) with headers that the headers of CUDA and NCCL include (crt/host_config.h, nv/target). The torch wheel does
# not require these packages, because it compiles nothing against them. Without them, only a machine with the CUDA toolkit could
# build the CUDA module.
header_parts=(crt cccl)

install_toolkit_parts() {
  local needed
  mapfile -t needed < <(toolkit_requirements "$@")
  ((${#needed[@]} == 0)) || pip_install "${needed[*]}" "${needed[@]}"
}

# Sets libtorch (the folder) and torch_version.
libtorch=
torch_version=
find_libtorch() {
  local found
  found=$(cmake "$@" -P cmake/FindTorchFolder.cmake) || exit 1
  torch_version=${found%% *}
  libtorch=${found#* }
}

setup_libtorch() {
  local version=${DDPRUN_TORCH_VERSION:-2.11.0}
  if [[ -n ${LIBTORCH:-} || -z ${DDPRUN_TORCH_VERSION:-} ]]; then
    find_libtorch -DDDPRUN_IGNORE_OWN_ENVIRONMENT=ON
    if [[ -n $libtorch ]]; then
      return
    fi
  fi
  make_environment
  local own
  own=$(own_torch)
  if stamped torch "$version" && [[ -n $own ]] && { ! has_gpu || stamped torch-gpu "$version with headers"; }; then
    torch_version=$version libtorch=$own
    return
  fi
  if has_gpu; then
    step "LibTorch $version: installing with GPU support (about 2.5 GB to download, 4.7 GB on disk)"
    need_space 8
    pip_install torch "torch==$version"
    install_toolkit_parts "${header_parts[@]}"
    stamp torch-gpu "$version with headers"
  else
    step "LibTorch $version: installing the CPU part only (about 0.5 GB to download, 1.3 GB on disk)"
    need_space 3
    pip_install torch --no-deps "torch==$version"
    install_toolkit_parts "${runtime_parts[@]}"
  fi
  own=$(own_torch)
  if ldd "$own/lib/libtorch_cpu.so" | grep 'not found'; then
    fail "$own/lib/libtorch_cpu.so does not load: the libraries above are missing"
  fi
  stamp torch "$version"
  torch_version=$version libtorch=$own
}

own_torch() { compgen -G "$environment/lib/python3*/site-packages/torch" | head -1 || true; }

# setup_python EXTENT: sets `python` to a Python with the packages of the tests and benchmarks. The extent `whole` includes
# torch, in LibTorch's version, so that both use the same kernels; the extent `small` does not. The python3 on PATH is used if
# it has all packages; otherwise the packages are installed in .env.
python=
setup_python() {
  local extent=$1 key requirements=requirements/python-tests-small.txt
  local modules=(numpy safetensors pytest pytest_timeout xdist jsonschema)
  if [[ $extent == whole ]]; then
    modules+=(torch tensorboard) requirements=requirements/python-tests.txt
  fi
  if [[ $extent == small || $libtorch != "$environment"/* ]] && python_has python3 "${modules[@]}"; then
    python=$(command -v python3)
    return
  fi
  make_environment
  python=$environment/bin/python
  key="$extent $([[ $extent == whole ]] && echo "torch $torch_version ${header_parts[*]}") $(cat requirements/*.txt | sha256sum | cut -c1-16)"
  if stamped "python-$extent" "$key"; then
    return
  fi
  if [[ $extent == whole ]]; then
    step "Python environment: installing the full torch $torch_version for the comparisons with Python" \
         "(about 2.5 GB to download, 4.7 GB on disk)"
    need_space 8
    pip_install "torch and the test packages" "torch==$torch_version" -r "$requirements"
    install_toolkit_parts "${header_parts[@]}"
  else
    step "Python environment: installing the test packages"
    pip_install "the test packages" -r "$requirements"
  fi
  stamp "python-$extent" "$key"
}

# Installs further packages for the long tests in .env. A user's own python3 is not changed. In that case the tests report which
# packages are missing.
setup_python_programs() {
  local requirements=requirements/python-programs.txt
  if [[ $python != "$environment"/* ]] || stamped python-programs "$(<"$requirements")"; then
    return
  fi
  step "Python environment: installing transformers, accelerate, lightning and timm (about 60 MB to download, 280 MB on disk)"
  need_space 1
  # The version of torch is given so that pip does not replace the installed torch.
  pip_install "transformers, accelerate, lightning and timm" "torch==$torch_version" -r "$requirements"
  stamp python-programs "$(<"$requirements")"
}

# python_has PYTHON MODULE...: succeeds if that Python has all these modules. If torch is one of them, it must have LibTorch's
# version.
python_has() {
  "$1" - "$torch_version" "${@:2}" 2>/dev/null <<'END'
import importlib.util, pathlib, re, sys

version, *modules = sys.argv[1:]
for module in modules:
    spec = importlib.util.find_spec(module)
    if spec is None:
        sys.exit(1)
    if module == "torch":
        text = pathlib.Path(spec.submodule_search_locations[0], "version.py").read_text()
        if re.search(r"__version__ = '([0-9.]+)", text)[1] != version:
            sys.exit(1)
END
}
