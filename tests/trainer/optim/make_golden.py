#!/usr/bin/env python3
"""Writes golden.json beside itself: steps of torch.optim's fused SGD and AdamW, and clip_grad_norm_, as hexadecimal floats.

Parameters and gradients are closed forms that the C++ tests repeat: see value(). Run it with a Python that has torch; the C++
tests only read the file. The fused CPU kernels are vectorised, so the bits hold for CPUs with AVX2 or AVX-512.
"""

import json
import math
import pathlib

import torch

SHAPES = [(5, 3), (7,), (33,)]
STEPS = 6


def value(kind, step, tensor, i):
    # Exact in float32: multiples of 1/1024 within (-1, 1), without libm.
    return ((kind * 7919 + step * 104729 + tensor * 1299709 + i * 15485863) % 2047 - 1023) / 1024


def filled(kind, step, tensor):
    n = math.prod(SHAPES[tensor])
    return torch.tensor([value(kind, step, tensor, i) for i in range(n)], dtype=torch.float32).reshape(SHAPES[tensor])


def hexes(tensors):
    return [[float(v).hex() for v in t.detach().flatten()] for t in tensors]


def run(make, absent):
    """`absent`: (step, tensor) pairs without a gradient."""
    parameters = [torch.nn.Parameter(filled(0, 0, t)) for t in range(len(SHAPES))]
    optimizer = make(parameters)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = group["initial"] * (1 - step / 16)
        for t, p in enumerate(parameters):
            p.grad = None if (step, t) in absent else filled(1, step, t)
        optimizer.step()
    return hexes(parameters), optimizer.state_dict()["state"]


golden = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "sgd": [], "adamw": [], "clip": []}
for config in [
    {"lr": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
    {"lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0},
    {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0005},
    {"lr": 0.05, "momentum": 0.0, "nesterov": False, "weight_decay": 0.01},
]:
    def make_sgd(parameters):
        optimizer = torch.optim.SGD(parameters, fused=True, **config)
        optimizer.param_groups[0]["initial"] = config["lr"]
        return optimizer

    parameters, state = run(make_sgd, set())
    buffers = [s["momentum_buffer"] for s in state.values()] if config["momentum"] else []
    golden["sgd"].append({**config, "parameters": parameters, "momentum_buffers": hexes(buffers)})

for config, absent in [
    ({"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, []),
    ({"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.0}, []),
    ({"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}, [[0, 1], [3, 2]]),
]:
    def make_adamw(parameters):
        optimizer = torch.optim.AdamW(parameters, fused=True, **config)
        optimizer.param_groups[0]["initial"] = config["lr"]
        return optimizer

    parameters, state = run(make_adamw, {tuple(a) for a in absent})
    golden["adamw"].append({
        **config, "absent": absent, "parameters": parameters,
        "steps": [float(state[t]["step"]) for t in range(len(SHAPES))],
        "exp_avgs": hexes(state[t]["exp_avg"] for t in range(len(SHAPES))),
        "exp_avg_sqs": hexes(state[t]["exp_avg_sq"] for t in range(len(SHAPES))),
    })

for max_norm in [1.0, 0.1, 3.3, 1000.0]:
    parameters = [torch.nn.Parameter(filled(0, 0, t)) for t in range(len(SHAPES))]
    for t, p in enumerate(parameters):
        p.grad = filled(1, 0, t)
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    golden["clip"].append({"max_norm": max_norm, "norm": float(norm).hex(), "gradients": hexes(p.grad for p in parameters)})

path = pathlib.Path(__file__).with_name("golden.json")
path.write_text(json.dumps(golden, separators=(",", ":")).replace("},", "},\n") + "\n")
