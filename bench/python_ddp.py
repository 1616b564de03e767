"""The Python program that recovery_bench.py compares with ddptrain. It uses DistributedDataParallel with DistributedSampler and
DataLoader, as PyTorch's documentation recommends. It reads the settings of ddptrain. It decodes and normalizes the data set
once before training, which makes this program faster.

usage: torchrun ... python_ddp.py SETTINGS.json METRICS.jsonl [SAVE_EVERY CHECKPOINT]
"""

import gzip
import itertools
import json
import os
import sys
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2)
        return self.fc2(nn.functional.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def make_resnet18():
    layers = [nn.Conv2d(1, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return Cnn() if name == "cnn" else make_resnet18()


def read_idx(folder, name, header):
    with gzip.open(os.path.join(folder, name + ".gz")) as f:
        return numpy.frombuffer(f.read(), numpy.uint8, offset=header)


def make_dataset(data):
    images = torch.from_numpy(read_idx(data["dir"], "train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).copy())
    labels = torch.from_numpy(read_idx(data["dir"], "train-labels-idx1-ubyte", 8).astype(numpy.int64))
    return TensorDataset(images.float().div_(255).sub_(data["mean"]).div_(data["std"]), labels)


def main():
    settings = json.load(open(sys.argv[1], encoding="utf-8"))
    save_every, checkpoint = (int(sys.argv[3]), sys.argv[4]) if len(sys.argv) > 3 else (0, None)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    dataset = make_dataset(settings["data"])
    sampler = DistributedSampler(dataset, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=settings["batch_size"] // world, sampler=sampler)
    model = DistributedDataParallel(make_model(settings["model"]["type"]), gradient_as_bucket_view=True)
    o = settings["optimizer"]
    optimizer = torch.optim.SGD(model.parameters(), lr=o["lr"], momentum=o["momentum"])
    loss_of = nn.CrossEntropyLoss()
    metrics = open(sys.argv[2], "a", encoding="utf-8") if rank == 0 else None
    step, every, last = 0, settings["log"]["every_steps"], settings["max_steps"]
    if checkpoint and os.path.exists(checkpoint):  # a checkpoint exists if the worker is restarted after a failure
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    done = step % len(loader)  # number of finished steps of the current epoch
    for epoch in range(step // len(loader), settings["epochs"]):
        sampler.set_epoch(epoch)
        for images, labels in itertools.islice(loader, done, None):
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step == 1 or step % every == 0 or step == last:
                mean = loss.detach().clone()
                dist.all_reduce(mean)  # sum over all workers, for the mean loss that ddptrain logs as well
                value = mean.item() / world
                if metrics:
                    metrics.write(json.dumps({"event": "step", "time_ns": time.time_ns(), "step": step, "loss": value}) + "\n")
                    metrics.flush()
            if save_every and step % save_every == 0 and rank == 0:
                begin = time.perf_counter()
                torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint + ".tmp")
                os.replace(checkpoint + ".tmp", checkpoint)
                metrics.write(json.dumps({"event": "checkpoint", "step": step, "pause_s": time.perf_counter() - begin}) + "\n")
            if step == last:
                if metrics:
                    metrics.close()
                dist.destroy_process_group()
                os._exit(0)  # in a normal exit, PyTorch's threads can abort: docs/internals/decisions/tests/python-sigabrt.md
        done = 0


main()
