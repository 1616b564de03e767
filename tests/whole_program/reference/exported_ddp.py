"""Trains the Python models of exported_zoo.py in eager PyTorch with DistributedDataParallel. The order of the samples and the
random seeds are the same as in ddptrain. torchrun starts it with W workers. One process trains several models, because the
start of Python takes longer than the training of a model.

usage: torchrun ... exported_ddp.py OUT TRAIN.json...
writes OUT/<name>-W.json (losses) and OUT/<name>-W.safetensors (weights)"""

import inspect
import json
import os
import pathlib
import sys

import exported_zoo
import safetensors.torch
import torch
import torch.distributed as dist
from python_ddp import global_batches, make_optimizer, prepare_device
from torch.nn.parallel import DistributedDataParallel

WORD = (1 << 64) - 1


def spread_bits(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def step_seed(seed: int, step: int, rank: int) -> int:
    """Returns the random seed of a step. trainer/loop/seeds.hpp has the same formula."""
    return spread_bits(spread_bits(spread_bits(seed) ^ step) ^ rank)


def train(settings: dict) -> tuple[list[float], dict]:
    if settings["name"] in exported_zoo.HUGGING_FACE:
        built = exported_zoo.of_hugging_face(pathlib.Path(settings["model"]["path"]).with_suffix(".config"))
    else:
        built = getattr(exported_zoo, settings["name"])()
    data = safetensors.torch.load_file(pathlib.Path(settings["data"]["dir"]) / "train.safetensors")
    device = prepare_device(settings)
    built["model"].to(device)
    arguments = inspect.signature(built["model"].forward).parameters
    by_place, by_name = built.get("inputs", []), [] if "inputs" in built else [name for name in built["batch"] if name in arguments]
    model = DistributedDataParallel(built["model"].train(), gradient_as_bucket_view=True)
    optimizer = make_optimizer(settings["optimizer"], model)
    rank, world = dist.get_rank(), dist.get_world_size()
    samples = len(next(iter(data.values())))
    losses = []
    for step, (batch, _, _) in zip(range(settings["max_steps"]), global_batches(samples, settings["batch_size"], settings["seed"])):
        share = batch[rank::world]
        mine = {name: data[name][share].to(device) for name in built["batch"]}
        optimizer.zero_grad()
        torch.manual_seed(step_seed(settings["seed"], step, rank))
        loss = built["loss"](model(*(mine[name] for name in by_place), **{name: mine[name] for name in by_name}), mine)
        weight = len(share) * world / len(batch)
        (loss if weight == 1 else loss * weight).backward()
        optimizer.step()
        mean = torch.tensor(loss.item() * len(share) / len(batch), dtype=torch.float64)
        dist.all_reduce(mean)
        losses.append(mean.item())
    lasting = built["model"].state_dict()
    buffers = ((name, tensor) for name, tensor in built["model"].named_buffers() if name in lasting)
    return losses, {name: tensor.detach().cpu() for name, tensor in [*built["model"].named_parameters(), *buffers]}


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for file in sys.argv[2:]:
        settings = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        losses, weights = train(settings)
        if dist.get_rank() == 0:
            name = f"{settings['name']}-{dist.get_world_size()}"
            (out / f"{name}.json").write_text(json.dumps(losses), encoding="utf-8")
            safetensors.torch.save_file(weights, out / f"{name}.safetensors")
    dist.destroy_process_group()
    # skips the normal exit of the interpreter, because threads of PyTorch's process group may abort the process during that
    # exit
    os._exit(0)


main()
