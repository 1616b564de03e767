"""Tests how many bytes the workers of a machine read when they resume: together, they read the checkpoint once."""

import pathlib

from live_jobs import Job

WORKERS = 3
STEP = 20  # the step of the first checkpoint


def bytes_read(pid: int) -> int:
    """Returns the bytes that a process has read from files so far. Gloo receives with recv(), which is not counted."""
    lines = pathlib.Path(f"/proc/{pid}/io").read_text(encoding="utf-8").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def bytes_read_at_the_start(job: Job, first_step: int) -> int:
    job.wait_until(lambda j: len(j.steps) == WORKERS and min(j.steps.values()) > first_step)
    assert job.process.poll() is None, job.errors
    return sum(bytes_read(job.pids[rank]) for rank in range(WORKERS))


def test_the_workers_of_a_machine_read_a_checkpoint_once(ddprun_bin, data, tmp_path):
    changes = {"model": {"type": "mlp", "hidden": [1024]}, "epochs": 100000, "checkpoint": {"every_steps": STEP, "keep": 2}}
    with Job(ddprun_bin, tmp_path, data, WORKERS, **changes) as job:
        fresh = bytes_read_at_the_start(job, 0)
        checkpoints = job.run_dir / "checkpoints"
        job.wait_until(lambda _: (checkpoints / "latest").exists())
    size = sum(file.stat().st_size for file in (checkpoints / "latest").resolve(strict=True).iterdir())
    assert size > 8 << 20
    with Job(ddprun_bin, tmp_path, data, WORKERS, **changes) as job:
        resumed = bytes_read_at_the_start(job, STEP)
    assert 0.9 * size < resumed - fresh < 1.3 * size, (size, fresh, resumed)
