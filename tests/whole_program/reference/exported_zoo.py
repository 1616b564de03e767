"""Test models for the exporter (test_exported_models.py), written in the style of user code. Each function returns a dict in
the form that ddprun.export requires."""

import pathlib

import torch
from torch import nn
from torch.nn import functional as F

SEED = 7


def _classifier(model: nn.Module, size: int, classes: int = 10) -> dict:
    draw = torch.Generator().manual_seed(5)
    return {
        "model": model,
        "batch": {"image": torch.randn(8, 1, size, size, generator=draw), "label": torch.randint(classes, (8,), generator=draw)},
        "inputs": ["image"],
        "loss": lambda output, batch: F.cross_entropy(output, batch["label"]),
        "figures": {"accuracy": lambda output, batch: (output.argmax(1) == batch["label"]).float().mean()},
    }


def mlp() -> dict:
    """Returns a model with dropout. Its random numbers depend only on the seed that ddptrain sets in each step."""
    torch.manual_seed(SEED)
    return _classifier(nn.Sequential(nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10)), 12)


def cnn() -> dict:
    torch.manual_seed(SEED)
    return _classifier(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 10)), 12)


def norm() -> dict:
    """Returns a model with batch norm, which changes its buffers in each forward pass. The first layer is frozen."""
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))
    model[0].requires_grad_(False)
    return _classifier(model, 12)


class Noisy(nn.Sequential):
    """A model that also draws random numbers in evaluation mode."""

    def forward(self, image):
        return super().forward(image + 0.1 * torch.randn_like(image))


def noise() -> dict:
    torch.manual_seed(SEED)
    return _classifier(Noisy(nn.Flatten(), nn.Linear(144, 10)), 12)


def flat_norm() -> dict:
    """Returns a model with batch norm over one value per channel and sample. Batch norm needs at least two values, so a
    training pass needs at least two samples."""
    torch.manual_seed(SEED)
    return _classifier(nn.Sequential(nn.Flatten(), nn.Linear(144, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)), 12)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        samples, length, width = x.shape
        q, k, v = (y.view(samples, length, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, 2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(samples, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A GPT whose token embedding and last layer share one tensor."""

    def __init__(self, words: int = 32, length: int = 12, width: int = 16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        with torch.no_grad():
            places = torch.arange(tokens.shape[1], device=tokens.device)
            scale = self.norm.weight.square().mean()
        x = self.words(tokens) * scale + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt() -> dict:
    torch.manual_seed(SEED)
    tokens = torch.randint(32, (8, 12), generator=torch.Generator().manual_seed(5))
    return {
        "model": Gpt(),
        "batch": {"tokens": tokens, "next": tokens.roll(-1, 1)},
        "loss": lambda output, batch: F.cross_entropy(output.flatten(0, 1), batch["next"].flatten()),
    }


# ---- models of other packages (test_exported_libraries.py) ----

HUGGING_FACE = {
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2},
    "bert": {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 16, "id2label": {"0": "a", "1": "b", "2": "c"},
             "label2id": {"a": 0, "b": 1, "c": 2}},
    "masked": {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2,
               "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 16},
    "vit": {"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 64, "image_size": 16, "patch_size": 4, "num_channels": 3, "id2label": {"0": "a", "1": "b", "2": "c"},
            "label2id": {"a": 0, "b": 1, "c": 2}},
}


def of_hugging_face(config: pathlib.Path) -> dict:
    from ddprun import hugging_face

    return hugging_face.built_from(config)


def of_timm() -> dict:
    """Returns a model of the library timm with batch norm and with operators that modify an argument in place."""
    import timm

    torch.manual_seed(SEED)
    draw = torch.Generator().manual_seed(5)
    model = timm.create_model("mobilenetv3_small_050", num_classes=3, in_chans=3, drop_rate=0.1)
    return {**_classifier(model, 32, 3), "batch": {"image": torch.randn(8, 3, 32, 32, generator=draw), "label": torch.randint(3, (8,), generator=draw)}}


# ---- models that cannot be exported ----


class BranchesInPython(nn.Linear):
    """Cannot be exported: a Python `if` depends on a computed value."""

    def forward(self, image):
        return super().forward(image if image.sum() > 0 else -image)


class Branches(nn.Linear):
    """Cannot be exported: a branch with torch.cond, which is an operator that has graphs as arguments."""

    def forward(self, image):
        return super().forward(torch.cond(image.sum() > 0, lambda x: x + 1, lambda x: x - 1, (image,)))


class Casts(nn.Linear):
    def forward(self, image):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(image).float()


class Counts(nn.Linear):
    """Cannot be exported: the batch size is used as a constant."""

    def forward(self, image):
        return super().forward(image.reshape(8, 4))


class Drifts(nn.Linear):
    """Cannot be exported correctly: the result depends on a counter outside the model. The graph would contain the value that
    the counter had when the model was traced."""

    runs = 0

    def forward(self, image):
        Drifts.runs += 1
        return super().forward(image) * Drifts.runs


class Moves(nn.Linear):
    """Cannot be exported: a momentum encoder that writes to a parameter, which is not a registered buffer."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.slow = nn.Linear(inputs, outputs).requires_grad_(False)

    def forward(self, image):
        with torch.no_grad():
            self.slow.weight.mul_(0.9).add_(self.weight * 0.1)
        return super().forward(image) - self.slow(image)


@torch.library.custom_op("zoo::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda context, gradient: gradient * 2)


class Owns(nn.Linear):
    """Returns a model that uses a custom operator."""

    def forward(self, image):
        return twice(super().forward(image))


class Flexes(nn.Linear):
    """Cannot be exported: attention in which a user's function changes the scores."""

    def forward(self, image):
        from torch.nn.attention.flex_attention import flex_attention

        x = image.view(-1, 1, 4, 1).expand(-1, 1, 4, 16)
        return super().forward(flex_attention(x, x, x, lambda score, *places: score * 2)[:, 0, :, 0])


class Halves(nn.Linear):
    """Cannot be exported: a layer with bfloat16 weights."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, dtype=torch.bfloat16)

    def forward(self, image):
        return super().forward(image.bfloat16()).float()


class Loops(nn.Linear):
    """Cannot be exported: a Python loop whose number of iterations depends on the data."""

    def forward(self, image):
        for _ in range(int(image.abs().max())):
            image = image * 0.5
        return super().forward(image)


class Repeats(nn.Linear):
    """Cannot be exported by ddprun: a loop that torch.export accepts, but converts to an operator that has graphs as
    arguments."""

    def forward(self, image):
        from torch._higher_order_ops.while_loop import while_loop

        return super().forward(while_loop(lambda x: x.abs().max() > 0.5, lambda x: (x * 0.5,), (image,))[0])


class Shares(nn.Linear):
    """Cannot be exported: two trained parameters share memory."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.other = nn.Linear(inputs, outputs)
        self.other.weight.data = self.weight.data

    def forward(self, image):
        return super().forward(image) + self.other(image)


class Mirrors(nn.Linear):
    """Cannot be exported: a buffer shares the memory of a parameter."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.register_buffer("seen", self.weight.detach())

    def forward(self, image):
        return super().forward(image) + image @ self.seen.t()


class Hooks(nn.Linear):
    """Cannot be exported: a hook replaces the gradient before the optimizer receives it."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.weight.register_hook(lambda gradient: gradient * 10)


class Warms(nn.Linear):
    """Cannot be exported: a warm-up whose step count is a plain attribute instead of a registered buffer."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.steps = 0

    def forward(self, image):
        if self.training:
            self.steps += 1
        return super().forward(image) * min(1.0, self.steps / 10)


class Alone(nn.Linear):
    """Cannot be exported: with a single sample, training mode fails. Evaluation mode does not fail, but computes a different
    function."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.norm = nn.BatchNorm1d(inputs)

    def forward(self, image):
        image = self.norm(image)
        return super().forward(image + (image.std(0, keepdim=True) if image.shape[0] > 1 else torch.zeros(1, image.shape[1])))


class Turned(nn.Linear):
    """Cannot be exported: a layer whose weight is not contiguous."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.weight = nn.Parameter(torch.randn(inputs, outputs).t())


class Leaves(nn.Linear):
    """Cannot be exported: some values are computed with numpy instead of PyTorch."""

    def forward(self, image):
        return super().forward(torch.from_numpy(image.detach().numpy() * 2))


def bad(model: str | nn.Module) -> dict:
    made = globals()[model](4, 3) if isinstance(model, str) else model
    draw = torch.Generator().manual_seed(5)
    return {
        "model": made,
        "batch": {"image": torch.randn(8, 4, generator=draw), "label": torch.randint(3, (8,), generator=draw)},
        "inputs": ["image"],
        "loss": lambda output, batch: F.cross_entropy(output, batch["label"]),
    }
