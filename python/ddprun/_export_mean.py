"""Warns about a loss that is not a mean over the samples.

ddptrain splits a global batch over ranks and micro-batches, and averages their gradients, weighted by their numbers of samples.
This average equals the gradient of the whole batch only if the loss is a mean over the samples. A loss can also be a sum, or a
mean over the unmasked tokens of a batch. With such a loss, training would depend on the number of workers and on the
micro-batch size.
"""

import copy

import torch

from ddprun._export_check import SEED, Borrowed
from ddprun._export_subject import Step, Subject, cut
from ddprun.graph import Refused


def loss_and_gradients(subject: Subject, batch: dict) -> tuple[float, dict, bool]:
    """Runs one step in evaluation mode, where samples are independent of each other. Returns the loss, the gradients by
    parameter name, and True if random numbers were drawn."""
    alike = copy.copy(subject)
    with Borrowed(subject) as alike.model:
        step = Step(alike, figures=False).train(False)
        torch.manual_seed(SEED)
        before = torch.get_rng_state()
        loss = step(*(tensor.clone() for tensor in batch.values()))[0]
        if loss.requires_grad:
            loss.backward()
        gradients = {name: tensor.grad.double() for name, tensor in alike.model.named_parameters() if tensor.grad is not None}
        return loss.item(), gradients, not torch.equal(before, torch.get_rng_state())


def difference_from_mean(subject: Subject, batch: dict) -> str:
    """Compares the loss and the gradients of a whole batch with the weighted mean over its two parts. Returns a description of
    the difference, or "" if they are equal.

    The batch is also split into parts of unequal sizes, since a wrong loss can pass the test with two equal halves by chance.
    Gradients are compared too, because they can be wrong even if the loss is correct, for example for an embedding with
    scale_grad_by_freq.
    """
    whole = len(next(iter(batch.values())))
    loss, gradients, draws = loss_and_gradients(subject, batch)
    if draws:
        return ""  # each part would draw other random numbers than the whole batch, so the results cannot be compared
    for first in sorted({1, whole // 3, whole // 2} - {0}):
        parts = [(first, cut(batch, first)), (whole - first, {name: tensor[first:].clone() for name, tensor in batch.items()})]
        results = [(size, *loss_and_gradients(subject, part)) for size, part in parts]
        mean = sum(size * found for size, found, _, _ in results) / whole
        if not abs(mean - loss) <= 1e-3 * max(abs(mean), abs(loss), 1e-6):
            return f"{loss:.6g} for {whole} samples, but {mean:.6g} as the mean over parts of {first} and {whole - first} samples"
        for name, gradient in gradients.items():
            sums = sum(size * found.get(name, torch.zeros_like(gradient)) for size, _, found, _ in results) / whole
            if (sums - gradient).abs().max() > 1e-3 * max(gradient.abs().max().item(), sums.abs().max().item(), 1e-9):
                return f"the gradient of '{name}' differs from the mean of its gradients for {first} and {whole - first} samples"
    return ""


IGNORED = -100  # the label that PyTorch's cross entropy ignores by default


def with_ignored_labels(subject: Subject) -> dict | None:
    """Returns the batch with half of the first sample's labels set to IGNORED. Returns None if its samples do not have several
    labels."""
    given = {*subject.by_place, *subject.by_name}
    for name, tensor in subject.batch.items():
        if name not in given and tensor.dtype == torch.int64 and tensor.dim() >= 2 and tensor[0].numel() >= 2:
            changed = tensor.clone()
            changed[0].view(-1)[: tensor[0].numel() // 2] = IGNORED
            return {**subject.batch, name: changed}
    return None


def warning_of(subject: Subject) -> str:
    """Returns the text of the warning, or an empty string if the loss is a mean over the samples."""
    advice = "the gradients will depend on the number of workers and on micro_batch_size"
    try:
        if found := difference_from_mean(subject, subject.batch):
            return f"the loss is not a mean over the samples: {found}; {advice}"
        ignoring = with_ignored_labels(subject)
        if ignoring is not None and (found := difference_from_mean(subject, ignoring)):
            return (f"the loss is not a mean over the samples where labels are {IGNORED}: {found}; {advice}. Take the mean over the counted "
                    "labels of each sample, then the mean over the samples")
    except Refused:
        raise
    except Exception:
        pass  # The model rejects the smaller batches or the changed labels of this test, so the test does not apply.
    return ""
