"""Tests of a validation split: the metrics on the samples that are held out of training, and the decisions that depend on these
metrics. A lost worker or a restart must not change the metrics or the decisions."""

import json

import jobs
import pytest

HELD_OUT = 64
LEFT = jobs.TRAIN - HELD_OUT


def records(run_dir) -> list:
    return [(line["event"], line["step"], line["loss"], line.get("validation_loss"), line.get("validation_accuracy"))
            for line in jobs.metrics(run_dir) if line["event"] in ("step", "eval")]


@pytest.fixture
def train(tmp_path):
    return jobs.write_config(tmp_path / "train.json", jobs.config(
        jobs.write_small_dataset(tmp_path / "data"), data={"validation": {"fraction": HELD_OUT / jobs.TRAIN}, "augment": {"crop_padding": 2, "flip": True}},
        eval_every_steps=6, checkpoint={"every_steps": 7, "keep": 3, "keep_best": 1, "best_by": "validation_accuracy"}))


def test_validation_samples_are_evaluated_and_never_trained_on(ddprun_bin, ddptrain_bin, train, tmp_path):
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train])
    assert calm.returncode == 0, calm.stderr
    assert "on 200 samples" in calm.stdout and "validation_accuracy" in calm.stdout, calm.stdout
    jobs.assert_each_sample_once(tmp_path / "calm", epochs=2, samples=LEFT)
    assert jobs.newest_step(tmp_path / "calm") == 2 * LEFT // 32
    evaluations = jobs.metrics(tmp_path / "calm", "eval")
    assert all(0 <= line["validation_accuracy"] <= 1 and line["validation_loss"] > 0 and line["validation_loss"] != line["loss"] for line in evaluations)
    assert all((line["validation_accuracy"] * HELD_OUT) % 1 == 0 for line in evaluations), "the accuracy must be a fraction of all held-out samples"
    found = json.loads(jobs.run([ddptrain_bin, "eval", tmp_path / "calm", "--json"]).stdout)
    assert found["validation_loss"] == pytest.approx(evaluations[-1]["validation_loss"], rel=1e-6) and found["samples"] == 200

    killed = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "killed", train], DDPTRAIN_FAULT="kill rank=1 step=10 phase=backward")
    assert killed.returncode == 0, killed.stderr
    part = [ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "resumed", train]
    assert jobs.run([*part, "max_steps=16"]).returncode == 0
    assert jobs.run([*part]).returncode == 0
    for other in ("killed", "resumed"):
        assert jobs.weights_digest(tmp_path / other) == jobs.weights_digest(tmp_path / "calm"), other
        jobs.assert_each_sample_once(tmp_path / other, epochs=2, samples=LEFT)
    assert records(tmp_path / "killed") == records(tmp_path / "calm")


@pytest.mark.parametrize("changes,words", [
    (["data.validation.samples=640"], "data.validation.samples holds out 640 of 640 training samples; at least 1 must be held out, and 1 must remain for training"),
    (["data.validation.samples=3", "data.validation.fraction=0.5"], "expected either 'fraction' or 'samples', found both: remove one of them (/data/validation)"),
    (["checkpoint.keep_best=1", "checkpoint.best_by=validation_accuracy"], "uses the metric 'validation_accuracy'"),
])
def test_invalid_arguments_are_refused_in_one_line(ddprun_bin, ddptrain_bin, tmp_path, changes, words):
    train = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data")))
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr
