"""The cases of the training benchmark: the models of ddptrain, each with its data, batch size, optimizer and number of steps.

The runs are short. A worker needs one or two seconds for all steps, and the first fifth of them is the warm-up."""

import csv
import dataclasses
import gzip
import importlib
import json
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests" / "whole_program" / "reference"  # the same networks in Python; the equivalence tests also train them
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")

SGD = {"type": "sgd", "lr": 0.005, "momentum": 0.9}
ADAMW = {"type": "adamw", "lr": 0.001}
MLP = {"type": "mlp", "hidden": [512, 512]}
GPT = {"type": "gpt", "n_layer": 4, "n_head": 4, "n_embd": 128}
LLAMA = {"type": "llama", "n_layer": 4, "n_head": 4, "n_kv_head": 4, "n_embd": 128, "n_inner": 512}
VIT = {"type": "vit", "n_layer": 4, "n_head": 4, "n_embd": 128, "patch_size": 4}
LORA = {"rank": 8, "alpha": 16.0, "modules": ["*.c_attn", "*.mlp.c_proj"]}
BLOCK = 128  # tokens per sample
COLUMNS = 20


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    model: dict
    batch: int  # samples per worker
    steps: int
    # The number of steps of a run with one worker, if it differs from `steps`; otherwise 0. Such a run is faster, since it does
    # not wait for other ranks, so it needs more steps.
    steps_alone: int = 0
    data: str = "fashion"
    optimizer: dict = dataclasses.field(default_factory=lambda: SGD)
    workers: tuple[int, ...] = (2,)
    data_loader: bool = False  # True if Python's DDP uses a DataLoader; the row then measures more than DDP
    factors: tuple[float, ...] | None = None  # minimum ratios for 1 and 2 workers, if they differ from training_bench.FACTOR
    exported: bool = False  # True if the case is also measured as an exported model, with model.type "exported"
    memory: bool = False
    start: bool = False

    def label(self, workers: int) -> str:
        return f"{self.name}, batch {self.batch} per worker, {workers} worker{'s' if workers > 1 else ''}"

    def steps_of(self, workers: int) -> int:
        return self.steps_alone or self.steps if workers == 1 else self.steps


CASES = [
    Case("mlp", MLP, 1, 200, 1600, workers=(1, 2)),
    Case("mlp", MLP, 64, 200, 400, workers=(1, 2), exported=True, memory=True, start=True),
    Case("mlp against a DataLoader", MLP, 64, 150, 300, workers=(1, 2), data_loader=True, factors=(1.5, 1.1)),
    Case("cnn", {"type": "cnn"}, 64, 40, workers=(1, 2), exported=True, memory=True, start=True),
    Case("resnet18", {"type": "resnet18"}, 4, 12, workers=(1, 2), exported=True, start=True),
    Case("resnet34", {"type": "resnet34"}, 4, 7, data="cifar10"),
    Case("resnet50", {"type": "resnet50"}, 4, 6, data="cifar10"),
    Case("resnet20", {"type": "resnet20"}, 16, 25, data="cifar10"),
    Case("resnet56", {"type": "resnet56"}, 8, 20, data="cifar10"),
    Case("vit 4x128", VIT, 16, 20, data="cifar10", optimizer=ADAMW),
    Case("mlp on CSV", {"type": "mlp", "hidden": [64, 64]}, 64, 1000, data="csv", optimizer=ADAMW),
    Case("gpt 4x128", GPT, 8, 20, data="text", optimizer=ADAMW, workers=(1, 2), exported=True, memory=True, start=True),
    Case("gpt 4x128 with LoRA", {**GPT, "lora": LORA}, 8, 20, data="text", optimizer=ADAMW),
    Case("llama 4x128", LLAMA, 8, 20, data="text", optimizer=ADAMW),
]


class Folder:
    """Provides the files that the cases need: data sets (created on first use), configs and exported models."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def data(self, kind: str) -> dict:
        folder = self.path / kind
        if not folder.exists():
            folder.mkdir()
            {"fashion": write_fashion, "cifar10": write_cifar, "csv": write_csv, "text": write_text, "tensors": write_tensors}[kind](folder)
        return {
            "fashion": {"type": "idx", "mean": 0.2860, "std": 0.3530, "test_samples": 16},
            "cifar10": {"type": "cifar10", "mean": 0.5, "std": 0.25, "test_samples": 16},
            "csv": {"type": "csv", "predict": "class", "target": "kind", "leave_out": []},
            "text": {"type": "tokens", "train_tokens": "train.txt", "test_tokens": "val.txt", "block_size": BLOCK, "vocab_size": 256, "test_samples": 2},
            "tensors": {"type": "tensors"},
        }[kind] | {"dir": str(folder)}

    def config(self, case: Case, workers: int, name: str = "", model: dict | None = None, data: str = "") -> pathlib.Path:
        path = self.path / f"{name}{case.name}-{case.batch}-{workers}.json".replace(" ", "-")
        steps = case.steps_of(workers)
        path.write_text(json.dumps({
            "name": "bench", "model": model or case.model, "data": self.data(data or case.data), "epochs": 1000, "max_steps": steps,
            "batch_size": case.batch * workers, "eval_every_epochs": 0, "optimizer": case.optimizer,
            "log": {"every_steps": max(1, steps // 10), "tensorboard": False}, "device": "cpu", "seed": 3}), encoding="utf-8")
        return path

    def exported(self, case: Case, workers: int) -> pathlib.Path:
        """Returns the path of a config that trains the exported model. On first use, exports the Python network of the case."""
        path = self.path / f"{case.name}.ddp".replace(" ", "-")
        if not path.exists():
            export(case, path)
        return self.config(case, workers, "exported ", {"type": "exported", "path": str(path)}, "tensors" if case.data == "text" else "")


def export(case: Case, path: pathlib.Path) -> None:
    sys.path[:0] = [str(ROOT / "python"), str(REFERENCE)]
    import torch

    torch.manual_seed(7)
    make_model, text = importlib.import_module("models").make_model, case.data == "text"
    model = make_model(case.model, BLOCK if text else 28, 256 if text else 10)
    if text:
        batch = {"tokens": torch.randint(256, (8, BLOCK)), "next": torch.randint(256, (8, BLOCK))}
    else:
        batch = {"image": torch.randn(8, 1, 28, 28), "label": torch.randint(10, (8,))}
    inputs, targets = batch
    importlib.import_module("ddprun.export").export({
        "model": model, "batch": batch, "inputs": [inputs],
        "loss": lambda output, batch: torch.nn.functional.cross_entropy(output.flatten(0, -2), batch[targets].flatten())}, path)
    del sys.path[:2]


def write_fashion(folder: pathlib.Path) -> None:
    """Writes the data files without compression. Both programs read this form fastest."""
    for file in FASHION_MNIST.glob("*.gz"):
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))


def write_cifar(folder: pathlib.Path) -> None:
    draw = random.Random(1)
    for name, count in [*((f"data_batch_{i + 1}.bin", 400) for i in range(5)), ("test_batch.bin", 16)]:
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + draw.randbytes(3072) for i in range(count)))


def write_csv(folder: pathlib.Path) -> None:
    draw = random.Random(1)
    for name, count in (("train.csv", 20000), ("test.csv", 16)):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow([*(f"c{i}" for i in range(COLUMNS)), "kind"])
            for _ in range(count):
                row = [draw.uniform(-1, 1) for _ in range(COLUMNS)]
                table.writerow([*row, max(range(10), key=row.__getitem__)])


def text() -> bytes:
    return b"".join(page.read_bytes() for page in sorted((ROOT / "docs").glob("*.md")))[:2000 * BLOCK + 1]


def write_text(folder: pathlib.Path) -> None:
    """Writes a data set of tokens from the text of this project's docs."""
    (folder / "train.txt").write_bytes(text())
    (folder / "val.txt").write_bytes(text()[:4 * BLOCK + 1])


def write_tensors(folder: pathlib.Path) -> None:
    """Writes the tokens of the docs in the data format of exported models."""
    import safetensors.torch
    import torch

    tokens = torch.frombuffer(bytearray(text()), dtype=torch.uint8).long()
    samples = (len(tokens) - 1) // BLOCK
    both = {name: tokens[first:first + samples * BLOCK].reshape(samples, BLOCK).clone() for name, first in (("tokens", 0), ("next", 1))}
    safetensors.torch.save_file(both, folder / "train.safetensors")
    safetensors.torch.save_file({name: tensor[:2].clone() for name, tensor in both.items()}, folder / "test.safetensors")
