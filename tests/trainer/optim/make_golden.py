#!/usr/bin/env python3
"""Writes golden.json next to this file. It contains, as hexadecimal floats: steps of the fused SGD, AdamW and Adam of
torch.optim and of Lion, clip_grad_norm_ and clip_grad_value_, the factors of the schedules in PyTorch, the moving average of
swa_utils, and learning rates of ReduceLROnPlateau.

Parameters and gradients have a closed form that the C++ tests repeat: see value(). Run this script with a Python that has
torch. The C++ tests only read the file. The fused CPU kernels are vectorized, so the bits are the same only on CPUs with AVX2
or AVX-512.
"""

import json
import math
import pathlib

import torch

SHAPES = [(5, 3), (7,), (33,)]
STEPS = 6


def value(kind, step, tensor, i):
    # The result is a multiple of 1/1024 in (-1, 1), which float32 represents exactly. libm is not used.
    return ((kind * 7919 + step * 104729 + tensor * 1299709 + i * 15485863) % 2047 - 1023) / 1024


def filled(kind, step, tensor):
    n = math.prod(SHAPES[tensor])
    return torch.tensor([value(kind, step, tensor, i) for i in range(n)], dtype=torch.float32).reshape(SHAPES[tensor])


def hexes(tensors):
    return [[float(v).hex() for v in t.detach().flatten()] for t in tensors]


def run(make, absent):
    """Runs STEPS steps. `absent` contains the (step, tensor) pairs that have no gradient."""
    parameters = [torch.nn.Parameter(filled(0, 0, t)) for t in range(len(SHAPES))]
    optimizer = make(parameters)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = group["initial"] * (1 - step / 16) * group.get("scale", 1)
        for t, p in enumerate(parameters):
            p.grad = None if (step, t) in absent else filled(1, step, t)
        optimizer.step()
    return hexes(parameters), optimizer.state_dict()["state"]


golden = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability(), "sgd": [], "adamw": [], "adam": [], "lion": [], "groups": [], "clip": [],
          "clip_value": [], "schedules": [], "ema": [], "plateau": []}
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

for name, make, config, absent in [
    ("adamw", torch.optim.AdamW, {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}, []),
    ("adamw", torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.0}, []),
    ("adamw", torch.optim.AdamW, {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}, [[0, 1], [3, 2]]),
    ("adam", torch.optim.Adam, {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}, []),
    ("adam", torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}, [[0, 1], [3, 2]]),
]:
    def make_adam(parameters):
        optimizer = make(parameters, fused=True, **config)
        optimizer.param_groups[0]["initial"] = config["lr"]
        return optimizer

    parameters, state = run(make_adam, {tuple(a) for a in absent})
    golden[name].append({
        **config, "absent": absent, "parameters": parameters,
        "steps": [float(state[t]["step"]) for t in range(len(SHAPES))],
        "exp_avgs": hexes(state[t]["exp_avg"] for t in range(len(SHAPES))),
        "exp_avg_sqs": hexes(state[t]["exp_avg_sq"] for t in range(len(SHAPES))),
    })

class Lion(torch.optim.Optimizer):
    """The Lion optimizer (Chen et al. 2023, algorithm 2), for one tensor at a time."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            early, late = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((mean * early + p.grad * (1 - early)).sign(), alpha=-group["lr"])
                mean.mul_(late).add_(p.grad, alpha=1 - late)


for config, absent in [({"lr": 0.001, "betas": (0.9, 0.99), "weight_decay": 0.0}, []),
                       ({"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.1}, [[0, 1], [3, 2]])]:
    def make_lion(parameters):
        optimizer = Lion(parameters, **config)
        optimizer.param_groups[0]["initial"] = config["lr"]
        return optimizer

    parameters, state = run(make_lion, {tuple(a) for a in absent})
    golden["lion"].append({**config, "absent": absent, "parameters": parameters, "exp_avgs": hexes(state[t]["exp_avg"] for t in range(len(SHAPES)))})

# Only p1 is in a parameter group with its own settings; p0 and p2 have the optimizer's settings.
for name, make, config in [
    ("sgd", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.001}),
    ("adamw", torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
]:
    group = {"lr_scale": 0.3, "weight_decay": 0.0}

    def make_grouped(parameters):
        return make([
            {"params": [parameters[1]], "lr": config["lr"], "initial": config["lr"], "scale": group["lr_scale"], "weight_decay": group["weight_decay"]},
            {"params": [parameters[0], parameters[2]], "initial": config["lr"], "scale": 1},
        ], fused=True, **config)

    parameters, _ = run(make_grouped, set())
    golden["groups"].append({"type": name, **config, "group": group, "parameters": parameters})

for limit in [0.5, 0.01, 10.0]:
    parameters = [torch.nn.Parameter(filled(0, 0, t)) for t in range(len(SHAPES))]
    for t, p in enumerate(parameters):
        p.grad = filled(1, 0, t)
    torch.nn.utils.clip_grad_value_(parameters, limit)
    golden["clip_value"].append({"limit": limit, "gradients": hexes(p.grad for p in parameters)})


def factors(make, steps):
    """Returns the factor of each step, which equals the learning rate if the base rate is 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    values = []
    for _ in range(steps):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


schedules = torch.optim.lr_scheduler
for steps, settings in [(100, {}), (37, {"pct_start": 0.1, "div_factor": 10.0, "final_div_factor": 100.0}), (10, {"pct_start": 0.0}), (8, {"pct_start": 1.0})]:
    values = factors(lambda o: schedules.OneCycleLR(o, max_lr=1.0, total_steps=steps, cycle_momentum=False, **settings), steps - 1)
    golden["schedules"].append({"type": "one_cycle", "steps": steps, **settings, "factors": values})
for steps, power in [(21, 2.0), (50, 0.9), (11, 1.0)]:
    values = factors(lambda o: schedules.PolynomialLR(o, total_iters=steps - 1, power=power), steps)
    golden["schedules"].append({"type": "polynomial", "steps": steps, "power": power, "factors": values})
for steps, warmup, decay, final in [(40, 5, 10, 0.1), (30, 0, 3, 0.0)]:
    def warmup_stable_decay(optimizer):
        parts = [schedules.LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1)] if warmup else []
        parts += [schedules.ConstantLR(optimizer, 1.0, 1), schedules.LinearLR(optimizer, 1.0, final, decay)]
        ends = [warmup] if warmup else []
        return schedules.SequentialLR(optimizer, parts, [*ends, steps - 1 - decay])

    golden["schedules"].append({
        "type": "warmup_stable_decay", "steps": steps, "warmup_steps": warmup, "decay_steps": decay, "final_factor": final,
        "factors": factors(warmup_stable_decay, steps),
    })

for max_norm in [1.0, 0.1, 3.3, 1000.0]:
    parameters = [torch.nn.Parameter(filled(0, 0, t)) for t in range(len(SHAPES))]
    for t, p in enumerate(parameters):
        p.grad = filled(1, 0, t)
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    golden["clip"].append({"max_norm": max_norm, "norm": float(norm).hex(), "gradients": hexes(p.grad for p in parameters)})

for decay in [0.999, 0.9, 0.3]:
    module = torch.nn.Module()
    for t in range(len(SHAPES)):
        module.register_parameter(f"p{t}", torch.nn.Parameter(filled(0, 0, t)))
    averaged = torch.optim.swa_utils.AveragedModel(module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(decay))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, fused=True)
    steps = []
    for step in range(STEPS):
        for t, p in enumerate(module.parameters()):
            p.grad = filled(1, step, t)
        optimizer.step()
        averaged.update_parameters(module)
        steps.append(hexes(averaged.module.parameters()))
    golden["ema"].append({"decay": decay, "averages": steps})

# These values of a metric fall, stay equal, rise and fall again. One value is NaN.
METRICS = [1.0, 0.9, 0.9, 0.89995, 0.95, 0.91, 0.8, 0.8, 0.81, math.nan, 0.79, 0.79, 0.79, 0.7, 0.75, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7]
for settings in [
    {"patience": 1},
    {"patience": 0, "factor": 0.3, "cooldown": 2},
    {"mode": "max", "patience": 2, "threshold": 0.05, "threshold_mode": "abs"},
    {"mode": "max", "patience": 1, "factor": 0.5, "threshold": 0.1},
    {"patience": 1, "threshold_mode": "abs", "threshold": 0.01, "min_lr": 0.003, "cooldown": 1},
    {"patience": 0, "factor": 0.9, "eps": 0.02},
]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **settings)
    rates = []
    for figure in METRICS:
        scheduler.step(figure)
        rates.append(optimizer.param_groups[0]["lr"])
    golden["plateau"].append({"settings": settings, "figures": [None if math.isnan(f) else f for f in METRICS], "lr": 0.3, "rates": [r.hex() for r in rates]})

path = pathlib.Path(__file__).with_name("golden.json")
path.write_text(json.dumps(golden, separators=(",", ":")).replace("},", "},\n") + "\n")
