"""A worker program with a task and data of its own, under ddprun: it learns, its figures are named, a kill costs nothing."""

import random

import jobs
import pytest


@pytest.fixture
def points(tmp_path):
    folder = tmp_path / "points"
    folder.mkdir()
    draw = random.Random(5)
    for name, count in (("train", 203), ("test", 50)):
        rows = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(count)]
        (folder / f"{name}.csv").write_text("".join(f"{a:.6f},{b:.6f},{2 * a - 3 * b + 0.5:.6f}\n" for a, b in rows), encoding="utf-8")
    return folder


def test_a_line_through_points_of_a_csv_file(ddprun_bin, tmp_path, points):
    worker = ddprun_bin.parent.parent / "tests" / "own_worker" / "line_worker"
    config = {"name": "line", "data": {"dir": str(points)}, "epochs": 20, "batch_size": 16, "micro_batch_size": 3,
              "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9}, "checkpoint": {"every_steps": 50}, "log": {"every_steps": 1}}
    train = jobs.write_config(tmp_path / "train.json", config)
    for run, fault in (("calm", ""), ("killed", "kill rank=1 step=77")):
        done = jobs.run([ddprun_bin, "--worker", worker, "--nproc-per-node", 2, "--run-dir", tmp_path / run, train], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "done: test mean_error 0.0" in done.stdout, done.stdout
    assert len(jobs.report(tmp_path / "killed")["rounds"]) == 2
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    figures = [[step["gradient_norm"] for step in jobs.metrics(tmp_path / run, "step")] for run in ("calm", "killed")]
    assert figures[0] == figures[1] and all(norm > 0 for norm in figures[0])
    last = jobs.metrics(tmp_path / "killed", "eval")[-1]
    assert last["mean_error"] < 0.01 and last["samples"] == 50 and "accuracy" not in last
    assert jobs.report(tmp_path / "killed")["evaluation"]["mean_error"] == last["mean_error"]


def test_a_program_that_is_no_worker_has_trained_nothing(ddprun_bin, tmp_path, points):
    train = jobs.write_config(tmp_path / "train.json", {"name": "line", "data": {"dir": str(points)}})
    for workers in (1, 2):
        done = jobs.run([ddprun_bin, "--worker", "/bin/true", "--nproc-per-node", workers, "--run-dir", tmp_path / f"run{workers}", train])
        assert done.returncode == 2, done.stdout + done.stderr
        assert "it ended with 0 and had said nothing on the worker channel" in done.stderr and "done" not in done.stdout, done.stdout + done.stderr


def test_the_best_by_a_figure_of_ones_own(ddprun_bin, tmp_path, points):
    worker = ddprun_bin.parent.parent / "tests" / "own_worker" / "line_worker"
    config = {"name": "line", "data": {"dir": str(points)}, "epochs": 3, "batch_size": 16, "eval_every_steps": 5,
              "optimizer": {"type": "sgd", "lr": 0.1}, "checkpoint": {"keep": 1, "keep_best": 2, "best_by": "mean_error", "best_is": "lowest"}}
    train = jobs.write_config(tmp_path / "train.json", config)
    done = jobs.run([ddprun_bin, "--worker", worker, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 0, done.stdout + done.stderr
    evaluated = {line["step"]: line["mean_error"] for line in jobs.metrics(tmp_path / "run", "eval")}
    assert sorted(evaluated) == [5, 10, 13, 15, 20, 25, 26, 30, 35, 39]
    kept = {int(folder.name.removeprefix("step-")) for folder in (tmp_path / "run/checkpoints").glob("step-*")}
    assert kept == {*sorted(evaluated, key=evaluated.get)[:2], 39}
    done = jobs.run([ddprun_bin, "--worker", worker, "--run-dir", tmp_path / "other", train, "checkpoint.best_by=accuracy"])
    assert done.returncode == 2 and "the figure 'accuracy'" in done.stderr and "mean_error" in done.stderr, done.stderr
