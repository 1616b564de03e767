"""Tests of a new worker that replaces a lost worker but cannot read the data of the job. The worker must be started again
later, and the state of the other workers must not be lost."""

import json
import os
import pathlib
import signal

import jobs
import pytest
from live_nodes import NodesJob


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path / "data")


class Job:
    """A job with two workers. Its checkpoint interval is longer than the test, so its newest state is only in memory."""

    def __init__(self, ddprun, folder: pathlib.Path, data: pathlib.Path, restarts: int, epochs: int, *options: str, **changes):
        self.run_dir, self.events = folder / "run", []
        config = jobs.write_config(folder / "train.json", jobs.config(data, epochs=epochs, checkpoint={"every_steps": 1000000}, **changes))
        self.process = jobs.start([ddprun, "--json", "--nproc-per-node", 2, "--max-restarts", restarts, "--run-dir", self.run_dir, *options, config])

    def wait_for(self, condition) -> dict:
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if condition(self.events[-1]):
                return self.events[-1]
        raise AssertionError(self.process.stderr.read())

    def kill_rank_1_and_hide_data(self, data: pathlib.Path) -> int:
        """Renames the data folder and then kills rank 1. Returns the newest reported step."""
        started = next(e for e in self.events if e["event"] == "worker_started" and e["rank"] == 1)
        data.rename(data.with_name("gone"))
        os.kill(started["pid"], signal.SIGKILL)
        return max(e["step"] for e in self.events if e["event"] == "progress")

    def trains(self) -> None:
        self.wait_for(lambda e: e["event"] == "progress" and e["step"] >= 40)

    def finish(self) -> int:
        self.wait_for(lambda e: e["event"] == "run_ended")
        return self.process.wait(60)


def failures(job: Job) -> list[tuple[str, str]]:
    return [(e["first_cause"]["cause"], e["decision"]) for e in job.events if e["event"] == "round_failed"]


def test_a_replacement_with_missing_data_is_retried(ddprun_bin, data, tmp_path):
    job = Job(ddprun_bin, tmp_path, data, restarts=3, epochs=100000)
    job.trains()
    step = job.kill_rank_1_and_hide_data(data)
    job.wait_for(lambda e: e["event"] == "round_failed" and e["first_cause"]["cause"] == "late_usage")
    data.with_name("gone").rename(data)
    regrouped = job.wait_for(lambda e: e["event"] == "regrouped")
    assert regrouped["kept"] == [0] and regrouped["step"] >= step - 1
    assert failures(job) == [("signal", "regroup"), ("late_usage", "regroup")]
    job.process.terminate()
    assert job.finish() == 85


def test_survivors_save_before_the_job_ends_without_a_replacement(ddprun_bin, data, tmp_path):
    job = Job(ddprun_bin, tmp_path, data, restarts=1, epochs=100000)
    job.trains()
    step = job.kill_rank_1_and_hide_data(data)
    assert job.finish() == 85
    assert failures(job) == [("signal", "regroup"), ("late_usage", "give_up")]
    assert jobs.newest_step(job.run_dir) >= step - 1
    assert "have saved their state" in job.events[-1]["why"]
    # After the data is available again, the test starts the same config. The run must resume from the saved step.
    data.with_name("gone").rename(data)
    again = Job(ddprun_bin, tmp_path, data, restarts=1, epochs=100000)
    again.trains()
    again.process.terminate()
    assert again.finish() == 85
    assert jobs.metrics(job.run_dir, "resume")[-1]["step"] >= step - 1


def test_a_first_start_without_data_is_a_usage_error(ddprun_bin, data, tmp_path):
    data.rename(data.with_name("gone"))
    job = Job(ddprun_bin, tmp_path, data, restarts=3, epochs=1)
    assert job.finish() == 2
    assert failures(job) == [("usage", "give_up")]


# ---- two nodes ----


@pytest.mark.parametrize("lost", [0, 1])
def test_on_two_nodes_survivors_save_too(ddprun_bin, data, tmp_path, lost):
    """Normally rank 0 writes the checkpoints. If the worker of rank 0 is lost, the worker of rank 1 must save the state."""
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=1, options=["--max-restarts", 1], epochs=100000,
                  checkpoint={"every_steps": 1000000}) as job:
        job.start(2)
        job.wait_until(lambda: max(agent.step() for agent in job.agents) >= 40)
        data.rename(data.with_name("gone"))
        step = max(agent.step() for agent in job.agents)
        next(agent for agent in job.agents if agent.ranks() == {lost}).kill_worker(0)
        assert job.finish() == [85, 85], job.story()
        causes = [(e["first_cause"]["cause"], e["decision"]) for agent in job.agents for e in agent.of("round_failed")]
        assert sorted(causes) == 2 * [("late_usage", "give_up")] + [("signal", "regroup"), ("signal", "restart")], job.story()
        assert jobs.newest_step(job.run_dir) >= step - 1
        for agent in job.agents:
            assert "the state held by the other workers is saved" in agent.of("run_ended")[-1]["why"]
    # After the data is available again, the run must resume from the saved step.
    data.with_name("gone").rename(data)
    again = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", job.run_dir, tmp_path / "job" / "train.json", f"max_steps={step + 5}"])
    assert again.returncode == 0, again.stderr
    assert jobs.metrics(job.run_dir, "resume")[-1]["step"] >= step - 1
