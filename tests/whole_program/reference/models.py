"""The models of ddptrain (model.type), written in plain torch.nn. Parameters and buffers have the same names as in ddptrain."""

import fnmatch

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, hidden: list[int], inputs: int, classes: int):
        super().__init__()
        widths = [inputs, *hidden, classes]
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
    def __init__(self, inputs: int, outputs: int, stride: int, convolution: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, outputs - inputs
        self.downsample = None
        if convolution and (stride != 1 or inputs != outputs):
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.downsample is None and self.added:
            x = nn.functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.added // 2, self.added // 2))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return torch.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


RESNETS = {"resnet18": (64, (2, 2, 2, 2)), "resnet34": (64, (3, 4, 6, 3)), "resnet50": (64, (3, 4, 6, 3)), "resnet20": (16, (3, 3, 3)), "resnet56": (16, (9, 9, 9))}


class Resnet(nn.Module):
    """The residual network of He et al. 2016, with a stem for small images: a 3x3 convolution with stride 1 and no max-pool."""

    def __init__(self, name: str, channels: int, classes: int):
        super().__init__()
        first, blocks = RESNETS[name]
        self.conv1 = nn.Conv2d(channels, first, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        inputs, self.stages = first, len(blocks)
        for stage, count in enumerate(blocks):
            width, layer = first << stage, []
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                layer.append(Bottleneck(inputs, width, stride) if name == "resnet50" else Block(inputs, width, stride, convolution=first == 64))
                inputs = 4 * width if name == "resnet50" else width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, images):
        x = torch.relu(self.bn1(self.conv1(images)))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1))


class Conv1d(nn.Module):
    """The Conv1D of Hugging Face, which is a linear layer with a transposed weight."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight).view(*x.size()[:-1], -1)


def documents(tokens, end: int | None):
    """Returns the attention mask, and the position of each token in its document. A document ends with the token `end`. If
    `end` is None, each sample is one document, and the mask is None."""
    if end is None:
        return None, torch.arange(tokens.size(1), device=tokens.device)
    mask = torch.zeros(tokens.size(0), 1, tokens.size(1), tokens.size(1), dtype=torch.bool, device=tokens.device)
    places = torch.zeros_like(tokens)
    for row, window in enumerate(tokens.tolist()):
        begin = 0
        for place, token in enumerate(window):
            mask[row, 0, place, begin:place + 1] = True
            places[row, place] = place - begin
            if token == end:
                begin = place + 1
    return mask, places


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1d(width, 3 * width), "c_proj": Conv1d(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1d(width, 4 * width), "c_proj": Conv1d(4 * width, width)})

    def forward(self, x, mask):
        n, positions, width = x.shape
        q, k, v = (part.view(n, positions, self.heads, -1).transpose(1, 2) for part in self.attn["c_attn"](self.ln_1(x)).split(width, 2))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.attn["c_proj"](mixed.transpose(1, 2).reshape(n, positions, width))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with the parameter names of Hugging Face's GPT2LMHeadModel. Only the output layer has no name, because it shares
    the weight of the token embedding."""

    def __init__(self, settings: dict, vocabulary: int, positions: int, end: int | None):
        super().__init__()
        width, self.end = settings["n_embd"], end
        blocks = nn.ModuleList(GptBlock(width, settings["n_head"]) for _ in range(settings["n_layer"]))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(positions, width), "h": blocks,
                                          "ln_f": nn.LayerNorm(width)})
        for embedding in (self.transformer["wte"], self.transformer["wpe"]):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        mask, places = documents(tokens, self.end)
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](places)
        for block in self.transformer["h"]:
            x = block(x, mask)
        return nn.functional.linear(self.transformer["ln_f"](x), self.transformer["wte"].weight)


class VitBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, x):
        n, positions, width = x.shape
        q, k, v = self.attn["qkv"](self.norm1(x)).reshape(n, positions, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.attn["proj"](mixed.transpose(1, 2).reshape(n, positions, width))
        return x + self.mlp["fc2"](nn.functional.gelu(self.mlp["fc1"](self.norm2(x))))


class Vit(nn.Module):
    """A vision transformer (ViT) with the parameter names and operators of VisionTransformer in timm."""

    def __init__(self, settings: dict, size: int, channels: int, classes: int):
        super().__init__()
        width, patch = settings["n_embd"], settings.get("patch_size", 4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 1e-6)
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, width) * 0.02)
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels, width, patch, patch)})
        self.blocks = nn.ModuleList(VitBlock(width, settings["n_head"]) for _ in range(settings["n_layer"]))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, width: int, heads: int, shared_heads: int, inner: int, epsilon: float):
        super().__init__()
        self.heads, self.shared_heads, self.head_width = heads, shared_heads, width // heads
        shared = shared_heads * self.head_width
        self.self_attn = nn.ModuleDict({name: nn.Linear(inputs, outputs, bias=False) for name, inputs, outputs in (
            ("q_proj", width, width), ("k_proj", width, shared), ("v_proj", width, shared), ("o_proj", width, width))})
        self.mlp = nn.ModuleDict({name: nn.Linear(inputs, outputs, bias=False) for name, inputs, outputs in (
            ("gate_proj", width, inner), ("up_proj", width, inner), ("down_proj", inner, width))})
        self.input_layernorm = nn.RMSNorm(width, eps=epsilon)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=epsilon)

    def forward(self, x, cos, sin, mask):
        n, positions, width = x.shape
        y = self.input_layernorm(x)
        q, k, v = (self.self_attn[name](y).view(n, positions, heads, self.head_width).transpose(1, 2) for name, heads in (
            ("q_proj", self.heads), ("k_proj", self.shared_heads), ("v_proj", self.shared_heads)))
        mixed = nn.functional.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, attn_mask=mask, is_causal=mask is None,
                                                           enable_gqa=self.heads != self.shared_heads)
        x = x + self.self_attn["o_proj"](mixed.transpose(1, 2).reshape(n, positions, width))
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](nn.functional.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


class Llama(nn.Module):
    """Llama with the parameter names of Hugging Face's LlamaForCausalLM."""

    def __init__(self, settings: dict, vocabulary: int, end: int | None):
        super().__init__()
        width, heads, self.end = settings["n_embd"], settings["n_head"], end
        self.head_width, self.theta = width // heads, settings.get("rope_theta", 10000)
        epsilon = settings.get("rms_norm_eps", 1e-6)
        layers = nn.ModuleList(LlamaLayer(width, heads, settings.get("n_kv_head") or heads, settings["n_inner"], epsilon) for _ in range(settings["n_layer"]))
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(vocabulary, width), "layers": layers, "norm": nn.RMSNorm(width, eps=epsilon)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Embedding)):
                nn.init.normal_(layer.weight, std=0.02)

    def forward(self, tokens):
        x = self.model["embed_tokens"](tokens)
        mask, places = documents(tokens, self.end)
        exponents = torch.arange(0, self.head_width, 2, dtype=x.dtype, device=x.device) / self.head_width
        angles = places.to(x.dtype)[..., None] * (1 / self.theta ** exponents)
        both = torch.cat((angles, angles), dim=-1)
        if self.end is not None:
            both = both.unsqueeze(1)  # the rotation angles are the same for all heads
        cos, sin = both.cos(), both.sin()
        for layer in self.model["layers"]:
            x = layer(x, cos, sin, mask)
        return self.lm_head(self.model["norm"](x))


class LoraLinear(nn.Module):
    """LoRA, like lora.Linear in peft without dropout. The wrapped layer is the attribute `layer`. The parameters of the update
    have the same names as in peft."""

    def __init__(self, layer: nn.Module, settings: dict):
        super().__init__()
        self.layer = layer
        outputs, inputs = layer.weight.shape if isinstance(layer, nn.Linear) else reversed(layer.weight.shape)
        self.lora_A = nn.Linear(inputs, settings["rank"], bias=False)
        self.lora_B = nn.Linear(settings["rank"], outputs, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=5 ** 0.5)
        nn.init.zeros_(self.lora_B.weight)
        self.scaling = settings["alpha"] / settings["rank"]

    def forward(self, x):
        return self.layer(x) + self.lora_B(self.lora_A(x)) * self.scaling


def with_lora(model: nn.Module, settings: dict) -> nn.Module:
    """Replaces the layers that match settings["modules"] by layers with a LoRA update, and freezes all other parameters. In
    the parameter names of a replaced layer, ".layer" comes after the name of the layer."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, (nn.Linear, Conv1d)) and any(fnmatch.fnmatchcase(name, pattern) for pattern in settings["modules"]):
            parent, _, leaf = name.rpartition(".")
            parent = model.get_submodule(parent)
            if isinstance(parent, nn.ModuleDict):
                parent[leaf] = LoraLinear(layer, settings)
            else:
                setattr(parent, leaf, LoraLinear(layer, settings))
    return model


def make_model(settings: dict, size: int, classes: int = 10, channels: int = 1, end: int | None = None) -> nn.Module:
    """Builds the model that `settings` describes, which is the section "model" of a train.json.

    For images, `size` is their width and height. For a table, `size` is the number of columns, and `channels` is 0. For a
    language model, `size` is the number of tokens in a sample, `classes` is the size of the vocabulary, and `end` is the token
    that ends a document."""
    if settings["type"] == "gpt":
        return Gpt(settings, classes, size, end)
    if settings["type"] == "llama":
        return Llama(settings, classes, end)
    if settings["type"] == "vit":
        return Vit(settings, size, channels, classes)
    if settings["type"] == "mlp":
        return Mlp(settings["hidden"], size * size if channels else size, classes)
    return Cnn(size, classes) if settings["type"] == "cnn" else Resnet(settings["type"], channels, classes)
