"""Tests of the device that a worker uses if a GPU installation is incomplete. The CUDA module may be missing, may not load, or
may belong to a different version; the driver may report no GPU, or fewer GPUs than workers. Each case is simulated with a
private /dev and with a CUDA module that can only count GPUs. In none of these cases may a worker train on the CPU without a
message."""

import os
import pathlib
import shutil
import subprocess

import jobs
import pytest

WITH_A_DRIVER = ('mount -t tmpfs none "$0" && mkdir "$0/upper" "$0/work" && '
                 'mount -t overlay none -o "lowerdir=/dev,upperdir=$0/upper,workdir=$0/work" /dev && '
                 'touch /dev/nvidiactl /dev/nvidia0 && "$@"')


class Tree:
    """A copy of the programs, with a CUDA module chosen by the test and a private /dev with the device files of an NVIDIA
    driver."""

    def __init__(self, folder: pathlib.Path, ddprun: pathlib.Path, data: pathlib.Path):
        self.folder, self.data, self.build = folder, data, ddprun.parent.parent
        (folder / "bin").mkdir()
        (folder / "lib/ddprun").mkdir(parents=True)
        (folder / "dev").mkdir()
        for name in ("ddprun", "ddptrain"):
            shutil.copy2(self.build / "bin" / name, folder / "bin" / name)
        (folder / "lib/ddprun/torch").symlink_to((self.build / "lib/ddprun/torch").resolve())
        self.module = folder / "lib/ddprun/libddptrain_cuda.so"
        if subprocess.run(self.command(["true"]), capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount a private /dev on this machine (unshare, overlay)")

    def command(self, words: list) -> list:
        if os.geteuid() != 0 or not shutil.which("unshare"):
            pytest.skip("needs root and unshare, for a private /dev")
        return ["unshare", "-m", "sh", "-c", WITH_A_DRIVER, self.folder / "dev", *words]

    def play_module(self):
        fake = self.build / "tests/fake_cuda/libddptrain_cuda.so"
        if not fake.exists():
            pytest.skip(f"{fake} is not built")
        shutil.copy2(fake, self.module)

    def train(self, device: str, *options, **environment: str) -> subprocess.CompletedProcess:
        config = jobs.write_config(self.folder / "train.json", jobs.config(self.data, device=device, epochs=1, max_steps=2))
        return jobs.run(self.command([self.folder / "bin/ddprun", "--run-dir", self.folder / "run", *options, config]), **environment)

    def trained_on_the_cpu(self) -> bool:
        return len(jobs.losses(self.folder / "run")) == 2


@pytest.fixture
def tree(ddprun_bin, ddptrain_bin, data, tmp_path) -> Tree:
    return Tree(tmp_path, ddprun_bin, data)


def no_module(tree):
    return {}, "this build has no CUDA module"


def broken_module(tree):
    tree.module.write_text("no library")
    return {}, "the CUDA module cannot be loaded"


def older_module(tree):
    tree.play_module()
    return {"FAKE_CUDA_VERSION": "1"}, "belongs to another version of ddptrain"


def no_visible_gpu(tree):
    tree.play_module()
    return {"FAKE_CUDA_DEVICES": "0"}, "CUDA reports no GPU to this process"


CASES = [no_module, broken_module, older_module, no_visible_gpu]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_auto_explains_the_choice_of_the_cpu(tree, case):
    environment, why = case(tree)
    done = tree.train("auto", "--nproc-per-node", 2, "--max-restarts", 0, **environment)
    assert done.returncode == 0, done.stderr
    assert tree.trained_on_the_cpu()
    lines = [line for line in (done.stdout + done.stderr).splitlines() if '"auto" selects the CPU' in line]
    assert len(lines) == 1 and why in lines[0], "expected one line, from one worker of the node\n" + done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_cuda_never_falls_back_to_the_cpu(tree, case):
    environment, why = case(tree)
    done = tree.train("cuda", "--nproc-per-node", 1, "--max-restarts", 0, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert why in done.stdout + done.stderr
    assert not (tree.folder / "run/metrics.jsonl").exists()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_worker_per_gpu_never_falls_back_to_the_cpu(tree, case):
    """The private /dev has one GPU device file, so the launcher counts one GPU and starts one worker."""
    environment, why = case(tree)
    done = tree.train("auto", "--max-restarts", 0, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert why in done.stdout + done.stderr and "was started for a GPU of this node" in done.stdout + done.stderr


def test_fewer_gpus_than_workers_are_refused_with_both_numbers(tree):
    tree.play_module()
    done = tree.train("auto", "--nproc-per-node", 3, "--max-restarts", 0, FAKE_CUDA_DEVICES="2")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "3 workers but only 2 GPUs" in done.stdout + done.stderr
