#!/usr/bin/env python3
"""Writes golden.json next to this file: the values of PyTorch for the permutations of the sampler and for the normalization of
pixels.

Run this script with a Python that has torch. The C++ tests only read the file."""

import json
import pathlib

import torch


def order(n, seed, epoch):
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator)


def normalised(mean, std):
    # The steps of torchvision: ToTensor (div by 255), then Normalize (sub_ and div_ by float32 tensors of shape [channels, 1,
    # 1]).
    image = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16)
    tensor = image.to(torch.float32).div(255)
    mean = torch.as_tensor(mean, dtype=torch.float32).view(-1, 1, 1)
    std = torch.as_tensor(std, dtype=torch.float32).view(-1, 1, 1)
    return tensor.sub_(mean).div_(std).flatten()


golden = {"torch": torch.__version__, "orders": [], "normalised": []}
for n, seed, epoch in [(1, 0, 0), (10, 0, 0), (10, 0, 1), (37, 1234, 5), (100, 2**53, 3)]:
    golden["orders"].append({"n": n, "seed": seed, "epoch": epoch, "order": order(n, seed, epoch).tolist()})
n, seed, epoch = 60000, 7, 2
full = order(n, seed, epoch)
golden["long_order"] = {
    "n": n, "seed": seed, "epoch": epoch, "first": full[:8].tolist(), "last": full[-8:].tolist(),
    "weighted": int((full * torch.arange(1, n + 1)).sum()),
}
for mean, std in [([0.0], [1.0]), ([0.5], [0.5]), ([0.1307], [0.3081]), ([0.2860405969887955], [0.3530242445149223])]:
    values = normalised(mean, std)
    golden["normalised"].append({"mean": mean[0], "std": std[0], "values": [float(v).hex() for v in values]})
path = pathlib.Path(__file__).with_name("golden.json")
path.write_text(json.dumps(golden, indent=None, separators=(",", ":")).replace("},", "},\n") + "\n")
