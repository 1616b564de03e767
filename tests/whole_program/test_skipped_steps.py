"""Tests of `"not_finite": "skip"` in the config. A step whose loss or gradients are not finite must not change the state. The
same steps must be skipped with every number of workers, and after kills and resumes. Too many skipped steps in a row must end
the run."""

import json
import pathlib
import random

import jobs
import numpy
import pytest
from safetensors.numpy import load_file

HUGE = 1e30  # the square of this number overflows float32, but the gradient is finite, so only the loss is infinite


def table(folder: pathlib.Path, bad: set[int], value: float = HUGE) -> None:
    folder.mkdir(exist_ok=True)
    draw = random.Random(1)
    rows = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(96)]
    for name in ("train", "test"):
        lines = [f"{a},{b},{value if name == 'train' and i in bad else a - b}" for i, (a, b) in enumerate(rows)]
        (folder / f"{name}.csv").write_text("\n".join(["a,b,y", *lines]) + "\n", encoding="utf-8")


def config(tmp_path, bad: set[int], value: float = HUGE, **changes) -> pathlib.Path:
    table(tmp_path / "data", bad, value)
    content = jobs.config(tmp_path / "data", model={"type": "mlp", "hidden": [16]}, epochs=1, batch_size=8, not_finite="skip",
                          optimizer={"type": "adamw", "lr": 0.01, "ema": {"decay": 0.9}}, checkpoint={"every_steps": 1, "keep": 99},
                          data={"type": "csv", "target": "y", "predict": "number", "standardize": False})
    return jobs.write_config(tmp_path / "train.json", {**content, **changes})


def train(ddprun, run_dir, train_json, *changes, workers=2, code=0, **env):
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", run_dir, train_json, *changes], **env)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def tensors(run_dir: pathlib.Path, step: int, *kinds: str) -> dict:
    folder = run_dir / f"checkpoints/step-{step:09}"
    return {kind: load_file(folder / f"{kind}.safetensors") for kind in kinds}


def assert_unchanged(run_dir: pathlib.Path, step: int, *kinds: str) -> None:
    before, after = tensors(run_dir, step - 1, *kinds), tensors(run_dir, step, *kinds)
    for kind in kinds:
        assert before[kind].keys() == after[kind].keys() and before[kind]
        assert all(before[kind][name].tobytes() == after[kind][name].tobytes() for name in before[kind]), (kind, step)


def skipped(run_dir: pathlib.Path) -> list[int]:
    return [line["skipped_steps"] for line in jobs.metrics(run_dir, "step")]


def values(run_dir: pathlib.Path) -> dict:
    return json.loads((run_dir / "checkpoints/latest/manifest.json").read_text())["values"]


def test_a_non_finite_step_changes_nothing(ddprun_bin, ddptrain_bin, tmp_path):
    """One number in the data makes the loss of one step overflow. This step must not change the state."""
    kinds = ("model", "optimizer", "average")
    given = config(tmp_path, bad={40})
    done = train(ddprun_bin, tmp_path / "calm", given)
    lines = jobs.metrics(tmp_path / "calm", "step")
    bad = next(line["step"] for line in lines if line["skipped_steps"])
    assert 1 < bad < len(lines) == 12 and skipped(tmp_path / "calm") == [0] * (bad - 1) + [1] * (13 - bad)
    assert lines[bad - 1]["loss"] is None and all(line["loss"] is not None for line in lines if line["step"] != bad)
    assert lines[bad - 1]["samples"] == 8 * bad
    message = f"step {bad} does not change the weights: a loss or a gradient is NaN or infinite"
    assert message in done.stderr and message in jobs.metrics(tmp_path / "calm", "warning")[0]["message"]
    assert "1 of 12 steps did not change the weights: their loss or a gradient was NaN or infinite" in done.stdout
    assert_unchanged(tmp_path / "calm", bad, *kinds)
    jobs.assert_each_sample_once(tmp_path / "calm", epochs=1, samples=96)

    # A run with one worker must skip the same step. The weights of that run may differ by rounding only.
    train(ddprun_bin, tmp_path / "alone", given, workers=1)
    assert skipped(tmp_path / "alone") == skipped(tmp_path / "calm")
    assert_unchanged(tmp_path / "alone", bad, *kinds)
    alone, calm = (tensors(tmp_path / run, 12, "model")["model"] for run in ("alone", "calm"))
    assert all(numpy.allclose(alone[name], calm[name], rtol=1e-4, atol=1e-5) for name in calm)

    # The results must also be the same if the losses are read only in the first and last step, or if a worker is killed near
    # the skipped step.
    train(ddprun_bin, tmp_path / "unseen", given, "log.every_steps=100")
    for name, fault in (("before", f"kill rank=1 step={bad - 1} phase=optimizer"), ("behind", f"kill rank=0 step={bad}")):
        train(ddprun_bin, tmp_path / name, given, DDPTRAIN_FAULT=fault)
        assert len(jobs.report(tmp_path / name)["rounds"]) > 1 and skipped(tmp_path / name) == skipped(tmp_path / "calm")
    for steps in (bad, 0):
        train(ddprun_bin, tmp_path / "resumed", given, f"max_steps={steps}")
    # This run has no bad sample. An injected fault makes the same step non-finite.
    train(ddprun_bin, tmp_path / "poisoned", config(tmp_path, bad=set()), DDPTRAIN_FAULT=f"nan rank=1 step={bad - 1}")
    for name in ("unseen", "before", "behind", "resumed", "poisoned"):
        assert jobs.weights_digest(tmp_path / name) == jobs.weights_digest(tmp_path / "calm"), name
        assert values(tmp_path / name) == values(tmp_path / "calm"), name

    stopped = train(ddprun_bin, tmp_path / "stopped", config(tmp_path, bad={40}, not_finite="stop"), code=88)
    assert f"the loss of step {bad} is NaN or infinite" in stopped.stderr
    # The setting may change between two invocations, so a stopped run can continue with "skip".
    train(ddprun_bin, tmp_path / "stopped", given, "not_finite=skip")
    assert jobs.weights_digest(tmp_path / "stopped") == jobs.weights_digest(tmp_path / "calm")


def test_workers_without_samples_skip_the_same_steps(ddprun_bin, ddptrain_bin, tmp_path):
    """A worker that has no samples in a step processes another sample with weight 0. If it used the bad sample, the step would
    be skipped even though all samples of the step are good."""
    given = config(tmp_path, bad={0}, batch_size=19)  # 96 = 5 * 19 + 1, so the last batch of an epoch has one sample
    for workers in (1, 3):
        train(ddprun_bin, tmp_path / str(workers), given, "epochs=2", workers=workers)
    assert skipped(tmp_path / "1") == skipped(tmp_path / "3") and skipped(tmp_path / "1")[-1] == 2
    report = jobs.run([ddprun_bin, "report", tmp_path / "3"]).stdout
    assert "\n  skipped      2 steps without an update: a loss or a gradient was not finite\n" in report, report


def test_a_skipped_step_leaves_no_trace_in_a_batch_norm(ddprun_bin, ddptrain_bin, tmp_path):
    """A skipped step must restore the running means of batch norm, which the forward pass has already changed."""
    data = jobs.write_small_dataset(tmp_path / "data")
    given = jobs.write_config(tmp_path / "train.json", jobs.config(
        data, model={"type": "resnet20"}, epochs=1, batch_size=4, not_finite="skip", checkpoint={"every_steps": 1, "keep": 99}, max_steps=4, eval_every_epochs=0,
        data={"train_samples": 32, "test_samples": 8}))
    train(ddprun_bin, tmp_path / "run", given, DDPTRAIN_FAULT="nan rank=1 step=2")
    assert skipped(tmp_path / "run") == [0, 0, 1, 1]
    assert "bn1.running_mean" in tensors(tmp_path / "run", 3, "model")["model"]
    assert_unchanged(tmp_path / "run", 3, "model", "optimizer")
    with pytest.raises(AssertionError):
        assert_unchanged(tmp_path / "run", 4, "model")


def test_skipped_steps_lower_the_fp16_scale_only_once(ddprun_bin, ddptrain_bin, tmp_path):
    """Each epoch has one step whose loss overflows. If each of these steps halved the loss scale permanently, small gradients
    would become 0."""
    given = config(tmp_path, bad={40}, precision="fp16", grad_scaler={"init_scale": 2}, epochs=6)
    train(ddprun_bin, tmp_path / "run", given)
    assert skipped(tmp_path / "run")[-1] == 6
    assert float(values(tmp_path / "run")["grad_scaler.scale"]) == 0.5


def test_too_many_consecutive_skips_end_the_run(ddprun_bin, ddptrain_bin, tmp_path):
    """The number of consecutive skipped steps must be kept when a run is resumed."""
    given = config(tmp_path, bad=set(range(96)), max_skipped_steps=3)
    train(ddprun_bin, tmp_path / "run", given, "max_steps=2")
    assert values(tmp_path / "run")["skipped_steps.in_a_row"] == "2"
    done = train(ddprun_bin, tmp_path / "run", given, code=88)
    assert "in 4 consecutive steps, up to step 4; try a lower optimizer.lr" in done.stderr
    assert skipped(tmp_path / "run") == [1, 2, 3]
    assert len(jobs.report(tmp_path / "run")["rounds"]) == 2, "restarted without result"


def test_persistent_infinite_fp16_gradients_end_the_run(ddprun_bin, ddptrain_bin, tmp_path):
    """Each loss is finite, but at every loss scale a gradient exceeds the largest float16 number."""
    given = config(tmp_path, bad=set(range(96)), precision="fp16", not_finite="stop", epochs=2, value=1e18)
    done = train(ddprun_bin, tmp_path / "run", given, code=88)
    assert "a gradient of step 18 is NaN or infinite, although the loss scale of fp16 has fallen to 0.5" in done.stderr
