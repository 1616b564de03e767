"""Tests of the settings `precision` and `channels_last`. The tests show that bf16 gives the same results as autocast in
Python, that tf32 has no effect on a CPU, and that a change of either setting between two invocations is reported."""

import json
import pathlib
import shutil
import subprocess
import sys

import jobs
import pytest
import references

REFERENCE = pathlib.Path(__file__).parent / "reference"


def train(ddprun, folder, dataset, workers=1, fault="", **changes):
    folder.mkdir(exist_ok=True)
    config = jobs.write_config(folder / "train.json", jobs.config(dataset, device="cpu", **{"model": {"type": "cnn"}, "epochs": 1, **changes}))
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", folder / "run", config], DDPTRAIN_FAULT=fault)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, folder / "run"


def manifest(run_dir: pathlib.Path) -> dict:
    return json.loads((run_dir / "checkpoints/latest/manifest.json").read_text())


def test_tf32_on_a_cpu_is_reported_as_ineffective(ddprun_bin, data, tmp_path):
    _, plain = train(ddprun_bin, tmp_path / "fp32", data, workers=2, max_steps=5)
    done, tf32 = train(ddprun_bin, tmp_path / "reduced", data, workers=2, max_steps=5, precision="tf32")
    assert (done.stdout + done.stderr).count('"tf32" has no effect on the CPU') == 1, "expected one line, from one worker of the node"
    assert jobs.weights_digest(tf32) == jobs.weights_digest(plain)
    assert manifest(tf32)["precision"] == manifest(plain)["precision"] == "fp32"


def test_bf16_rounds_and_learns(ddprun_bin, data, tmp_path):
    _, plain = train(ddprun_bin, tmp_path / "fp32", data, workers=2)
    _, bf16 = train(ddprun_bin, tmp_path / "bf16", data, workers=2, precision="bf16")
    assert manifest(bf16)["precision"] == "bf16"
    for (step, exact), (_, rounded) in zip(jobs.losses(plain), jobs.losses(bf16), strict=True):
        assert rounded == pytest.approx(exact, rel=0.05), f"step {step}"
    assert jobs.losses(bf16) != jobs.losses(plain)


def test_the_environment_is_set_before_other_threads_start(ddprun_bin, data, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("needs a C compiler")
    library = tmp_path / "setenv_threads.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, pathlib.Path(__file__).with_name("setenv_threads.c"), "-ldl"], check=True)
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, device="cpu", deterministic=True, max_steps=1))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config],
                    LD_PRELOAD=str(library), SETENV_THREADS_TO=str(tmp_path / "threads"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "threads").read_text() == "1\n1\n", "each worker must have one thread when it sets the variable"


def test_another_precision_on_resume_is_reported(ddprun_bin, data, tmp_path):
    _, run_dir = train(ddprun_bin, tmp_path / "run", data, max_steps=5)
    done, _ = train(ddprun_bin, tmp_path / "run", data, max_steps=9, precision="bf16", channels_last=True)
    assert "precision: bf16 channels_last instead of fp32" in done.stdout + done.stderr
    assert manifest(run_dir)["precision"] == "bf16 channels_last"
    assert [step for step, _ in jobs.losses(run_dir)] == list(range(1, 10))
    done, _ = train(ddprun_bin, tmp_path / "run", data, max_steps=12, precision="bf16", channels_last=True)
    assert "to rounding" not in done.stdout + done.stderr


@pytest.mark.parametrize("model", ["cnn", "resnet18"])
def test_a_killed_run_in_channels_last_ends_with_the_same_bits(ddprun_bin, tiny_images, tmp_path, model):
    """Checkpoints do not store the memory layout. New workers and resumed runs must convert the loaded weights to channels-last
    again."""
    small = {"model": {"type": model}, "data": {"train_samples": 40, "test_samples": 8}, "batch_size": 8, "channels_last": True, "precision": "bf16"}
    _, calm = train(ddprun_bin, tmp_path / "calm", tiny_images, workers=2, **small)
    _, struck = train(ddprun_bin, tmp_path / "struck", tiny_images, workers=2, fault="kill rank=1 step=3", **small)
    assert len(jobs.report(struck)["rounds"]) > 1, "nothing was killed"
    assert jobs.weights_digest(struck) == jobs.weights_digest(calm)
    _, stopped = train(ddprun_bin, tmp_path / "stopped", tiny_images, workers=2, max_steps=3, **small)
    train(ddprun_bin, tmp_path / "stopped", tiny_images, workers=2, **small)
    assert jobs.weights_digest(stopped) == jobs.weights_digest(calm)


def test_a_killed_run_in_fp16_ends_with_the_same_bits_and_scale(ddprun_bin, data, tmp_path):
    """The first steps overflow and are skipped. The loss scale and its counters are part of the training state, so a
    replacement worker must receive them, too."""
    small = {"model": {"type": "mlp", "hidden": [32]}, "precision": "fp16", "grad_scaler": {"init_scale": 2.0 ** 24, "growth_interval": 4}}
    _, calm = train(ddprun_bin, tmp_path / "calm", data, workers=2, **small)
    assert jobs.metrics(calm, "step")[0]["gradient_norm"] is None, "the first step must overflow"
    values = manifest(calm)["values"]
    assert manifest(calm)["precision"] == "fp16" and 0 < float(values["grad_scaler.scale"]) < 2 ** 24, values
    for fault in ("kill rank=1 step=2 phase=optimizer", "kill rank=0 step=9"):
        _, struck = train(ddprun_bin, tmp_path / fault.replace(" ", "-"), data, workers=2, fault=fault, **small)
        assert len(jobs.report(struck)["rounds"]) > 1, "nothing was killed"
        assert jobs.weights_digest(struck) == jobs.weights_digest(calm) and manifest(struck)["values"] == values
    _, stopped = train(ddprun_bin, tmp_path / "stopped", data, workers=2, max_steps=6, **small)
    train(ddprun_bin, tmp_path / "stopped", data, workers=2, **small)
    assert jobs.weights_digest(stopped) == jobs.weights_digest(calm) and manifest(stopped)["values"] == values
    assert jobs.losses(stopped) == jobs.losses(calm)


def test_a_persistent_nan_loss_ends_an_fp16_run(ddprun_bin, data, tmp_path):
    """Steps are skipped until the loss scale is below 1. With such a small scale, the limited range of float16 cannot be the
    reason for the NaN, so the run must fail."""
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, device="cpu", precision="fp16", grad_scaler={"init_scale": 4},
                                                                    optimizer={"type": "sgd", "lr": 1e30}))
    done = jobs.run([ddprun_bin, "--max-restarts", 0, "--run-dir", tmp_path / "run", config])
    assert done.returncode != 0 and "is NaN or infinite on rank 0" in done.stderr, done.stderr
    shown = jobs.metrics(tmp_path / "run", "step")
    assert len(shown) >= 4 and shown[-1]["loss"] is None, shown


# ddptrain and Python call the same bf16 kernels with one thread. Therefore the losses must be bit-identical.
@pytest.mark.needs_torch_python
@pytest.mark.parametrize("model, channels_last", [("mlp", False), ("cnn", False), ("cnn", True)])
def test_bf16_matches_python_autocast(ddprun_bin, data, tmp_path, model, channels_last):
    settings = jobs.config(data, device="cpu", model={"type": model, **({"hidden": [64]} if model == "mlp" else {})}, precision="bf16",
                           channels_last=channels_last, max_steps=20, optimizer={"type": "sgd", "lr": 0.01, "momentum": 0.9},
                           data={"mean": 0.286, "std": 0.353, "ledger": False}, eval_every_epochs=0)
    config = jobs.write_config(tmp_path / "train.json", settings)

    def train_in_python():
        done = jobs.run([sys.executable, REFERENCE / "python_autocast.py", config, tmp_path / "python"])
        assert done.returncode == 0, done.stderr

    references.fill(tmp_path / "python", train_in_python, config.read_text().replace(str(data), ""), data)
    settings["model"]["init"] = str(tmp_path / "python/init.safetensors")
    jobs.write_config(config, settings)
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "run", config])
    assert done.returncode == 0, done.stderr
    theirs = json.loads((tmp_path / "python/losses.json").read_text())
    ours = jobs.losses(tmp_path / "run")
    assert len(ours) == len(theirs) == 20
    for (step, loss), expected in zip(ours, theirs, strict=True):
        assert loss == expected, f"step {step}"
