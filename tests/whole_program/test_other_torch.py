"""Tests that exported models give the same results with two versions of LibTorch. A second build must reproduce the losses,
weights and metrics of the first build in each step.

    DDPRUN_LONG_TESTS=1 DDPRUN_OTHER_BUILD_DIR=FOLDER python -m pytest -s tests/whole_program/test_other_torch.py

FOLDER must be a build folder that was configured with -DLIBTORCH=... of a different version, and its ddptrain must be built.
The test prints rows for the table in docs/internals/exported-models.md."""

import json
import os
import pathlib
import re

import jobs
import pytest
from killed_models import MODELS

OTHER = os.environ.get("DDPRUN_OTHER_BUILD_DIR", "")
pytestmark = [pytest.mark.long, pytest.mark.needs_torch_python, pytest.mark.timeout(1200),
              pytest.mark.skipif(not OTHER, reason="DDPRUN_OTHER_BUILD_DIR names no build with another LibTorch")]
STEPS = 20
MAX_DIFFERENCE = 1e-5
# For these models, versions of PyTorch round differently in the backward pass of a convolution, and the difference doubles in
# each step. One reason is batch norm over one pixel of few images. The other reason is Adam, which can amplify a difference in
# the last bit of a gradient to a full update. So these models are compared for fewer steps.
FEWER = {"exported resnet18": {"max_steps": 3, "optimizer": {"type": "sgd", "lr": 0.001}}}


def libtorch_of(program: pathlib.Path) -> str:
    output = jobs.run([program, "--version"]).stdout
    found = re.search(r"LibTorch (\S+\w)", output)
    assert found, output
    return found[1]


def apart(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / max(abs(ours), abs(theirs), 1e-30)


def tensors_apart(ours: dict, theirs: dict) -> tuple[float, str]:
    """Compares the tensors with equal names in two models. Returns the largest difference and the name of the tensor that has
    it. The difference of two elements is relative to the largest element of the tensor."""
    assert ours.keys() == theirs.keys()
    return max(((ours[key].double() - theirs[key].double()).abs().max().item() / max(ours[key].double().abs().max().item(), 1e-30), key)
               for key in ours if ours[key].numel())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("exported ")])
def test_two_torch_versions_train_equally(ddprun_bin, ddptrain_bin, tmp_path, name, workers):
    import safetensors.torch

    programs = {"here": ddptrain_bin, "other": pathlib.Path(OTHER).resolve() / "bin/ddptrain"}
    versions = [libtorch_of(program) for program in programs.values()]
    assert versions[0] != versions[1], "the test needs two versions of torch"
    content = MODELS[name].config(tmp_path)
    content["model"]["path"] = str(tmp_path / content["model"]["path"])
    config = jobs.write_config(tmp_path / "train.json", {**content, "max_steps": STEPS, "seed": 3, **FEWER.get(name, {})})
    runs = []
    for run, program in programs.items():
        done = jobs.run([ddprun_bin, "--worker", program, "--nproc-per-node", workers, "--max-restarts", 0, "--run-dir", tmp_path / run, config], timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        runs.append((jobs.losses(tmp_path / run), safetensors.torch.load_file(tmp_path / run / "checkpoints/latest/model.safetensors"),
                     jobs.metrics(tmp_path / run, "eval")[-1]))
    (losses, weights, figures), (their_losses, their_weights, their_metrics) = runs
    assert len(losses) == json.loads(config.read_text())["max_steps"] and [step for step, _ in losses] == [step for step, _ in their_losses] == list(range(1, len(losses) + 1))
    assert losses[-1][1] < losses[0][1], "the loss did not fall, so equal losses would prove little"
    loss = max(apart(ours, theirs) for (_, ours), (_, theirs) in zip(losses, their_losses))
    weight, where = tensors_apart(weights, their_weights)
    print(f"\n| {name.removeprefix('exported ')} | {workers} | {loss:.1e} | {weight:.1e} |   {' and '.join(versions)}; {where}", flush=True)
    assert loss <= MAX_DIFFERENCE and weight <= MAX_DIFFERENCE, where
    assert their_metrics["loss"] == pytest.approx(figures["loss"], rel=MAX_DIFFERENCE)
