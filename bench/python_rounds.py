"""The Python program that training_bench.py compares with ddptrain. It uses DistributedDataParallel in eager Python, with the
networks of the equivalence tests. It reads the settings of ddptrain. For each byte on its standard input, it trains once, from
the initial weights and with a new optimizer. So one start of the program is enough for many measurements. Several things make
this program faster than usual. The decoded and normalized data is in memory, and a batch is a single index operation. The
optimizer uses PyTorch's fused kernels. All training runs except the first are warm.

usage: torchrun ... python_rounds.py SETTINGS.json [--data-loader | --bytes]
       -> a line for each training run: [[step, nanoseconds], ...] of the steps that are logged

With --data-loader, batches come from a DataLoader, as PyTorch's documentation recommends. With --bytes, images stay uint8 until
they are in a batch.
"""

import copy
import itertools
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "whole_program" / "reference"))

from models import make_model, with_lora
from python_ddp import global_batches, make_optimizer, read_dataset, read_idx


def make_network(settings: dict, inputs: torch.Tensor) -> torch.nn.Module:
    data, model = settings["data"], settings["model"]
    network = make_model(model, inputs.shape[-1], data.get("vocab_size", 10), 0 if data["type"] == "csv" else inputs.shape[1])
    return with_lora(network, model["lora"]) if "lora" in model else network


def read_bytes(data: dict) -> tuple[torch.Tensor, torch.Tensor]:
    if data["type"] != "idx":
        return read_dataset(data)
    images, labels = (torch.from_numpy(read_idx(pathlib.Path(data["dir"]) / f"train-{kind}").copy()) for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    return images.unsqueeze(1), labels.long()


def data_loader_batches(inputs: torch.Tensor, targets: torch.Tensor, share: int):
    dataset = TensorDataset(inputs, targets)
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=share, sampler=sampler)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from loader


def indexed_batches(inputs: torch.Tensor, targets: torch.Tensor, settings: dict):
    rank, world, data = dist.get_rank(), dist.get_world_size(), settings["data"]
    for batch, _, _ in global_batches(len(targets), settings["batch_size"], settings["seed"]):
        share = batch[rank::world]
        taken = inputs[share]
        yield taken.float().div_(255).sub_(data["mean"]).div_(data["std"]) if taken.dtype == torch.uint8 else taken, targets[share]


def train(model: DistributedDataParallel, batches, settings: dict) -> list[tuple[int, int]]:
    optimizer, world = make_optimizer(settings["optimizer"], model), dist.get_world_size()
    every, last, logged = settings["log"]["every_steps"], settings["max_steps"], []
    for step, (inputs, targets) in zip(range(1, last + 1), batches):
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        if step == 1 or step % every == 0 or step == last:
            mean = loss.detach().clone()
            dist.all_reduce(mean)  # sum over all workers, for the mean loss that ddptrain logs as well
            assert mean.item() / world < 1e6
            logged.append((step, time.time_ns()))
    return logged


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    how = sys.argv[2] if len(sys.argv) > 2 else ""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs, targets = read_bytes(settings["data"]) if how == "--bytes" else read_dataset(settings["data"])
    network = make_network(settings, inputs)
    model = DistributedDataParallel(network, gradient_as_bucket_view=True)
    first = None if how == "--bytes" else copy.deepcopy(network.state_dict())  # --bytes: a single run, for its peak memory
    while os.read(0, 1):  # all ranks have the same standard input, and each rank reads one byte for each training run
        if first:
            network.load_state_dict(first)
        share = settings["batch_size"] // dist.get_world_size()
        logged = train(model, data_loader_batches(inputs, targets, share) if how == "--data-loader" else indexed_batches(inputs, targets, settings), settings)
        if dist.get_rank() == 0:
            print(json.dumps(logged), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # in a normal exit, PyTorch's threads can abort: docs/internals/decisions/tests/python-sigabrt.md


main()
