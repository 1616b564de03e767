"""What precision and channels_last do to a run: bf16 is Python's autocast, tf32 is nothing on a CPU, and neither is changed unsaid."""

import json
import pathlib
import sys

import jobs
import pytest

REFERENCE = pathlib.Path(__file__).parent / "reference"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


def train(ddprun, folder, data, *options, workers=1, **changes):
    folder.mkdir(exist_ok=True)
    config = jobs.write_config(folder / "train.json", jobs.config(data, device="cpu", **{"model": {"type": "cnn"}, "epochs": 1, **changes}))
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", folder / "run", *options, config])
    assert done.returncode == 0, done.stdout + done.stderr
    return done, folder / "run"


def manifest(run_dir: pathlib.Path) -> dict:
    return json.loads((run_dir / "checkpoints/latest/manifest.json").read_text())


def test_tf32_is_said_to_be_nothing_on_a_cpu(ddprun_bin, data, tmp_path):
    _, plain = train(ddprun_bin, tmp_path / "fp32", data, max_steps=5)
    done, tf32 = train(ddprun_bin, tmp_path / "tf32", data, max_steps=5, precision="tf32", workers=1)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "tf32" in line]
    assert len(said) == 1 and "no effect on the CPU" in said[0]
    assert jobs.weights_digest(tf32) == jobs.weights_digest(plain)
    assert manifest(tf32)["precision"] == manifest(plain)["precision"] == "fp32"


def test_bf16_rounds_and_learns(ddprun_bin, data, tmp_path):
    _, plain = train(ddprun_bin, tmp_path / "fp32", data, workers=2)
    _, bf16 = train(ddprun_bin, tmp_path / "bf16", data, workers=2, precision="bf16")
    assert manifest(bf16)["precision"] == "bf16"
    for (step, exact), (_, rounded) in zip(jobs.losses(plain), jobs.losses(bf16), strict=True):
        assert rounded == pytest.approx(exact, rel=0.05), f"step {step}"
    assert jobs.losses(bf16) != jobs.losses(plain)


def test_another_precision_on_resume_is_said(ddprun_bin, data, tmp_path):
    _, run_dir = train(ddprun_bin, tmp_path / "run", data, max_steps=5)
    done, _ = train(ddprun_bin, tmp_path / "run", data, max_steps=9, precision="bf16", channels_last=True)
    assert "precision: bf16 channels_last instead of fp32" in done.stdout + done.stderr
    assert manifest(run_dir)["precision"] == "bf16 channels_last"
    assert [step for step, _ in jobs.losses(run_dir)] == list(range(1, 10))
    done, _ = train(ddprun_bin, tmp_path / "run", data, max_steps=12, precision="bf16", channels_last=True)
    assert "to rounding" not in done.stdout + done.stderr


@pytest.mark.parametrize("model", ["cnn", "resnet18"])
def test_a_killed_run_in_channels_last_ends_with_the_same_bits(ddprun_bin, data, tmp_path, model):
    """The layout is no part of a checkpoint; replaced workers and resumed runs lay their weights out again."""
    small = {"model": {"type": model}, "data": {"train_samples": 48, "test_samples": 16}, "batch_size": 8, "channels_last": True, "precision": "bf16"}
    _, calm = train(ddprun_bin, tmp_path / "calm", data, workers=2, **small)
    struck = tmp_path / "struck"
    struck.mkdir()
    config = jobs.write_config(struck / "train.json", jobs.config(data, device="cpu", epochs=1, **small))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", struck / "run", config], DDPTRAIN_FAULT="kill rank=1 step=3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert jobs.weights_digest(struck / "run") == jobs.weights_digest(calm)


# Measured: the largest relative difference of a loss over these steps is 0 where both call the same bf16 kernels with one thread. The
# bound is for machines on which PyTorch chooses others.
@pytest.mark.needs_torch_python
@pytest.mark.parametrize("model, channels_last", [("mlp", False), ("cnn", False), ("cnn", True)])
def test_bf16_is_pythons_autocast(ddprun_bin, data, tmp_path, model, channels_last):
    settings = jobs.config(data, device="cpu", model={"type": model, **({"hidden": [64]} if model == "mlp" else {})}, precision="bf16",
                           channels_last=channels_last, max_steps=30, optimizer={"type": "sgd", "lr": 0.01, "momentum": 0.9},
                           data={"mean": 0.286, "std": 0.353, "ledger": False}, eval_every_epochs=0)
    config = jobs.write_config(tmp_path / "train.json", settings)
    done = jobs.run([sys.executable, REFERENCE / "python_autocast.py", config, tmp_path / "python"])
    assert done.returncode == 0, done.stderr
    settings["model"]["init"] = str(tmp_path / "python/init.safetensors")
    jobs.write_config(config, settings)
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "run", config])
    assert done.returncode == 0, done.stderr
    theirs = json.loads((tmp_path / "python/losses.json").read_text())
    ours = jobs.losses(tmp_path / "run")
    assert len(ours) == len(theirs) == 30
    for (step, loss), expected in zip(ours, theirs, strict=True):
        assert loss == pytest.approx(expected, rel=0.01), f"step {step}"
