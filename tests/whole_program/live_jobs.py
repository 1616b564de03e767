"""Jobs that lose workers: a running ddprun whose workers can be killed, random kills, and the checks that the run must pass afterwards."""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import threading
import time

import jobs
import pytest

EPOCHS = 100  # epochs of 20 steps


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


def end_of(process: subprocess.Popen, readers: list[threading.Thread], timeout: float) -> int:
    """Reads all output, then returns the exit code. Kills the job if it does not end within the time limit."""
    try:
        process.wait(timeout)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
    return process.returncode


class Job:
    """A running ddprun whose workers' pids are known. Everything that it started ends with it."""

    def __init__(self, ddprun, folder: pathlib.Path, dataset: pathlib.Path, workers: int, *, recovery="live", standbys=0, env=None, flags=(),
                 config=None, **changes):
        """`config` is used unchanged. Without it, a small config with `changes` is used."""
        folder.mkdir(exist_ok=True)
        self.run_dir = folder / "run"
        self.config = config or jobs.config(dataset, **{"epochs": EPOCHS, "checkpoint": {"every_steps": 70, "keep": 3}, **changes})
        file = jobs.write_config(folder / "train.json", self.config)
        command = [ddprun, "--json", "--recovery", recovery, "--nproc-per-node", workers, "--max-restarts", 100000, "--run-dir", self.run_dir,
                   *(["--standby", standbys] if standbys else []), *flags, file]
        self.process = subprocess.Popen([str(c) for c in command], env=jobs.clean_environment(**(env or {})), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events, self.pids, self.step, self.coming_up = [], {}, -1, True
        self.regrouping = False
        self._changed = threading.Condition()
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        self.errors = ""
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            with self._changed:
                self.events.append(event)
                if event["event"] == "worker_started":
                    self.pids[event["rank"]] = event["pid"]
                elif event["event"] in ("progress", "phase") and event.get("rank") == 0:
                    self.step = max(self.step, event["step"])
                    self.coming_up = self.coming_up and (self.regrouping or event.get("phase") != "running")
                elif event["event"] in ("round_started", "regrouped"):
                    self.coming_up = event["event"] == "round_started"
                    self.regrouping = event.get("regroup", False)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_errors(self):
        self.errors = self.process.stderr.read()

    def wait_until(self, condition, timeout=60):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self) or self.process.poll() is not None, timeout), "nothing happened"

    def kill(self, rank: int, number=signal.SIGKILL):
        try:
            os.kill(self.pids[rank], number)
        except ProcessLookupError:
            pass

    def of(self, event: str) -> list[dict]:
        return [e for e in self.events if e["event"] == event]

    def finish(self, timeout=120) -> int:
        return end_of(self.process, self._readers, timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.finish()


@pytest.fixture(scope="module")
def undisturbed(ddprun_bin, data, tmp_path_factory):
    """Undisturbed runs, one for each world size."""
    runs = {}

    def of(workers: int, **changes) -> pathlib.Path:
        key = (workers, json.dumps(changes, sort_keys=True))
        if key not in runs:
            with Job(ddprun_bin, tmp_path_factory.mktemp("calm"), data, workers, **changes) as job:
                assert job.finish() == 0, job.errors
            runs[key] = job.run_dir
        return runs[key]

    return of


def assert_same_run(job: Job, calm: pathlib.Path) -> None:
    assert jobs.weights_digest(job.run_dir) == jobs.weights_digest(calm)
    assert jobs.losses(job.run_dir) == jobs.losses(calm)
    evaluations = {run: [(e["step"], e["loss"], e["accuracy"]) for e in jobs.metrics(run, "eval")] for run in (job.run_dir, calm)}
    assert evaluations[job.run_dir] == evaluations[calm]
    jobs.assert_each_sample_once(job.run_dir, job.config["epochs"])


def assert_nothing_lost(job: Job) -> None:
    """After a loss with surviving state, training resumed from the newest step of the survivors. They repeat at most the one step that only the lost
    rank had finished."""
    reached: dict[int, int] = {}
    failed = False  # later messages may belong to the new group
    lost = []
    for event in job.events:
        if event["event"] in ("progress", "phase") and not failed:
            reached[event["rank"]] = max(reached.get(event["rank"], -1), event["step"])
        elif event["event"] == "round_failed":
            failed = True
        elif event["event"] == "regrouped":
            held = max((reached.get(rank, -1) for rank in event["kept"]), default=-1)
            if event["kept"] and event["step"] < max(held, max(reached.values(), default=-1) - 1):
                lost.append((event, reached))
            reached, failed = dict.fromkeys(reached, event["step"]), False
        elif event["event"] == "round_started" and not event["regroup"]:
            reached, failed = {}, False
    assert not lost


def seconds_to_next_step(job: Job) -> list[float]:
    """Seconds from each loss with surviving state to the end of the next step on any rank, by the system clock. A loss is not counted if another
    worker was killed before that step."""
    steps = sorted((e["time_ns"], e["step"]) for e in jobs.metrics(job.run_dir, "step"))
    found = []
    for number, event in enumerate(job.events):
        if event["event"] != "regrouped" or not event["kept"]:
            continue
        failed = next(e for e in reversed(job.events[:number]) if e["event"] == "round_failed")
        after = [t for t, step in steps if step > event["step"] and t > event["time_ns"] - 1e9]
        lost_again = next((e["first_cause"]["time_ns"] for e in job.events[number:] if e["event"] == "round_failed"), None)
        if after and (lost_again is None or min(after) < lost_again):
            found.append((min(after) - failed["first_cause"]["time_ns"]) / 1e9)
    return found


def kill_at_random(job: Job, workers: int, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    done, last, reached = 0, -1, -1
    job.wait_until(lambda j: len(j.pids) == workers)
    while done < kills and job.process.poll() is None:
        # Usually in the middle of training, sometimes while a replacement is still starting.
        if chance.random() < 0.75:
            job.wait_until(lambda j: not j.coming_up or j.of("run_ended"))
        time.sleep(chance.uniform(0, 0.4))
        rank = chance.randrange(workers)
        begun_at = max([reached] + [e["step"] for e in job.of("regrouped")])
        if rank == last and (job.coming_up or job.step <= begun_at):
            rank = (rank + 1) % workers  # the same failure twice at the same step would end the job
        last, reached = rank, job.step
        before = job.pids[rank]
        job.kill(rank)
        done += 1
        job.wait_until(lambda j: j.pids[rank] != before or j.of("run_ended"))
    return done


def check_random_kills(ddprun, data, folder, undisturbed, workers: int, kills: int, seed: int, standbys: int = 0, **changes) -> list[float]:
    print(f"seed {seed}, {workers} workers, {standbys} standbys")
    with Job(ddprun, folder, data, workers, standbys=standbys, **changes) as job:
        done = kill_at_random(job, workers, kills, seed)
        assert job.finish() == 0, job.errors
    assert done >= kills / 2, "the run was too short for the kills"
    assert_same_run(job, undisturbed(workers, **changes))
    assert_nothing_lost(job)
    assert all(e["event"] != "regroup_failed" for e in job.events)
    times = seconds_to_next_step(job)
    assert times, "no loss was outlived"
    print(f"{done} kills, {len(times)} outlived; seconds to the next step: median {statistics.median(times):.2f}, most {max(times):.2f}")
    return times


def seed_of_this_run() -> int:
    return int(os.environ.get("DDPRUN_SEED", random.randrange(1 << 30)))
