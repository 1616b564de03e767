"""Tests of PyTorch models that python/ddprun/export.py exported and that ddptrain trains. Losses and weights must be
bit-identical to the results of eager PyTorch with DistributedDataParallel, even after kills and resumes. Other tests check the
messages about models that cannot be exported, about damaged model folders, and about data that does not match the model."""

import importlib
import json
import pathlib
import re
import shlex
import shutil
import sys

import jobs
import pytest
import references

pytestmark = pytest.mark.needs_torch_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFERENCE = pathlib.Path(__file__).parent / "reference"
MODELS = ("mlp", "cnn", "norm", "gpt")
STEPS = 20


@pytest.fixture(scope="module")
def exporter():
    """Returns the module ddprun.export and the module with the test models. Both are imported into the pytest process, because
    a subprocess for each export would spend most of its time on the import of torch."""
    sys.path[:0] = [str(ROOT / "python"), str(REFERENCE)]
    yield importlib.import_module("ddprun.export"), importlib.import_module("exported_zoo")
    del sys.path[:2]


def write_data(folder: pathlib.Path, batch: dict) -> None:
    """Writes 107 training and 23 test samples with a pattern that a model can learn. 107 is not a multiple of the batch size
    16, so in the last step of each epoch the two workers have different numbers of samples."""
    import safetensors.torch
    import torch

    folder.mkdir(parents=True)
    draw = torch.Generator().manual_seed(11)
    for name, count in (("train", 107), ("test", 23)):
        if "tokens" in batch:
            first = torch.randint(32, (count, 1), generator=draw)
            words = (first + torch.arange(13)) % 32
            tensors = {"tokens": words[:, :-1].contiguous(), "next": words[:, 1:].contiguous()}
        else:
            images, labels = torch.randn(count, 1, 12, 12, generator=draw), torch.randint(10, (count,), generator=draw)
            images[torch.arange(count), 0, labels] += 2
            tensors = {"image": images, "label": labels}
        safetensors.torch.save_file(tensors, folder / f"{name}.safetensors")


def settings_of(name: str, root: pathlib.Path) -> dict:
    adam = {"type": "adamw", "lr": 0.003}
    sgd = {"type": "sgd", "lr": 0.05, "momentum": 0.9}
    return {
        "name": name,
        "model": {"type": "exported", "path": str(root / f"{name}.ddp")},
        "data": {"type": "tensors", "dir": str(root / "data" / name)},
        "epochs": 10,
        "max_steps": STEPS,
        "batch_size": 16,
        "eval_every_epochs": 0,
        "optimizer": adam if name == "gpt" else sgd,
        "checkpoint": {"every_steps": 7},
        "log": {"every_steps": 1, "tensorboard": False},
        "device": "cpu",
        "seed": 3,
    }


@pytest.fixture(scope="module")
def exported(exporter, tmp_path_factory) -> pathlib.Path:
    """Returns a folder that contains each model, its data and its train.json."""
    export, zoo = exporter
    root = tmp_path_factory.mktemp("exported")
    for name in MODELS:
        built = getattr(zoo, name)()
        write_data(root / "data" / name, built["batch"])
        sizes = export.export(built, root / f"{name}.ddp")
        assert sizes[0] == 8 and len(sizes) >= 3
        jobs.write_config(root / f"{name}.json", settings_of(name, root))
    return root


@pytest.fixture(scope="module")
def in_python(exported) -> pathlib.Path:
    """Returns a folder with the losses and weights of all models in eager PyTorch, with 1 and with 2 workers."""
    out = exported / "python"

    def train():
        for world in (1, 2):
            done = jobs.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", world,
                             REFERENCE / "exported_ddp.py", out, *(exported / f"{name}.json" for name in MODELS)])
            assert done.returncode == 0, done.stderr

    references.fill(out, train, *(settings_of(name, pathlib.Path("")) for name in MODELS), exported / "data")
    return out


def run_job(ddprun, config: pathlib.Path, run_dir: pathlib.Path, world: int = 1, *more, **environment: str):
    return jobs.run([ddprun, "--nproc-per-node", world, "--run-dir", run_dir, config, *more], **environment)


def refused_job(ddprun, config: pathlib.Path, run_dir: pathlib.Path, *more) -> str:
    done = run_job(ddprun, config, run_dir, 1, *more)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def assert_as_in_python(run_dir, reference: pathlib.Path) -> None:
    """Checks that the losses and weights of the run are bit-identical to the files `reference`.json and
    `reference`.safetensors."""
    import safetensors.torch
    import torch

    theirs = json.loads(reference.with_suffix(".json").read_text())
    ours = jobs.losses(run_dir)
    assert ours == list(enumerate(theirs, start=1))
    assert len(ours) == STEPS and theirs[-1] < theirs[0], "the loss did not fall, so equal losses would prove nothing"
    weights = safetensors.torch.load_file(run_dir / "checkpoints/latest/model.safetensors")
    expected = safetensors.torch.load_file(reference.with_suffix(".safetensors"))
    assert weights.keys() == expected.keys()
    assert not [key for key in expected if weights[key].dtype != expected[key].dtype or not torch.equal(weights[key], expected[key])]


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_weights_match_eager_python(ddprun, ddptrain_bin, exported, in_python, tmp_path, name, world):
    done = run_job(ddprun, exported / f"{name}.json", tmp_path / "run", world, "--max-restarts", 0)
    assert done.returncode == 0, done.stderr
    assert_as_in_python(tmp_path / "run", in_python / f"{name}-{world}")


def test_metrics_are_those_of_the_model(ddprun, ddptrain_bin, exporter, exported, tmp_path):
    import safetensors.torch
    import torch

    assert run_job(ddprun, exported / "norm.json", tmp_path / "run", 2).returncode == 0
    found = jobs.metrics(tmp_path / "run", "eval")[-1]
    built = exporter[1].norm()
    built["model"].load_state_dict(safetensors.torch.load_file(tmp_path / "run/checkpoints/latest/model.safetensors"))
    test = safetensors.torch.load_file(exported / "data/norm/test.safetensors")
    with torch.no_grad():
        output = built["model"].eval()(test["image"])
    assert found["samples"] == 23
    assert found["accuracy"] == pytest.approx(built["figures"]["accuracy"](output, test).item())
    assert found["loss"] == pytest.approx(built["loss"](output, test).item())


@pytest.mark.parametrize("name", ["norm", "gpt"])
def test_a_killed_worker_and_a_resume_change_no_bit(ddprun, ddptrain_bin, exported, tmp_path, name):
    config = exported / f"{name}.json"
    assert run_job(ddprun, config, tmp_path / "calm", 2).returncode == 0
    killed = run_job(ddprun, config, tmp_path / "killed", 2, DDPTRAIN_FAULT="kill rank=1 step=9 phase=backward")
    assert killed.returncode == 0, killed.stderr
    assert [r["decision"] for r in jobs.report(tmp_path / "killed")["rounds"]] == ["regroup", "end"]
    assert run_job(ddprun, config, tmp_path / "resumed", 2, "max_steps=12").returncode == 0
    assert run_job(ddprun, config, tmp_path / "resumed", 2).returncode == 0
    for other in ("killed", "resumed"):
        assert jobs.weights_digest(tmp_path / other) == jobs.weights_digest(tmp_path / "calm"), other
        assert jobs.losses(tmp_path / other) == jobs.losses(tmp_path / "calm"), other


def test_exported_tied_weights_load_into_their_model(ddprun, ddptrain_bin, exporter, exported, tmp_path):
    """The weights file stores tied weights once, under one of their two names. A load with strict=True must still find both
    names."""
    import safetensors.torch
    import torch

    file = tmp_path / "weights.safetensors"
    assert run_job(ddprun, exported / "gpt.json", tmp_path / "run", 1, "max_steps=3").returncode == 0
    done = jobs.run([ddptrain_bin, "--export-weights", tmp_path / "run", file])
    assert done.returncode == 0 and ", 1 of them with several names) are in " in done.stdout, done.stdout + done.stderr
    model = exporter[1].gpt()["model"]
    before = model.head.weight.detach().clone()
    missing, unexpected = safetensors.torch.load_model(model, file, strict=True)
    assert not missing and not unexpected and model.head.weight is model.words.weight and not torch.equal(model.head.weight, before)
    stored = safetensors.torch.load_file(file)
    with safetensors.safe_open(file, "pt") as opened:
        facts = opened.metadata()
    assert facts["head.weight"] == "words.weight" and facts["format"] == "pt" and "head.weight" not in stored
    model.load_state_dict({**stored, **{alias: stored[kept] for alias, kept in facts.items() if kept in stored}}, strict=True)


def test_another_model_at_the_same_path_is_refused(ddprun, ddptrain_bin, exporter, exported, tmp_path):
    export, zoo = exporter
    model = tmp_path / "model.ddp"
    shutil.copytree(exported / "cnn.ddp", model)
    here = f"model.path={model}"
    assert run_job(ddprun, exported / "cnn.json", tmp_path / "run", 1, here, "max_steps=7").returncode == 0
    moved = tmp_path / "moved.ddp"
    model.rename(moved)
    done = run_job(ddprun, exported / "cnn.json", tmp_path / "run", 1, f"model.path={moved}", "max_steps=9")
    assert done.returncode == 0, done.stderr  # a run must be able to resume after its model folder was moved
    built = zoo.cnn()
    built["model"][0].bias.data += 1
    export.export(built, model)
    message = refused_job(ddprun, exported / "cnn.json", tmp_path / "run", here)
    assert "differs from the data that this run started with" in message and "Check data.dir and model.path" in message, message


@pytest.mark.parametrize("built_in", [{"type": "mlp", "hidden": [16]}, {"type": "cnn"},
                                      pytest.param({"type": "resnet18"}, marks=pytest.mark.long)], ids=lambda model: model["type"])
def test_images_feed_exported_and_built_in_models_equally(ddprun, ddptrain_bin, exporter, tmp_path, built_in):
    import safetensors.torch
    import torch
    from reference.models import make_model
    from test_python_equivalence import write_dataset

    export, zoo = exporter
    torch.manual_seed(7)
    model = make_model(built_in, 12)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "init.safetensors")
    export.export({**zoo._classifier(model, 12), "inputs": ["image"]}, tmp_path / "model.ddp")
    write_dataset(tmp_path / "data", 75, 12)
    results = []
    for kind in ({"type": "exported", "path": "model.ddp"}, {**built_in, "init": "init.safetensors"}):
        content = jobs.config(tmp_path / "data", model=kind, max_steps=12, batch_size=8, checkpoint={"every_steps": 100})
        config = jobs.write_config(tmp_path / "train.json", content)
        done = run_job(ddprun, config, tmp_path / kind["type"], 2)
        assert done.returncode == 0, done.stderr
        found = [(e["loss"], e["accuracy"]) for e in jobs.metrics(tmp_path / kind["type"], "eval")]
        results.append((jobs.losses(tmp_path / kind["type"]), jobs.weights_digest(tmp_path / kind["type"]), found))
    assert len(results[0][0]) == 12
    assert results[0][:2] == results[1][:2]
    for ours, theirs in zip(results[0][2], results[1][2]):
        # The exported model averages its metric in float32, so the metrics of the two models differ by rounding.
        assert ours == pytest.approx(theirs)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MODELS)
def test_a_kill_in_each_step_changes_no_bit(ddprun, ddptrain_bin, exported, tmp_path, name):
    config, phases = exported / f"{name}.json", ("backward", "optimizer")
    assert run_job(ddprun, config, tmp_path / "calm", 2, "max_steps=25").returncode == 0
    for step in range(25):
        run = tmp_path / str(step)
        fault = f"kill rank={step // 2 % 2} step={step} phase={phases[step % 2]}"
        done = run_job(ddprun, config, run, 2, "max_steps=25", DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stderr
        assert [r["decision"] for r in jobs.report(run)["rounds"]] == ["regroup", "end"], fault
        assert jobs.weights_digest(run) == jobs.weights_digest(tmp_path / "calm"), fault
        assert jobs.losses(run) == jobs.losses(tmp_path / "calm"), fault


# ---- models that cannot be exported ----


@pytest.mark.parametrize("model,reason", [
    ("BranchesInPython", "torch.export rejects the model: "),
    ("Branches", "cannot run these operators, which are not PyTorch's own (aten): cond"),
    ("Casts", "cannot run these operators, which are not PyTorch's own (aten): wrap_with_autocast"),
    ("Counts", "torch.export rejects the model: "),
    ("Drifts", "differs between the exported graph and the model|the loss of the exported graph is"),
    ("Moves", "the model writes to the parameter 'slow.weight' in its forward pass"),
    ("Owns", "cannot run these operators, which are not PyTorch's own (aten): zoo::twice"),
    ("Flexes", ", flex_attention"),
    ("Halves", "parameter 'weight' is torch.bfloat16; ddptrain trains torch.float32 parameters only"),
    ("Leaves", "torch.export rejects the model: "),
    ("Loops", "torch.export rejects the model: "),
    ("Repeats", "cannot run these operators, which are not PyTorch's own (aten): while_loop"),
    ("Shares", "'other.weight' and 'weight' are two tensors that share memory, and one of them changes"),
    ("Mirrors", "'seen' and 'weight' are two tensors that share memory, and one of them changes"),
    ("Hooks", "a hook is registered on the gradient of 'weight', but the exported model would not contain the hook"),
    ("Warms", "the forward pass changes the attribute 'steps' from 1 to 2, but the exported graph would contain it as a constant; make it a registered buffer"),
    ("Alone", "with 1 samples in evaluation mode"),
    ("Turned", "'weight' is not contiguous, which checkpoints require"),
])
def test_a_model_that_cannot_be_exported_is_refused_with_its_reason(exporter, tmp_path, model, reason):
    export, zoo = exporter
    with pytest.raises(export.Refused) as refused:
        export.export(zoo.bad(model), tmp_path / "model.ddp")
    assert any(each in str(refused.value) for each in reason.split("|")), refused.value
    assert list(tmp_path.iterdir()) == []


def test_a_torch_export_error_names_the_model_line(exporter, tmp_path):
    """The error message must name the line in the user's model. The message of PyTorch alone would be misleading, because it
    ends with a line of PyTorch's own code."""
    export, zoo = exporter
    with pytest.raises(export.Refused, match=r"(?s)torch\.export rejects the model: .* \(\w+\.py:\d+\)$") as refused:
        export.export(zoo.bad("BranchesInPython"), tmp_path / "model.ddp")
    assert f"({pathlib.Path(zoo.__file__).name}:" in str(refused.value)


def test_pixel_images_are_exported_as_stored(ddprun, exporter, tmp_path):
    """A regression test. An exporter that traced the images in channels-last layout would always refuse the model, because the
    outputs would differ."""
    import safetensors.torch
    import torch
    from torch import nn

    export, _ = exporter
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4 * 8 * 8, 3))
    batch = {"image": torch.randn(8, 12, 12, 3).permute(0, 3, 1, 2), "label": torch.randint(3, (8,))}
    export.export({"model": model, "batch": batch, "inputs": ["image"],
                   "loss": lambda output, batch: nn.functional.cross_entropy(output, batch["label"])}, tmp_path / "model.ddp")
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in batch.items()}, tmp_path / "data" / f"{split}.safetensors")
    config = jobs.write_config(tmp_path / "train.json", {"name": "by-pixel", "model": {"type": "exported", "path": "model.ddp"},
                                                          "data": {"type": "tensors", "dir": "data"}, "batch_size": 8, "max_steps": 1})
    done = run_job(ddprun, config, tmp_path / "run")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("change,reason", [
    ({"loss": None}, "build() does not return the key 'loss'"),
    ({"metric": {}}, "build() returns the unknown key 'metric'"),
    ({"model": "text"}, "'model' is of type str; expected a torch.nn.Module"),
    ({"inputs": ["photo"]}, "forward() of the model takes photo, but the batch has image, label"),
    ({"figures": {"loss": lambda output, batch: output.sum()}}, "'figures' names a metric 'loss'; expected an identifier of at most 64 characters that is not reserved"),
    ({"loss": lambda output, batch: output.sum(1)}, "the loss is a tensor of shape (8,); expected a scalar tensor"),
])
def test_the_result_of_build_is_checked(exporter, tmp_path, change, reason):
    export, zoo = exporter
    built = {key: value for key, value in {**zoo.bad(torch_linear()), **change}.items() if value is not None}
    with pytest.raises(export.Refused) as refused:
        export.export(built, tmp_path / "model.ddp")
    assert reason in str(refused.value)


def torch_linear():
    from torch import nn

    return nn.Linear(4, 3)


def test_a_folder_without_a_model_is_not_overwritten(exporter, tmp_path):
    export, zoo = exporter
    (tmp_path / "precious").mkdir()
    with pytest.raises(export.Refused, match="exists and is not an exported model"):
        export.export(zoo.bad(torch_linear()), tmp_path / "precious")


def test_a_model_is_replaced_without_removing_other_files(exporter, tmp_path):
    export, zoo = exporter
    model = tmp_path / "model.ddp"
    for _ in range(2):
        export.export(zoo.bad(torch_linear()), model)
        assert {file.name for file in model.iterdir()} == export.FILES and list(tmp_path.iterdir()) == [model]
    (model / "runs").mkdir()
    with pytest.raises(export.Refused, match="contains files that do not belong to an exported model: runs; the folder is not overwritten"):
        export.export(zoo.bad(torch_linear()), model)
    assert (model / "runs").exists()


def test_loss_weights_are_refused_and_a_non_mean_loss_is_reported(exporter, tmp_path, capsys):
    import torch

    export, zoo = exporter
    loss, scale = zoo.bad(torch_linear())["loss"], torch.nn.Parameter(torch.ones(()))
    with pytest.raises(export.Refused, match=r"the loss trains a tensor of shape \(\) that is not a parameter of the model"):
        export.export({**zoo.bad(torch_linear()), "loss": lambda output, batch: loss(output * scale, batch)}, tmp_path / "model.ddp")
    export.export(zoo.bad(torch_linear()), tmp_path / "model.ddp")
    assert capsys.readouterr().err == ""
    summed = torch.nn.CrossEntropyLoss(reduction="sum")
    export.export({**zoo.bad(torch_linear()), "loss": lambda output, batch: summed(output, batch["label"])}, tmp_path / "model.ddp")
    assert "note: the loss is not a mean over the samples" in capsys.readouterr().err


def described_loss(name: str) -> dict:
    """Returns the model, batch and loss of one case. In some cases the loss or the gradients are not a mean over the samples.
    In the other cases they are a mean, but a simple check would find that they are not."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(5)
    classifier = {"model": nn.Linear(8, 3), "batch": {"input": torch.randn(8, 8), "label": torch.tensor([0, 1, 2, 0, 0, 1, 2, 0])}}
    tokens = {"batch": {"input": torch.randint(20, (8, 6)), "label": torch.randint(20, (8, 6))}}
    words = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))

    def of_counted(output, batch):
        return F.cross_entropy(output.flatten(0, 1), batch["label"].flatten(), ignore_index=-100)

    def by_sample(output, batch):
        each = F.cross_entropy(output.flatten(0, 1), batch["label"].flatten(), reduction="none").view(batch["label"].shape)
        return (each.sum(1) / (batch["label"] != -100).sum(1).clamp(min=1)).mean()

    return {
        "class weights in equal halves": {**classifier, "loss": lambda output, batch: F.cross_entropy(output, batch["label"],
                                                                                                      weight=torch.tensor([1., 5., 25.]))},
        "classes": {**classifier, "loss": lambda output, batch: F.cross_entropy(output, batch["label"])},
        "labels that may be ignored": {**tokens, "model": words, "loss": of_counted},
        "the mean over each sample first": {**tokens, "model": words, "loss": by_sample},
        "gradients by frequency": {**tokens, "model": nn.Sequential(nn.Embedding(20, 8, scale_grad_by_freq=True), nn.Linear(8, 20)),
                                   "loss": lambda output, batch: output.square().mean()},
    }[name] | {"inputs": ["input"]}


@pytest.mark.parametrize("name,note", [
    ("class weights in equal halves", "the loss is not a mean over the samples"),
    ("classes", ""),
    ("labels that may be ignored", "where labels are -100"),
    ("the mean over each sample first", ""),
    ("gradients by frequency", "the gradient of '0.weight' differs from the mean"),
])
def test_a_non_mean_loss_or_gradient_gets_a_note(exporter, tmp_path, capsys, name, note):
    export, _ = exporter
    export.export(described_loss(name), tmp_path / "model.ddp")
    written = capsys.readouterr().err
    assert note in written and bool(note) == bool(written), written


def test_modules_in_evaluation_mode_stay_in_it(exporter, tmp_path, capsys):
    import torch
    from torch import nn

    export, _ = exporter
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model[1].eval()
    built = {"model": model, "batch": {"input": torch.randn(8, 4)}, "inputs": ["input"], "loss": lambda output, batch: output.square().mean()}
    export.export(built, tmp_path / "model.ddp")
    assert "these modules stay in evaluation mode in every step, as set by eval() in build(): 1\n" in capsys.readouterr().err
    # The smallest batch would be 2 if the batch norm layer were in training mode.
    assert json.loads((tmp_path / "model.ddp" / "model.json").read_text())["smallest_batch"] == 1
    model.eval()  # if the whole model is in evaluation mode, it was perhaps just loaded, so no note is printed
    export.export(built, tmp_path / "model.ddp")
    assert capsys.readouterr().err == ""
    assert json.loads((tmp_path / "model.ddp" / "model.json").read_text())["smallest_batch"] == 2


def test_fast_path_rounding_is_not_a_difference(ddprun, exporter, tmp_path):
    """In evaluation mode, the transformer encoder of PyTorch uses fused kernels, which torch.export does not trace. The
    exported model therefore differs from the eager model by rounding. The exporter must accept this difference."""
    import safetensors.torch
    import torch
    from torch import nn

    export, _ = exporter
    torch.manual_seed(3)
    model = nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2), nn.Flatten(), nn.Linear(48, 3))
    batch = {"input": torch.randn(8, 6, 8), "label": torch.randint(3, (8,))}
    built = {"model": model, "batch": batch, "inputs": ["input"], "loss": lambda output, batch: nn.functional.cross_entropy(output, batch["label"])}
    export.export(built, tmp_path / "model.ddp")
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        safetensors.torch.save_file(batch, tmp_path / "data" / f"{split}.safetensors")
    config = jobs.write_config(tmp_path / "train.json", {"name": "encoder", "model": {"type": "exported", "path": "model.ddp"},
                                                          "data": {"type": "tensors", "dir": "data"}, "batch_size": 8, "max_steps": 2})
    done = run_job(ddprun, config, tmp_path / "run")
    assert done.returncode == 0, done.stderr


def test_a_difference_beyond_rounding_is_reported(exporter):
    import torch

    close = importlib.import_module("ddprun._export_check").close
    one = torch.ones(4)
    assert close(one, one + 1e-6) and close(None, None) and close(one / 0, one / 0)
    assert not close(one, one + 1e-4) and not close(one, None) and not close(one, one.double())
    assert not close(one / 0, one) and not close(one.long(), one.long() + 1)


@pytest.mark.parametrize("directly", [False, True])
def test_a_loss_using_model_weights_is_exported(exporter, tmp_path, directly):
    """The loss has an L2 penalty on the weights. The loss function refers to the module, or directly to the weight tensor."""
    import torch
    from torch import nn

    export, _ = exporter
    torch.manual_seed(3)
    model = nn.Linear(4, 3)
    weight, before = model.weight, model.weight.detach().clone()
    built = {"model": model, "batch": {"input": torch.randn(8, 4)}, "inputs": [],
             "loss": lambda output, batch: output.square().mean() + 0.1 * (weight if directly else model.weight).square().sum()}
    export.export({**built, "inputs": ["input"]}, tmp_path / "model.ddp")
    content = json.loads((tmp_path / "model.ddp" / "model.json").read_text())
    assert [entry["name"] for entry in content["parameters"]] == ["weight", "bias"] and not content["constants"]
    assert torch.equal(model.weight, before) and model.weight.grad is None


@pytest.mark.parametrize("name,reason", [("lazy", "'weight' of the model has no shape before the first forward pass"),
                                         ("sparse", "the gradient of '0.weight' is sparse")])
def test_lazy_and_sparse_parameters_are_refused_in_one_line(exporter, tmp_path, name, reason):
    import torch
    from torch import nn

    export, _ = exporter
    built = {"lazy": {"model": nn.LazyLinear(3), "batch": {"input": torch.randn(8, 4)}},
             "sparse": {"model": nn.Sequential(nn.Embedding(9, 4, sparse=True)), "batch": {"input": torch.randint(9, (8, 2))}}}[name]
    with pytest.raises(export.Refused, match=reason):
        export.export({**built, "inputs": ["input"], "loss": lambda output, batch: output.square().mean()}, tmp_path / "model.ddp")


def test_an_unsafe_operator_is_refused_with_its_line(ddprun, exporter, exported, tmp_path):
    """A graph in a downloaded model folder could call an operator that creates a file. The graph is rejected, and the file is
    not created."""
    shutil.copytree(exported / "mlp.ddp", tmp_path / "model.ddp")
    graph, victim = tmp_path / "model.ddp" / "train.graph", tmp_path / "victim"
    lines = graph.read_text().splitlines()
    number = len(lines) - 2  # number of the node that the test inserts
    lines.insert(len(lines) - 1, f"%{number} = op aten::from_file s{victim} true i64")
    graph.write_text("\n".join(lines) + "\n")
    message = refused_job(ddprun, exported / "mlp.json", tmp_path / "run", f"model.path={tmp_path}/model.ddp")
    assert f"train.graph:{len(lines) - 1}: the operator aten::from_file is not allowed, because it takes the text argument 'filename'" in message, message
    assert not victim.exists()


def test_a_model_with_random_evaluation_trains(ddprun, ddptrain_bin, exporter, exported, tmp_path):
    export, zoo = exporter
    export.export(zoo.noise(), tmp_path / "noise.ddp")
    done = run_job(ddprun, exported / "mlp.json", tmp_path / "run", 1, f"model.path={tmp_path}/noise.ddp", "max_steps=3")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_batch_too_small_for_batch_norm_is_explained(ddprun, ddptrain_bin, exporter, exported, tmp_path):
    export, zoo = exporter
    export.export(zoo.flat_norm(), tmp_path / "norm.ddp")
    message = refused_job(ddprun, exported / "mlp.json", tmp_path / "run", f"model.path={tmp_path}/norm.ddp", "micro_batch_size=5")
    assert "batch norm needs at least 2 samples per forward pass in training, but with " in message, message
    assert "micro_batch_size 5 and 1 worker the smallest pass has 1" in message, message
    assert not (tmp_path / "run/metrics.jsonl").exists()


def test_a_bad_test_label_is_named_and_costs_no_step(ddprun, ddptrain_bin, exported, tmp_path):
    """The invalid label is in the test set, so the evaluation at the end of the first epoch fails. After the label is
    corrected, the next invocation must repeat only this evaluation. The final weights must be bit-identical to the weights of
    a run without the error."""
    import safetensors.torch

    shutil.copytree(exported / "data/mlp", tmp_path / "data")
    file, config = tmp_path / "data/test.safetensors", exported / "mlp.json"
    whole = safetensors.torch.load_file(file)
    wrong = {**whole, "label": whole["label"].clone()}
    wrong["label"][17] = 10
    safetensors.torch.save_file(wrong, file)
    more = (f"data.dir={tmp_path}/data", "epochs=2", "max_steps=0", "eval_every_epochs=1", "checkpoint.every_steps=0")
    done = run_job(ddprun, config, tmp_path / "run", 2, *more)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "the evaluation after step 7 failed: the model cannot use a sample: Target 10 is out of bounds" in done.stderr, done.stderr
    assert f"'label' of sample 17 in {file} is 10. Correct the data" in done.stderr, done.stderr
    assert "no restart after a usage error" in done.stderr
    assert (tmp_path / "run/checkpoints/latest").resolve().name == "step-000000007"
    safetensors.torch.save_file(whole, file)
    again = jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", "--data-changed", config, *more])
    assert again.returncode == 0, again.stdout + again.stderr
    assert [line["step"] for line in jobs.metrics(tmp_path / "run", "eval")] == [7, 14]
    assert json.loads((tmp_path / "run/checkpoints/latest/manifest.json").read_text())["finished"]
    undisturbed = run_job(ddprun, config, tmp_path / "undisturbed", 2, *more)
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(tmp_path / "undisturbed")


@pytest.mark.parametrize("recovery", ["live", "checkpoint"])
def test_a_bad_training_label_on_any_rank_costs_no_step(ddprun, ddptrain_bin, exported, tmp_path, recovery):
    """In step 6, rank 1 fails because of an invalid label. Rank 1 must save the state after step 5, even though rank 0
    normally writes the checkpoints. With `--recovery checkpoint`, no other worker keeps its state after the failure."""
    import safetensors.torch

    shutil.copytree(exported / "data/mlp", tmp_path / "data")
    file, config = tmp_path / "data/train.safetensors", exported / "mlp.json"
    more = (f"data.dir={tmp_path}/data", "data.ledger=true", "checkpoint.keep=10")
    calm = run_job(ddprun, config, tmp_path / "calm", 2, *more, "checkpoint.every_steps=5")
    assert calm.returncode == 0, calm.stderr
    lines = [json.loads(line) for line in (tmp_path / "calm/ledger/rank-00001.jsonl").read_text().splitlines()]
    sample = next(line["samples"][-1] for line in lines if line["step"] == 6)
    whole = safetensors.torch.load_file(file)
    wrong = {**whole, "label": whole["label"].clone()}
    wrong["label"][sample] = 10
    safetensors.torch.save_file(wrong, file)
    more += ("checkpoint.every_steps=0",)
    command = [ddprun, "--nproc-per-node", 2, "--recovery", recovery, "--run-dir", tmp_path / "run", config, *more]
    done = jobs.run(command)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"'label' of sample {sample} in {file} is 10. Correct the data" in done.stderr, done.stderr
    assert "could not be saved" not in done.stderr, done.stderr
    saved, expected = (tmp_path / name / "checkpoints/step-000000005" for name in ("run", "calm"))
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (saved / name).read_bytes() == (expected / name).read_bytes()
    safetensors.torch.save_file(whole, file)
    again = jobs.run([*command[:3], "--data-changed", *command[3:]])
    assert again.returncode == 0, again.stdout + again.stderr
    assert jobs.metrics(tmp_path / "run", "resume")[-1]["step"] == 5
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(tmp_path / "calm")


def test_a_changed_model_folder_is_refused_before_the_start(ddprun, ddptrain_bin, exported, tmp_path):
    config, model = exported / "mlp.json", tmp_path / "model.ddp"
    shutil.copytree(exported / "mlp.ddp", model)
    graph = (model / "train.graph").read_text()

    def refusal(changed: str) -> str:
        (model / "train.graph").write_text(changed)
        return refused_job(ddprun, config, tmp_path / "run", f"model.path={model}")

    assert "has no operator aten::relu7 (line " in refusal(graph.replace("aten::relu", "aten::relu7"))
    assert "train.graph:3: expected '%1', found '%7'" in refusal(graph.replace("%1 =", "%7 =", 1))
    message = refusal(graph.replace("f0.2", "f0.3"))
    assert "the model's results for the batch in this file differ from those at export: the training loss is " in message
    (model / "train.graph").unlink()
    assert "train.graph: cannot be read" in refused_job(ddprun, config, tmp_path / "run", f"model.path={model}")
    assert "model.json cannot be read" in refused_job(ddprun, config, tmp_path / "run", f"model.path={tmp_path}")
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_mismatched_data_is_refused(ddprun, ddptrain_bin, exported, tmp_path):
    import safetensors.torch
    import torch

    data = tmp_path / "data"
    shutil.copytree(exported / "data/mlp", data)

    def refusal(file: str, tensors: dict) -> str:
        safetensors.torch.save_file(tensors, data / file)
        return refused_job(ddprun, exported / "mlp.json", tmp_path / "run", f"data.dir={data}")

    image, label = torch.zeros(20, 1, 12, 12), torch.zeros(20, dtype=torch.int64)
    assert "test.safetensors: has no tensor 'label'" in refusal("test.safetensors", {"image": image})
    assert "a sample is label int32 [], but the model takes label int64 []" in refusal("train.safetensors",
                                                                                     {"image": image, "label": label.int()})
    assert "'image' has 20 samples, but 'label' has 19" in refusal("train.safetensors", {"image": image, "label": label[1:]})
    whole = (exported / "data/mlp/train.safetensors").read_bytes()
    (data / "train.safetensors").write_bytes(whole[:-5])
    assert "is the file truncated?" in refused_job(ddprun, exported / "mlp.json", tmp_path / "run", f"data.dir={data}")


def test_a_nan_loss_names_the_bad_sample(ddprun, ddptrain_bin, exported, tmp_path):
    """The message must name the correct sample. A validation split is taken from the training set, which changes the numbering
    of the samples."""
    import safetensors.torch

    data = tmp_path / "data"
    shutil.copytree(exported / "data/mlp", data)
    tensors = safetensors.torch.load_file(data / "train.safetensors")
    tensors["image"][:3, 0, 7, 5] = float("-inf")
    safetensors.torch.save_file(tensors, data / "train.safetensors")
    for more in ((), ("data.validation.samples=40",)):
        message = refused_job(ddprun, exported / "mlp.json", tmp_path / f"run{len(more)}", f"data.dir={data}", *more)
        found = re.search(r"the loss of step \d+ is NaN or infinite on rank 0, whose data has -inf at \[0, 7, 5\] of 'image' of sample (\d+) in "
                          + re.escape(f"{data}/train.safetensors"), message)
        assert found and int(found[1]) < 3, message


def test_the_documented_recipe_works(ddprun, ddptrain_bin, tmp_path):
    page = (ROOT / "docs" / "exported-models.md").read_text(encoding="utf-8")
    model, data = re.findall(r"```python\n(.*?)```", page, re.S)
    export, train = re.findall(r"```sh\n(.*?)```", page, re.S)
    (tmp_path / "my_model.py").write_text(model, encoding="utf-8")
    (tmp_path / "my_data.py").write_text(data, encoding="utf-8")
    (tmp_path / "train.json").write_text(re.search(r"```json\n(.*?)```", page, re.S).group(1), encoding="utf-8")
    (tmp_path / "ddprun").symlink_to(ROOT)
    assignment, _, *arguments = shlex.split(export)
    name, _, value = assignment.partition("=")
    done = jobs.run([sys.executable, *arguments], cwd=tmp_path, **{name: value})
    assert done.returncode == 0, done.stderr
    assert "model.ddp: 4 parameters, " in done.stdout
    assert jobs.run([sys.executable, "my_data.py"], cwd=tmp_path).returncode == 0
    done = jobs.run([ddprun, *shlex.split(train)[1:]], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    evaluations = jobs.metrics(tmp_path / "runs/run", "eval")
    assert evaluations[-1]["accuracy"] > evaluations[0]["accuracy"]


def test_command_line_errors_state_what_was_expected(exporter, tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def build():\n    return 5\n", encoding="utf-8")
    for source, reason in ((f"{tmp_path}/mine.py:nothing", f"{tmp_path}/mine.py has no nothing()"),
                           (f"{tmp_path}/none.py:build", f"{tmp_path}/none.py is not a file"),
                           ("mine.py", "expected FILE.py:FUNCTION, found 'mine.py'"),
                           (f"{tmp_path}/mine.py:build", "build() returned int; expected a dict with the keys 'model', 'batch' and 'loss'")):
        assert exporter[0].main([source, "-o", str(tmp_path / "model.ddp")]) == 2
        assert capsys.readouterr().err == f"ddprun.export: {source}: {reason}\n"


def test_a_config_of_transformers_needs_that_package(exporter, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    for source, reason in ((tmp_path / "none", f"{tmp_path}/none is not a file"), (tmp_path, "--hf needs the package transformers: ")):
        assert exporter[0].main(["--hf", str(source), "-o", str(tmp_path / "model.ddp")]) == 2
        assert capsys.readouterr().err.startswith(f"ddprun.export: {source}: {reason}")
    for arguments in ([], ["mine.py:build", "--hf", "config.json"], ["mine.py:build", "--tokens", "5"]):
        with pytest.raises(SystemExit):
            exporter[0].main([*arguments, "-o", str(tmp_path / "model.ddp")])
