"""Trains in eager PyTorch under torch.autocast with bfloat16, in one process. The settings come from a train.json, and the
order of samples is the same as in ddptrain. Writes the initial weights and the loss of each batch.

usage: python_autocast.py TRAIN.json OUT
OUT must exist. Writes OUT/init.safetensors and OUT/losses.json.
"""

import json
import os
import pathlib
import sys

import numpy
import safetensors.torch
import torch
from torch.nn.functional import cross_entropy

from models import make_model


def read_idx(file: pathlib.Path) -> numpy.ndarray:
    content = file.read_bytes()
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(7)
    folder, data = pathlib.Path(settings["data"]["dir"]), settings["data"]
    images = torch.from_numpy(read_idx(folder / "train-images-idx3-ubyte").copy()).unsqueeze(1).float().div_(255).sub_(data["mean"]).div_(data["std"])
    labels = torch.from_numpy(read_idx(folder / "train-labels-idx1-ubyte").astype(numpy.int64))
    layout = torch.channels_last if settings["channels_last"] else torch.contiguous_format
    model = make_model(settings["model"], images.shape[-1])
    safetensors.torch.save_file(model.state_dict(), out / "init.safetensors")
    model = model.to(memory_format=layout)
    o = settings["optimizer"]
    optimizer = torch.optim.SGD(model.parameters(), lr=o["lr"], momentum=o["momentum"], fused=True)
    losses, epoch = [], 0
    while len(losses) < settings["max_steps"]:
        generator = torch.Generator().manual_seed(settings["seed"] + epoch)
        for batch in torch.randperm(len(labels), generator=generator).split(settings["batch_size"]):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images[batch].contiguous(memory_format=layout))
            loss = cross_entropy(logits.float(), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == settings["max_steps"]:
                break
        epoch += 1
    (out / "losses.json").write_text(json.dumps(losses), encoding="utf-8")
    os._exit(0)  # skips the normal exit of the interpreter, because threads of PyTorch may abort the process during that exit


main()
