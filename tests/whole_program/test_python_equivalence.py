"""Tests that ddptrain computes the same losses as DistributedDataParallel in Python in every step, with the same initial
weights, order of samples and world size.

ddptrain calls the same kernels as Python. It also uses the same Reducer as DDP in Python, with the same buckets. With one
thread per operator (OMP_NUM_THREADS=1), every sum is computed in the same order. Therefore all losses and final weights must
be bit-identical. A case that runs other kernels would set `relative`, which is the allowed relative difference. The design
allows at most 1e-5 over 200 steps.
"""

import csv
import dataclasses
import gzip
import json
import pathlib
import random
import sys

import jobs
import pytest
import references

pytestmark = pytest.mark.needs_torch_python

REFERENCE = pathlib.Path(__file__).parent / "reference"
SGD = {"type": "sgd", "lr": 0.005, "momentum": 0.9}
MLP = {"type": "mlp", "hidden": [512, 512]}
GPT = {"type": "gpt", "n_layer": 2, "n_head": 4, "n_embd": 64}
LLAMA = {"type": "llama", "n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 64, "n_inner": 160}

VIT = {"type": "vit", "n_layer": 2, "n_head": 4, "n_embd": 32}


@dataclasses.dataclass(frozen=True)
class Case:
    model: dict
    world: int
    batch_size: int = 64
    optimizer: dict = dataclasses.field(default_factory=lambda: SGD)
    samples: int = 640
    image: int = 28  # width and height of an image; a smaller image is the center of a Fashion-MNIST image
    data: str = "idx"  # or cifar10, csv or csv-number; for csv, `image` is the number of columns
    steps: int = 200
    clip: dict = dataclasses.field(default_factory=dict)
    more: dict = dataclasses.field(default_factory=dict)  # other keys of the config
    augment: dict = dataclasses.field(default_factory=dict)
    end: int | None = None  # the byte that ends a document in a text data set
    relative: float = 0.0  # allowed relative difference of losses and weights; 0 requires identical bits


CASES = {
    "mlp-1": Case(MLP, 1),
    "mlp-2": Case(MLP, 2),
    "mlp-adamw-2": Case(MLP, 2, optimizer={"type": "adamw", "lr": 0.001}, steps=100),
    "mlp-nesterov-decay-1": Case(MLP, 1, optimizer={**SGD, "nesterov": True, "weight_decay": 0.001}, steps=100),
    "mlp-adam-2": Case(MLP, 2, optimizer={"type": "adam", "lr": 0.001, "weight_decay": 0.001}, steps=100),
    "mlp-frozen-grouped-clipped-2": Case({**MLP, "freeze": ["fc2.w*"]}, 2, steps=100, clip={"clip_grad_value": 0.01, "clip_grad_norm": 0.5},
                                         optimizer={**SGD, "weight_decay": 0.001, "groups": [
                                             {"parameters": "*.bias", "weight_decay": 0}, {"parameters": "fc3.*", "lr_scale": 3}]}),
    # The number of samples is 333 = 5 * 64 + 13. In the last step of each epoch, one rank has 7 samples and the other rank has
    # 6.
    "mlp-ragged-2": Case(MLP, 2, samples=333),
    # A sample has 64 tokens. The number of samples is 250 = 31 * 8 + 2, so the last step of an epoch has only two samples.
    "gpt-2": Case(GPT, 2, samples=250, batch_size=8, image=64, steps=60, clip={"clip_grad_norm": 1.0},
                  more={"eval_every_steps": 20, "schedule": {"type": "cosine", "warmup_steps": 7}},
                  optimizer={"type": "adamw", "lr": 0.001, "weight_decay": 0.1, "groups": [
                      {"parameters": "*.bias", "weight_decay": 0}, {"parameters": "*.ln_*", "weight_decay": 0}]}),
    "llama-2": Case({**LLAMA, "rope_theta": 500.0, "rms_norm_eps": 1e-5}, 2, samples=250, batch_size=8, image=64, steps=60, clip={"clip_grad_norm": 1.0},
                    optimizer={"type": "adamw", "lr": 0.001, "weight_decay": 0.1, "groups": [{"parameters": "*norm.weight", "weight_decay": 0}]}),
    # Each line is a document, so a sample contains several documents. The number of tokens that are included in the loss
    # differs between the two ranks.
    "gpt-documents-2": Case({**GPT, "activation_checkpointing": True}, 2, samples=250, batch_size=8, image=64, steps=30, end=10, optimizer={"type": "adamw", "lr": 0.001},
                            more={"eval_every_steps": 10}),
    "llama-documents-2": Case(LLAMA, 2, samples=250, batch_size=8, image=64, steps=30, end=10, optimizer={"type": "adamw", "lr": 0.001}),
    "cnn-2": Case({"type": "cnn"}, 2, batch_size=32, steps=60),
    # Only the batch norm statistics of rank 0 are compared. Images of 28 x 28 pixels would take five times as long and run the
    # same code.
    "resnet18-2": Case({"type": "resnet18"}, 2, batch_size=8, image=12, steps=50),
    "resnet20-cifar-2": Case({"type": "resnet20"}, 2, data="cifar10", samples=80, batch_size=8, image=32, steps=20),
    # An image has 64 patches. The number of samples is 85 = 10 * 8 + 5, so the last step of an epoch has only five samples.
    "vit-cifar-2": Case({**VIT, "activation_checkpointing": True}, 2, data="cifar10", samples=85, batch_size=8, image=32, steps=30, clip={"clip_grad_norm": 1.0},
                        optimizer={"type": "adamw", "lr": 0.001, "weight_decay": 0.05, "groups": [{"parameters": "*.bias", "weight_decay": 0}]}),
    # The number of samples is 333 = 5 * 64 + 13. So in the last step of an epoch, each sample is mixed with one of only 13
    # samples instead of 64.
    "mlp-mixup-2": Case(MLP, 2, samples=333, steps=60, augment={"mixup": 0.4}, more={"label_smoothing": 0.1}),
    # The model is trained with LoRA updates of its linear layers. reference/models.py contains the formula of the package
    # peft.
    "gpt-lora-2": Case({**GPT, "lora": {"rank": 4, "alpha": 8, "modules": ["*.c_attn", "*.mlp.c_proj"]}}, 2, samples=250, batch_size=8, image=64, steps=30,
                       optimizer={"type": "adamw", "lr": 0.003}, clip={"clip_grad_norm": 1.0}),
    # The initial loss scale is too large. Some of the first steps are skipped, and the scale then falls and rises.
    "mlp-fp16-2": Case(MLP, 2, steps=60, optimizer={"type": "adamw", "lr": 0.0001}, clip={"clip_grad_norm": 1.0},
                       more={"precision": "fp16", "grad_scaler": {"init_scale": 2.0 ** 24, "growth_interval": 5}}),
    "cnn-bf16-sum-2": Case({"type": "cnn"}, 2, batch_size=32, steps=40, more={"ddp": {"compress": "bf16"}}),
    # The number of rows is 333 = 5 * 64 + 13, so the last step of an epoch has only 13 rows.
    "mlp-csv-number-2": Case({"type": "mlp", "hidden": [32, 32]}, 2, data="csv-number", image=5, samples=333, optimizer={"type": "adamw", "lr": 0.01}),
    "mlp-lion-2": Case(MLP, 2, optimizer={"type": "lion", "lr": 0.0001, "weight_decay": 0.1}, steps=100),
}
LONG_CASES = {
    "mlp-adamw-200-steps-2": Case(MLP, 2, optimizer={"type": "adamw", "lr": 0.001}),
    "mlp-nesterov-200-steps-1": Case(MLP, 1, optimizer={**SGD, "nesterov": True, "weight_decay": 0.001}),
    "mlp-adam-200-steps-2": Case(MLP, 2, optimizer={"type": "adam", "lr": 0.001, "weight_decay": 0.001}),
    "cnn-200-steps-2": Case({"type": "cnn"}, 2, batch_size=32),
    "gpt-1": Case(GPT, 1, samples=250, batch_size=8, image=64, steps=60),
    "llama-1": Case(LLAMA, 1, samples=250, batch_size=8, image=64, steps=60),
    "cnn-1": Case({"type": "cnn"}, 1, batch_size=32),
    "vit-mixup-1": Case(VIT, 1, batch_size=32, steps=60, optimizer={"type": "adamw", "lr": 0.001}, augment={"mixup": 3}),
    "vit-1": Case({**VIT, "patch_size": 7}, 1, batch_size=32, steps=60, optimizer={"type": "adamw", "lr": 0.001}),
    "vit-lora-1": Case({**VIT, "lora": {"rank": 4, "alpha": 8, "modules": ["*.qkv", "*.fc1"]}}, 1, batch_size=32, steps=40, optimizer={"type": "adamw", "lr": 0.003}),
    "resnet18-1": Case({"type": "resnet18"}, 1, batch_size=8, image=12, steps=50),
    "llama-lora-1": Case({**LLAMA, "lora": {"rank": 2, "alpha": 16, "modules": ["*"]}}, 1, samples=250, batch_size=8, image=64, steps=30,
                         optimizer={"type": "adamw", "lr": 0.003}),
    "gpt-fp16-1": Case(GPT, 1, samples=250, batch_size=8, image=64, steps=20, optimizer={"type": "adamw", "lr": 0.001},
                       more={"precision": "fp16", "grad_scaler": {"init_scale": 2.0 ** 26, "growth_interval": 3}}),
    "mlp-fp16-sum-2": Case(MLP, 2, steps=60, more={"ddp": {"compress": "fp16"}}),
    "mlp-csv-1": Case({"type": "mlp", "hidden": [32, 32]}, 1, data="csv", image=12, optimizer={"type": "sgd", "lr": 0.1}),
    "resnet34-1": Case({"type": "resnet34"}, 1, batch_size=8, image=12, steps=50),
    "resnet50-2": Case({"type": "resnet50"}, 2, samples=8, batch_size=8, image=12, steps=20, optimizer={"type": "sgd", "lr": 0.001}),
    "resnet56-cifar-1": Case({"type": "resnet56"}, 1, data="cifar10", samples=80, batch_size=8, image=32, steps=30,
                             optimizer={"type": "adamw", "lr": 0.001}),
    "resnet18-200-steps-1": Case({"type": "resnet18"}, 1, batch_size=8, image=12),
    "resnet18-200-steps-2": Case({"type": "resnet18"}, 2, batch_size=8, image=12),
    "resnet18-full-size-1": Case({"type": "resnet18"}, 1, batch_size=8),
    "resnet18-full-size-2": Case({"type": "resnet18"}, 2, batch_size=8),
    "cnn-adamw-2": Case({"type": "cnn"}, 2, optimizer={"type": "adamw", "lr": 0.001}),
}


def idx(magic: int, *shape: int) -> bytes:
    return b"".join(n.to_bytes(4, "big") for n in (magic, *shape))


def write_dataset(folder: pathlib.Path, samples: int, size: int) -> None:
    """Writes uncompressed IDX files that contain the center size x size pixels of the first images of Fashion-MNIST."""
    numpy = pytest.importorskip("numpy")
    folder.mkdir()
    begin = (28 - size) // 2
    for split, count in (("train", samples), ("t10k", 10)):
        with gzip.open(jobs.DATASET / f"{split}-images-idx3-ubyte.gz") as f:
            images = numpy.frombuffer(f.read(16 + count * 784), numpy.uint8, offset=16).reshape(count, 28, 28)
        with gzip.open(jobs.DATASET / f"{split}-labels-idx1-ubyte.gz") as f:
            labels = f.read(8 + count)[8:]
        middle = images[:, begin:begin + size, begin:begin + size]
        (folder / f"{split}-images-idx3-ubyte").write_bytes(idx(0x803, count, size, size) + middle.tobytes())
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx(0x801, count) + labels)


def write_cifar(folder: pathlib.Path, samples: int) -> None:
    """Writes a CIFAR-10 data set with five files of training images and a test file of 10 images. The brightness of an image
    depends on its label."""
    numpy = pytest.importorskip("numpy")
    folder.mkdir()
    draw = numpy.random.default_rng(1)
    for name, count in [*((f"data_batch_{i + 1}.bin", samples // 5) for i in range(5)), ("test_batch.bin", 10)]:
        labels = draw.integers(0, 10, (count, 1), numpy.uint8)
        pixels = draw.integers(0, 25, (count, 3, 32, 32), numpy.uint8) + (labels * 25)[:, :, None, None]
        (folder / name).write_bytes(numpy.concatenate([labels, pixels.reshape(count, 3072)], 1).tobytes())


def write_csv(folder: pathlib.Path, samples: int, columns: int) -> None:
    """Writes tables with `columns` input columns. The class is the index of the column that has the largest value among the
    first ten columns, after scaling. For regression, the target is the product of the first two columns."""
    folder.mkdir()
    draw = random.Random(1)
    names = [f"c{i}" for i in range(columns)]
    for file, count in (("train.csv", samples), ("test.csv", 10)):
        with (folder / file).open("w", newline="", encoding="utf-8") as f:
            table = csv.writer(f)
            table.writerow([*names, "kind", "number"])
            for _ in range(count):
                row = [draw.uniform(-1, 1) * 10 ** i for i in range(columns)]
                table.writerow([*row, max(range(min(columns, 10)), key=lambda i: row[i] / 10 ** i), row[0] * row[1]])


def write_initial_weights(file: pathlib.Path, model: dict, size: int, outputs: int, channels: int) -> None:
    import safetensors.torch
    import torch
    from reference.models import make_model, with_lora

    torch.manual_seed(7)
    network = make_model(model, size, outputs, channels)
    weights = (with_lora(network, model["lora"]) if "lora" in model else network).state_dict()
    safetensors.torch.save_file({name.replace(".layer.", "."): tensor for name, tensor in weights.items()} if "lora" in model else weights, file)


def write_text(folder: pathlib.Path, samples: int, block: int) -> None:
    """Writes training and test text. The text is the license of the repository, which is ASCII and never changes."""
    folder.mkdir()
    text = (pathlib.Path(__file__).parents[2] / "LICENSE").read_bytes() * 2
    assert len(text) > samples * block
    (folder / "train.txt").write_bytes(text[:samples * block + 1])
    (folder / "val.txt").write_bytes(text[-6 * block:])  # the validation text is the end of the text and has 5 samples


def data_of(folder: pathlib.Path, case: Case) -> dict:
    if case.model["type"] in ("gpt", "llama"):
        write_text(folder, case.samples, case.image)
        return {"type": "tokens", "dir": str(folder), "train_tokens": "train.txt", "test_tokens": "val.txt", "block_size": case.image, "vocab_size": 256,
                "end_of_document": case.end}
    if case.data.startswith("csv"):
        write_csv(folder, case.samples, case.image)
        number = case.data == "csv-number"
        return {"type": "csv", "dir": str(folder), "predict": "number" if number else "class", "target": "number" if number else "kind",
                "leave_out": ["kind" if number else "number"]}
    if case.data == "cifar10":
        write_cifar(folder, case.samples)
    else:
        write_dataset(folder, case.samples, case.image)
    return {"type": case.data, "dir": str(folder), "mean": 0.2860, "std": 0.3530, "augment": case.augment}


def write_job(folder: pathlib.Path, case: Case) -> pathlib.Path:
    outputs = 256 if case.model["type"] in ("gpt", "llama") else 1 if case.data == "csv-number" else 10
    channels = {"cifar10": 3, "csv": 0, "csv-number": 0}.get(case.data, 1)
    write_initial_weights(folder / "init.safetensors", case.model, case.image, outputs, channels)
    steps_per_epoch = -(-case.samples // case.batch_size)
    return jobs.write_config(folder / "train.json", {
        "name": "equivalence",
        "model": {**case.model, "init": str(folder / "init.safetensors")},
        "data": data_of(folder / "data", case),
        "epochs": -(-case.steps // steps_per_epoch),
        "max_steps": case.steps,
        "batch_size": case.batch_size,
        "eval_every_epochs": 0,
        "optimizer": case.optimizer,
        **case.clip,
        **case.more,
        "log": {"every_steps": 1, "tensorboard": False},
        "device": "cpu",
        "seed": 3,
    })


def train_in_python(config: pathlib.Path, world: int, out: pathlib.Path, init: pathlib.Path, data: pathlib.Path) -> list[float]:
    """Trains with DDP in Python and returns the loss of each step. `init` and `data` are the paths in the config."""
    def train():
        done = jobs.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", world,
                         REFERENCE / "python_ddp.py", config, out], timeout=3600)
        assert done.returncode == 0, done.stderr

    settings = config.read_text(encoding="utf-8").replace(str(init), "").replace(str(data), "")
    references.fill(out, train, world, settings, init, data)
    return json.loads((out / "losses.json").read_text(encoding="utf-8"))


def train_with_ddprun(ddprun: pathlib.Path, config: pathlib.Path, world: int, run_dir: pathlib.Path) -> list[float]:
    done = jobs.run([ddprun, "--nproc-per-node", world, "--max-restarts", 0, "--run-dir", run_dir, config], timeout=1200)
    assert done.returncode == 0, done.stderr
    steps = jobs.losses(run_dir)
    assert [step for step, _ in steps] == list(range(1, len(steps) + 1))
    return [loss for _, loss in steps]


def assert_same_losses(ours: list[float], theirs: list[float], case: Case) -> None:
    assert len(ours) == len(theirs) == case.steps
    assert theirs[-1] < theirs[0], "the loss did not fall, so equal losses would prove nothing"
    for step, (a, b) in enumerate(zip(ours, theirs), start=1):
        assert abs(a - b) <= case.relative * abs(b), f"step {step}: {a!r} in ddprun, {b!r} in Python, {abs(a - b) / abs(b):.1e} relative"


def assert_same_weights(ours: pathlib.Path, theirs: pathlib.Path) -> None:
    import safetensors.torch
    import torch

    a, b = safetensors.torch.load_file(ours), safetensors.torch.load_file(theirs)
    assert a.keys() == b.keys()
    differing = [name for name in a if a[name].dtype != b[name].dtype or not torch.equal(a[name], b[name])]
    assert not differing


def compare(ddprun: pathlib.Path, folder: pathlib.Path, case: Case) -> None:
    config = write_job(folder, case)
    theirs = train_in_python(config, case.world, folder / "python", folder / "init.safetensors", folder / "data")
    ours = train_with_ddprun(ddprun, config, case.world, folder / "run")
    assert_same_losses(ours, theirs, case)
    scaler = json.loads((folder / "python/scaler.json").read_text(encoding="utf-8"))
    values = json.loads((folder / "run/checkpoints/latest/manifest.json").read_text(encoding="utf-8")).get("values", {})
    values = {name: value for name, value in values.items() if not name.startswith("skipped_steps.")}  # Python does not count skipped steps
    assert {name: float(value) for name, value in values.items()} == ({"grad_scaler.scale": scaler["scale"], "grad_scaler.growth_tracker": scaler["_growth_tracker"]} if scaler else {})
    evaluated = [(e["step"], e["loss"]) for e in jobs.metrics(folder / "run", "eval")] if case.more.get("eval_every_steps") else []
    assert evaluated == [(e["step"], e["loss"]) for e in map(json.loads, (folder / "python/metrics.jsonl").open(encoding="utf-8")) if e["event"] == "eval"]
    if case.relative == 0:
        assert_same_weights(folder / "run/checkpoints/latest/model.safetensors", folder / "python/model.safetensors")


@pytest.mark.parametrize("name", CASES)
def test_losses_and_weights_match_python_ddp(ddprun, ddptrain_bin, tmp_path, name):
    compare(ddprun, tmp_path, CASES[name])


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", LONG_CASES)
def test_larger_jobs_match_python_ddp(ddprun, ddptrain_bin, tmp_path, name):
    compare(ddprun, tmp_path, LONG_CASES[name])
