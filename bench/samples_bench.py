"""Measures, for each kind of data, how many samples per second one worker can load, without training. The samples are read,
augmented and batched as in a job. The measuring program is loaded_samples (samples.cpp), which is built if necessary."""

import json
import pathlib
import random
import subprocess
import tempfile

from measure import RunOptions, Row, Series, Table, Tools, environment, progress
from training_cases import MLP, Folder

TITLE = "Samples per second by kind of data"
SECONDS = 2.0
SIZE = 256  # width and height of a JPEG image in pixels; training crops it to 224 x 224


def write_jpegs(folder: pathlib.Path) -> bool:
    """Writes images of about 15 KB each, with smooth colors and some noise. Returns False if Pillow is missing."""
    try:
        from PIL import Image
    except ImportError:
        return False
    draw = random.Random(1)
    for split, count in (("train", 64), ("test", 1)):
        for label in range(2):
            (folder / split / str(label)).mkdir(parents=True)
            for i in range(count):
                coarse = Image.frombytes("RGB", (32, 32), draw.randbytes(3 * 32 * 32))
                coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(folder / split / str(label) / f"{i}.jpg", quality=85)
    return True


def write_arrays(folder: pathlib.Path) -> None:
    import numpy

    draw = numpy.random.default_rng(1)
    for split, count in (("train", 20000), ("test", 16)):
        numpy.save(folder / f"{split}_inputs.npy", draw.random((count, 20), numpy.float32))
        numpy.save(folder / f"{split}_targets.npy", draw.integers(0, 10, count))


def configs(folder: Folder) -> dict[str, dict]:
    gpt = {"type": "gpt", "n_layer": 1, "n_head": 1, "n_embd": 8}
    arrays, jpegs = folder.path / "arrays", folder.path / "jpegs"
    arrays.mkdir()
    write_arrays(arrays)
    found = {
        "idx, 28 x 28, batch 64": {"data": folder.data("fashion"), "model": MLP, "batch_size": 64},
        "cifar10, batch 64": {"data": folder.data("cifar10"), "model": MLP, "batch_size": 64},
        "cifar10, cropped and flipped, batch 64": {"data": folder.data("cifar10") | {"augment": {"crop_padding": 4, "flip": True}}, "model": MLP, "batch_size": 64},
        "csv, 20 columns, batch 64": {"data": folder.data("csv"), "model": MLP, "batch_size": 64},
        "arrays, 20 numbers, batch 64": {"data": {"type": "arrays", "dir": str(arrays)}, "model": MLP, "batch_size": 64},
        "synthetic, 3 x 224 x 224, batch 16": {"data": {"type": "synthetic", "shape": [3, 224, 224]}, "model": {"type": "resnet18"}, "batch_size": 16},
        "synthetic tokens, 128 per sample, batch 8": {"data": {"type": "synthetic", "block_size": 128, "vocab_size": 256}, "model": gpt, "batch_size": 8},
        "tokens, 128 per sample, batch 8": {"data": folder.data("text"), "model": gpt, "batch_size": 8},
    }
    if write_jpegs(jpegs):
        found["folder of JPEG files, 256 x 256, 2 threads, batch 16"] = {
            "data": {"type": "folder", "dir": str(jpegs), "classes": 2, "resize": SIZE, "image_size": 224}, "model": {"type": "resnet18"}, "batch_size": 16}
    else:
        progress("skipped: the row for a folder of JPEG files needs Pillow to write the files: install Pillow")
    return found


def built(tools: Tools) -> pathlib.Path:
    program = pathlib.Path(tools.ddptrain).with_name("loaded_samples")
    if (program.parent.parent / "build.ninja").exists():
        progress(f"building {program.name} if it is out of date")
        subprocess.run(["cmake", "--build", str(program.parent.parent), "--target", program.name], check=True, stdout=subprocess.DEVNULL)
    return program


def run(tools: Tools, how: RunOptions) -> list[Table]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        path = pathlib.Path(name)
        for label, config in configs(Folder(path)).items():
            if how.only not in label and how.only not in TITLE:
                continue
            (path / "train.json").write_text(json.dumps(config | {"device": "cpu"}), encoding="utf-8")
            command = [str(built(tools)), str(path / "train.json"), str(SECONDS / 4 if how.quick else SECONDS)]
            rows.append(Row(label, "samples/s", Series([measure(command) for _ in range(how.repeats)]), None))
            progress(f"{label}: {rows[-1].ours.median:.0f} samples/s")
    return [Table(TITLE, "", rows)]


def measure(command: list[str]) -> float:
    return float(subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout)
