"""Tests of a user's training loop in C++ (examples/cpp-loop/loop.cpp): live recovery, resume, and a stop of all ranks at the
same step. The loop runs under ddprun, under torchrun, and with environment variables alone. Its checkpoints must be
bit-identical to the checkpoints of an undisturbed run."""

import hashlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

import jobs
import pytest
from live_nodes import NodesJob

STEPS = 2400
# The number of steps of a run that a test stops with a signal. It is so large that the run cannot end earlier. On a fast
# machine, 600 steps were over before the signal arrived.
ENDLESS = 10_000_000


@pytest.fixture(scope="module")
def loop(ddprun_bin) -> pathlib.Path:
    return ddprun_bin.parent.parent / "tests" / "own_worker" / "own_loop"


def newest(folder: pathlib.Path) -> tuple[int, str]:
    """Returns the step of the newest checkpoint, and a digest of its weights and optimizer moments."""
    latest = (folder / "checkpoints" / "latest").resolve(strict=True)
    digest = hashlib.sha256()
    for name in ("model.safetensors", "optimizer.safetensors"):
        digest.update((latest / name).read_bytes())
    return int(latest.name.removeprefix("step-")), digest.hexdigest()


class Running:
    """A running ddprun whose two workers run the user's loop, and the events that it has printed so far."""

    def __init__(self, ddprun_bin, program, folder: pathlib.Path, *options, steps=STEPS):
        folder.mkdir(exist_ok=True)
        command = [ddprun_bin, "--standalone", "--json", "--nproc-per-node", 2, "--max-restarts", 3, "--log-dir", folder / "logs", *options, program, steps]
        self.process = subprocess.Popen([str(word) for word in command], cwd=folder, env=jobs.clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.pids, self.events, self.errors = {}, [], ""
        self.error_reader = threading.Thread(target=self._read_errors)
        self.error_reader.start()

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def until_step(self, step: int) -> None:
        """Reads events until rank 0 has finished step `step`."""
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if event["event"] == "worker_started":
                self.pids[event["rank"]] = event["pid"]
            if event["event"] == "progress" and event["rank"] == 0 and event["step"] >= step:
                return
        raise AssertionError(f"the job ended before step {step}: {self.end()}")

    def end(self) -> int:
        self.events += [json.loads(line) for line in self.process.stdout]
        self.process.wait(timeout=60)
        self.error_reader.join()
        return self.process.returncode

    def of(self, name: str) -> list[dict]:
        return [event for event in self.events if event["event"] == name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.end()


def undisturbed(ddprun_bin, loop, folder, steps: int) -> tuple[int, str]:
    with Running(ddprun_bin, loop, folder, steps=steps) as job:
        assert job.end() == 0, job.errors
    assert newest(folder)[0] == steps
    last = [event for event in job.of("progress") if event["rank"] == 0][-1]
    assert (last["step"], last["steps_total"]) == (steps, steps) and last["loss"] < 0.3
    return newest(folder)


@pytest.fixture(scope="module")
def calm(ddprun_bin, loop, tmp_path_factory) -> tuple[int, str]:
    return undisturbed(ddprun_bin, loop, tmp_path_factory.mktemp("calm"), STEPS)


@pytest.mark.parametrize("node", [0, 1])
def test_a_worker_of_another_node_keeps_its_state(ddprun_bin, loop, calm, tmp_path, node):
    """Each of two nodes has one worker. The test kills one worker, and later the other worker. Each time, the remaining worker
    keeps its process and its state."""
    with NodesJob(ddprun_bin, tmp_path / "job", None, nodes="2", workers=1, program=[loop, STEPS]) as job:
        job.start(2)
        job.wait_until(lambda: job.agents[0].step() >= 50)
        for lost, kept in ((node, 1 - node), (1 - node, node)):
            job.wait_until(lambda: all(agent.at_work() for agent in job.agents))
            reached, before = job.agents[0].step(), [agent.pids()[0] for agent in job.agents]
            job.agents[lost].kill_worker(0)
            job.wait_until(lambda lost=lost, kept=kept, before=before: job.agents[kept].of("regrouped") and job.agents[lost].pids()[0] != before[lost])
            assert job.agents[kept].pids()[0] == before[kept], job.story()
            assert [event["step"] >= reached for event in job.agents[kept].of("regrouped")] == [True], job.story()
        assert job.finish() == [0, 0], job.story()
    assert newest(tmp_path / "job") == calm


def test_a_replacement_gets_the_restart_cause(ddprun_bin, loop, tmp_path):
    wrapper = tmp_path / "told.sh"
    wrapper.write_text(f'#!/bin/sh\necho "$RANK $DDPRUN_RESTART_CAUSE" >> {tmp_path}/causes\nexec {loop} "$@"\n')
    wrapper.chmod(0o755)
    with Running(ddprun_bin, wrapper, tmp_path / "job") as job:
        job.until_step(50)
        os.kill(job.pids[1], signal.SIGKILL)
        assert job.end() == 0, job.errors
    assert sorted((tmp_path / "causes").read_text().splitlines()) == ["0 ", "1 ", "1 signal"], job.errors


@pytest.mark.parametrize("node", [1, 0])
def test_survivors_of_three_nodes_keep_their_state(ddprun_bin, loop, tmp_path, node):
    with NodesJob(ddprun_bin, tmp_path / "job", None, nodes="2:3", workers=1, program=[loop, STEPS]) as job:
        job.start(3)
        job.wait_until(lambda: all(agent.at_work() for agent in job.agents) and job.agents[0].step() >= 50)
        reached, left = job.agents[0].step(), [agent for n, agent in enumerate(job.agents) if n != node]
        before = [agent.pids()[0] for agent in left]
        job.agents[node].process.kill()
        assert [agent.end() for agent in left] == [0, 0], job.story()
    assert [agent.pids()[0] for agent in left] == before, job.story()
    assert [event["step"] >= reached for agent in left for event in agent.of("regrouped")] == [True, True], job.story()
    assert newest(tmp_path / "job")[0] == STEPS


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_worker_is_replaced_and_no_step_is_lost(ddprun_bin, loop, calm, tmp_path, rank):
    seed = random.randrange(2**32)
    step = random.Random(seed).randrange(1, 400)
    print(f"seed {seed}: rank {rank} is killed after step {step}")
    with Running(ddprun_bin, loop, tmp_path) as job:
        job.until_step(step)
        survivor = job.pids[1 - rank]
        os.kill(job.pids[rank], signal.SIGKILL)
        assert job.end() == 0, job.errors
    (regrouped,) = job.of("regrouped")
    assert (regrouped["kept"], regrouped["replaced"]) == ([1 - rank], [rank]) and regrouped["step"] >= step, regrouped
    assert survivor in [event["pid"] for event in job.of("worker_ended") if event["rank"] == 1 - rank], "the survivor must remain the same process to the end"
    assert newest(tmp_path) == calm


def test_checkpoint_recovery_restarts_all_from_the_newest(ddprun_bin, loop, calm, tmp_path):
    with Running(ddprun_bin, loop, tmp_path, "--recovery", "checkpoint") as job:
        job.until_step(150)
        os.kill(job.pids[1], signal.SIGKILL)
        assert job.end() == 0, job.errors
    assert not job.of("regrouped") and len(job.of("round_started")) == 2
    assert newest(tmp_path) == calm


def test_sigterm_stops_all_at_one_step_and_another_start_resumes(ddprun_bin, loop, tmp_path):
    folder = tmp_path / "stopped"
    with Running(ddprun_bin, loop, folder, steps=ENDLESS) as job:
        job.until_step(100)
        job.process.send_signal(signal.SIGTERM)
        assert job.end() == 85, job.errors
    stopped, _ = newest(folder)
    assert stopped >= 100
    assert len(list((folder / "checkpoints").glob("step-*"))) <= 3
    with Running(ddprun_bin, loop, folder, steps=stopped + 200) as job:
        assert job.end() == 0, job.errors
    assert min(event["step"] for event in job.of("progress")) >= stopped
    assert newest(folder) == undisturbed(ddprun_bin, loop, tmp_path / "undisturbed", stopped + 200)


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(ddprun_bin, loop, calm, tmp_path):
    with Running(ddprun_bin, loop, tmp_path, steps=300) as job:
        assert job.end() == 0, job.errors
    model = tmp_path / "checkpoints" / "step-000000300" / "model.safetensors"
    damaged = bytearray(model.read_bytes())
    damaged[-1] ^= 1
    model.write_bytes(damaged)
    with Running(ddprun_bin, loop, tmp_path) as job:
        assert job.end() == 0, job.errors
    printed = [event["line"] for event in job.of("output")]
    assert any("step-000000300 is not valid" in line for line in printed), printed
    assert (tmp_path / "checkpoints" / "step-000000300.bad").exists()
    assert newest(tmp_path) == calm


@pytest.mark.needs_torch_python
def test_torchrun_starts_a_custom_loop(loop, calm, tmp_path):
    """The first process of rank 1 fails after the first checkpoint. torchrun restarts both ranks, and they resume from the
    newest checkpoint."""
    worker = tmp_path / "worker.sh"
    worker.write_text(f'#!/bin/sh\nif [ "$RANK" = 1 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then {loop} {STEPS} & pid=$!\n'
                      'until [ -e checkpoints/latest ]; do sleep 0.01; done; kill -9 $pid; exit 1; fi\n'
                      f"exec {loop} {STEPS}\n", encoding="utf-8")
    worker.chmod(0o755)
    done = jobs.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", 1, "--nproc-per-node", 2, "--no-python", worker], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert newest(tmp_path) == calm


def test_four_variables_are_enough(ddprun_bin, loop, tmp_path):
    """RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are enough to start the loop, for example under mpirun. When SIGTERM is
    sent to every rank, all ranks save at the same step."""
    port, folder = str(jobs.free_port()), tmp_path / "job"
    folder.mkdir()

    def both(steps: int) -> list[subprocess.Popen]:
        return [subprocess.Popen([loop, str(steps)], cwd=folder, stderr=subprocess.PIPE, text=True,
                                 env=jobs.clean_environment(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)) for rank in range(2)]

    ranks = both(ENDLESS)
    jobs.wait_for((folder / "checkpoints" / "latest").exists, "no checkpoint came")
    for rank in ranks:
        rank.send_signal(signal.SIGTERM)
    ends = [(rank.communicate(timeout=60)[1], rank.returncode) for rank in ranks]
    assert [code for _, code in ends] == [85, 85], ends
    steps = newest(folder)[0] + 200
    ends = [(rank.communicate(timeout=60)[1], rank.returncode) for rank in both(steps)]
    assert [code for _, code in ends] == [0, 0], ends
    assert newest(folder) == undisturbed(ddprun_bin, loop, tmp_path / "undisturbed", steps)


def test_without_a_launcher_it_is_a_job_of_one(loop, tmp_path):
    done = jobs.run([loop, 200], cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and newest(tmp_path)[0] == 200
    done = jobs.run([loop, 200], cwd=tmp_path, RANK="2", WORLD_SIZE="2")
    assert done.returncode == 2 and done.stderr.startswith('myloop: the environment variable RANK is "2"'), done.stderr
    done = jobs.run([loop, 200], cwd=tmp_path, RANK="0", WORLD_SIZE="2")
    assert done.returncode == 2 and "MASTER_ADDR" in done.stderr, done.stderr
