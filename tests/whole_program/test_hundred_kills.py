"""Each model loses its workers a hundred times at random moments while the other worker keeps the state: the weights, metrics and samples equal those
of an undisturbed run. Each model also continues with 1 and with 3 workers where 2 have stopped, with every sample once per epoch.

    DDPRUN_LONG_TESTS=1 [DDPRUN_KILLS=100] [DDPRUN_SEED=N] python -m pytest -s tests/whole_program/test_hundred_kills.py [-k resnet]

The lines that it prints are rows of docs/internals/hundred-kills.md."""

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
from live_jobs import Job, assert_nothing_lost, seed_of_this_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("DDPRUN_KILLS", 100))
MOST_RUNS = 50
PATIENCE_S = 600  # allowance for delays that only the machine's load causes
# Kills follow each other faster than real failures do.
POLICY = {"max_restarts": 100000, "same_failure_rounds": 0, "pause": {"first_s": 0, "longest_s": 0}}


class Model:
    """A model of the table, with its undisturbed run."""

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
        """The ways in which the run differs from the undisturbed one."""
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
    """Kills a worker in the middle of training, or sometimes a replacement during its start, but never the only one with the state. Returns the
    killed pids."""
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
            break  # the run has ended
        killed.add(before)
        lost = rank
        job.wait_until(lambda j: j.pids[rank] != before or j.of("run_ended"), PATIENCE_S)
    return killed


def losses(job: Job, killed: set[int]) -> tuple[int, list[dict]]:
    """The number of workers that our kills ended, and of events after which all workers had to start from a checkpoint. A kill during a regroup is
    not a round of its own."""
    ended = {e["pid"] for e in job.of("worker_ended") if e.get("signal") == signal.SIGKILL}
    anew = [e for e in job.events if e["event"] == "regroup_failed" or e["event"] == "round_failed" and e["decision"] != "regroup" or e["event"] == "regrouped" and not e["kept"]]
    return len(killed & ended), anew


def resumed(model: Model) -> list[int]:
    """The steps at which 2, 1 and 3 workers ended, one run after the other in one run directory."""
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
    kills = regroups = anew = standbys = runs = 0
    wrong: list[str] = []
    while kills - anew < KILLS and not wrong:
        assert runs < MOST_RUNS, f"{kills} kills in {runs} runs"
        with model.job(f"run-{runs}") as job:
            killed = kill_at_random(job, KILLS + anew - kills, max(0.1, 3 * model.step_s), random.Random(seed + runs))
            assert job.finish(PATIENCE_S) == 0, job.errors
        found = losses(job, killed)
        kills, anew, runs = kills + found[0], anew + len(found[1]), runs + 1
        regroups += len(job.of("regrouped"))
        standbys += sum(len(e["by_standby"]) for e in job.of("regrouped"))
        wrong += model.differences(job.run_dir)
        jobs.assert_each_sample_once(job.run_dir, model.killed.epochs, model.killed.samples)
        assert_nothing_lost(job)
        for event in found[1]:
            print(f"{name}: all begin anew: {json.dumps(event)}", flush=True)
        print(f"{name}: {kills} kills, {regroups} regroups in {runs} runs", flush=True)
        if not wrong and not found[1]:
            shutil.rmtree(tmp_path / f"run-{runs - 1}")
    reached = resumed(model) if not wrong else []
    print(f"| {name} | {kills} | {kills - anew} | {regroups} | {standbys} | {anew} | {runs} x {model.steps} | {'no: ' + ', '.join(wrong) if wrong else 'yes'} "
          f"| {', '.join(map(str, reached))}: yes | {seed} |", flush=True)
    assert not wrong, f"{wrong} of {job.run_dir} differ from {model.calm}; seed {seed}"
    assert anew == 0
