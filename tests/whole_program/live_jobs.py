"""Provides a running job, whose workers a test kills at chosen or random times. Also provides the checks that this job must
pass."""

import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import threading
import time

import jobs
import pytest

EPOCHS = 100  # each epoch has 20 steps
SHORT = {"epochs": 40}  # for tests whose kills and checks need only about 100 steps


def end_of(process: subprocess.Popen, readers: list[threading.Thread], timeout: float) -> int:
    """Waits until a process and the threads that read its output have ended. Returns the exit code. Kills the process if it
    does not end within the timeout."""
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
    """A running job with the pids of its workers. At the end of the `with` block, all processes of the job are killed."""

    def __init__(self, ddprun, folder: pathlib.Path, dataset: pathlib.Path, workers: int, *, recovery="live", standbys=0, env=None, flags=(),
                 config=None, **changes):
        """Starts the job. If `config` is None, a small config with `changes` is used."""
        folder.mkdir(exist_ok=True)
        self.run_dir = folder / "run"
        self.config = config or jobs.config(dataset, **{"epochs": EPOCHS, "checkpoint": {"every_steps": 70, "keep": 3}, **changes})
        file = jobs.write_config(folder / "train.json", self.config)
        command = [ddprun, "--json", "--recovery", recovery, "--nproc-per-node", workers, "--max-restarts", 100000, "--run-dir", self.run_dir,
                   *(["--standby", standbys] if standbys else []), *flags, file]
        self.process = subprocess.Popen([str(c) for c in command], env=jobs.clean_environment(**(env or {})), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events, self.pids, self.step, self.coming_up = [], {}, -1, True
        # the newest step that the current process of each rank has reported; the key is the rank
        self.steps: dict[int, int] = {}
        self.regrouping = False
        self._changed = threading.Condition()
        self._readers = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        self._stderr = ""
        for reader in self._readers:
            reader.start()

    def _read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            with self._changed:
                self.events.append(event)
                if event["event"] == "worker_started":
                    self.pids[event["rank"]] = event["pid"]
                    self.steps.pop(event["rank"], None)
                elif event["event"] in ("progress", "phase"):
                    self.steps[event["rank"]] = event["step"]
                    if event["rank"] == 0:
                        self.step = max(self.step, event["step"])
                        self.coming_up = self.coming_up and (self.regrouping or event.get("phase") != "running")
                elif event["event"] in ("round_started", "regrouped"):
                    self.coming_up = event["event"] == "round_started"
                    self.regrouping = event.get("regroup", False)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_errors(self):
        self._stderr = self.process.stderr.read()

    @property
    def errors(self) -> str:
        """Returns the text to print if an assertion fails: stderr, and all events except the regular events of workers."""
        return "\n".join([f"exit code {self.process.returncode}", self._stderr,
                          *(json.dumps(e) for e in self.events if e["event"] not in ("progress", "phase", "metrics"))])

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


@pytest.fixture(scope="session")
def undisturbed(ddprun_bin, tmp_path_factory):
    """Returns a function undisturbed(workers, **changes), which runs a job without faults and returns its run directory. A job
    runs only once per session, in the first test that needs it, even if pytest runs tests in several processes. `dataset`
    replaces the small data set."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "undisturbed"
    shared.mkdir(exist_ok=True)

    def of(workers: int, dataset: pathlib.Path | None = None, **changes) -> pathlib.Path:
        key = hashlib.sha256(json.dumps([workers, str(dataset), changes], sort_keys=True).encode()).hexdigest()[:16]
        with open(shared / f"{key}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            finished = shared / f"{key}.finished"
            if not finished.exists():
                shutil.rmtree(shared / key, ignore_errors=True)  # removes the files of an earlier attempt that failed
                with Job(ddprun_bin, shared / key, dataset or jobs.write_small_dataset(shared / f"{key}-data"), workers, **changes) as job:
                    assert job.finish() == 0, job.errors
                finished.touch()
        return shared / key / "run"

    return of


def assert_same_run(job: Job, calm: pathlib.Path) -> None:
    assert jobs.weights_digest(job.run_dir) == jobs.weights_digest(calm)
    assert jobs.losses(job.run_dir) == jobs.losses(calm)
    evaluations = {run: [(e["step"], e["loss"], e["accuracy"]) for e in jobs.metrics(run, "eval")] for run in (job.run_dir, calm)}
    assert evaluations[job.run_dir] == evaluations[calm]
    jobs.assert_each_sample_once(job.run_dir, job.config["epochs"])


def assert_no_sample_lost(job: Job) -> None:
    """Checks all recoveries in which some workers kept their state. Training must resume from the newest step that one of these
    workers had finished. At most one step is repeated: a step that only the lost rank had finished."""
    reached: dict[int, int] = {}
    failed = False  # later messages may belong to the new process group
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
    """Returns a list of recovery times, one for each lost worker after whose loss other workers continued to run. A recovery
    time is the seconds from the loss to the next finished step on any rank, by the system clock. A lost worker is omitted if
    another worker was killed before that step."""
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


def steps_after_losses(job: Job) -> list[int]:
    """Returns, for each loss of a worker after which other workers survived, the first newer step that a rank reported before
    the next loss. A loss is omitted if no rank reported a newer step."""
    found, held = [], None  # `held` is the step from which the survivors continue
    for event in job.events:
        if event["event"] == "regrouped":
            held = event["step"] if event["kept"] else None
        elif event["event"] == "round_failed":
            held = None
        elif event["event"] in ("progress", "phase") and held is not None and event["step"] > held:
            found.append(event["step"])
            held = None
    return found


def kill_at_random(job: Job, workers: int, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    done, last = 0, -1
    job.wait_until(lambda j: len(j.pids) == workers)
    while done < kills and job.process.poll() is None:
        # Three quarters of the kills happen during training. The other kills can also happen while a new worker is still
        # starting.
        if chance.random() < 0.75 or done == 0:
            job.wait_until(lambda j: not j.coming_up or j.of("run_ended"))
        time.sleep(chance.uniform(0, 0.4))
        rank = chance.randrange(workers)
        failed_at = max((e["first_cause"].get("step", -1) for e in job.of("round_failed")), default=-1)
        if rank == last and (job.coming_up or job.steps.get(rank, -1) <= failed_at):
            # Kills a different rank each time, because two failures of a rank at the same step would end the job.
            rank = (rank + 1) % workers
        last = rank
        before = job.pids[rank]
        job.kill(rank)
        done += 1
        job.wait_until(lambda j: j.pids[rank] != before or j.of("run_ended"))
        if done == 1:
            # On a busy machine, the next kill could come before the next step. At least one recovery must reach a step.
            job.wait_until(lambda j: j.of("run_ended") or (j.of("regrouped") and j.step > j.of("regrouped")[-1]["step"]))
    return done


def check_random_kills(ddprun, data, folder, undisturbed, workers: int, kills: int, seed: int, standbys: int = 0, **changes) -> list[float]:
    print(f"seed {seed}, {workers} workers, {standbys} standbys")
    with Job(ddprun, folder, data, workers, standbys=standbys, **changes) as job:
        done = kill_at_random(job, workers, kills, seed)
        assert job.finish() == 0, job.errors
    assert done >= kills / 2, "the run ended before half of the kills"
    assert_same_run(job, undisturbed(workers, **changes))
    assert_no_sample_lost(job)
    assert all(e["event"] != "regroup_failed" for e in job.events)
    times = seconds_to_next_step(job)
    assert steps_after_losses(job), "the job survived no lost worker\n" + job.errors
    if times:  # empty if a later loss of all workers removed the measured steps from metrics.jsonl
        print(f"{done} kills, {len(times)} outlived; seconds to the next step: median {statistics.median(times):.2f}, most {max(times):.2f}")
    return times


def seed_of_this_run() -> int:
    return int(os.environ.get("DDPRUN_SEED", random.randrange(1 << 30)))
