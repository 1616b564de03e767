"""Tests of agents that Slurm starts. These agents need no options about nodes, react to the signals of Slurm, and can be
requeued. The tests use a Slurm cluster with two hosts (slurm.py)."""

import jobs
import pytest

EPOCHS = 40  # enough epochs for a few seconds of training, so that the test can interrupt it


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("config")
    return jobs.write_config(folder / "train.json", jobs.config(jobs.write_small_dataset(folder / "data"), epochs=EPOCHS))


@pytest.fixture(scope="module")
def alone(config, ddprun_bin, ddptrain_bin, tmp_path_factory):
    """Runs the same training with two workers on one machine, without faults. Returns the run directory."""
    folder = tmp_path_factory.mktemp("alone")
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", folder / "run", config])
    assert done.returncode == 0, done.stderr
    return folder / "run"


def batch(slurm, folder, *lines: str) -> str:
    """Submits a batch script with these lines and returns its job id. The output goes to folder/batch.out."""
    (folder / "batch.sh").write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    done = slurm.run("sbatch", "--parsable", "--requeue", "--open-mode=append", "--nodes=2", "--ntasks-per-node=1", "-o", folder / "batch.out",
                     folder / "batch.sh")
    assert done.returncode == 0, done.stderr + slurm.logs()
    return done.stdout.strip()


def test_a_step_needs_no_flags(slurm, config, alone, ddprun_bin, tmp_path):
    done = slurm.run("srun", "--nodes=2", "--ntasks-per-node=1", ddprun_bin, "--run-dir", tmp_path / "run", config)
    assert done.returncode == 0, done.stdout + done.stderr + slurm.logs()
    assert jobs.losses(tmp_path / "run") == jobs.losses(alone)
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(alone)
    assert "node host1 joined" in done.stdout + done.stderr


def test_a_preempted_job_is_requeued_and_continues(slurm, config, alone, ddprun_bin, tmp_path):
    """The batch script contains the command from docs/exit-codes.md that requeues the job. Slurm sends SIGTERM to the job
    step."""
    run = tmp_path / "run"
    number = batch(slurm, tmp_path, 'echo "start ${SLURM_RESTART_COUNT:-0}"',
                   f"srun {ddprun_bin} --run-dir {run} {config} " + '|| case $? in 85|143) scontrol requeue "$SLURM_JOB_ID";; esac')
    metrics = run / "metrics.jsonl"
    slurm.hosts.until(lambda: metrics.exists() and metrics.read_bytes().count(b'"step"') > 20, "twenty steps")
    slurm.run("scancel", "--signal=TERM", f"{number}.0")
    slurm.until_gone(number)
    text = (tmp_path / "batch.out").read_text()
    assert "start 0" in text and "start 1" in text, text
    assert [start["exit"]["code"] for start in jobs.report(run)["invocations"]] == [85, 0]
    assert jobs.losses(run) == jobs.losses(alone)
    assert jobs.weights_digest(run) == jobs.weights_digest(alone)


def test_several_agents_on_a_node_are_refused(slurm, config, ddprun_bin, tmp_path):
    done = slurm.run("srun", "--nodes=2", "--ntasks-per-node=2", ddprun_bin, "--run-dir", tmp_path / "run", config)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--ntasks-per-node=1" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_batch_script_without_srun_is_reported(slurm, ddprun_bin, tmp_path):
    number = batch(slurm, tmp_path, f"{ddprun_bin} --no-python echo hello from worker '$RANK'")
    slurm.until_gone(number)
    text = (tmp_path / "batch.out").read_text()
    assert "hello from worker" in text and "srun ddprun" in text, text
