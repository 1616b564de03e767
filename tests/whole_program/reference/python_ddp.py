"""Trains with PyTorch's DistributedDataParallel in Python and the settings of a train.json, in the order of samples that
ddptrain uses. The order is torch.randperm(n), seeded with seed + epoch and split into global batches. Rank r of W takes the
positions r, r + W, ... of each global batch. Writes the mean loss of every global batch, the final weights, the state of the
gradient scaler, and the metrics that `ddprun plot` draws.

usage: torchrun ... python_ddp.py TRAIN.json OUT
writes OUT/losses.json, OUT/model.safetensors, OUT/scaler.json and OUT/metrics.jsonl"""

import csv
import fnmatch
import functools
import json
import math
import operator
import os
import pathlib
import sys

import numpy
import safetensors.torch
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel

from mixup import mixed, own_part
from models import make_model, with_lora


HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
NOT_PREDICTED = -100  # the label for which cross_entropy computes no loss by default (ignore_index)


def read_idx(file: pathlib.Path) -> numpy.ndarray:
    content = file.read_bytes()
    dimensions = content[3]
    shape = [int.from_bytes(content[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
    return numpy.frombuffer(content, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape)


def read_tokens(data: dict, split: str = "train") -> tuple[torch.Tensor, torch.Tensor]:
    """Reads a text in which each byte is a token. Returns the inputs and the tokens to predict. The token after the end of a
    document is not predicted."""
    tokens = numpy.frombuffer((pathlib.Path(data["dir"]) / data[f"{split}_tokens"]).read_bytes(), numpy.uint8).astype(numpy.int64)
    block = data["block_size"]
    samples = data.get(f"{split}_samples", 0) or (len(tokens) - 1) // block
    inputs, following = (torch.from_numpy(tokens[first:first + samples * block].reshape(samples, block)) for first in (0, 1))
    end = data.get("end_of_document")
    return inputs, following if end is None else following.masked_fill(inputs == end, NOT_PREDICTED)


def read_cifar(folder: pathlib.Path) -> tuple[torch.Tensor, torch.Tensor]:
    records = numpy.concatenate([numpy.fromfile(folder / f"data_batch_{i + 1}.bin", numpy.uint8).reshape(-1, 3073) for i in range(5)])
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(records[:, 0].astype(numpy.int64))


def read_csv(data: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Reads a CSV file. Each input column is standardized with its mean and standard deviation, in double precision, and then
    converted to float32."""
    with open(pathlib.Path(data["dir"]) / "train.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    columns = []
    for name in lines[0]:
        if name == data["target"] or name in data["leave_out"]:
            continue
        values = [float(line[name]) for line in lines]
        # In Python, sum() compensates for rounding errors, but ddptrain does not. So the values are added with reduce().
        mean = functools.reduce(operator.add, values) / len(values)
        deviation = math.sqrt(functools.reduce(operator.add, ((value - mean) * (value - mean) for value in values)) / len(values))
        columns.append([(value - mean) / deviation for value in values])
    inputs = torch.tensor(columns, dtype=torch.float64).T.float().contiguous()
    target = [line[data["target"]] for line in lines]
    if data["predict"] == "number":
        return inputs, torch.tensor([[float(value)] for value in target])
    return inputs, torch.tensor([int(value) for value in target])


def read_dataset(data: dict) -> tuple[torch.Tensor, torch.Tensor]:
    if data["type"] == "tokens":
        return read_tokens(data)
    if data["type"] == "csv":
        return read_csv(data)
    folder = pathlib.Path(data["dir"])
    if data["type"] == "cifar10":
        pixels, labels = read_cifar(folder)
        return pixels.float().div_(255).sub_(data["mean"]).div_(data["std"]), labels
    count = data.get("train_samples", 0) or None
    images = torch.from_numpy(read_idx(folder / "train-images-idx3-ubyte")[:count].copy()).unsqueeze(1)
    labels = torch.from_numpy(read_idx(folder / "train-labels-idx1-ubyte")[:count].astype(numpy.int64))
    return images.float().div_(255).sub_(data["mean"]).div_(data["std"]), labels


def global_batches(samples: int, batch_size: int, seed: int):
    """Yields for each global batch: the indices of its samples, its epoch, and its offset in the epoch. The last batch of an
    epoch may be smaller."""
    epoch = 0
    while True:
        generator = torch.Generator().manual_seed(seed + epoch)
        for place, batch in enumerate(torch.randperm(samples, generator=generator).split(batch_size)):
            yield batch, epoch, place * batch_size
        epoch += 1


def groups_of(settings: dict, network) -> list[dict]:
    """Splits the parameters into groups by the name patterns of the optimizer settings. The last group contains the parameters
    that no pattern matches."""
    groups = [{"params": [], "lr": settings["lr"] * group.get("lr_scale", 1)} | ({"weight_decay": group["weight_decay"]} if "weight_decay" in group else {})
              for group in settings.get("groups", [])]
    groups.append({"params": []})
    patterns = [group["parameters"] for group in settings.get("groups", [])] + ["*"]
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            groups[next(i for i, pattern in enumerate(patterns) if fnmatch.fnmatchcase(name, pattern))]["params"].append(parameter)
    return [group for group in groups if group["params"]]


class Lion(torch.optim.Optimizer):
    """The optimizer Lion (Chen et al. 2023, algorithm 2)."""

    def __init__(self, parameters, lr, weight_decay):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((mean * 0.9 + p.grad * (1 - 0.9)).sign(), alpha=-group["lr"])
                mean.mul_(0.99).add_(p.grad, alpha=1 - 0.99)


def make_optimizer(settings: dict, network):
    parameters = groups_of(settings, network)
    if settings["type"] == "sgd":
        return torch.optim.SGD(parameters, lr=settings["lr"], momentum=settings.get("momentum", 0),
                               weight_decay=settings.get("weight_decay", 0), nesterov=settings.get("nesterov", False), fused=True)
    if settings["type"] == "lion":
        return Lion(parameters, settings["lr"], settings.get("weight_decay", 0))
    if settings["type"] == "adam":
        return torch.optim.Adam(parameters, lr=settings["lr"], weight_decay=settings.get("weight_decay", 0), fused=True)
    return torch.optim.AdamW(parameters, lr=settings["lr"], weight_decay=settings.get("weight_decay", 0.01), fused=True)


def freeze(patterns: list[str], network) -> None:
    for name, parameter in network.named_parameters():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)


def load(network, file: str, lora: dict) -> None:
    """Loads the initial weights. In a model with LoRA, ".layer" is added to the names of the replaced layers."""
    weights = safetensors.torch.load_file(file)
    if lora:
        weights = {own_name: weights[name] for own_name, name in ((own, own.replace(".layer.", ".")) for own in network.state_dict())}
    network.load_state_dict(weights)


def rate_factor(schedule: dict, step: int, steps: int) -> float:
    """Returns the factor of the learning rate: a linear warm-up, then half a cosine that ends at 0 in the last step."""
    warmup = schedule.get("warmup_steps", 0)
    if step < warmup:
        return (step + 1) / warmup
    if schedule.get("type", "constant") == "constant":
        return 1.0
    return (1 + math.cos(math.pi * min(1.0, (step - warmup) / (steps - 1 - warmup)))) / 2


def prepare_device(settings: dict) -> torch.device:
    """Configures PyTorch like ddptrain, and returns the device. Unless TF32 is requested, matrix products and convolutions use
    full float32. All ranks share one GPU."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.get("precision") == "tf32"
    if settings.get("deterministic"):
        torch.use_deterministic_algorithms(True)
    return torch.device("cuda", 0) if settings.get("device") == "cuda" else torch.device("cpu")


@torch.no_grad()
def evaluate(network, tokens: torch.Tensor, following: torch.Tensor, part_size: int) -> float:
    """Returns the mean loss over all predicted tokens. Each rank evaluates a contiguous range of the samples."""
    rank, world = dist.get_rank(), dist.get_world_size()
    device = next(network.parameters()).device
    own, own_following = (part.tensor_split(world)[rank].to(device) for part in (tokens, following))
    sums = torch.zeros(1, dtype=torch.float64)
    network.eval()
    for some, some_following in zip(own.split(part_size), own_following.split(part_size)):
        sums += cross_entropy(network(some).flatten(0, 1), some_following.flatten(), reduction="none").sum(dtype=torch.float64).cpu()
    network.train()
    dist.all_reduce(sums)
    return sums.item() / (following != NOT_PREDICTED).sum().item()


def train_step(model, optimizer, scaler, images, labels, batch: torch.Tensor, epoch: int, position: int, settings: dict) -> float:
    """Runs one optimizer step on a global batch and returns its mean loss."""
    rank, world = dist.get_rank(), dist.get_world_size()
    share = batch[rank::world]
    inputs, targets = images[share], labels[share]
    if alpha := settings["data"].get("augment", {}).get("mixup", 0):
        parts = torch.tensor([own_part(alpha, settings["seed"], epoch, position + place) for place in range(len(batch))])
        inputs, targets = mixed(images, labels, batch, torch.arange(rank, len(batch), world), parts, 10)
    device = next(model.parameters()).device
    inputs, targets = inputs.to(device), targets.to(device)
    half = HALF.get(settings.get("precision"))
    optimizer.zero_grad()
    with torch.autocast(device.type, half or torch.float16, enabled=half is not None):
        outputs = model(inputs)
        if labels.is_floating_point():
            loss = mse_loss(outputs, targets)
        elif targets.is_floating_point():
            loss = cross_entropy(outputs.float(), targets, label_smoothing=settings.get("label_smoothing", 0))
        else:
            loss = cross_entropy((outputs.float() if images.is_floating_point() else outputs).flatten(0, -2), targets.flatten())
    # DDP averages the gradients over ranks. If the ranks have different numbers of samples, a weight on the loss turns this
    # average into the average over samples. A weight of 1 is omitted, because it would not change any bit.
    counts, counts_of_all = (len(share), len(batch)) if labels.is_floating_point() else ((labels[part] != NOT_PREDICTED).sum().item() for part in (share, batch))
    weight = counts * world / counts_of_all
    scaler.scale(loss if weight == 1 else loss * weight).backward()
    scaler.unscale_(optimizer)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if limit := settings.get("clip_grad_value", 0):
        torch.nn.utils.clip_grad_value_(trained, limit)
    if limit := settings.get("clip_grad_norm", 0):
        torch.nn.utils.clip_grad_norm_(trained, limit)
    scaler.step(optimizer)
    scaler.update()
    # This is the term of this rank in the mean over all ranks.
    mean = torch.tensor(loss.item() * counts / counts_of_all, dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item()


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    out = pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    device = prepare_device(settings)
    dist.init_process_group("gloo")
    images, labels = read_dataset(settings["data"])
    outputs = 1 if labels.is_floating_point() else settings["data"].get("vocab_size", 10)
    network = make_model(settings["model"], images.shape[-1], outputs, 0 if settings["data"]["type"] == "csv" else images.shape[1],
                         settings["data"].get("end_of_document"))
    lora = settings["model"].get("lora", {})
    if lora:
        network = with_lora(network, lora)
    load(network, settings["model"]["init"], lora)
    network.to(device)
    freeze(settings["model"].get("freeze", []), network)
    model = DistributedDataParallel(network, gradient_as_bucket_view=True)
    if compress := settings.get("ddp", {}).get("compress"):
        model.register_comm_hook(None, {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}[compress])
    optimizer = make_optimizer(settings["optimizer"], network)
    scaler = torch.amp.GradScaler(device.type, enabled=settings.get("precision") == "fp16", **settings.get("grad_scaler", {}))
    batches = global_batches(len(labels), settings["batch_size"], settings["seed"])
    every, schedule = settings.get("eval_every_steps", 0), settings.get("schedule", {})
    tested = read_tokens(settings["data"], "test") if every else None
    rates = [group["lr"] for group in optimizer.param_groups]
    losses, events = [], []
    for step in range(settings["max_steps"]):
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate * rate_factor(schedule, step, settings["max_steps"])
        losses.append(train_step(model, optimizer, scaler, images, labels, *next(batches), settings))
        events.append({"event": "step", "step": step + 1, "loss": losses[-1]})
        if every and ((step + 1) % every == 0 or step + 1 == settings["max_steps"]):
            events.append({"event": "eval", "step": step + 1, "loss": evaluate(network, *tested, settings.get("eval_batch_size", 1000))})
    if dist.get_rank() == 0:
        (out / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        (out / "losses.json").write_text(json.dumps(losses), encoding="utf-8")
        weights = {name.replace(".layer.", ".") if lora else name: tensor.cpu() for name, tensor in network.state_dict().items()}
        safetensors.torch.save_file(weights, out / "model.safetensors")
        (out / "scaler.json").write_text(json.dumps(scaler.state_dict()), encoding="utf-8")
    dist.destroy_process_group()
    # Skips the normal exit of the interpreter, because threads of PyTorch's process group may abort the process during that
    # exit (docs/internals/decisions/tests/python-sigabrt.md).
    os._exit(0)


if __name__ == "__main__":
    main()
