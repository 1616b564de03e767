"""Tests of exported models that other Python packages define. Losses and weights must be bit-identical to the results of eager
PyTorch with DistributedDataParallel. The packages must be able to load the weights that ddptrain writes.
"""

import importlib
import pathlib
import sys

import jobs
import pytest
from test_exported_models import REFERENCE, ROOT, STEPS, assert_as_in_python, run_job, settings_of

pytestmark = [pytest.mark.long, pytest.mark.needs_torch_python, pytest.mark.timeout(900)]

PACKAGES = {"gpt2": "transformers", "bert": "transformers", "masked": "transformers", "vit": "transformers", "of_timm": "timm"}


@pytest.fixture(scope="module")
def exporter():
    for package in set(PACKAGES.values()):
        pytest.importorskip(package)
    sys.path[:0] = [str(ROOT / "python"), str(REFERENCE)]
    yield importlib.import_module("ddprun.export"), importlib.import_module("exported_zoo")
    del sys.path[:2]


def samples(batch: dict, count: int, draw) -> dict:
    """Returns `count` samples with the same shapes and types as `batch`, with a pattern that a model can learn."""
    import torch

    if "input_ids" in batch:
        first = torch.randint(64, (count, 1), generator=draw)
        text = ((first + torch.arange(16)) % 64).contiguous()
        if "label" not in batch:
            return {"input_ids": text}
        mask = torch.ones_like(text)
        if batch["label"].dim() == 2:
            return {"input_ids": text, "attention_mask": mask, "label": text.masked_fill(torch.rand(text.shape, generator=draw) > 0.3, -100)}
        mask[::3, 11:] = 0
        return {"input_ids": text, "attention_mask": mask, "label": first[:, 0] * 3 // 64}
    name, example = next(iter(batch.items()))
    labels = torch.randint(3, (count,), generator=draw)
    images = torch.randn(count, *example.shape[1:], generator=draw)
    images[torch.arange(count), labels] += 2
    return {name: images, "label": labels}


@pytest.fixture(scope="module")
def exported(exporter, tmp_path_factory) -> pathlib.Path:
    """Returns a folder with each model, its data and its train.json. Models of the package transformers are exported with the
    command-line interface."""
    import safetensors.torch
    import torch

    export, zoo = exporter
    root = tmp_path_factory.mktemp("libraries")
    for name in PACKAGES:
        if name in zoo.HUGGING_FACE:
            config = jobs.write_config(root / f"{name}.config", zoo.HUGGING_FACE[name])
            assert export.main(["--hf", str(config), "-o", str(root / f"{name}.ddp")]) == 0
            built = zoo.of_hugging_face(config)
        else:
            built = getattr(zoo, name)()
            export.export(built, root / f"{name}.ddp")
        assert sum(parameter.numel() for parameter in built["model"].parameters()) <= 5_000_000
        draw = torch.Generator().manual_seed(11)
        (root / "data" / name).mkdir(parents=True)
        for split, count in (("train", 107), ("test", 23)):
            safetensors.torch.save_file(samples(built["batch"], count, draw), root / "data" / name / f"{split}.safetensors")
        optimizer = {"type": "adamw", "lr": 0.0003 if name == "of_timm" else 0.003}
        jobs.write_config(root / f"{name}.json", {**settings_of(name, root), "optimizer": optimizer})
    for world in (1, 2):
        done = jobs.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", world,
                         REFERENCE / "exported_ddp.py", root, *(root / f"{name}.json" for name in PACKAGES)], PYTHONPATH=python_path())
        assert done.returncode == 0, done.stderr
    return root


def python_path() -> str:
    return ":".join([str(ROOT / "python"), *(place for place in sys.path if place)])


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", PACKAGES)
def test_losses_and_weights_match_eager_python(ddprun, ddptrain_bin, exported, tmp_path, name, world):
    done = run_job(ddprun, exported / f"{name}.json", tmp_path / "run", world, "--max-restarts", 0)
    assert done.returncode == 0, done.stderr
    assert_as_in_python(tmp_path / "run", exported / f"{name}-{world}")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_kill_in_each_step_changes_no_bit(ddprun, ddptrain_bin, exported, tmp_path, name):
    config, phases = exported / f"{name}.json", ("backward", "optimizer")
    assert run_job(ddprun, config, tmp_path / "calm", 2).returncode == 0
    for step in range(STEPS):
        run = tmp_path / str(step)
        fault = f"kill rank={step // 2 % 2} step={step} phase={phases[step % 2]}"
        done = run_job(ddprun, config, run, 2, DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
        assert [r["decision"] for r in jobs.report(run)["rounds"]] == ["regroup", "end"], fault
        assert jobs.weights_digest(run) == jobs.weights_digest(tmp_path / "calm"), fault
        assert jobs.losses(run) == jobs.losses(tmp_path / "calm"), fault


@pytest.mark.parametrize("name", ["gpt2", "masked"])
def test_transformers_loads_the_trained_weights(ddprun, ddptrain_bin, exporter, exported, tmp_path, name):
    """The weights file stores tied weights once. transformers must load them under both names. The folder with the trained
    weights can be exported again."""
    import safetensors.torch
    import torch
    import transformers

    export, zoo = exporter
    assert run_job(ddprun, exported / f"{name}.json", tmp_path / "run").returncode == 0
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "config.json").write_bytes((exported / f"{name}.config").read_bytes())
    assert jobs.run([ddptrain_bin, "--export-weights", tmp_path / "run", saved / "model.safetensors"]).returncode == 0
    trained = safetensors.torch.load_file(saved / "model.safetensors")
    model, info = getattr(transformers, zoo.HUGGING_FACE[name]["architectures"][0]).from_pretrained(saved, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    state = model.state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in trained.items() if key in state)
    inner, outer = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    assert inner is outer and any(torch.equal(inner, tensor) for tensor in trained.values())
    assert export.main(["--hf", str(saved), "-o", str(tmp_path / "again.ddp")]) == 0
    again = safetensors.torch.load_file(tmp_path / "again.ddp/init.safetensors")
    assert all(torch.equal(again[f"parameter.{key}"], tensor) for key, tensor in trained.items() if f"parameter.{key}" in again)


@pytest.mark.parametrize("change,more,reason", [
    ({"architectures": None}, (), "\"architectures\" in the config names no class; expected a class of transformers"),
    ({"architectures": ["GPT3"]}, (), "\"architectures\" in the config names GPT3; expected a class of transformers"),
    ({"architectures": ["GPT2DoubleHeadsModel"]}, (), "the model is a GPT2DoubleHeadsModel; --hf supports classes whose names end in LMHeadModel, "),
    ({"architectures": ["GPT2ForSequenceClassification"], "id2label": {"0": "a"}}, (), "num_labels in the config is 1; --hf supports classification with 2 or more labels"),
    ({"model_type": "gpt3"}, (), "transformers cannot read the config: "),
    ({}, ("--tokens", "17"), "--tokens 17: expected 2 to 16, the number of positions of the model"),
    ({}, ("--batch", "1"), "expected the same number of samples, 2 or more, as the first dimension of each tensor in the batch"),
])
def test_a_config_that_cannot_be_exported_is_refused_with_its_reason(exporter, tmp_path, capsys, change, more, reason):
    export, zoo = exporter
    config = jobs.write_config(tmp_path / "config.json", {**zoo.HUGGING_FACE["gpt2"], **change})
    assert export.main(["--hf", str(config), "-o", str(tmp_path / "model.ddp"), *more]) == 2
    errors = capsys.readouterr().err
    assert f"ddprun.export: {config}: " in errors and reason in errors, errors
    assert not (tmp_path / "model.ddp").exists()
