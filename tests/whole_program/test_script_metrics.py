"""Tests of the metrics that a script reports with ddprun.step(). The metrics must be in metrics.jsonl, in the files for
TensorBoard and in the report. Each step must occur once, even after failures.

The same code writes these files for ddptrain. tests/trainer/metrics tests this code.
tests/launcher/report/script_metrics_test.cpp tests when lines are written."""

import importlib.util
import json
import pathlib
import sys

import jobs
import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
SCHEMA = json.loads((ROOT / "docs/schemas/metrics.schema.json").read_text(encoding="utf-8"))

# Code that makes each read of the clock advance it by 1 s, so that every step is sent to the agent. With the real clock, only
# some steps are sent: the first and the last step of a process, and steps that are at least 0.2 s apart.
CLOCK = """
import itertools, time
ticks = itertools.count()
time.monotonic = lambda: float(next(ticks))
"""


@pytest.fixture
def job(ddprun_bin, run, tmp_path):
    def go(body: str, *options: str):
        (tmp_path / "train.py").write_text("import ddprun, os, sys\n" + CLOCK + body)
        return run([ddprun_bin, "--standalone", "--run-dir", "run", *options, "train.py"], **ENV)

    return go


def lines(tmp_path: pathlib.Path) -> list[dict]:
    found = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    for line in found:
        jsonschema.validate(line, SCHEMA)
    return found


def steps(tmp_path: pathlib.Path) -> list[int]:
    return [line["step"] for line in lines(tmp_path) if line["event"] == "step"]


def test_each_step_is_a_line_with_its_metrics(job, ddprun_bin, run, tmp_path):
    done = job("for n in range(1, 6):\n    ddprun.step(n, samples=4)\n    ddprun.step(n, loss=1 / n, lr=0.5, accuracy=n / 10, step=9)\n"
               "ddprun.saved('model.pt', seconds=0.5)\n", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the name is reserved in metrics.jsonl") == 1
    found = lines(tmp_path)
    assert [(line["step"], line["loss"], line["lr"], line["accuracy"], line["samples"]) for line in found if line["event"] == "step"] == \
        [(n, 1 / n, 0.5, n / 10, 8 * n) for n in range(1, 6)]
    assert [(line["step"], line["path"]) for line in found if line["event"] == "checkpoint"] == [(5, f"{tmp_path}/model.pt")]
    report = run([ddprun_bin, "report", "run"]).stdout
    assert "  last step    5\n  metrics      accuracy 50.00 %, loss 0.2000 at step 5\n" in report
    page = tmp_path / "page.html"
    assert run([ddprun_bin, "report", "run", "--html", page]).returncode == 0
    assert "Loss" in page.read_text() and "Accuracy" in page.read_text()


def test_a_metric_keeps_its_step(job, tmp_path):
    """The clock stops after step 1. Step 2 is therefore sent only at the end, and the metric of step 2 must be sent together
    with this step."""
    done = job("time.monotonic = lambda: 0.0\nddprun.step(1, loss=1.0)\nddprun.step(2, loss=2.0)\nddprun.step(3)\n")
    assert done.returncode == 0, done.stderr
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(1, 1.0), (2, 2.0)]


def test_a_metric_that_is_not_a_number_is_reported_once(job, tmp_path):
    """The attempt to read the value of a metric may raise any exception. The exception must not propagate to the training loop
    of the script."""
    done = job("class Odd:\n    def __float__(self): raise RuntimeError('converted too late')\n    numel = detach = __float__\n"
               "for n in range(1, 4):\n    ddprun.step(n, loss=n, big=10 ** 400, missing=lambda: {}['x'], odd=Odd(), name='x')\nprint('at the end')\n")
    assert done.returncode == 0 and "at the end" in done.stdout, done.stderr
    ignored = [line for line in done.stderr.splitlines() if "is ignored" in line]
    assert sorted(line.split("(")[1].split("=")[0] for line in ignored) == ["big", "missing", "name", "odd"], ignored
    assert [(line["step"], line["loss"], len(line)) for line in lines(tmp_path)] == [(n, float(n), len(lines(tmp_path)[0])) for n in (1, 2, 3)]


@pytest.mark.needs_torch_python
def test_a_shard_of_a_distributed_tensor_is_refused(job, tmp_path):
    """FSDP's clip_grad_norm_, for example, returns the norm as a distributed tensor. Only a collective of all ranks can compute
    its value, but a metric is read on one rank, so it must be refused."""
    done = job("import torch, torch.distributed as dist\nfrom torch.distributed.device_mesh import init_device_mesh\n"
               "from torch.distributed.tensor import DTensor, Partial, Replicate\ndist.init_process_group('gloo')\nmesh = init_device_mesh('cpu', (1,))\n"
               "whole, part = (DTensor.from_local(torch.tensor(2.0), mesh, [placement]) for placement in (Replicate(), Partial()))\n"
               "ddprun.step(1, norm=part, loss=whole)\n")
    assert done.returncode == 0 and "step(norm=...) is ignored: expected a number: it is this rank's part of a distributed tensor" in done.stderr, done.stderr
    [line] = lines(tmp_path)
    assert line["loss"] == 2.0 and "norm" not in line


@pytest.mark.needs_torch_python
def test_a_tensor_keeps_its_reported_value(job, tmp_path):
    """A metric may be sent with a later step, after the script has changed its tensor. So the value must be copied when the
    metric is reported. If the tensor requires a gradient, the copy must not cause a PyTorch warning."""
    done = job("import torch, numpy\nrunning, array = torch.tensor(5.0), numpy.array([5.0])\n"
               "leaf = torch.ones((), requires_grad=True)\n"
               "time.monotonic = lambda: 0.0\nddprun.step(1)\n"
               "ddprun.step(2, running=running, array=array[0:1].reshape(()), loss=leaf * 2, late=lambda: leaf * 3, meta=torch.ones((), device='meta'), two=torch.ones(2))\n"
               "running.zero_()\narray[0] = 0\ntime.monotonic = lambda: 1.0\nddprun.step(3)\n")
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    assert "step(two=...) is ignored: expected a number: it has 2 elements" in done.stderr and "step(meta=...) is ignored" in done.stderr
    [line] = [line for line in lines(tmp_path) if line["step"] == 2]
    assert (line["running"], line["array"], line["loss"], line["late"]) == (5.0, 5.0, 2.0, 3.0) and not {"meta", "two"} & line.keys()


def test_a_restart_leaves_each_step_once(job, tmp_path):
    """The script fails at step 7 and resumes after the checkpoint of step 4."""
    done = job("for n in range(1 if ddprun.restart == 0 else 5, 11):\n    ddprun.step(n, loss=n + 100 * ddprun.restart)\n"
               "    if n == 4: ddprun.saved(4)\n    if n == 7 and ddprun.restart == 0: os._exit(3)\n", "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    found = lines(tmp_path)
    assert [(line["step"], line["loss"]) for line in found if line["event"] == "step"] == \
        [(n, float(n)) for n in range(1, 5)] + [(n, 100.0 + n) for n in range(5, 11)]
    assert [(line["event"], line["step"]) for line in found if line["event"] != "step"] == [("checkpoint", 4), ("restart", 4)]


def test_another_start_appends_or_starts_a_new_file(job, tmp_path):
    body = "for n in range(int(os.environ.get('FROM', '1')), int(os.environ.get('FROM', '1')) + 3):\n    ddprun.step(n, loss=n)\n"
    assert job(body).returncode == 0
    assert job(body.replace("'1'", "'4'")).returncode == 0
    assert steps(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines(tmp_path) if line["event"] == "resume"] == [3]
    # The script has started from step 1 again, so the metrics of the earlier invocations are moved to another file.
    assert job(body).returncode == 0
    assert steps(tmp_path) == [1, 2, 3]
    assert len((tmp_path / "run/metrics-1.jsonl").read_text().splitlines()) == 7


def test_decreasing_steps_start_a_new_count(job, tmp_path):
    done = job("for n in (1, 2, 3, 4, 2, 3):\n    ddprun.step(n, loss=n)\n")
    assert done.returncode == 0 and "step() went back from 4 to 2" in done.stderr
    assert steps(tmp_path) == [1, 2, 3]


def test_an_unwritable_run_directory_is_reported_once(job, tmp_path):
    (tmp_path / "run/metrics.jsonl").mkdir(parents=True)
    done = job("for n in range(1, 6):\n    ddprun.step(n, loss=n)\n")
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stderr.splitlines() if "metrics.jsonl" in line]) == 1, done.stderr


def test_nothing_is_written_without_steps_or_a_run_directory(ddprun_bin, run, job, tmp_path):
    assert job("pass").returncode == 0
    (tmp_path / "train.py").write_text("import ddprun\nddprun.step(1, loss=1)\n")
    assert run([ddprun_bin, "--standalone", "train.py"], **ENV).returncode == 0
    assert not list(tmp_path.rglob("metrics.jsonl")) and not list(tmp_path.rglob("*tfevents*"))


@pytest.mark.skipif(not importlib.util.find_spec("tensorboard"), reason="needs tensorboard (requirements/python-tests.txt)")
def test_tensorboard_shows_each_step_once(job, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    done = job("for n in range(1 if ddprun.restart == 0 else 3, 7):\n    ddprun.step(n, loss=n, eval_loss=2 * n)\n"
               "    if n == 4 and ddprun.restart == 0: os._exit(3)\n", "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    events = EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    for tag, factor in (("train/loss", 1), ("eval/loss", 2)):
        assert [(one.step, one.value) for one in events.Scalars(tag)] == [(n, factor * n) for n in range(1, 7)]
