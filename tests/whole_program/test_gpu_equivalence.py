"""Runs the cases of test_python_equivalence.py and test_exported_models.py on a GPU. With `deterministic`, all losses and
weights must be bit-identical to the results of DistributedDataParallel in Python on the same GPU. Two workers share the GPU,
so both programs communicate through Gloo. `./dev gpu` runs these tests. If there is no GPU, they are skipped. With
DDPRUN_GPU_TESTS_ON=cpu they run on the CPU, to check the tests themselves."""

import dataclasses
import importlib
import json
import os
import pathlib
import sys

import jobs
import pytest
import test_exported_models as exported_models
import test_python_equivalence as equivalence
from test_python_equivalence import CASES, GPT, LLAMA, VIT, Case

ON = os.environ.get("DDPRUN_GPU_TESTS_ON", "cuda")
pytestmark = [pytest.mark.needs_torch_python, *([] if ON == "cpu" else [pytest.mark.gpu])]
ROOT = pathlib.Path(__file__).resolve().parents[2]
ADAMW = {"type": "adamw", "lr": 0.001}
MORE_CASES = {
    "gpt-bf16-1": Case(GPT, 1, samples=250, batch_size=8, image=64, steps=40, optimizer=ADAMW, more={"precision": "bf16"}),
    "llama-fp16-1": Case(LLAMA, 1, samples=250, batch_size=8, image=64, steps=40, optimizer=ADAMW, more={"precision": "fp16"}),
    "vit-bf16-1": Case({**VIT, "patch_size": 7}, 1, batch_size=32, steps=40, optimizer=ADAMW, more={"precision": "bf16"}),
    "cnn-tf32-1": Case({"type": "cnn"}, 1, batch_size=32, steps=40, more={"precision": "tf32"}),
    "resnet18-1": Case({"type": "resnet18"}, 1, batch_size=32, steps=40),
    "resnet18-bf16-1": Case({"type": "resnet18"}, 1, batch_size=32, steps=40, more={"precision": "bf16"}),
    "resnet50-1": Case({"type": "resnet50"}, 1, samples=64, batch_size=32, steps=20, optimizer=ADAMW),
}
ALL_CASES = {**CASES, **MORE_CASES}
ENVIRONMENT = {"DDPTRAIN_SHARE_GPU": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@pytest.mark.parametrize("name", ALL_CASES)
def test_losses_and_weights_match_python_ddp(ddprun, ddptrain_bin, tmp_path, monkeypatch, name):
    # The Python program needs this variable. With `deterministic`, ddptrain sets it itself.
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    case = ALL_CASES[name]
    write_job = equivalence.write_job

    def on_the_device(folder: pathlib.Path, case: Case) -> pathlib.Path:
        file = write_job(folder, case)
        return jobs.write_config(file, {**json.loads(file.read_text()), "device": ON, "deterministic": True})

    monkeypatch.setattr(equivalence, "write_job", on_the_device)
    monkeypatch.setattr(equivalence, "train_with_ddprun", shared(equivalence.train_with_ddprun, monkeypatch))
    equivalence.compare(ddprun, tmp_path, dataclasses.replace(case, steps=min(case.steps, 60)))


def shared(train, monkeypatch):
    """Wraps `train` so that its job receives the variables in ENVIRONMENT. If `train` were not wrapped, jobs.run() would
    remove these variables, because they are variables of ddptrain."""
    run = jobs.run

    def with_sharing(*arguments):
        with monkeypatch.context() as patched:
            patched.setattr(jobs, "run", lambda command, **keywords: run(command, **{**ENVIRONMENT, **keywords}))
            return train(*arguments)

    return with_sharing


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> pathlib.Path:
    """Returns a folder with each model, its data, its train.json, and the results of eager PyTorch with 1 and 2 workers."""
    sys.path[:0] = [str(ROOT / "python"), str(exported_models.REFERENCE)]
    export, zoo = importlib.import_module("ddprun.export"), importlib.import_module("exported_zoo")
    del sys.path[:2]
    root = tmp_path_factory.mktemp("exported")
    for name in exported_models.MODELS:
        built = getattr(zoo, name)()
        exported_models.write_data(root / "data" / name, built["batch"])
        export.export(built, root / f"{name}.ddp")
        jobs.write_config(root / f"{name}.json", {**exported_models.settings_of(name, root), "device": ON, "deterministic": True})
    for world in (1, 2):
        done = jobs.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", world,
                         exported_models.REFERENCE / "exported_ddp.py", root, *(root / f"{name}.json" for name in exported_models.MODELS)], **ENVIRONMENT)
        assert done.returncode == 0, done.stderr
    return root


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", exported_models.MODELS)
def test_exported_losses_and_weights_match_eager_python(ddprun, ddptrain_bin, exported, tmp_path, name, world):
    done = jobs.run([ddprun, "--nproc-per-node", world, "--max-restarts", 0, "--run-dir", tmp_path / "run", exported / f"{name}.json"], **ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    exported_models.assert_as_in_python(tmp_path / "run", exported / f"{name}-{world}")
