"""Kills workers of each model a hundred times at random moments, while the other worker keeps the state. The final weights,
metrics and used samples must equal the results of an undisturbed run. Each model is also trained with 2 workers, then with 1,
then with 3. This run must use every sample once per epoch.

    DDPRUN_LONG_TESTS=1 [DDPRUN_KILLS=100] [DDPRUN_SEED=N] python -m pytest -s tests/whole_program/test_hundred_kills.py [-k resnet]

The printed lines that start with | are rows for the table in docs/internals/hundred-kills.md."""

import json
import os
import pathlib
import random
import shutil
import signal
import time

import jobs
import pytest
from killed_models import MODELS, Killed
from live_jobs import Job, assert_no_sample_lost, seed_of_this_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("DDPRUN_KILLS", 100))
MAX_RUNS = 50
PATIENCE_S = 600  # time limit in seconds; long enough for the delays of a busy machine
# The kills are more frequent than real failures. The restart policy must not end or delay the job because of them.
POLICY = {"max_restarts": 100000, "same_failure_rounds": 0, "pause": {"first_s": 0, "longest_s": 0}}


class Model:
    """A model from killed_models.py and the results of its undisturbed run."""

    def __init__(self, killed: Killed, ddprun: pathlib.Path, ddptrain: pathlib.Path, folder: pathlib.Path):
        self.killed, self.ddprun, self.ddptrain, self.folder = killed, ddprun, ddptrain, folder
        self.content = killed.config(folder)
        if "path" in self.content["model"]:
            self.content["model"] = {**self.content["model"], "path": str(folder / self.content["model"]["path"])}
        jobs.write_config(folder / "policy.json", POLICY)
        with self.job("calm") as job:
            assert job.finish(PATIENCE_S) == 0, job.errors
        self.calm = job.run_dir
        self.steps = len(jobs.losses(self.calm))
        self.step_s = jobs.report(self.calm)["time"]["training_s"] / self.steps

    def job(self, name: str) -> Job:
        return Job(self.ddprun, self.folder / name, pathlib.Path(self.content["data"]["dir"]), 2, standbys=1, config=self.content,
                   flags=("--restart-policy", self.folder / "policy.json"))

    def differences(self, run_dir: pathlib.Path) -> list[str]:
        """Returns the names of the results that differ from the undisturbed run."""
        weights = {}
        for run in (self.calm, run_dir):
            file = self.folder / f"{run.parent.name}.safetensors"
            done = jobs.run([self.ddptrain, "--export-weights", run, file], timeout=PATIENCE_S)
            assert done.returncode == 0, done.stderr
            weights[run] = file.read_bytes()
        evaluations = {run: [{k: v for k, v in e.items() if k != "time_ns"} for e in jobs.metrics(run, "eval")] for run in weights}
        return [what for what, same in (
            ("the newest checkpoint", jobs.weights_digest(run_dir) == jobs.weights_digest(self.calm)),
            ("the exported weights", weights[run_dir] == weights[self.calm]),
            ("losses", jobs.losses(run_dir) == jobs.losses(self.calm)),
            ("evaluations", evaluations[run_dir] == evaluations[self.calm])) if not same]


def kill_at_random(job: Job, kills: int, longest_s: float, chance: random.Random) -> set[int]:
    """Kills random workers until `kills` workers were killed or the run has ended. Sometimes kills a new worker while it
    starts, but never the only worker that has the state. Returns the pids of the killed processes."""
    job.wait_until(lambda j: j.step >= 1, PATIENCE_S)
    killed: set[int] = set()
    lost = None
    while len(killed) < kills and job.process.poll() is None:
        if lost is None or chance.random() < 0.8:
            job.wait_until(lambda j: not j.coming_up or j.of("run_ended"), PATIENCE_S)
            lost = None
        time.sleep(chance.uniform(0, longest_s))
        rank = chance.randrange(2) if lost is None else lost
        before = job.pids[rank]
        try:
            os.kill(before, signal.SIGKILL)
        except ProcessLookupError:
            break  # the worker has already exited, because the run has ended
        killed.add(before)
        lost = rank
        job.wait_until(lambda j: j.pids[rank] != before or j.of("run_ended"), PATIENCE_S)
    return killed


def losses(job: Job, killed: set[int]) -> tuple[int, list[dict]]:
    """Returns the number of workers that the test has killed, and the events after which all workers had to restart from a
    checkpoint. The number is counted from the workers that have ended, because a kill during a recovery causes no failure
    event."""
    ended = {e["pid"] for e in job.of("worker_ended") if e.get("signal") == signal.SIGKILL}
    full_restarts = [e for e in job.events if e["event"] == "regroup_failed" or e["event"] == "round_failed" and e["decision"] != "regroup" or e["event"] == "regrouped" and not e["kept"]]
    return len(killed & ended), full_restarts


def resumed(model: Model) -> list[int]:
    """Trains with 2, then 1, then 3 workers in the same run directory. Returns the step at which each of these jobs ended."""
    a_step = model.content["batch_size"]
    of_an_epoch = -(-model.killed.samples // a_step)
    config = jobs.write_config(model.folder / "changing.json", model.content)
    run_dir, reached = model.folder / "changing", []
    for workers, steps in ((2, of_an_epoch // 2 + 1), (1, 2 * of_an_epoch - 2), (3, 3 * of_an_epoch)):
        done = jobs.run([model.ddprun, "--nproc-per-node", workers, "--run-dir", run_dir, config, "epochs=3", f"max_steps={steps}"], timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        reached.append(jobs.newest_step(run_dir))
    assert [step for step, _ in jobs.losses(run_dir)] == list(range(1, 3 * of_an_epoch + 1))
    jobs.assert_each_sample_once(run_dir, 3, model.killed.samples)
    return reached


@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_kills_change_no_bit(ddprun_bin, ddptrain_bin, tmp_path, name):
    seed = seed_of_this_run()
    print(f"\n{name}: seed {seed}", flush=True)
    model = Model(MODELS[name], ddprun_bin, ddptrain_bin, tmp_path)
    kills = regroups = full_restarts = standbys = runs = 0
    wrong: list[str] = []
    while kills - full_restarts < KILLS and not wrong:
        assert runs < MAX_RUNS, f"{kills} kills in {runs} runs"
        with model.job(f"run-{runs}") as job:
            killed = kill_at_random(job, KILLS + full_restarts - kills, max(0.1, 3 * model.step_s), random.Random(seed + runs))
            assert job.finish(PATIENCE_S) == 0, job.errors
        found = losses(job, killed)
        kills, full_restarts, runs = kills + found[0], full_restarts + len(found[1]), runs + 1
        regroups += len(job.of("regrouped"))
        standbys += sum(len(e["by_standby"]) for e in job.of("regrouped"))
        wrong += model.differences(job.run_dir)
        jobs.assert_each_sample_once(job.run_dir, model.killed.epochs, model.killed.samples)
        assert_no_sample_lost(job)
        for event in found[1]:
            print(f"{name}: all ranks start from a checkpoint: {json.dumps(event)}", flush=True)
        print(f"{name}: {kills} kills, {regroups} regroups in {runs} runs", flush=True)
        if not wrong and not found[1]:
            shutil.rmtree(tmp_path / f"run-{runs - 1}")
    reached = resumed(model) if not wrong else []
    print(f"| {name} | {kills} | {kills - full_restarts} | {regroups} | {standbys} | {full_restarts} | {runs} x {model.steps} | {'no: ' + ', '.join(wrong) if wrong else 'yes'} "
          f"| {', '.join(map(str, reached))}: yes | {seed} |", flush=True)
    assert not wrong, f"{wrong} of {job.run_dir} differ from {model.calm}; seed {seed}"
    assert full_restarts == 0
