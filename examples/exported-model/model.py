"""The model, its loss and its metric. `python3 -m ddprun.export model.py:build -o model.ddp` writes them as files that ddptrain reads."""

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(2, width), nn.Linear(width, width), nn.LayerNorm(width)
        self.last = nn.Linear(width, 2)

    def forward(self, points):
        hidden = F.relu(self.first(points))
        return self.last(self.norm(hidden + F.relu(self.second(hidden))))


def loss(output, batch):
    return F.cross_entropy(output, batch["label"])


def accuracy(output, batch):
    return (output.argmax(1) == batch["label"]).float().mean()


def build():
    torch.manual_seed(0)
    batch = {"points": torch.randn(8, 2), "label": torch.randint(2, (8,))}
    return {"model": Residual(32), "batch": batch, "loss": loss, "figures": {"accuracy": accuracy}}
