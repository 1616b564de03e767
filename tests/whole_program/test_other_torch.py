"""Models that were exported once train in the same way under two versions of LibTorch: a second build reproduces the losses, weights and metrics of
the first in each step.

    DDPRUN_LONG_TESTS=1 DDPRUN_OTHER_BUILD_DIR=FOLDER python -m pytest -s tests/whole_program/test_other_torch.py

FOLDER must be configured with -DLIBTORCH=... of another version, and its ddptrain must be built. The lines that it prints are rows of
docs/internals/exported-models.md."""

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
MOST = 1e-5
# For these models, versions of PyTorch round differently in a convolution's backward pass, and the difference doubles in each step. The reasons are
# batch norm over one pixel of few images, and Adam, which turns the last bit of a gradient into a whole step.
FEWER = {"exported resnet18": {"max_steps": 3, "optimizer": {"type": "sgd", "lr": 0.001}}}


def libtorch_of(program: pathlib.Path) -> str:
    said = jobs.run([program, "--version"]).stdout
    found = re.search(r"LibTorch (\S+\w)", said)
    assert found, said
    return found[1]


def apart(ours: float, theirs: float) -> float:
    return abs(ours - theirs) / max(abs(ours), abs(theirs), 1e-30)


def tensors_apart(ours: dict, theirs: dict) -> tuple[float, str]:
    """The largest difference between two numbers of a tensor, relative to the largest number of that tensor; and the name of the tensor."""
    assert ours.keys() == theirs.keys()
    return max(((ours[key].double() - theirs[key].double()).abs().max().item() / max(ours[key].double().abs().max().item(), 1e-30), key)
               for key in ours if ours[key].numel())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("exported ")])
def test_two_versions_train_alike(ddprun_bin, ddptrain_bin, tmp_path, name, workers):
    import safetensors.torch

    programs = {"here": ddptrain_bin, "other": pathlib.Path(OTHER).resolve() / "bin/ddptrain"}
    versions = [libtorch_of(program) for program in programs.values()]
    assert versions[0] != versions[1], "two builds of one version say nothing"
    content = MODELS[name].config(tmp_path)
    content["model"]["path"] = str(tmp_path / content["model"]["path"])
    config = jobs.write_config(tmp_path / "train.json", {**content, "max_steps": STEPS, "seed": 3, **FEWER.get(name, {})})
    runs = []
    for run, program in programs.items():
        done = jobs.run([ddprun_bin, "--worker", program, "--nproc-per-node", workers, "--max-restarts", 0, "--run-dir", tmp_path / run, config], timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        runs.append((jobs.losses(tmp_path / run), safetensors.torch.load_file(tmp_path / run / "checkpoints/latest/model.safetensors"),
                     jobs.metrics(tmp_path / run, "eval")[-1]))
    (losses, weights, figures), (their_losses, their_weights, their_figures) = runs
    assert len(losses) == json.loads(config.read_text())["max_steps"] and [step for step, _ in losses] == [step for step, _ in their_losses] == list(range(1, len(losses) + 1))
    assert losses[-1][1] < losses[0][1], "nothing was learned, so equal losses would mean little"
    loss = max(apart(ours, theirs) for (_, ours), (_, theirs) in zip(losses, their_losses))
    weight, where = tensors_apart(weights, their_weights)
    print(f"\n| {name.removeprefix('exported ')} | {workers} | {loss:.1e} | {weight:.1e} |   {' and '.join(versions)}; {where}", flush=True)
    assert loss <= MOST and weight <= MOST, where
    assert their_figures["loss"] == pytest.approx(figures["loss"], rel=MOST)
