"""Tests of training rules that have state in addition to the weights and the optimizer: the average of the weights, the
plateau schedule of the learning rate, and early stopping. The tests show that lost workers and interruptions do not change
this state, and that invalid settings are refused."""

import json
import pathlib

import jobs
import pytest
from safetensors.numpy import load_file

# The run evaluates every 5 steps. With a `min_delta` of 100, no evaluation after the first is an improvement. The learning rate
# therefore falls at every second evaluation, and early stopping ends the run after step 30 of 40.
REMEMBERS = {
    "model": {"type": "mlp", "hidden": [32], "dropout": 0.1, "freeze": ["fc1.bias"]},
    "optimizer": {"type": "adamw", "lr": 0.01, "ema": {"decay": 0.9}},
    "schedule": {"type": "plateau", "metric": "accuracy", "factor": 0.5, "patience": 0, "cooldown": 1, "threshold": 1, "threshold_mode": "abs", "warmup_steps": 3},
    "early_stopping": {"patience": 5, "min_delta": 100},
    "eval_every_steps": 5,
}


@pytest.fixture
def train(data, tmp_path):
    return jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"every_steps": 8, "keep": 9}, **REMEMBERS))


def manifest(run_dir: pathlib.Path) -> dict:
    return json.loads((run_dir / "checkpoints/latest/manifest.json").read_text(encoding="utf-8"))


def state_of(run_dir: pathlib.Path) -> tuple:
    newest = run_dir / "checkpoints/latest"
    records = [(line["event"], line["step"], line["loss"], line.get("lr")) for line in jobs.metrics(run_dir) if line["event"] in ("step", "eval")]
    return jobs.weights_digest(run_dir), (newest / "average.safetensors").read_bytes(), manifest(run_dir)["values"], records


def test_faults_change_no_bit_of_the_rules(ddprun_bin, ddptrain_bin, train, tmp_path):
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train])
    assert calm.returncode == 0, calm.stderr
    assert "training ends early, after step 30 of 40: loss has not improved in 5 evaluations" in calm.stdout, calm.stdout
    rates = [line["lr"] for line in jobs.metrics(tmp_path / "calm", "step")]
    assert len(rates) == 30 and rates[2:] == [0.01] * 8 + [0.005] * 10 + [0.0025] * 10, rates
    values = manifest(tmp_path / "calm")["values"]
    assert values == {"average.updates": "30", "early_stopping.loss.bad_evaluations": "5", "early_stopping.loss.best": values["early_stopping.loss.best"],
                      "plateau.bad_evaluations": "0", "plateau.best": values["plateau.best"], "plateau.cooldown": "1", "plateau.lr": "0.00125"}
    for fault in ("kill rank=0 step=11", "kill rank=1 step=17 phase=optimizer", "kill rank=0 step=20 phase=evaluating", "kill rank=1 step=30 phase=evaluating"):
        run = tmp_path / fault.replace(" ", "-")
        killed = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run, train], DDPTRAIN_FAULT=fault)
        assert killed.returncode == 0, killed.stderr
        assert [r["decision"] for r in jobs.report(run)["rounds"]] == ["regroup", "end"]
        assert state_of(run) == state_of(tmp_path / "calm"), fault
    resumed = tmp_path / "resumed"
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 1, "--recovery", "checkpoint", "--run-dir", resumed, train,
                     "checkpoint.background=false"],  # waits until step 16 is saved before step 18 starts
                    DDPTRAIN_FAULT="kill rank=1 step=18")
    assert done.returncode == 0, done.stderr
    assert jobs.metrics(resumed, "restart")[0]["step"] == 16
    assert state_of(resumed) == state_of(tmp_path / "calm")


def test_an_early_stopped_run_continues_with_more_patience(ddprun_bin, ddptrain_bin, train, tmp_path):
    command = [ddprun_bin, "--run-dir", tmp_path / "run", train]
    assert jobs.run([*command, "early_stopping.patience=2"]).returncode == 0
    assert manifest(tmp_path / "run")["step"] == 15 and manifest(tmp_path / "run")["finished"]
    again = jobs.run([*command, "early_stopping.patience=2"])
    assert again.returncode == 0 and "is already done: 15 steps" in again.stdout, again.stdout
    more_epochs = jobs.run([*command, "early_stopping.patience=2", "epochs=3"])
    assert more_epochs.returncode == 0 and manifest(tmp_path / "run")["step"] == 15, more_epochs.stdout
    assert "training ends early, after step 15 of 60" in more_epochs.stdout, more_epochs.stdout
    assert jobs.run([*command, "early_stopping.patience=3"]).returncode == 0
    assert manifest(tmp_path / "run")["step"] == 20
    assert jobs.run([*command, "early_stopping.patience=0"]).returncode == 0
    assert manifest(tmp_path / "run")["step"] == 40


def test_the_average_is_exported(ddprun_bin, ddptrain_bin, train, tmp_path):
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train]).returncode == 0
    done = jobs.run([ddptrain_bin, "--export-weights", tmp_path / "run", tmp_path / "weights.safetensors"])
    assert done.returncode == 0, done.stderr
    weights, average, exported = (load_file(file) for file in (tmp_path / "run/checkpoints/latest/model.safetensors",
                                                               tmp_path / "run/checkpoints/latest/average.safetensors", tmp_path / "weights.safetensors"))
    assert sorted(average) == ["fc1.weight", "fc2.bias", "fc2.weight"], "fc1.bias is frozen"
    assert exported.keys() == weights.keys()
    for name, tensor in exported.items():
        assert (tensor == average.get(name, weights[name])).all(), name
    assert not (average["fc2.weight"] == weights["fc2.weight"]).all()
    # An evaluation of the exported weights must give the same loss as the last evaluation of the run.
    still = jobs.run([ddprun_bin, "--run-dir", tmp_path / "still", train, f"model.init={tmp_path}/weights.safetensors", "optimizer.lr=1e-30", "optimizer.weight_decay=0",
                      "max_steps=1"])
    assert still.returncode == 0, still.stderr
    assert jobs.metrics(tmp_path / "still", "eval")[-1]["loss"] == jobs.metrics(tmp_path / "run", "eval")[-1]["loss"]


@pytest.mark.parametrize("change,words", [
    ("optimizer.ema.decay=1", "expected a number from 0 to below 1, found 1 (/optimizer/ema/decay)"),
    ("optimizer.ema=0.9", "expected an object in braces, found 0.9 (/optimizer/ema)"),
    ("schedule.factor=1", "expected a number above 0 to below 1, found 1 (/schedule/factor)"),
    ("schedule.metric=bleu", "also set schedule.mode to \"min\" or \"max\""),
    ("early_stopping.metric=bleu", "also set early_stopping.mode to \"min\" or \"max\""),
    ("early_stopping.patience=-1", "expected an integer from 0 to 1000000000, found -1 (/early_stopping/patience)"),
])
def test_invalid_rules_are_refused(ddprun_bin, ddptrain_bin, train, tmp_path, change, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, change])
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_rules_without_evaluations_are_refused(ddprun_bin, ddptrain_bin, train, tmp_path):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "eval_every_steps=0", "eval_every_epochs=0"])
    assert done.returncode == 2, done.stderr
    for pointer in ("(/schedule/type)", "(/early_stopping/patience)"):
        assert f"but eval_every_epochs and eval_every_steps are 0: set one of them above 0 {pointer}" in done.stderr, done.stderr


@pytest.mark.parametrize("changes,words", [
    (("schedule.metric=top5_accuracy",),
     "the schedule uses the metric 'top5_accuracy' (schedule.metric), which the evaluation of this model does not report; its metrics are loss, accuracy"),
    (("early_stopping.metric=bleu", "early_stopping.mode=max"), "early stopping uses the metric 'bleu' (early_stopping.metric)"),
])
def test_a_metric_the_model_lacks_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize("change,pointer", [("optimizer.ema.decay=0.99", "/optimizer/ema/decay"), ("schedule.patience=3", "/schedule/patience")])
def test_changed_rules_are_refused_on_resume(ddprun_bin, ddptrain_bin, train, tmp_path, change, pointer):
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "max_steps=2"]).returncode == 0
    again = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, change])
    assert again.returncode == 2 and pointer in again.stderr, again.stderr


def test_a_branch_starts_an_average_the_checkpoint_lacks(ddprun_bin, ddptrain_bin, data, train, tmp_path):
    """The run resumes from a checkpoint without an average of the weights. The average then starts as a copy of the weights
    after the next step."""
    plain = jobs.write_config(tmp_path / "plain.json", jobs.config(data, model=REMEMBERS["model"], optimizer={"type": "adamw", "lr": 0.01}))
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "plain", plain, "max_steps=7"]).returncode == 0
    branch = jobs.run([ddprun_bin, "--run-dir", tmp_path / "branch", "--resume", tmp_path / "plain/checkpoints/step-000000007", train, "max_steps=8"])
    assert branch.returncode == 0, branch.stderr
    assert manifest(tmp_path / "branch")["values"]["average.updates"] == "1"
    weights, average = (load_file(tmp_path / "branch/checkpoints/latest" / file) for file in ("model.safetensors", "average.safetensors"))
    assert all((weights[name] == tensor).all() for name, tensor in average.items())


@pytest.mark.parametrize("change,difference", [("eval_every_steps=3", "/eval_every_steps: 5 on rank 0, 3 here"),
                                               ("early_stopping.patience=9", "/early_stopping/patience: 5 on rank 0, 9 here")])
def test_a_worker_with_other_rules_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, change, difference):
    """These settings may change between two invocations of a job, but they must be equal on all workers, because they
    determine when ranks exchange data. Different settings must be refused, because the workers would wait for each other
    without end."""
    worker = tmp_path / "worker"
    worker.write_text(f'#!/bin/sh\n[ "$RANK" = 1 ] && set -- "$@" {change}\nexec "{ddptrain_bin}" "$@"\n', encoding="utf-8")
    worker.chmod(0o755)
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--worker", worker, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 2 and difference in done.stderr, done.stderr
