"""A model of Hugging Face's transformers as what a build() returns: python -m ddprun.export --hf config.json.

The config says which class it is ("architectures"), and the class what is learnt. A folder that has weights beside its config.json, as
save_pretrained() writes it, begins with these; otherwise they are drawn from the seed.
"""

import pathlib

import torch
from torch.nn import functional as F

from ddprun.graph import Refused

SAMPLES = 8
TOKENS = 128
IGNORED = -100  # a label that does not count, as transformers has it


def built_from(source: pathlib.Path, tokens: int | None = None, samples: int | None = None, seed: int = 0) -> dict:
    """`tokens`: of a sample of text. Throws Refused."""
    file = source / "config.json" if source.is_dir() else source
    if not file.is_file():
        raise Refused(f"{file} is no file")
    try:
        import transformers
    except ImportError as missing:
        raise Refused(f"--hf needs the package transformers: {missing}") from missing
    try:
        config = transformers.AutoConfig.from_pretrained(file)
    except Exception as error:
        raise Refused(f"transformers does not read it: {' '.join(str(error).split())[:300]}") from error
    name = (getattr(config, "architectures", None) or [""])[0]
    kind = next((kind for ending, kind in KINDS.items() if name.endswith(ending)), None)
    if not hasattr(transformers, name or "-"):
        raise Refused(f"its \"architectures\" name {name or 'nothing'}, which is no class of transformers {transformers.__version__}")
    if kind is None:
        raise Refused(f"it is a {name}; --hf knows what is learnt of classes that end in {', '.join(KINDS)}. For another one write a build()")
    made = getattr(transformers, name)
    config.use_cache = False  # what generation keeps from token to token
    torch.manual_seed(seed)
    has_weights = source.is_dir() and any(source.glob("*.safetensors"))
    model = made.from_pretrained(source, config=config, dtype=torch.float32) if has_weights else made(config)
    return {"model": model, **kind(config, tokens, samples or SAMPLES, torch.Generator().manual_seed(seed))}


def _labels(config, samples: int, draw: torch.Generator) -> torch.Tensor:
    if config.num_labels < 2:
        raise Refused(f"it has {config.num_labels} label; --hf knows classes, so 2 or more. For numbers write a build()")
    return torch.randint(config.num_labels, (samples,), generator=draw)


def _class_loss(output, batch):
    return F.cross_entropy(output.logits, batch["label"])


def _accuracy(output, batch):
    return (output.logits.argmax(1) == batch["label"]).float().mean()


def _text(config, tokens: int | None, samples: int, draw: torch.Generator) -> torch.Tensor:
    most = getattr(config, "max_position_embeddings", None) or TOKENS
    tokens = tokens or min(TOKENS, most)
    if not 2 <= tokens <= most:
        raise Refused(f"--tokens {tokens} is not between 2 and the {most} positions of the model")
    return torch.randint(config.vocab_size, (samples, tokens), generator=draw)


def causal_language(config, tokens, samples, draw) -> dict:
    """Each token from those before it."""
    def loss(output, batch):
        return F.cross_entropy(output.logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())

    return {"batch": {"input_ids": _text(config, tokens, samples, draw)}, "loss": loss}


def masked_language(config, tokens, samples, draw) -> dict:
    """The tokens under the mask. A sample's loss is the mean over its own, so that samples weigh alike however a batch is cut."""
    def loss(output, batch):
        each = F.cross_entropy(output.logits.flatten(0, 1), batch["label"].flatten(), ignore_index=IGNORED, reduction="none")
        counts = (batch["label"] != IGNORED).sum(1).clamp(min=1)
        return (each.view(batch["label"].shape).sum(1) / counts).mean()

    text = _text(config, tokens, samples, draw)
    masked = torch.rand(text.shape, generator=draw) < 0.15
    masked[:, 0] = True
    return {"batch": {"input_ids": text, "attention_mask": torch.ones_like(text), "label": text.masked_fill(~masked, IGNORED)}, "loss": loss}


def text_classes(config, tokens, samples, draw) -> dict:
    text = _text(config, tokens, samples, draw)
    mask = torch.ones_like(text)
    mask[0, -1] = 0  # texts have different lengths
    return {"batch": {"input_ids": text, "attention_mask": mask, "label": _labels(config, samples, draw)},
            "loss": _class_loss, "figures": {"accuracy": _accuracy}}


def picture_classes(config, tokens, samples, draw) -> dict:
    size = config.image_size
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    pictures = torch.randn(samples, config.num_channels, height, width, generator=draw)
    return {"batch": {"pixel_values": pictures, "label": _labels(config, samples, draw)}, "loss": _class_loss, "figures": {"accuracy": _accuracy}}


KINDS = {
    "LMHeadModel": causal_language,
    "ForCausalLM": causal_language,
    "ForMaskedLM": masked_language,
    "ForSequenceClassification": text_classes,
    "ForImageClassification": picture_classes,
}
