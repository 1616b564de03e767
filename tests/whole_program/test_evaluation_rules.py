"""State of a run other than weights and moments: the average of the weights, the learning rate by plateau, the number of evaluations without
improvement. Neither a lost worker nor an interruption changes it, and impossible settings are refused."""

import json
import pathlib

import jobs
import pytest
from safetensors.numpy import load_file

# Evaluated after every 5 steps. The learning rate falls at every second evaluation except the first, and the run ends after step 30 of 40: no later
# evaluation is an improvement.
REMEMBERS = {
    "model": {"type": "mlp", "hidden": [32], "dropout": 0.1, "freeze": ["fc1.bias"]},
    "optimizer": {"type": "adamw", "lr": 0.01, "ema": {"decay": 0.9}},
    "schedule": {"type": "plateau", "metric": "accuracy", "factor": 0.5, "patience": 0, "cooldown": 1, "threshold": 1, "threshold_mode": "abs", "warmup_steps": 3},
    "early_stopping": {"patience": 5, "min_delta": 100},
    "eval_every_steps": 5,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture
def train(data, tmp_path):
    return jobs.write_config(tmp_path / "train.json", jobs.config(data, checkpoint={"every_steps": 8, "keep": 9}, **REMEMBERS))


def manifest(run_dir: pathlib.Path) -> dict:
    return json.loads((run_dir / "checkpoints/latest/manifest.json").read_text(encoding="utf-8"))


def state_of(run_dir: pathlib.Path) -> tuple:
    newest = run_dir / "checkpoints/latest"
    records = [(line["event"], line["step"], line["loss"], line.get("lr")) for line in jobs.metrics(run_dir) if line["event"] in ("step", "eval")]
    return jobs.weights_digest(run_dir), (newest / "average.safetensors").read_bytes(), manifest(run_dir)["values"], records


def test_a_lost_worker_and_an_interruption_change_no_bit_of_it(ddprun_bin, ddptrain_bin, train, tmp_path):
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
                     "checkpoint.background=false"],  # step 16 is saved before step 18
                    DDPTRAIN_FAULT="kill rank=1 step=18")
    assert done.returncode == 0, done.stderr
    assert jobs.metrics(resumed, "restart")[0]["step"] == 16
    assert state_of(resumed) == state_of(tmp_path / "calm")


def test_a_run_that_ended_early_is_done_until_it_may_wait_longer(ddprun_bin, ddptrain_bin, train, tmp_path):
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


def test_what_is_exported_is_the_average(ddprun_bin, ddptrain_bin, train, tmp_path):
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
    # Its evaluation equals the run's last one.
    still = jobs.run([ddprun_bin, "--run-dir", tmp_path / "still", train, f"model.init={tmp_path}/weights.safetensors", "optimizer.lr=1e-30", "optimizer.weight_decay=0",
                      "max_steps=1"])
    assert still.returncode == 0, still.stderr
    assert jobs.metrics(tmp_path / "still", "eval")[-1]["loss"] == jobs.metrics(tmp_path / "run", "eval")[-1]["loss"]


@pytest.mark.parametrize("change,words", [
    ("optimizer.ema.decay=1", "expected a number from 0 to below 1, found 1 (/optimizer/ema/decay)"),
    ("optimizer.ema=0.9", "expected an object in braces, found 0.9 (/optimizer/ema)"),
    ("schedule.factor=1", "expected a number above 0 to below 1, found 1 (/schedule/factor)"),
    ("schedule.metric=bleu", "set schedule.mode to \"min\" or \"max\""),
    ("early_stopping.metric=bleu", "set early_stopping.mode to \"min\" or \"max\""),
    ("early_stopping.patience=-1", "expected an integer from 0 to 1000000000, found -1 (/early_stopping/patience)"),
])
def test_what_can_not_be_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, change, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, change])
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_run_without_evaluations_has_nothing_to_go_by(ddprun_bin, ddptrain_bin, train, tmp_path):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "eval_every_steps=0", "eval_every_epochs=0"])
    assert done.returncode == 2, done.stderr
    for pointer in ("(/schedule/type)", "(/early_stopping/patience)"):
        assert f"set eval_every_epochs or eval_every_steps above 0 {pointer}" in done.stderr, done.stderr


@pytest.mark.parametrize("changes,words", [
    (("schedule.metric=top5_accuracy",), "the schedule goes by the figure 'top5_accuracy' (schedule.metric), which this model is not evaluated by; its figures are loss, accuracy"),
    (("early_stopping.metric=bleu", "early_stopping.mode=max"), "early stopping goes by the figure 'bleu' (early_stopping.metric)"),
])
def test_a_figure_that_the_model_has_not_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize("change,pointer", [("optimizer.ema.decay=0.99", "/optimizer/ema/decay"), ("schedule.patience=3", "/schedule/patience")])
def test_others_are_refused_on_resume(ddprun_bin, ddptrain_bin, train, tmp_path, change, pointer):
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "max_steps=2"]).returncode == 0
    again = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, change])
    assert again.returncode == 2 and pointer in again.stderr, again.stderr


def test_a_branch_begins_what_the_checkpoint_has_not(ddprun_bin, ddptrain_bin, data, train, tmp_path):
    """An average begins as a copy of the weights after the next step."""
    plain = jobs.write_config(tmp_path / "plain.json", jobs.config(data, model=REMEMBERS["model"], optimizer={"type": "adamw", "lr": 0.01}))
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "plain", plain, "max_steps=7"]).returncode == 0
    branch = jobs.run([ddprun_bin, "--run-dir", tmp_path / "branch", "--resume", tmp_path / "plain/checkpoints/step-000000007", train, "max_steps=8"])
    assert branch.returncode == 0, branch.stderr
    assert manifest(tmp_path / "branch")["values"]["average.updates"] == "1"
    weights, average = (load_file(tmp_path / "branch/checkpoints/latest" / file) for file in ("model.safetensors", "average.safetensors"))
    assert all((weights[name] == tensor).all() for name, tensor in average.items())


@pytest.mark.parametrize("change,difference", [("eval_every_steps=3", "/eval_every_steps: 5 on rank 0, 3 here"),
                                               ("early_stopping.patience=9", "/early_stopping/patience: 5 on rank 0, 9 here")])
def test_a_worker_that_was_told_otherwise_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, change, difference):
    """These keys may change between starts, and workers need equal values to exchange data. Without this check they would wait for each other."""
    worker = tmp_path / "worker"
    worker.write_text(f'#!/bin/sh\n[ "$RANK" = 1 ] && set -- "$@" {change}\nexec "{ddptrain_bin}" "$@"\n', encoding="utf-8")
    worker.chmod(0o755)
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--worker", worker, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 2 and difference in done.stderr, done.stderr
