"""The networks of model.type in plain torch.nn, with the same names of parameters and buffers as ddptrain's."""

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, hidden: list[int], size: int, classes: int):
        super().__init__()
        widths = [size * size, *hidden, classes]
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:]), start=1):
            self.add_module(f"fc{i}", nn.Linear(inputs, outputs))

    def forward(self, images):
        x = images.flatten(1)
        *hidden, last = self.children()
        for layer in hidden:
            x = torch.relu(layer(x))
        return last(x)


class Cnn(nn.Module):
    def __init__(self, size: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * (size // 4) ** 2, 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, images):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(images)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet18(nn.Module):
    """He et al. 2016, with a stem for small images: 3x3 convolution of stride 1, no max-pool."""

    def __init__(self, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, classes)

    def forward(self, images):
        x = torch.relu(self.bn1(self.conv1(images)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class Conv1d(nn.Module):
    """Hugging Face's: a linear layer with its weight the other way round."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight).view(*x.size()[:-1], -1)


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1d(width, 3 * width), "c_proj": Conv1d(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1d(width, 4 * width), "c_proj": Conv1d(4 * width, width)})

    def forward(self, x):
        n, positions, width = x.shape
        q, k, v = (part.view(n, positions, self.heads, -1).transpose(1, 2) for part in self.attn["c_attn"](self.ln_1(x)).split(width, 2))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(n, positions, width))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with the names of Hugging Face's GPT2LMHeadModel, its tied head aside."""

    def __init__(self, settings: dict, vocabulary: int, positions: int):
        super().__init__()
        width = settings["n_embd"]
        blocks = nn.ModuleList(GptBlock(width, settings["n_head"]) for _ in range(settings["n_layer"]))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(positions, width), "h": blocks,
                                          "ln_f": nn.LayerNorm(width)})
        for embedding in (self.transformer["wte"], self.transformer["wpe"]):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](torch.arange(tokens.size(1)))
        for block in self.transformer["h"]:
            x = block(x)
        return nn.functional.linear(self.transformer["ln_f"](x), self.transformer["wte"].weight)


def make_model(settings: dict, size: int, classes: int = 10) -> nn.Module:
    """`settings` is the "model" part of a train.json; images have size x size pixels, a gpt's samples `size` tokens of `classes` kinds."""
    if settings["type"] == "gpt":
        return Gpt(settings, classes, size)
    if settings["type"] == "mlp":
        return Mlp(settings["hidden"], size, classes)
    return Cnn(size, classes) if settings["type"] == "cnn" else Resnet18(classes)
