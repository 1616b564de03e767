"""The Python program that checkpoint_bench.py compares with ddptrain. It trains the same network as ddptrain, with the same
optimizer and number of steps. It saves with torch.save or torch.distributed.checkpoint.async_save, and reports how long each
save stops training.

usage: python_checkpoint.py torch.save|async_save SETTINGS.json METRICS.jsonl FOLDER
"""

import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict


def make_mlp(hidden: list[int]) -> nn.Module:
    layers, width = [nn.Flatten()], 784
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 10))


def main() -> None:
    how, settings, folder = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")), pathlib.Path(sys.argv[4])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = make_mlp(settings["model"]["hidden"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images, labels = torch.randn(settings["batch_size"], 1, 28, 28), torch.randint(10, (settings["batch_size"],))
    every, in_flight = settings["checkpoint"]["every_steps"], None
    with open(sys.argv[3], "w", encoding="utf-8") as metrics:
        for step in range(1, settings["max_steps"] + 1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if step % every:
                continue
            if how == "torch.save":
                begin = time.perf_counter()
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt.tmp")
                os.replace(folder / "state.pt.tmp", folder / "state.pt")
                pause = time.perf_counter() - begin
            else:
                weights, state = get_state_dict(model, optimizer)  # not measured: a script may have these dicts already
                begin = time.perf_counter()
                if in_flight is not None:
                    in_flight.result()
                in_flight = dcp.async_save({"model": weights, "optimizer": state}, checkpoint_id=folder / f"step-{step}")
                pause = time.perf_counter() - begin
                shutil.rmtree(folder / f"step-{step - 2 * every}", ignore_errors=True)
            metrics.write(json.dumps({"event": "checkpoint", "step": step, "pause_s": pause}) + "\n")
    if in_flight is not None:
        in_flight.result()
    dist.destroy_process_group()
    os._exit(0)  # in a normal exit, PyTorch's threads can abort: docs/internals/decisions/tests/python-sigabrt.md


main()
