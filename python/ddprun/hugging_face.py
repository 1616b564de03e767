"""Makes the dict that build() returns for a model of Hugging Face's transformers: python -m ddprun.export --hf config.json.

The config names the model's class ("architectures"), and the class determines the training task. If the folder of config.json has weights, as written
by save_pretrained(), the model begins with them. Otherwise they are drawn from the seed.
"""

import pathlib

import torch
from torch.nn import functional as F

from ddprun.graph import Refused

SAMPLES = 8
TOKENS = 128
IGNORED = -100  # the label that transformers ignores


def built_from(source: pathlib.Path, tokens: int | None = None, samples: int | None = None, seed: int = 0) -> dict:
    """`tokens`: number of tokens per sample of text. Raises Refused."""
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
    config.use_cache = False  # its cache is for generation only
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
    """Predicts each token from those before it."""
    def loss(output, batch):
        return F.cross_entropy(output.logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())

    return {"batch": {"input_ids": _text(config, tokens, samples, draw)}, "loss": loss}


def masked_language(config, tokens, samples, draw) -> dict:
    """Predicts the masked tokens. A sample's loss is the mean over its own tokens. So samples have equal weights, however a batch is split."""
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
