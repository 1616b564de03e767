"""Tests of ddptrain under torchrun. ddptrain needs only the environment variables that torchrun sets. Its results must be
bit-identical to the results under ddprun."""

import signal
import subprocess
import sys

import jobs
import pytest

pytestmark = pytest.mark.needs_torch_python


def torchrun(*arguments) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *[str(a) for a in arguments]]


# With the static rendezvous, rank 0 hosts the store. With --standalone, the agent of torchrun hosts the store.
@pytest.mark.parametrize("store", [[], ["--standalone"]])
def test_torchrun_starts_ddptrain(ddprun_bin, ddptrain_bin, data, tmp_path, store):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    port = [] if store else ["--master-port", free_port()]
    done = jobs.run(torchrun(*store, *port, "--nproc-per-node", 2, "--no-python", ddptrain_bin, "--run-dir", tmp_path / "theirs", config))
    assert done.returncode == 0, done.stderr
    ours = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "ours", config])
    assert ours.returncode == 0, ours.stderr
    assert jobs.weights_digest(tmp_path / "theirs") == jobs.weights_digest(tmp_path / "ours")
    assert jobs.losses(tmp_path / "theirs") == jobs.losses(tmp_path / "ours")


def test_a_torchrun_restart_changes_no_bit(ddprun_bin, ddptrain_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    done = jobs.run(torchrun("--standalone", "--max-restarts", 1, "--nproc-per-node", 2, "--no-python", ddptrain_bin,
                             "--run-dir", tmp_path / "theirs", config), DDPTRAIN_FAULT="kill rank=1 step=17")
    assert done.returncode == 0, done.stderr
    ours = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "ours", config])
    assert ours.returncode == 0, ours.stderr
    assert jobs.weights_digest(tmp_path / "theirs") == jobs.weights_digest(tmp_path / "ours")


def test_a_signal_to_torchrun_saves(ddptrain_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=10000, checkpoint={"every_steps": 10**6}))
    with subprocess.Popen(torchrun("--standalone", "--nproc-per-node", 2, "--no-python", ddptrain_bin, "--run-dir", tmp_path / "run",
                                   config), env=jobs.clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as running:
        next(line for line in running.stdout if "step" in line)
        running.send_signal(signal.SIGTERM)
        output = running.stdout.read()
        running.wait(timeout=60)
    last = jobs.metrics(tmp_path / "run", "step")[-1]["step"]
    assert (tmp_path / "run" / "checkpoints" / "latest").resolve().name == f"step-{last:09d}", output


def test_without_a_launcher_it_is_a_job_of_one(ddptrain_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    done = jobs.run([ddptrain_bin, "--run-dir", tmp_path / "run", config])
    assert done.returncode == 0, done.stderr
    jobs.assert_each_sample_once(tmp_path / "run", 2)


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
