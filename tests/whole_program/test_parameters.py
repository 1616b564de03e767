"""Tests of frozen parameters and parameter groups: a lost worker or an interruption must not change the results of a run, and
invalid settings must be refused."""

import json
import pathlib

import jobs
import pytest
from safetensors.numpy import load_file

OF_GROUPS = {
    "optimizer": {"type": "adam", "lr": 0.002, "groups": [{"parameters": "*.bias", "weight_decay": 0}, {"parameters": "fc3.*", "lr_scale": 5}], "weight_decay": 0.01},
    "model": {"type": "mlp", "hidden": [32, 16], "dropout": 0.1, "freeze": ["fc2.w*"]},
    "schedule": {"type": "one_cycle"}, "clip_grad_norm": 0.5, "clip_grad_value": 0.05, "eval_every_steps": 7, "deterministic": True,
}


@pytest.fixture
def train(data, tmp_path):
    return jobs.write_config(tmp_path / "train.json", jobs.config(data, max_steps=25, checkpoint={"every_steps": 8, "keep": 9}, log={"every_steps": 1}, **OF_GROUPS))


def records(run_dir: pathlib.Path) -> list[tuple]:
    return [(line["event"], line["step"], line["loss"], line.get("gradient_norm")) for line in jobs.metrics(run_dir) if line["event"] in ("step", "eval")]


def test_a_lost_worker_and_an_interruption_change_no_bit(ddprun_bin, ddptrain_bin, train, tmp_path):
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train])
    assert calm.returncode == 0, calm.stderr
    for rank in (0, 1):
        run = tmp_path / f"killed-{rank}"
        killed = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run, train], DDPTRAIN_FAULT=f"kill rank={rank} step=11")
        assert killed.returncode == 0, killed.stderr
        assert [r["decision"] for r in jobs.report(run)["rounds"]] == ["regroup", "end"]
    resumed = tmp_path / "resumed"
    assert jobs.run([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 1, "--recovery", "checkpoint", "--run-dir", resumed, train,
                     "checkpoint.background=false"],  # waits until step 8 is saved before step 13 starts
                    DDPTRAIN_FAULT="kill rank=1 step=13").returncode == 0
    assert jobs.metrics(resumed, "restart")[0]["step"] == 8
    for other in ("killed-0", "killed-1", "resumed"):
        assert jobs.weights_digest(tmp_path / other) == jobs.weights_digest(tmp_path / "calm"), other
        assert records(tmp_path / other) == records(tmp_path / "calm"), other
    first, last = (load_file(tmp_path / "calm/checkpoints" / step / "model.safetensors") for step in ("step-000000008", "step-000000025"))
    assert [name for name in first if (first[name] == last[name]).all()] == ["fc2.weight"]
    moments = load_file(tmp_path / "calm/checkpoints/latest/optimizer.safetensors")
    assert not any(name.startswith("fc2.weight") for name in moments) and "fc2.bias.exp_avg" in moments
    manifest = json.loads((tmp_path / "calm/checkpoints/latest/manifest.json").read_text(encoding="utf-8"))
    assert manifest["precision"] == "fp32 deterministic"
    assert {line["step"] for line in jobs.metrics(tmp_path / "calm", "eval")} >= {7, 14, 21, 25}


@pytest.mark.parametrize("change,pointer", [("model.freeze=[]", "/model/freeze"), ("optimizer.groups=[]", "/optimizer/groups")])
def test_changed_parameters_are_refused_on_resume(ddprun_bin, ddptrain_bin, train, tmp_path, change, pointer):
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "max_steps=2"]).returncode == 0
    again = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, change])
    assert again.returncode == 2 and pointer in again.stderr, again.stderr


@pytest.mark.parametrize("change,message", [
    ('model.freeze=["layer9.*"]', "model.freeze: no parameter matches 'layer9.*'. The names are fc1.weight, fc1.bias, fc2.weight"),
    ('optimizer.groups=[{"parameters": "fc2.weight"}]', "optimizer.groups: no trained parameter matches 'fc2.weight'. The names are fc1.weight, fc1.bias, fc2.bias"),
])
def test_an_unmatched_pattern_is_refused(ddprun_bin, ddptrain_bin, train, tmp_path, change, message):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, change])
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_weights_of_another_model_are_refused_by_name(ddprun_bin, ddptrain_bin, train, tmp_path):
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "max_steps=2"]).returncode == 0
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "other", train, f"model.init={tmp_path}/run/checkpoints/latest", "model.hidden=[16,8,4]", "model.freeze=[]",
                     "max_steps=2"])
    assert done.returncode == 2, done.stdout + done.stderr
    for words in ("2 tensors are missing: fc4.weight, fc4.bias", "have another shape: fc1.weight [32, 784] instead of [16, 784]", "fc3.bias"):
        assert words in done.stderr, done.stderr
