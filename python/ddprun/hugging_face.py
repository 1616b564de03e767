"""Creates the dict that build() would return, for a model from Hugging Face's transformers: python -m ddprun.export --hf
config.json.

"architectures" in config.json contains the name of the model's class. The training task is chosen by this class. If the folder
of config.json also has weights, as written by save_pretrained(), the model starts with them. Otherwise the weights are
initialized at random from the seed."""

import pathlib

import torch
from torch.nn import functional as F

from ddprun.graph import Refused

SAMPLES = 8
TOKENS = 128
IGNORED = -100  # the loss ignores labels with this value, as in transformers


def built_from(source: pathlib.Path, tokens: int | None = None, samples: int | None = None, seed: int = 0) -> dict:
    """Returns the dict with the keys of build(). `tokens` is the number of tokens in each text sample. Raises Refused."""
    file = source / "config.json" if source.is_dir() else source
    if not file.is_file():
        raise Refused(f"{file} is not a file")
    try:
        import transformers
    except ImportError as missing:
        raise Refused(f"--hf needs the package transformers: {missing}") from missing
    try:
        config = transformers.AutoConfig.from_pretrained(file)
    except Exception as error:
        raise Refused(f"transformers cannot read the config: {' '.join(str(error).split())[:300]}") from error
    name = (getattr(config, "architectures", None) or [""])[0]
    kind = next((kind for ending, kind in KINDS.items() if name.endswith(ending)), None)
    if not hasattr(transformers, name or "-"):
        raise Refused(f"\"architectures\" in the config names {name or 'no class'}; expected a class of transformers {transformers.__version__}")
    if kind is None:
        raise Refused(f"the model is a {name}; --hf supports classes whose names end in {', '.join(KINDS)}. For another class, write a build() function")
    made = getattr(transformers, name)
    config.use_cache = False  # training does not need the cache, which only makes text generation faster
    torch.manual_seed(seed)
    has_weights = source.is_dir() and any(source.glob("*.safetensors"))
    model = made.from_pretrained(source, config=config, dtype=torch.float32) if has_weights else made(config)
    return {"model": model, **kind(config, tokens, samples or SAMPLES, torch.Generator().manual_seed(seed))}


def _labels(config, samples: int, draw: torch.Generator) -> torch.Tensor:
    if config.num_labels < 2:
        raise Refused(f"num_labels in the config is {config.num_labels}; --hf supports classification with 2 or more labels. For regression, write a build() function")
    return torch.randint(config.num_labels, (samples,), generator=draw)


def _class_loss(output, batch):
    return F.cross_entropy(output.logits, batch["label"])


def _accuracy(output, batch):
    return (output.logits.argmax(1) == batch["label"]).float().mean()


def _text(config, tokens: int | None, samples: int, draw: torch.Generator) -> torch.Tensor:
    most = getattr(config, "max_position_embeddings", None) or TOKENS
    tokens = tokens or min(TOKENS, most)
    if not 2 <= tokens <= most:
        raise Refused(f"--tokens {tokens}: expected 2 to {most}, the number of positions of the model")
    return torch.randint(config.vocab_size, (samples, tokens), generator=draw)


def causal_language(config, tokens, samples, draw) -> dict:
    """Returns the task in which the model predicts each token from the tokens before it."""
    def loss(output, batch):
        return F.cross_entropy(output.logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())

    return {"batch": {"input_ids": _text(config, tokens, samples, draw)}, "loss": loss}


def masked_language(config, tokens, samples, draw) -> dict:
    """Returns the task in which the model predicts masked tokens. The loss of a sample is the mean over its masked tokens. All
    samples then have equal weights, so it does not matter how a batch is split among ranks."""
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
    mask[0, -1] = 0  # the last token of one text is masked, so that the example batch uses the mask
    return {"batch": {"input_ids": text, "attention_mask": mask, "label": _labels(config, samples, draw)},
            "loss": _class_loss, "figures": {"accuracy": _accuracy}}


def image_classes(config, tokens, samples, draw) -> dict:
    size = config.image_size
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    images = torch.randn(samples, config.num_channels, height, width, generator=draw)
    return {"batch": {"pixel_values": images, "label": _labels(config, samples, draw)}, "loss": _class_loss, "figures": {"accuracy": _accuracy}}


KINDS = {
    "LMHeadModel": causal_language,
    "ForCausalLM": causal_language,
    "ForMaskedLM": masked_language,
    "ForSequenceClassification": text_classes,
    "ForImageClassification": image_classes,
}
