"""The models of test_hundred_kills.py. Each model has separate data and a separate config. A run on two workers takes tens of
seconds."""

import dataclasses
import importlib
import pathlib
import sys
from collections.abc import Callable

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SGD = {"type": "sgd", "lr": 0.01, "momentum": 0.9}
TABLE = {"type": "csv", "target": "y", "predict": "number", "leave_out": ["id", "pet"], "ledger": True}
TEXT = {"type": "tokens", "train_tokens": "train.txt", "test_tokens": "val.txt", "block_size": 32, "vocab_size": 256}
SMALL_GPT = {"n_layer": 2, "n_head": 2, "n_embd": 32}


@dataclasses.dataclass
class Killed:
    write: Callable[[pathlib.Path], None]  # writes the files of the model and the data into this folder
    samples: int  # samples in one epoch
    epochs: int
    settings: dict  # keys of train.json; its paths are relative to the folder with the data

    def config(self, folder: pathlib.Path) -> dict:
        """Writes the data and model files of the model into `folder`. Returns the config of a run."""
        self.write(folder)
        data = {"dir": str(folder / "data"), **self.settings.get("data", {})}
        return jobs.config(folder / "data", **{"epochs": self.epochs, "batch_size": 8, "eval_every_epochs": 5, "checkpoint": {"every_steps": 100, "keep": 2},
                                               "device": "cpu", **self.settings, "data": data})


def small_images(folder: pathlib.Path) -> None:
    from test_python_equivalence import write_dataset

    write_dataset(folder / "data", 80, 12)


def cifar_images(folder: pathlib.Path) -> None:
    from test_python_equivalence import write_cifar

    write_cifar(folder / "data", 80)


def image_folders(folder: pathlib.Path) -> None:
    from test_image_folders import write_images

    write_images(folder / "data")


def text(folder: pathlib.Path) -> None:
    """Writes 160 samples of 32 tokens. One more token follows the samples, as the target of the last position."""
    (folder / "data").mkdir()
    pages = b"".join(page.read_bytes() for page in sorted((ROOT / "docs").glob("*.md")))
    (folder / "data/train.txt").write_bytes(pages[:161 * 32])
    (folder / "data/val.txt").write_bytes(pages[-40 * 32:])


def tables(folder: pathlib.Path) -> None:
    from test_tables import write_tables

    write_tables(folder / "data")


def exported(name: str) -> Callable[[pathlib.Path], None]:
    """Returns a function that writes a PyTorch model (selected by its name) and 107 training samples for it."""

    def write(folder: pathlib.Path) -> None:
        sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent / "reference")]
        try:
            write_exported(name, folder)
        finally:
            del sys.path[:2]

    return write


def write_exported(name: str, folder: pathlib.Path) -> None:
    torch, safetensors = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    export, zoo = importlib.import_module("ddprun.export"), importlib.import_module("exported_zoo")
    from test_exported_libraries import PACKAGES, samples
    from test_exported_models import write_data

    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    if name in zoo.HUGGING_FACE:
        built = zoo.of_hugging_face(jobs.write_config(folder / "config.json", zoo.HUGGING_FACE[name]))
    elif name == "resnet18":
        models = importlib.import_module("models")
        torch.manual_seed(7)
        built = zoo._classifier(models.make_model({"type": name}, 12), 12)
    else:
        built = getattr(zoo, name)()
    export.export(built, folder / "model.ddp")
    if name not in PACKAGES:
        return write_data(folder / "data", built["batch"])
    draw = torch.Generator().manual_seed(11)
    (folder / "data").mkdir()
    for split, count in (("train", 107), ("test", 23)):
        safetensors.save_file(samples(built["batch"], count, draw), folder / "data" / f"{split}.safetensors")


def of_export(name: str, epochs: int, lr: float = 0.003, **more) -> Killed:
    return Killed(exported(name), 107, epochs, {
        "model": {"type": "exported", "path": "model.ddp"}, "data": {"type": "tensors"}, "batch_size": 16,
        "optimizer": {"type": "adamw", "lr": lr}, **more})


MODELS = {
    "mlp": Killed(small_images, 80, 120, {"model": {"type": "mlp", "hidden": [32, 16], "dropout": 0.1}}),
    "cnn": Killed(small_images, 80, 60, {
        "model": {"type": "cnn", "dropout": 0.2}, "data": {"augment": {"crop_padding": 1, "flip": True}}, "label_smoothing": 0.1,
        "optimizer": {"type": "adamw", "lr": 0.001, "ema": {"decay": 0.99}}, "schedule": {"type": "one_cycle"}}),
    "cnn, bf16": Killed(small_images, 80, 60, {"model": {"type": "cnn"}, "precision": "bf16", "channels_last": True, "ddp": {"compress": "bf16"}}),
    "resnet18": Killed(small_images, 80, 20, {"model": {"type": "resnet18"}, "optimizer": SGD}),
    "resnet34": Killed(small_images, 80, 20, {"model": {"type": "resnet34"}, "optimizer": SGD}),
    "resnet50": Killed(small_images, 80, 12, {"model": {"type": "resnet50"}, "optimizer": SGD}),
    "resnet20": Killed(small_images, 80, 40, {"model": {"type": "resnet20"}, "optimizer": {**SGD, "nesterov": True}, "schedule": {"type": "cosine"}}),
    "resnet56": Killed(small_images, 80, 25, {"model": {"type": "resnet56"}, "optimizer": SGD}),
    "resnet20, cifar10": Killed(cifar_images, 80, 25, {"model": {"type": "resnet20"}, "optimizer": SGD, "data": {"type": "cifar10"}}),
    "resnet20, folder": Killed(image_folders, 48, 50, {
        "model": {"type": "resnet20"}, "optimizer": SGD,
        "data": {"type": "folder", "classes": 2, "image_size": 8, "resize": 10, "augment": {"random_crop": True, "flip": True, "erase": 0.3}}}),
    "vit": Killed(small_images, 80, 60, {
        "model": {"type": "vit", "n_layer": 2, "n_head": 4, "n_embd": 32, "dropout": 0.1}, "optimizer": {"type": "adamw", "lr": 0.003}}),
    "gpt": Killed(text, 160, 40, {"model": {"type": "gpt", "dropout": 0.1, **SMALL_GPT}, "clip_grad_norm": 1.0, "data": TEXT}),
    "gpt, lora": Killed(text, 160, 40, {"model": {"type": "gpt", "lora": {"rank": 4}, **SMALL_GPT}, "data": TEXT}),
    "llama": Killed(text, 160, 40, {
        "model": {"type": "llama", "n_inner": 64, **SMALL_GPT, "n_head": 4, "n_kv_head": 2}, "data": TEXT, "optimizer": {"type": "lion", "lr": 0.001}}),
    "mlp, csv": Killed(tables, 200, 48, {"model": {"type": "mlp", "hidden": [16]}, "data": TABLE, "optimizer": {"type": "adamw", "lr": 0.01}}),
    "mlp, arrays": Killed(tables, 200, 48, {
        "model": {"type": "mlp", "hidden": [16]}, "optimizer": {"type": "adam", "lr": 0.01},
        "data": {"type": "arrays", "predict": "number",
                 **{f"{split}_{kind}": f"{split}_{file}" for split in ("train", "test") for kind, file in (("inputs", "x.npy"), ("targets", "y.safetensors:y"))}}}),
    "exported mlp": of_export("mlp", 150),
    "exported cnn": of_export("cnn", 120),
    "exported resnet18": of_export("resnet18", 25, lr=0.0003),
    "exported gpt": of_export("gpt", 100),
    "exported GPT-2": of_export("gpt2", 90),
    "exported BERT": of_export("bert", 90),
    "exported ViT": of_export("vit", 90),
    "exported MobileNetV3 of timm": of_export("of_timm", 40, lr=0.0003),
}
