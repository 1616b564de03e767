"""Writes a PyTorch model as a folder that ddptrain trains without Python.

usage: python -m ddprun.export MY_MODEL.py:build -o MODEL.ddp [--batch N]
       python -m ddprun.export --hf CONFIG.json -o MODEL.ddp [--batch N] [--tokens N] [--seed N]

The second form is for a model of Hugging Face's transformers (hugging_face.py). build() returns a dict:
    model    a torch.nn.Module. Its forward() gets the tensors of `batch` that have the names of its arguments
    batch    an example: a dict of tensors whose first dimension counts the samples, 2 or more. Their order is the order of the data
    loss     a function of (output, batch): the mean loss, a float32 scalar
    figures  a dict of more such functions, for the metrics of evaluations; optional
    inputs   names of batch tensors that forward() gets by position, if its arguments have other names; optional

torch.export traces the forward pass in training and in evaluation mode. The written graph is then run and compared with the model, for several batch
sizes. Loss, gradients, buffers and metrics must be equal, or nothing is written. Equal means the same bits, or a difference of rounding only: PyTorch
has fused kernels (attention, the encoder's fast path) that sum in another order.
"""

import argparse
import copy
import hashlib
import importlib.util
import inspect
import json
import os
import pathlib
import re
import sys
import tempfile
import traceback

import torch

from ddprun import graph, hugging_face, tensor_file
from ddprun.graph import Refused

FORMAT = 1
SEED = 0  # seed of the checked batch's random numbers; ddptrain uses the same
RESERVED = {"event", "time_ns", "type", "step", "epoch", "samples"}  # kReservedFigureNames of common/base/figure.hpp
FILES = {"model.json", "train.graph", "eval.graph", "init.safetensors", "check.safetensors"}


class Step(torch.nn.Module):
    """The traced computation: from the batch to the loss, and to the metrics in evaluation mode."""

    def __init__(self, subject: "Subject", figures: bool):
        super().__init__()
        self.model = subject.model
        self._subject = subject
        self._figures = figures

    def train(self, mode: bool = True):
        """Keeps parts in evaluation mode that build() put there, such as a frozen batch norm."""
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
        if self._figures:
            results += [figure(output, batch) for figure in subject.figures.values()]
        return tuple(results)


class Subject:
    """The result of build(), checked."""

    def __init__(self, built):
        if not isinstance(built, dict):
            raise Refused(f"build() returned {type(built).__name__}; expected a dict with model, batch and loss")
        unknown = built.keys() - {"model", "batch", "loss", "figures", "inputs"}
        missing = {"model", "batch", "loss"} - built.keys()
        if unknown or missing:
            raise Refused("; ".join([f"build() does not return '{key}'" for key in sorted(missing)] +
                                    [f"build() returns an unknown '{key}'" for key in sorted(unknown)]))
        self.model, self.batch, self.loss = built["model"], built["batch"], built["loss"]
        self.figures = built.get("figures", {})
        if not isinstance(self.model, torch.nn.Module):
            raise Refused(f"its model is {type(self.model).__name__}, no torch.nn.Module")
        # A model may be in evaluation mode as a whole because it was loaded so. Single parts in evaluation mode are intended.
        self.kept_in_evaluation = {name for name, part in self.model.named_modules() if not part.training} if self.model.training else set()
        self.used_by_loss = False  # whether the loss uses weights of the model directly: then a copy of the model cannot replace it
        self._check_batch()
        self._check_model()
        self._choose_inputs(built.get("inputs"))

    def _check_batch(self) -> None:
        if not isinstance(self.batch, dict) or not self.batch:
            raise Refused("its batch is no dict of tensors")
        for name, tensor in self.batch.items():
            if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
                raise Refused(f"its batch has no tensor with a first dimension under '{name}'")
            if tensor.dtype not in tensor_file.DTYPES:
                raise Refused(f"'{name}' of its batch is {tensor.dtype}, which data files cannot hold")
        self.batch = {name: tensor.contiguous() for name, tensor in self.batch.items()}  # contiguous, as in data files
        sizes = {name: len(tensor) for name, tensor in self.batch.items()}
        if len(set(sizes.values())) != 1 or min(sizes.values()) < 2:
            raise Refused(f"the first dimension of each tensor of its batch must be the same number of samples, 2 or more; found {sizes}")

    def _check_model(self) -> None:
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if torch.nn.parameter.is_lazy(tensor):
                raise Refused(f"'{name}' of its model has no shape before the first forward pass (a lazy module); "
                              "run one batch through the model in build()")
            if tensor.device.type != "cpu":
                raise Refused(f"'{name}' of its model is on {tensor.device}; export it from the CPU")
            if tensor.dtype not in tensor_file.DTYPES:
                raise Refused(f"'{name}' of its model is {tensor.dtype}, which checkpoints cannot hold")
        for name, tensor in self.model.named_parameters():
            if tensor.requires_grad and tensor.dtype != torch.float32:
                raise Refused(f"'{name}' is trained as {tensor.dtype}; ddptrain trains float32 weights")
            if not tensor.is_contiguous():
                raise Refused(f"'{name}' is not stored row by row, as a checkpoint holds it; "
                              "export it after model.to(memory_format=torch.contiguous_format), or make it contiguous")
            if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                raise Refused(f"a hook is registered on the gradient of '{name}', and would be left out")
        if not any(tensor.requires_grad for tensor in self.model.parameters()):
            raise Refused("none of its parameters require gradients")
        trained = {name for name, tensor in self.model.named_parameters() if tensor.requires_grad}
        require_own_memory([*self.model.named_parameters(), *self.model.named_buffers()], trained)
        for name in self.figures:
            if name == "loss" or name in RESERVED or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
                raise Refused(f"a figure cannot be called '{name}'")

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
            raise Refused(f"its forward() takes {', '.join(needed) or 'no named argument'}, but its batch has "
                          f"{', '.join(self.batch)}; name them alike, or say in 'inputs' which tensors it gets")


def require_own_memory(tensors: list[tuple[str, torch.Tensor]], changing: set[str]) -> None:
    """Refuses two tensors that share memory if one of them changes, since the graph makes them independent. One tensor may have several names."""
    first = {}
    for name, tensor in tensors:
        other, same_one = first.setdefault(tensor.untyped_storage().data_ptr(), (name, tensor))
        if tensor.numel() > 0 and tensor is not same_one and not changing.isdisjoint({name, other}):
            raise Refused(f"'{name}' and '{other}' are two tensors in one memory, and one of them changes; "
                          "use one parameter or buffer in both places")


def first_lines(error: Exception) -> str:
    """The message of an error without its hints for further reading."""
    text = " ".join(str(error).split("The error above occurred")[0].split("For more information")[0].split())
    return text[:500] or type(error).__name__


def place_in_the_model(error: Exception) -> str:
    """The line of the user's code that caused the error: " (model.py:12)". Lines of PyTorch would not help a user."""
    own = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)
              if not frame.filename.startswith((*own, "<"))]
    return f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def traced(subject: Subject, training: bool) -> torch.export.ExportedProgram:
    step = Step(subject, figures=not training).train(training)
    size = torch.export.Dim("samples", min=1)
    before = {name: tensor.detach().clone() for name, tensor in [*step.named_parameters(), *step.named_buffers()]}
    try:
        program = torch.export.export(step, tuple(subject.batch.values()), strict=False,
                                      dynamic_shapes=(tuple({0: size} for _ in subject.batch),))
    except Exception as error:
        raise Refused(f"torch.export does not take it: {first_lines(error)}{place_in_the_model(error)}") from error
    with torch.no_grad():
        for name, tensor in [*step.named_parameters(), *step.named_buffers()]:
            tensor.copy_(before[name])
    return program


class Written:
    """Both graphs and all tensors, by kind and name."""

    def __init__(self, subject: Subject):
        model = subject.model
        self.subject = subject
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        changed = set()
        programs = {}
        for training in (True, False):
            programs[training] = traced(subject, training)
            changed |= changed_buffers(programs[training])
        lasting = model.state_dict(keep_vars=True)
        self.buffers, self.constants = {}, {}
        require_own_memory(list(model.named_buffers()), {name.removeprefix("model.") for name in changed})
        for name, tensor in model.named_buffers():
            kept = self.buffers if name in lasting or f"model.{name}" in changed else self.constants
            kept[name] = tensor
        self.texts = {training: self._text(program, training) for training, program in programs.items()}

    def _text(self, program: torch.export.ExportedProgram, training: bool) -> str:
        named, batch = {}, iter(self.subject.batch)
        for spec in program.graph_signature.input_specs:
            kind, target = spec.kind.name, spec.target
            if kind == "PARAMETER":
                found = ("parameter", target.removeprefix("model."))
            elif kind == "BUFFER":
                name = self._buffer(target.removeprefix("model."))
                found = ("buffer" if name in self.buffers else "constant", name)
            elif kind == "CONSTANT_TENSOR":
                tensor = program.constants[target]
                parameter = next((name for name, known in self.parameters.items() if known.data_ptr() == tensor.data_ptr() and
                                  known.shape == tensor.shape and known.requires_grad), None)  # which the loss uses directly
                found = ("parameter", parameter) if parameter else ("constant", f"{'train' if training else 'eval'}.{target}")
                if not parameter:
                    self.constants[found[1]] = tensor
            elif kind == "USER_INPUT":
                found = ("batch", next(batch))
            else:
                raise Refused(f"its graph takes {spec.arg.name}, a {kind}, which ddptrain does not have")
            named[spec.arg.name] = found
        return graph.text_of(program, named)

    def _buffer(self, target: str) -> str:
        """The first of a buffer's names."""
        if target in self.buffers or target in self.constants:
            return target
        same = dict(self.subject.model.named_buffers(remove_duplicate=False))[target]
        return next(name for name, tensor in [*self.buffers.items(), *self.constants.items()] if tensor is same)

    def tensors(self) -> dict[tuple[str, str], torch.Tensor]:
        """A copy of the model's state, tied parameters as one tensor."""
        copies, made = {}, {}
        for kind, tensors in (("parameter", self.parameters), ("buffer", self.buffers), ("constant", self.constants)):
            for name, tensor in tensors.items():
                if id(tensor) not in made:
                    made[id(tensor)] = tensor.detach().clone().requires_grad_(kind == "parameter" and tensor.requires_grad)
                copies[kind, name] = made[id(tensor)]
        return copies


def changed_buffers(program: torch.export.ExportedProgram) -> set[str]:
    """Buffers that the graph writes to: batch norm's statistics, and tensors that an operator changes in place."""
    signature = program.graph_signature
    targets = {spec.arg.name: spec.target for spec in signature.input_specs if spec.kind.name == "BUFFER"}
    changed = {spec.target for spec in signature.output_specs if spec.kind.name == "BUFFER_MUTATION"}
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            continue
        statistics = "batch_norm" in schema.name or "instance_norm" in schema.name
        for place, value in enumerate(node.args):
            written = schema.arguments[place].alias_info is not None and schema.arguments[place].alias_info.is_write
            if isinstance(value, torch.fx.Node) and value.name in targets and (written or statistics):
                changed.add(targets[value.name])
    return changed


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and tensor_bytes(a) == tensor_bytes(b)


def close(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Whether two tensors differ by rounding only: by at most 100 units in the last place of the largest magnitude, but never over 1 %."""
    if same(ours, theirs):
        return True
    if ours is None or theirs is None or ours.dtype != theirs.dtype or ours.shape != theirs.shape or not theirs.is_floating_point():
        return False
    a, b = ours.detach().double(), theirs.detach().double()
    if not torch.equal(torch.isfinite(a), torch.isfinite(b)):
        return False
    a, b = a[torch.isfinite(b)], b[torch.isfinite(b)]
    share = min(100 * torch.finfo(theirs.dtype).eps, 1e-2)
    return b.numel() == 0 or (a - b).abs().max().item() <= share * b.abs().max().item()


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    return hashlib.sha256(bytes(flat.view(torch.uint8).tolist()) if flat.numel() < 64 else _raw(flat)).digest()


def _raw(flat: torch.Tensor) -> memoryview:
    import ctypes

    return memoryview((ctypes.c_char * (flat.numel() * flat.element_size())).from_address(flat.data_ptr())).cast("B")


def require_scalar(name: str, value) -> None:
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise Refused(f"its {name} is {found}; expected a scalar tensor, the mean over the batch")
    if name == "loss" and value.dtype != torch.float32:
        raise Refused(f"its loss is {value.dtype}; expected torch.float32")


class Borrowed:
    """A model for one run: a copy, or the model itself, whose state is restored after the run.

    A copy protects the next run from what forward() does to the model. But a loss may use weights of the model through its closure, such as an L2
    penalty. With a copy it would use those of the original, so such a model is run itself."""

    def __init__(self, subject: "Subject"):
        self._original = subject.model if subject.used_by_loss else None
        self.model = self._original or copy.deepcopy(subject.model)

    def __enter__(self) -> torch.nn.Module:
        if self._original is not None:
            self._tensors = {name: tensor.detach().clone() for name, tensor in self._named()}
            self._plain = {module: {name: value for name, value in vars(module).items() if plain(value)} for module in self.model.modules()}
            self.model.zero_grad(set_to_none=True)
        return self.model

    def __exit__(self, *unused) -> None:
        if self._original is None:
            return
        with torch.no_grad():
            for name, tensor in self._named():
                tensor.copy_(self._tensors[name])
        for module, values in self._plain.items():
            vars(module).update(values)
        self.model.zero_grad(set_to_none=True)

    def _named(self) -> list:
        return [*self.model.named_parameters(), *self.model.named_buffers()]


def eager(subject: Subject, batch: dict, training: bool) -> tuple[list, dict]:
    """Runs the model itself: results, and gradients and buffers by name."""
    alike = copy.copy(subject)
    with Borrowed(subject) as alike.model:
        step = Step(alike, figures=not training).train(training)
        torch.manual_seed(SEED)
        with torch.set_grad_enabled(training):
            results = step(*(tensor.clone() for tensor in batch.values()))
        for name, value in zip(["loss", *subject.figures], results):
            require_scalar(name, value)
        if not training:
            return list(results), {}
        if not subject.used_by_loss and loss_uses(results[0], subject.model):
            subject.used_by_loss = True
            return eager(subject, batch, training)
        require_own_weights(results[0], alike.model)
        results[0].backward()
        after = {("gradient", name): gradient_of(name, tensor) for name, tensor in alike.model.named_parameters()}
        after |= {("buffer", name): tensor.detach().clone() for name, tensor in alike.model.named_buffers()}
        return [result.detach() for result in results], after


def gradient_of(name: str, tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.grad is not None and tensor.grad.layout != torch.strided:
        raise Refused(f"the gradient of '{name}' is sparse, and ddptrain sums dense gradients only; make the embedding with sparse=False")
    return tensor.grad


def require_settled(subject: Subject) -> None:
    """Refuses a model with a number that changes in each forward pass, such as a counter: it would be a constant in the graph. A number that only the
    first pass sets is accepted."""
    alike = copy.copy(subject)
    alike.model = copy.deepcopy(subject.model)
    step = Step(alike, figures=False).train(True)
    seen = []
    for _ in range(2):
        step(*(tensor.clone() for tensor in subject.batch.values()))
        seen.append({(module, name): value for module, part in alike.model.named_modules() for name, value in vars(part).items() if plain(value)})
    for place, value in seen[1].items():
        if seen[0].get(place, value) != value:
            module, name = place
            raise Refused(f"its forward pass changes '{module + '.' if module else ''}{name}' from {seen[0][place]!r} to {value!r}, which the graph "
                          "keeps as it is; make it a registered buffer")


def plain(value) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    return isinstance(value, (bool, int, float, str))


def leaves_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """The tensors for which the loss has gradients."""
    found, seen, left = [], set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
        left += [following for following, _ in node.next_functions]
    return found


def loss_uses(loss: torch.Tensor, model: torch.nn.Module) -> bool:
    own = {id(tensor) for tensor in model.parameters()}
    return any(id(leaf) in own for leaf in leaves_of(loss))


def require_own_weights(loss: torch.Tensor, model: torch.nn.Module) -> None:
    """Refuses trained tensors outside the model, such as weights of the loss: they would be constants in the graph."""
    own = {id(tensor) for tensor in model.parameters()}
    for leaf in leaves_of(loss):
        if id(leaf) not in own:
            raise Refused(f"its loss trains a tensor of shape {tuple(leaf.shape)} that is no parameter of its model; make it one")


def require_unwritten(written: "Written", tensors: dict, training: bool) -> None:
    """Refuses a forward pass that writes to a tensor other than a buffer: no checkpoint has it, and an undone step does not restore it."""
    kinds = [("parameter", written.parameters), ("constant", written.constants)] + ([] if training else [("buffer", written.buffers)])
    for kind, known in kinds:
        for name, tensor in known.items():
            if not same(tensors[kind, name], tensor):
                where = "in its forward pass" if training else "in evaluation mode"
                raise Refused(f"it writes to the {kind} '{name}' {where}; ddptrain keeps only what training writes to registered buffers")


def from_graph(written: Written, batch: dict, training: bool) -> tuple[list, dict]:
    tensors = written.tensors()
    torch.manual_seed(SEED)
    with torch.set_grad_enabled(training):
        results = graph.run(written.texts[training], tensors | {("batch", name): tensor.clone() for name, tensor in batch.items()})
    require_unwritten(written, tensors, training)
    if not training:
        return results, {}
    results[0].backward()
    after = {("gradient", name): tensors["parameter", name].grad for name, _ in written.subject.model.named_parameters()}
    after |= {("buffer", name): tensors["buffer", name] for name in written.buffers}
    return results, after


def compare(written: Written, size: int, training: bool) -> bool:
    """Whether the graph gives the same bits as the model. Raises Refused if they differ by more than rounding."""
    batch, where = cut(written.subject.batch, size), f"with {size} samples in {'training' if training else 'evaluation'} mode"
    theirs, state = eager(written.subject, batch, training)
    try:
        ours, own_state = from_graph(written, batch, training)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"its graph does not run {where}, but the model does: {first_lines(error)}") from error
    bits = True
    for name, a, b in zip(["loss", *written.subject.figures], theirs, ours):
        bits = bits and same(a, b)
        if not close(b, a):
            raise Refused(f"its graph has the {name} {b.item()!r} {where}, the model {a.item()!r}")
    for (kind, name), tensor in own_state.items():
        bits = bits and same(tensor, state[kind, name])
        if not close(tensor, state[kind, name]):
            raise Refused(f"the {kind} of '{name}' differs between its graph and the model {where}"
                          if kind == "gradient" else f"the buffer '{name}' differs after its graph and after the model {where}")
    return bits


def sizes_of(subject: Subject, training: bool) -> list[int]:
    """Batch sizes to compare: the example's, and smaller ones that the model accepts, since a last batch may have any size."""
    whole = len(next(iter(subject.batch.values())))
    found = [whole]
    for size in sorted({whole - 1, whole // 2, 1} - {0, whole}, reverse=True):
        try:
            eager(subject, cut(subject.batch, size), training)
        except Refused:
            raise
        except Exception:
            continue  # batch norm in training needs more than one value
        found.append(size)
    return found


def smallest_of(subject: Subject) -> int:
    """The minimum number of samples for training: batch norm needs more than one value per channel."""
    whole = len(next(iter(subject.batch.values())))
    for size in range(1, whole):
        try:
            eager(subject, cut(subject.batch, size), True)
        except Refused:
            raise
        except Exception:
            continue
        return size
    return whole


def loss_and_gradients(subject: Subject, batch: dict) -> tuple[float, dict, bool]:
    """Runs evaluation mode, where samples are independent. Returns the loss, the gradients, and whether random numbers were drawn."""
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
    """Describes how the loss or the gradients of a whole batch differ from the mean over its parts; "" if they do not.

    The parts have unequal sizes, since two halves may have the same weight by chance. Gradients are compared too: an embedding with
    scale_grad_by_freq has the right loss and wrong gradients."""
    whole = len(next(iter(batch.values())))
    loss, gradients, draws = loss_and_gradients(subject, batch)
    if draws:
        return ""  # each part would draw other numbers
    for first in sorted({1, whole // 3, whole // 2} - {0}):
        parts = [(first, cut(batch, first)), (whole - first, {name: tensor[first:].clone() for name, tensor in batch.items()})]
        results = [(size, *loss_and_gradients(subject, part)) for size, part in parts]
        mean = sum(size * found for size, found, _, _ in results) / whole
        if not abs(mean - loss) <= 1e-3 * max(abs(mean), abs(loss), 1e-6):
            return f"{loss:.6g} of {whole} samples, but {mean:.6g} as the mean of {first} and {whole - first} of them"
        for name, gradient in gradients.items():
            sums = sum(size * found.get(name, torch.zeros_like(gradient)) for size, _, found, _ in results) / whole
            if (sums - gradient).abs().max() > 1e-3 * max(gradient.abs().max().item(), sums.abs().max().item(), 1e-9):
                return f"the gradient of '{name}' differs from the mean of those of {first} and {whole - first} samples"
    return ""


IGNORED = -100  # the label that PyTorch's cross entropy ignores by default


def with_ignored_labels(subject: Subject) -> dict | None:
    """The batch with half of the first sample's labels ignored, if its samples have several labels."""
    given = {*subject.by_place, *subject.by_name}
    for name, tensor in subject.batch.items():
        if name not in given and tensor.dtype == torch.int64 and tensor.dim() >= 2 and tensor[0].numel() >= 2:
            changed = tensor.clone()
            changed[0].view(-1)[: tensor[0].numel() // 2] = IGNORED
            return {**subject.batch, name: changed}
    return None


def warning_of(subject: Subject) -> str:
    """Warns of a loss that is not a mean over the samples: its training depends on the number of workers and on the micro-batch."""
    advice = "its gradients will depend on the number of workers and on micro_batch_size"
    try:
        if found := difference_from_mean(subject, subject.batch):
            return f"its loss is no mean over the samples: {found}; {advice}"
        ignoring = with_ignored_labels(subject)
        if ignoring is not None and (found := difference_from_mean(subject, ignoring)):
            return (f"its loss is no mean over the samples where labels are {IGNORED}: {found}; {advice}. Take the mean over the counted "
                    "labels of each sample, then the mean over the samples")
    except Refused:
        raise
    except Exception:
        pass  # the model refuses such parts or labels; sizes_of() compares the sizes that it accepts
    return ""


def cut(batch: dict, size: int) -> dict:
    return {name: tensor[:size].clone() for name, tensor in batch.items()}


def described(tensors: dict, first: int = 0) -> list[dict]:
    return [{"name": name, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape[first:])}
            for name, tensor in tensors.items()]


def parameters_of(written: Written) -> list[dict]:
    firsts, entries = {}, described(written.parameters)
    for entry, tensor in zip(entries, written.parameters.values()):
        entry["requires_grad"] = tensor.requires_grad
        if id(tensor) in firsts:
            entry["tied"] = firsts[id(tensor)]
        firsts.setdefault(id(tensor), entry["name"])
    return entries


def cpu_model() -> str:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def checked_batch(written: Written) -> tuple[dict, bool]:
    """One batch with the model's results for it, and whether these depend on random numbers."""
    subject, tensors = written.subject, {}
    torch.manual_seed(SEED)
    before = torch.get_rng_state()
    results, state = from_graph(written, subject.batch, True)  # the results of ddptrain's graph, which it compares bit by bit
    draws = not torch.equal(before, torch.get_rng_state())
    tensors |= {f"batch.{name}": tensor for name, tensor in subject.batch.items()}
    tensors["train.loss"] = results[0].detach()
    for (kind, name), tensor in state.items():
        if tensor is not None and (kind == "gradient" or name in written.buffers):
            tensors[f"{kind}.{name}"] = tensor.detach()
    torch.manual_seed(SEED)
    results, _ = from_graph(written, subject.batch, False)
    draws = draws or not torch.equal(before, torch.get_rng_state())
    tensors |= {f"eval.{name}": value.detach() for name, value in zip(["loss", *subject.figures], results)}
    return tensors, draws


def write(written: Written, to: pathlib.Path) -> None:
    """Writes the whole folder, or nothing."""
    check, draws = checked_batch(written)
    content = {
        "format": FORMAT,
        "torch": torch.__version__.split("+")[0],
        "parameters": parameters_of(written),
        "buffers": described(written.buffers),
        "constants": described(written.constants),
        "batch": described(written.subject.batch, first=1),
        "outputs": ["loss", *written.subject.figures],
        "reduction": "mean",
        "smallest_batch": smallest_of(written.subject),
        "operators": sorted(set(sum((graph.operators_of(text) for text in written.texts.values()), []))),
        "check": {"seed": SEED, "draws": draws, "threads": torch.get_num_threads(), "cpu": cpu_model(),
                  "cpu_capability": torch.backends.cpu.get_cpu_capability()},
    }
    weights = {f"parameter.{entry['name']}": written.parameters[entry["name"]] for entry in content["parameters"] if "tied" not in entry}
    weights |= {f"buffer.{name}": tensor for name, tensor in written.buffers.items()}
    weights |= {f"constant.{name}": tensor for name, tensor in written.constants.items()}
    if to.exists() and not (to / "model.json").exists():
        raise Refused(f"{to} exists and is no exported model; it is left alone")
    others = sorted(file.name for file in to.iterdir() if file.name not in FILES) if to.exists() else []
    if others:
        raise Refused(f"{to} holds more than an exported model: {', '.join(others[:5])}; it is left alone. Take that out, or write elsewhere")
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=to.name + ".", dir=to.parent) as folder:
        new = pathlib.Path(folder) / to.name
        new.mkdir()
        (new / "model.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        (new / "train.graph").write_text(written.texts[True], encoding="utf-8")
        (new / "eval.graph").write_text(written.texts[False], encoding="utf-8")
        tensor_file.write(new / "init.safetensors", weights)
        tensor_file.write(new / "check.safetensors", check)
        if to.exists():
            to.rename(pathlib.Path(folder) / "before")  # removed with the folder
        new.rename(to)


def export(built: dict, to: pathlib.Path | str, batch: int | None = None) -> list[int]:
    """Writes the result of build(). Returns the batch sizes that were compared. Raises Refused."""
    return exported(built, pathlib.Path(to), batch)[0]


def exported(built: dict, to: pathlib.Path, batch: int | None = None) -> tuple[list[int], bool]:
    """The same as export(). Also returns whether the graph gives the same bits as the model."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the default of ddprun's workers, so that the bits are the same
    try:
        subject = Subject(built)
        if batch is not None:
            whole = len(next(iter(subject.batch.values())))
            if not 2 <= batch <= whole:
                raise Refused(f"--batch {batch} is not between 2 and the {whole} samples of its batch")
            subject.batch = cut(subject.batch, batch)
        eager(subject, subject.batch, True)  # first run the model itself, so that it reports its own errors
        written = Written(subject)
        sizes = {training: sizes_of(subject, training) for training in (True, False)}
        bits = all([compare(written, size, training) for training, several in sizes.items() for size in several])
        require_settled(subject)
        if warning := warning_of(subject):
            print(f"ddprun.export: note: {warning}", file=sys.stderr)
        if kept := outermost(subject.kept_in_evaluation):
            print(f"ddprun.export: note: in evaluation mode in every step, as build() left them with eval(): {', '.join(kept[:5])}"
                  f"{f' and {len(kept) - 5} more' if len(kept) > 5 else ''}", file=sys.stderr)
        write(written, to)
        return sizes[True], bits
    finally:
        torch.set_num_threads(threads)


def outermost(names: set[str]) -> list[str]:
    """The listed parts without those inside another listed part."""
    return sorted(name for name in names if not any(name.startswith(other + ".") for other in names))


def built_by(source: str) -> dict:
    file, _, function = source.rpartition(":")
    if not file or not function.isidentifier():
        raise Refused(f"expected FILE.py:FUNCTION, found '{source}'")
    path = pathlib.Path(file).resolve()
    if not path.is_file():
        raise Refused(f"{file} is no file")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if not hasattr(module, function):
        raise Refused(f"{file} has no {function}()")
    return getattr(module, function)()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ddprun.export", description=__doc__.split("\n\n")[0])
    parser.add_argument("source", metavar="FILE.py:FUNCTION", nargs="?", help="what returns the model, its loss and an example batch")
    parser.add_argument("--hf", metavar="CONFIG.json", type=pathlib.Path,
                        help="instead: a model of Hugging Face's transformers, by its config.json or by a folder with that and its weights")
    parser.add_argument("-o", "--output", metavar="MODEL.ddp", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--batch", metavar="N", type=int, help="use so many samples of the example batch")
    parser.add_argument("--tokens", metavar="N", type=int, help="of --hf: tokens of a sample of text (default: 128, or what the model takes)")
    parser.add_argument("--seed", metavar="N", type=int, help="of --hf: weights that are not there are drawn from it (default: 0)")
    options = parser.parse_args(arguments)
    if (options.source is None) == (options.hf is None):
        parser.error("expected FILE.py:FUNCTION or --hf CONFIG.json")
    if options.hf is None and (options.tokens, options.seed) != (None, None):
        parser.error("--tokens and --seed are for --hf; a build() of your own chooses both")
    try:
        if options.hf is None:
            sizes, bits = exported(built_by(options.source), options.output, options.batch)
        else:
            sizes, bits = exported(hugging_face.built_from(options.hf, options.tokens, options.batch, options.seed or 0), options.output)
    except Refused as reason:
        print(f"ddprun.export: {options.hf or options.source}: {reason}", file=sys.stderr)
        return 2
    content = json.loads((options.output / "model.json").read_text(encoding="utf-8"))
    print(f"{options.output}: {len(content['parameters'])} parameters, {len(content['operators'])} operators; "
          f"{'bitwise' if bits else 'up to rounding'} the model's loss and gradients with {', '.join(map(str, sizes))} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
