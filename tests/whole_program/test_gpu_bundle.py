"""Tests of the bundle that is copied to a machine with a GPU. The bundle must be small and complete. It must refuse to run if
the version of torch is not the version with which the bundle was built."""

import json
import pathlib
import re
import subprocess
import sys
import tarfile

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HAS_GPU = any(p.name[6:].isdigit() for p in pathlib.Path("/dev").glob("nvidia[0-9]*"))


@pytest.fixture(scope="module")
def unpacked(ddprun_bin, ddptrain_bin, tmp_path_factory) -> pathlib.Path:
    if not (ROOT / "dev").exists() or not (ddprun_bin.parents[1] / "lib/ddprun/libddptrain_cuda.so").exists():
        pytest.skip("needs a checkout, and a build with the CUDA module")
    folder = tmp_path_factory.mktemp("bundle")
    done = jobs.run([sys.executable, ROOT / "tests/gpu/make_bundle.py", ddprun_bin.parents[1], folder / "gpu.tar.gz"])
    assert done.returncode == 0, done.stderr
    assert (folder / "gpu.tar.gz").stat().st_size <= 64_000_000
    with tarfile.open(folder / "gpu.tar.gz") as bundle:
        # Python 3.11.4 and later versions have tarfile.tar_filter.
        bundle.extractall(folder, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
    return folder / "ddprun-gpu"


def check(unpacked: pathlib.Path, *options) -> subprocess.CompletedProcess:
    return jobs.run([sys.executable, unpacked / "tests/gpu/check.py", *options], timeout=550, cwd=unpacked.parent)


@pytest.mark.skipif(HAS_GPU or not (ROOT / "dev").exists(), reason="this machine has a GPU, or this is not a checkout")
def test_dev_without_a_gpu_prints_one_line():
    done = jobs.run([ROOT / "dev", "gpu"])
    assert done.returncode == 3 and done.stderr == ""
    assert done.stdout.count("\n") == 1 and done.stdout.startswith("no NVIDIA GPU on this machine: nothing was checked")


def test_another_torch_is_refused_with_both_versions(unpacked, tmp_path):
    (tmp_path / "torch/lib").mkdir(parents=True)
    (tmp_path / "torch/lib/libtorch_cpu.so").write_text("")
    (tmp_path / "torch/version.py").write_text("__version__ = '2.9.1+cpu'\n")
    done = check(unpacked, "--torch", tmp_path / "torch", "--figures", tmp_path / "figures")
    assert done.returncode == 1
    built_with = json.loads((unpacked / "bundle.json").read_text())["torch"]
    assert done.stderr.startswith(f"check: this was built with torch {built_with} and runs with no other;") and "2.9.1+cpu" in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "figures").exists()


def test_bundled_tests_need_no_extra_packages(unpacked, tmp_path):
    """The bundled tests can be loaded if pytest is the only installed package. They import torch, numpy and safetensors only
    in the functions that use them."""
    for name in ("jsonschema", "prometheus_client", "tensorboard", "safetensors", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('there is no {name} on that machine', name='{name}')\n")
    named = set(re.findall(r"\btest_\w+\b", (unpacked / "tests/gpu/check.py").read_text(encoding="utf-8")))
    files = [file for file in (unpacked / "tests/whole_program").glob("test_*.py") if file.stem in named]
    assert len(files) > 5
    done = jobs.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files], cwd=unpacked,
                    PYTHONPATH=f"{tmp_path}:{unpacked / 'python'}", DDPRUN_BUILD_DIR=unpacked / "build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_gpu_equivalence.py::" in done.stdout and "test_gpu_scripts.py::" in done.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU: ./dev gpu runs more")
def test_the_cpu_part_runs_where_it_is_unpacked(unpacked, ddprun_bin, tmp_path):
    torch = (ddprun_bin.parents[1] / "lib/ddprun/torch").resolve()
    done = check(unpacked, "--torch", torch, "--figures", tmp_path / "figures")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no NVIDIA GPU on this machine: only what a CPU can show is checked" in done.stdout
    results = json.loads((tmp_path / "figures/tests.json").read_text())["tests"]
    assert {t["result"] for t in results} <= {"passed", "skipped"} and any("bf16" in t["name"] for t in results)
    for row in json.loads((tmp_path / "figures/training.json").read_text()):
        assert all(run["exit_code"] == 0 and run["samples_per_second"] > 0 for run in row["ddptrain"])
