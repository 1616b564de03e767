"""Writes data/train.safetensors and data/test.safetensors: points on two spirals, and the number of the spiral."""

import math
import pathlib

import safetensors.torch
import torch

torch.manual_seed(1)
pathlib.Path("data").mkdir(exist_ok=True)
for name, samples in (("train", 2000), ("test", 400)):
    label = torch.randint(2, (samples,))
    turn = torch.rand(samples) * 1.5 * math.pi
    angle = turn + math.pi * label
    points = torch.stack((angle.cos(), angle.sin()), 1) * (turn + 0.5)[:, None] / 3 + 0.03 * torch.randn(samples, 2)
    safetensors.torch.save_file({"points": points, "label": label}, f"data/{name}.safetensors")
