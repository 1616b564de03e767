"""Tests of a GPT on megabytes of text from Debian packages, with the settings of configs/gpt-perl.json. With the same initial
weights, its losses must equal the losses of DDP in Python. The model must generate text, and low-rank updates of the model
must learn a different kind of text (configs/gpt-perl-code.json)."""

import json
import math
import os
import pathlib
import subprocess

import jobs
import pytest
from test_python_equivalence import train_in_python

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    done = subprocess.run(["sh", ROOT / "configs/perl-text.sh", folder], capture_output=True, text=True, check=False)
    if "/usr/share/perl" in done.stderr:
        pytest.skip("Debian's package perl-modules is not installed")
    assert done.returncode == 0, done.stderr
    assert (folder / "train.txt").stat().st_size > 3_000_000 and (folder / "val.txt").stat().st_size > 100_000
    return folder


def settings_of(text: pathlib.Path, name: str = "gpt-perl", **changes) -> dict:
    config = jobs.shipped_config(name)
    config["data"] |= {"dir": str(text), **changes.pop("data", {})}
    return {**config, "seed": 0, "log": {"every_steps": 1, "tensorboard": False}, "device": "cpu", **changes}


def first_weights(ddprun, ddptrain, config: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Returns a file with the initial weights for the seed of the config. A run saves them after one step with a negligible
    learning rate."""
    done = jobs.run([ddprun, "--run-dir", folder / "first", config, "max_steps=1", "optimizer.lr=1e-30", "optimizer.weight_decay=0",
                     "schedule.type=constant", "schedule.warmup_steps=0", "data.test_samples=1"])
    assert done.returncode == 0, done.stderr
    assert jobs.run([ddptrain, "--export-weights", folder / "first", folder / "init.safetensors"]).returncode == 0
    return folder / "init.safetensors"


def in_both(ddprun, ddptrain, tmp_path: pathlib.Path, text: pathlib.Path, settings: dict) -> list[tuple[str, int, float]]:
    """Trains with ddptrain and in Python, and checks that all losses are bit-identical. Returns the events and losses in the
    log of ddptrain."""
    config = jobs.write_config(tmp_path / "train.json", settings)
    done = jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config], timeout=3600)
    assert done.returncode == 0, done.stderr
    init = first_weights(ddprun, ddptrain, config, tmp_path)
    peer = jobs.write_config(tmp_path / "python.json", {**settings, "model": {**settings["model"], "init": str(init)}})
    train_in_python(peer, 2, tmp_path / "python", init, text)
    theirs = [json.loads(line) for line in (tmp_path / "python/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    ours = [(e["event"], e["step"], e["loss"]) for e in jobs.metrics(tmp_path / "run") if e["event"] in ("step", "eval")]
    assert ours == [(e["event"], e["step"], e["loss"]) for e in theirs]
    if place := os.environ.get("DDPRUN_KEEP_RUNS"):  # keeps the runs for docs/gpt-loss.svg
        subprocess.run(["cp", "-r", tmp_path / "run", tmp_path / "python", place], check=True)
    return ours


@pytest.mark.needs_torch_python
def test_first_steps_match_python_ddp(ddprun_bin, ddptrain_bin, text, tmp_path):
    short = {"max_steps": 6, "eval_every_steps": 3, "batch_size": 8, "schedule": {"type": "cosine", "warmup_steps": 2}}
    logged = in_both(ddprun_bin, ddptrain_bin, tmp_path, text, settings_of(text, **short, data={"test_samples": 5}))
    assert [step for event, step, _ in logged if event == "eval"] == [3, 6]
    assert logged[-1][2] < math.log(256) - 0.3


def test_fine_tuning_on_code_starts_from_the_trained_model(ddprun_bin, ddptrain_bin, text, tmp_path):
    short = {"max_steps": 6, "eval_every_steps": 6, "batch_size": 8, "schedule": {"type": "constant"}, "data": {"test_samples": 8}}
    base = jobs.write_config(tmp_path / "base.json", settings_of(text, **short))
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "base", base]).returncode == 0
    assert jobs.run([ddptrain_bin, "--export-weights", tmp_path / "base", tmp_path / "gpt-perl.safetensors"]).returncode == 0
    model = settings_of(text, "gpt-perl-code")["model"] | {"init": str(tmp_path / "gpt-perl.safetensors")}
    code = jobs.write_config(tmp_path / "code.json", settings_of(text, "gpt-perl-code", **short, model=model))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "code", code])
    assert done.returncode == 0, done.stderr
    assert "model.init: 52 tensors come from" in done.stderr, done.stderr
    losses = [event["loss"] for event in jobs.metrics(tmp_path / "code", "step")]
    known = jobs.metrics(tmp_path / "base", "eval")[-1]["loss"]
    assert losses[-1] < losses[0] < math.log(256) and losses[0] < known + 1.5, (losses, known)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.needs_torch_python
def test_the_loss_matches_python_ddp_and_text_is_generated(ddprun_bin, ddptrain_bin, text, tmp_path):
    logged = in_both(ddprun_bin, ddptrain_bin, tmp_path, text, settings_of(text))
    losses = [loss for event, _, loss in logged if event == "eval"]
    assert len(losses) == 8 and losses[-1] < 1.95
    written = jobs.run([ddptrain_bin, "generate", tmp_path / "run", "--prompt", "=head1 DESCRIPTION\n\n", "--max-tokens", 300, "--json"])
    assert written.returncode == 0, written.stderr
    words = json.loads(written.stdout)["text"].split()
    known = set((text / "train.txt").read_text(encoding="utf-8", errors="replace").split())
    assert sum(word in known for word in words) > 0.6 * len(words), words
