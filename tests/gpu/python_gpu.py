"""The Python program with which ddptrain is compared on a GPU. It trains the networks of bench/python_ddp.py in eager PyTorch,
with the precision and memory layout of the same train.json. To be fast, this program keeps the whole normalized data set on the
GPU. The model "gpt" is the one in tests/whole_program/reference/models.py.

usage: torchrun ... python_gpu.py TRAIN.json METRICS.jsonl
"""

import gzip
import importlib.util
import json
import os
import pathlib
import sys
import time
import types

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = ROOT / "bench/python_ddp.py"


def peer():
    """Loads bench/python_ddp.py without its last line, which starts the training. Only the networks of that file are used, so
    this program also runs if numpy is not installed."""
    if importlib.util.find_spec("numpy") is None:
        sys.modules["numpy"] = types.ModuleType("numpy")
    text = PEER.read_text(encoding="utf-8")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("peer", loader=None))
    exec(compile(text[:text.rindex("main()")], str(PEER), "exec"), module.__dict__)  # noqa: S102
    return module


def read_tokens(data: dict, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.frombuffer(bytearray(pathlib.Path(data["dir"], data["train_tokens"]).read_bytes()), dtype=torch.uint16).to(device).long()
    size = data["block_size"]
    windows = (len(tokens) - 1) // size
    return tokens[:windows * size].view(-1, size), tokens[1:windows * size + 1].view(-1, size)


def read_dataset(data: dict, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    def read(name: str, header: int) -> torch.Tensor:
        with gzip.open(os.path.join(data["dir"], name + ".gz")) as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8, offset=header).to(device)

    images = read("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    return images.float().div_(255).sub_(data["mean"]).div_(data["std"]), read("train-labels-idx1-ubyte", 8).long()


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    functions = peer()
    on_gpu = settings["device"] == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    precision = settings["precision"]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    layout = torch.channels_last if settings["channels_last"] else torch.contiguous_format
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    o = settings["optimizer"]
    if settings["model"]["type"] == "gpt":
        sys.path.insert(0, str(ROOT / "tests/whole_program/reference"))
        from models import Gpt

        inputs, labels = read_tokens(settings["data"], device)
        network = Gpt(settings["model"], settings["data"]["vocab_size"], settings["data"]["block_size"], None).to(device)
    else:
        inputs, labels = read_dataset(settings["data"], device)
        inputs = inputs.contiguous(memory_format=layout)
        network = functions.make_model(settings["model"]["type"]).to(device, memory_format=layout)
    model = DistributedDataParallel(network, gradient_as_bucket_view=True)
    optimizer = (torch.optim.AdamW(model.parameters(), lr=o["lr"], fused=True) if o["type"] == "adamw" else
                 torch.optim.SGD(model.parameters(), lr=o["lr"], momentum=o["momentum"], fused=True))

    def loss_of(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, -2), wanted.flatten())

    step, every, last, batch = 0, settings["log"]["every_steps"], settings["max_steps"], settings["batch_size"]
    with open(sys.argv[2], "a", encoding="utf-8") as metrics:
        while step < last:
            for chosen in torch.randperm(len(labels), device=device).split(batch):
                optimizer.zero_grad()
                with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                    given = inputs[chosen]
                    logits = model(given if given.dim() < 4 else given.contiguous(memory_format=layout))
                loss_of(logits.float(), labels[chosen]).backward() if precision == "bf16" else loss_of(logits, labels[chosen]).backward()
                optimizer.step()
                step += 1
                if step == 1 or step % every == 0 or step == last:
                    if on_gpu:
                        torch.cuda.synchronize()
                    metrics.write(json.dumps({"event": "step", "time_ns": time.time_ns(), "step": step}) + "\n")
                    metrics.flush()
                if step == last:
                    break
    dist.destroy_process_group()
    # skips the teardown of the interpreter, because threads of PyTorch's process group may abort the process during the
    # teardown
    os._exit(0)


main()
