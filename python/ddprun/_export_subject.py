"""Checks the dict that build() returned: the model, its example batch, its loss and its metrics. The class Step is the
computation that torch.export traces. export.py describes the keys of the dict."""

import inspect
import re

import torch

from ddprun import tensor_file
from ddprun.graph import Refused

RESERVED = {"event", "time_ns", "type", "step", "epoch", "samples"}  # kReservedMetricNames of common/base/metric.hpp


class Step(torch.nn.Module):
    """The computation that is traced. Its input is the batch. Its results are the loss and, in evaluation mode, the metrics."""

    def __init__(self, subject: "Subject", figures: bool):
        super().__init__()
        self.model = subject.model
        self._subject = subject
        self._with_metrics = figures

    def train(self, mode: bool = True):
        """Changes the mode of the model. Modules that build() put into evaluation mode, such as a frozen batch norm, stay in
        that mode."""
        super().train(mode)
        for name, part in self.model.named_modules():
            if name in self._subject.kept_in_evaluation:
                part.training = False
        return self

    def forward(self, *tensors):
        subject = self._subject
        batch = dict(zip(subject.batch, tensors))
        output = self.model(*(batch[name] for name in subject.by_place), **{name: batch[name] for name in subject.by_name})
        results = [subject.loss(output, batch)]
        if self._with_metrics:
            results += [figure(output, batch) for figure in subject.figures.values()]
        return tuple(results)


class Subject:
    """The result of the user's function build(). It has passed all checks."""

    def __init__(self, built):
        if not isinstance(built, dict):
            raise Refused(f"build() returned {type(built).__name__}; expected a dict with the keys 'model', 'batch' and 'loss'")
        unknown = built.keys() - {"model", "batch", "loss", "figures", "inputs"}
        missing = {"model", "batch", "loss"} - built.keys()
        if unknown or missing:
            raise Refused("; ".join([f"build() does not return the key '{key}'" for key in sorted(missing)] +
                                    [f"build() returns the unknown key '{key}'" for key in sorted(unknown)]))
        self.model, self.batch, self.loss = built["model"], built["batch"], built["loss"]
        self.figures = built.get("figures", {})
        if not isinstance(self.model, torch.nn.Module):
            raise Refused(f"'model' is of type {type(self.model).__name__}; expected a torch.nn.Module")
        # If the whole model is in evaluation mode, it was perhaps just loaded that way, so all of it is trained. If only some
        # modules are in evaluation mode, the user has frozen them, so they stay in that mode.
        self.kept_in_evaluation = {name for name, part in self.model.named_modules() if not part.training} if self.model.training else set()
        self.used_by_loss = False  # True if the loss uses weights of the model; such a loss does not read the weights of a copy
        self._check_batch()
        self._check_model()
        self._choose_inputs(built.get("inputs"))

    def _check_batch(self) -> None:
        if not isinstance(self.batch, dict) or not self.batch:
            raise Refused("'batch' is not a dict of tensors, or is empty")
        for name, tensor in self.batch.items():
            if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
                raise Refused(f"'{name}' in the batch is not a tensor whose first dimension is the sample index")
            if tensor.dtype not in tensor_file.DTYPES:
                raise Refused(f"'{name}' in the batch is {tensor.dtype}, a type that a data file cannot contain")
        # Data files contain contiguous tensors, so the model is traced with contiguous tensors.
        self.batch = {name: tensor.contiguous() for name, tensor in self.batch.items()}
        sizes = {name: len(tensor) for name, tensor in self.batch.items()}
        if len(set(sizes.values())) != 1 or min(sizes.values()) < 2:
            raise Refused(f"expected the same number of samples, 2 or more, as the first dimension of each tensor in the batch; found {sizes}")

    def _check_model(self) -> None:
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if torch.nn.parameter.is_lazy(tensor):
                raise Refused(f"'{name}' of the model has no shape before the first forward pass (a lazy module); "
                              "run one batch through the model in build()")
            if tensor.device.type != "cpu":
                raise Refused(f"'{name}' of the model is on {tensor.device}; move it to the CPU before the export")
            if tensor.dtype not in tensor_file.DTYPES:
                raise Refused(f"'{name}' of the model is {tensor.dtype}, a type that a checkpoint cannot contain")
        for name, tensor in self.model.named_parameters():
            if tensor.requires_grad and tensor.dtype != torch.float32:
                raise Refused(f"parameter '{name}' is {tensor.dtype}; ddptrain trains torch.float32 parameters only")
            if not tensor.is_contiguous():
                raise Refused(f"'{name}' is not contiguous, which checkpoints require; "
                              "call model.to(memory_format=torch.contiguous_format) before the export, or make it contiguous")
            if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                raise Refused(f"a hook is registered on the gradient of '{name}', but the exported model would not contain the hook; remove the hook")
        if not any(tensor.requires_grad for tensor in self.model.parameters()):
            raise Refused("no parameter of the model requires a gradient, so the model cannot be trained")
        trained = {name for name, tensor in self.model.named_parameters() if tensor.requires_grad}
        require_own_memory([*self.model.named_parameters(), *self.model.named_buffers()], trained)
        for name in self.figures:
            if name == "loss" or name in RESERVED or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
                raise Refused(f"'figures' names a metric '{name}'; expected an identifier of at most 64 characters that is not reserved")

    def _choose_inputs(self, inputs) -> None:
        self.by_place, self.by_name = list(inputs or ()), []
        if inputs is None:
            arguments = inspect.signature(self.model.forward).parameters.values()
            self.by_name = [argument.name for argument in arguments if argument.name in self.batch]
            needed = [argument.name for argument in arguments if argument.default is argument.empty and
                      argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)]
        else:
            needed = self.by_place
        missing = [name for name in needed if name not in self.batch]
        if missing or not self.by_place + self.by_name:
            raise Refused(f"forward() of the model takes {', '.join(needed) or 'no named argument'}, but the batch has "
                          f"{', '.join(self.batch)}; use the same names, or list the tensors to pass in 'inputs'")


def require_own_memory(tensors: list[tuple[str, torch.Tensor]], changing: set[str]) -> None:
    """Refuses two tensors that share memory if training changes one of them. The graph would treat them as independent tensors.
    Several names for the same tensor are allowed."""
    first = {}
    for name, tensor in tensors:
        other, same_one = first.setdefault(tensor.untyped_storage().data_ptr(), (name, tensor))
        if tensor.numel() > 0 and tensor is not same_one and not changing.isdisjoint({name, other}):
            raise Refused(f"'{name}' and '{other}' are two tensors that share memory, and one of them changes; "
                          "use the same parameter or buffer in both places")


def cut(batch: dict, size: int) -> dict:
    return {name: tensor[:size].clone() for name, tensor in batch.items()}
