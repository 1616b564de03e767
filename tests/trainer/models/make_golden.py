#!/usr/bin/env python3
"""Writes golden.json next to this file: the names, shapes and logits of ddptrain's models, computed with plain PyTorch. Run
this script with a Python that has torch. The C++ tests only read the file.

The weights come from formulas that the C++ tests use as well. In the image models, element i of the k-th parameter is mixed(i,
k), which looks random. Weights of norms are 1 + mixed(i, k). Sines would be too regular for image models. The batch norms of
resnet50 had four nearly equal values as input, and amplified a difference in the last bit to 1e-3. The last bit differs
between processors. In the language models, element i of the k-th parameter is sin(i + k) * 0.05, computed in double and
rounded to float32.

The logits are computed in double. In float32, twenty batch norms over four values would amplify the rounding differences
between CPU kernels to 1e-3. "eval" is computed after "train", so it depends on the running statistics of one forward pass.
"""

import json
import pathlib

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, channels, height, width, classes, hidden=(20, 12)):
        super().__init__()
        widths = [channels * height * width, *hidden, classes]
        self.layers = len(widths) - 1
        for i in range(self.layers):
            setattr(self, f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.layers):
            x = F.relu(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.layers}")(x)


class Cnn(nn.Module):
    def __init__(self, channels, height, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * (height // 4) * (width // 4), 128)
        self.fc2 = nn.Linear(128, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    """The BasicBlock of torchvision. The layers of its shortcut are created before the other layers, as in torchvision's
    _make_layer, which determines their random initial weights. If `convolution` is false, the block has the shortcut of He et
    al. for CIFAR."""

    def __init__(self, inputs, width, stride, convolution):
        super().__init__()
        downsample = None
        if convolution and (stride != 1 or inputs != width):
            downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample
        self.stride, self.added = stride, width - inputs

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.downsample is None and self.added:
            x = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.added // 2, self.added // 2))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """The Bottleneck of torchvision. The layers of its shortcut are created before the other layers, as in BasicBlock."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        downsample = None
        if stride != 1 or inputs != 4 * width:
            downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = downsample

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, channels, height, width, classes, first=64, blocks=(2, 2, 2, 2), bottlenecks=False, convolution=True):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, first, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        inputs, self.layers = first, []
        for i, count in enumerate(blocks):
            outputs, layer = first << i, []
            for j in range(count):
                stride = 2 if i > 0 and j == 0 else 1
                layer.append(Bottleneck(inputs, outputs, stride) if bottlenecks else BasicBlock(inputs, outputs, stride, convolution))
                inputs = 4 * outputs if bottlenecks else outputs
            setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
            self.layers.append(f"layer{i + 1}")
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in self.layers:
            x = getattr(self, layer)(x)
        return self.fc(F.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


def resnet(**settings):
    return lambda *shape: ResNet(*shape, **settings)


class Conv1d(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt(nn.Module):
    """GPT-2 with the parameter names of Hugging Face's GPT2LMHeadModel. Its attention is computed step by step and does not
    call the attention function of PyTorch."""

    def __init__(self, layers, heads, width, vocabulary, positions):
        super().__init__()
        self.heads = heads
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(positions, width), "h": nn.ModuleList()})
        for _ in range(layers):
            self.transformer["h"].append(nn.ModuleDict({
                "ln_1": nn.LayerNorm(width), "attn": nn.ModuleDict({"c_attn": Conv1d(width, 3 * width), "c_proj": Conv1d(width, width)}),
                "ln_2": nn.LayerNorm(width), "mlp": nn.ModuleDict({"c_fc": Conv1d(width, 4 * width), "c_proj": Conv1d(4 * width, width)})}))
        self.transformer["ln_f"] = nn.LayerNorm(width)

    def forward(self, tokens):
        n, positions = tokens.shape
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](torch.arange(positions))
        width = x.shape[-1]
        later = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        for block in self.transformer["h"]:
            q, k, v = (part.view(n, positions, self.heads, -1).transpose(1, 2) for part in block["attn"]["c_attn"](block["ln_1"](x)).split(width, 2))
            scores = (q @ k.transpose(2, 3) / (width // self.heads) ** 0.5).masked_fill(later, float("-inf"))
            mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, positions, width)
            x = x + block["attn"]["c_proj"](mixed)
            x = x + block["mlp"]["c_proj"](F.gelu(block["mlp"]["c_fc"](block["ln_2"](x)), approximate="tanh"))
        return self.transformer["ln_f"](x) @ self.transformer["wte"].weight.T


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


class Llama(nn.Module):
    """Llama with the parameter names of Hugging Face's LlamaForCausalLM. Each query head computes with its own key and value
    head, and the rotary embedding multiplies complex numbers."""

    def __init__(self, layers, heads, shared_heads, width, inner, vocabulary):
        super().__init__()
        self.heads, self.shared_heads, self.width = heads, shared_heads, width // heads
        shared = shared_heads * self.width
        layer = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocabulary, width), "layers": nn.ModuleList()})
        for _ in range(layers):
            self.model["layers"].append(nn.ModuleDict({
                "self_attn": nn.ModuleDict({"q_proj": layer(width, width), "k_proj": layer(width, shared), "v_proj": layer(width, shared), "o_proj": layer(width, width)}),
                "mlp": nn.ModuleDict({"gate_proj": layer(width, inner), "up_proj": layer(width, inner), "down_proj": layer(inner, width)}),
                "input_layernorm": RmsNorm(width), "post_attention_layernorm": RmsNorm(width)}))
        self.model["norm"] = RmsNorm(width)
        self.lm_head = layer(width, vocabulary)

    def turned(self, x):
        half = self.width // 2
        angles = torch.arange(x.shape[1], dtype=torch.float64)[:, None, None] * 10000 ** (-torch.arange(half, dtype=torch.float64) / half)
        pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((pairs.real, pairs.imag), -1)

    def forward(self, tokens):
        n, positions = tokens.shape
        x = self.model["embed_tokens"](tokens)
        later = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        for block in self.model["layers"]:
            y, attention = block["input_layernorm"](x), block["self_attn"]
            q = self.turned(attention["q_proj"](y).view(n, positions, self.heads, self.width))
            k = self.turned(attention["k_proj"](y).view(n, positions, self.shared_heads, self.width))
            v = attention["v_proj"](y).view(n, positions, self.shared_heads, self.width)
            heads = []
            for head in range(self.heads):
                its = head // (self.heads // self.shared_heads)
                scores = (q[:, :, head] @ k[:, :, its].transpose(1, 2) / self.width ** 0.5).masked_fill(later, float("-inf"))
                heads.append(scores.softmax(-1) @ v[:, :, its])
            x = x + attention["o_proj"](torch.cat(heads, -1))
            y, mlp = block["post_attention_layernorm"](x), block["mlp"]
            gate = mlp["gate_proj"](y)
            x = x + mlp["down_proj"](gate * gate.sigmoid() * mlp["up_proj"](y))
        return self.lm_head(self.model["norm"](x))


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, x):
        heads = []
        q, k, v = self.attn["qkv"](self.norm1(x)).chunk(3, -1)
        for head in range(self.heads):
            its = slice(head * x.size(-1) // self.heads, (head + 1) * x.size(-1) // self.heads)
            scores = q[..., its] @ k[..., its].transpose(1, 2) / (x.size(-1) // self.heads) ** 0.5
            heads.append(scores.softmax(-1) @ v[..., its])
        x = x + self.attn["proj"](torch.cat(heads, -1))
        y = self.mlp["fc1"](self.norm2(x))
        return x + self.mlp["fc2"](y * (1 + torch.erf(y / 2 ** 0.5)) / 2)


class Vit(nn.Module):
    """A ViT with the names, layout and initial weights of timm's VisionTransformer. A matrix product of the patches replaces
    the convolution."""

    def __init__(self, channels, height, width, classes, patch=4, layers=2, heads=2, wide=8):
        super().__init__()
        self.patch = patch
        self.cls_token = nn.Parameter(torch.zeros(1, 1, wide))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + height // patch * (width // patch), wide))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels, wide, patch, patch)})
        self.blocks = nn.ModuleList(VitBlock(wide, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(wide, eps=1e-6)
        self.head = nn.Linear(wide, classes)
        torch.manual_seed(42)
        self.patch_embed["proj"].reset_parameters()
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images):
        n, channels, height, width = images.shape
        squares = images.view(n, channels, height // self.patch, self.patch, width // self.patch, self.patch)
        squares = squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        first = self.patch_embed["proj"]
        x = squares @ first.weight.flatten(1).T + first.bias
        x = torch.cat((self.cls_token.expand(n, 1, -1), x), 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def closed_form(shape, offset):
    n = torch.Size(shape).numel()
    return (torch.arange(n, dtype=torch.float64) + offset).sin().mul(0.05).float().reshape(shape)


def mixed(shape, k):
    x = torch.arange(torch.Size(shape).numel()) + k * 7919 + 1
    x = x * 0x9E3779B1 % 2**32
    x = (x ^ (x >> 15)) * 0x85EBCA77 % 2**32
    x = x ^ (x >> 13)
    return ((x >> 8).double() / 2**23 - 1).mul(0.05).float().reshape(shape)


golden = {"torch": torch.__version__, "models": []}
for name, make, shape in [("mlp", Mlp, (1, 6, 5)), ("cnn", Cnn, (1, 9, 8)), ("resnet18", resnet(), (3, 8, 8)),
                          ("resnet34", resnet(blocks=(3, 4, 6, 3)), (3, 8, 8)), ("resnet50", resnet(blocks=(3, 4, 6, 3), bottlenecks=True), (3, 8, 8)),
                          ("resnet20", resnet(first=16, blocks=(3, 3, 3), convolution=False), (3, 8, 8)),
                          ("resnet56", resnet(first=16, blocks=(9, 9, 9), convolution=False), (3, 8, 8)), ("vit", Vit, (3, 8, 12))]:
    torch.manual_seed(42)
    model = make(*shape, 10)
    seeded = {k: [float(v).hex() for v in p.detach().flatten()[[0, -1]]] for k, p in model.named_parameters()}
    with torch.no_grad():
        for k, (parameter, p) in enumerate(model.named_parameters()):
            is_scale = p.dim() == 1 and parameter.endswith(".weight")  # the scale of a batch norm or layer norm
            p.copy_(mixed(p.shape, k) + (1 if is_scale else 0))
    images = (mixed((4, *shape), 1000) * 20).double()
    model.double()
    entry = {
        "name": name, "channels": shape[0], "height": shape[1], "width": shape[2], "seeded": seeded,
        "parameters": [[k, list(p.shape)] for k, p in model.named_parameters()],
        "buffers": [k for k, _ in model.named_buffers()],
        "train": model.train()(images).flatten().tolist(),
        "eval": model.eval()(images).flatten().tolist(),
    }
    golden["models"].append(entry)
gpt = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocabulary": 11, "positions": 6}
model = Gpt(*gpt.values())
with torch.no_grad():
    for k, (parameter, p) in enumerate(model.named_parameters()):
        p.copy_(20 * closed_form(p.shape, k) + (1 if ".ln_" in parameter and parameter.endswith(".weight") else 0))
tokens = torch.arange(10).mul(7).remainder(11).reshape(2, 5)
golden["gpt"] = {**gpt, "parameters": [[k, list(p.shape)] for k, p in model.named_parameters()], "logits": model.double()(tokens).flatten().tolist()}
llama = {"n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 16, "n_inner": 24, "vocabulary": 11}
model = Llama(*llama.values())
with torch.no_grad():
    for k, (parameter, p) in enumerate(model.named_parameters()):
        p.copy_(10 * closed_form(p.shape, k) + (1 if "norm" in parameter else 0))
golden["llama"] = {**llama, "parameters": [[k, list(p.shape)] for k, p in model.named_parameters()], "logits": model.double()(tokens).flatten().tolist()}
path = pathlib.Path(__file__).with_name("golden.json")
path.write_text(json.dumps(golden, separators=(",", ":")).replace("},", "},\n") + "\n")
