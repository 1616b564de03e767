"""Computes mixup (data.augment.mixup) like ddptrain. The weight of a sample's own pixels is drawn from a Beta distribution with
the generator Philox 4x32-10, as in trainer/data/sampler.cpp."""

import math
from collections.abc import Iterator

import torch

_WORD = (1 << 32) - 1


def philox(seed: int, subsequence: int, offset: int) -> Iterator[int]:
    """Yields the 32-bit words of the Philox generator of Salmon et al. 2011, with the same layout of the counter and the key
    as in PyTorch."""
    while True:
        counter = [offset & _WORD, offset >> 32, subsequence & _WORD, subsequence >> 32]
        key = [seed & _WORD, seed >> 32]
        for _ in range(10):
            one, two = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
            counter = [two >> 32 ^ counter[1] ^ key[0], two & _WORD, one >> 32 ^ counter[3] ^ key[1], one & _WORD]
            key = [(key[0] + 0x9E3779B9) & _WORD, (key[1] + 0xBB67AE85) & _WORD]
        yield from counter
        offset += 1


def log_of_gamma(numbers: Iterator[float], shape: float) -> float:
    """Draws a Gamma variate (Marsaglia and Tsang 2000) and returns its logarithm."""
    if shape < 1:
        larger = log_of_gamma(numbers, shape + 1)
        return larger + math.log(next(numbers)) / shape
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        radius = math.sqrt(-2 * math.log(next(numbers)))
        x = radius * math.cos(2 * math.pi * next(numbers))
        t = 1 + c * x
        v = t * t * t
        if v > 0 and math.log(next(numbers)) < x * x / 2 + d - d * v + d * math.log(v):
            return math.log(d * v)


def own_part(alpha: float, seed: int, epoch: int, position: int) -> float:
    numbers = ((word + 0.5) / 2 ** 32 for word in philox(seed ^ 0x6d6978757000, position, epoch << 16))
    one = log_of_gamma(numbers, alpha)
    return 1 / (1 + math.exp(log_of_gamma(numbers, alpha) - one))


def mixed(images: torch.Tensor, labels: torch.Tensor, batch: torch.Tensor, places: torch.Tensor, parts: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the images at these positions of a global batch and the probabilities of their classes. Each image is mixed with
    the image before it."""
    share, before = batch[places], batch[(places - 1) % len(batch)]
    own = parts[places]
    factor = own.view(-1, *[1] * (images.dim() - 1))
    certain = torch.nn.functional.one_hot(labels, classes).float()
    return (images[share] * factor + images[before] * (1 - factor),
            certain[share] * own[:, None] + certain[before] * (1 - own[:, None]))
