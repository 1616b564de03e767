"""Verifies an exported model. The exported graphs and the original model are run with several batch sizes. Loss, gradients,
buffers and metrics must be equal up to rounding. A model is also refused if its forward pass has side effects that a graph
cannot repeat, such as incrementing a counter."""

import copy
import ctypes
import hashlib

import torch

from ddprun import graph
from ddprun._export_subject import Step, Subject, cut
from ddprun._export_trace import Written, first_lines
from ddprun.graph import Refused

SEED = 0  # random seed for the batch in check.safetensors; ddptrain uses the same seed when it repeats that batch


# ---- equality ----


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and tensor_bytes(a) == tensor_bytes(b)


def close(ours: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    """Returns True if two tensors differ by rounding only. The largest allowed difference is a fraction of the largest
    magnitude in `theirs`: 100 times the epsilon of the dtype, but at most 1 %."""
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
    return memoryview((ctypes.c_char * (flat.numel() * flat.element_size())).from_address(flat.data_ptr())).cast("B")


# ---- one run of the model ----


def require_scalar(name: str, value) -> None:
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        found = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise Refused(f"the {name} is {found}; expected a scalar tensor, the mean over the batch")
    if name == "loss" and value.dtype != torch.float32:
        raise Refused(f"the loss is {value.dtype}; expected torch.float32")


class Borrowed:
    """The model for one run. It is a copy, or the original, whose state is restored after the run.

    forward() may change the model, for example the statistics of batch norm. If a copy is run, the change does not affect the
    next run. But the loss function may also read weights of the original, for example for an L2 penalty. For such a loss,
    running a copy would combine the output of the copy with the weights of the original. So in this case the original itself
    is run.
    """

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
    """Runs the model itself, not its graph. Returns its results (loss and metrics), and its gradients and buffers by kind and
    name."""
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
        raise Refused(f"the gradient of '{name}' is sparse, but ddptrain sums only dense gradients; create the embedding with sparse=False")
    return tensor.grad


def require_settled(subject: Subject) -> None:
    """Refuses a model with a plain Python number that every forward pass changes, such as a counter. The graph would contain
    the number as a constant. A number that only the first pass sets is accepted."""
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
            raise Refused(f"the forward pass changes the attribute '{module + '.' if module else ''}{name}' from {seen[0][place]!r} to {value!r}, but "
                          "the exported graph would contain it as a constant; make it a registered buffer")


def plain(value) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(plain, value))
    return isinstance(value, (bool, int, float, str))


def leaves_of(loss: torch.Tensor) -> list[torch.Tensor]:
    """Returns the leaf tensors for which the loss computes gradients."""
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
    """Refuses a loss that trains tensors outside the model, such as its own weights. The graph would contain them as
    constants."""
    own = {id(tensor) for tensor in model.parameters()}
    for leaf in leaves_of(loss):
        if id(leaf) not in own:
            raise Refused(f"the loss trains a tensor of shape {tuple(leaf.shape)} that is not a parameter of the model; register it as a torch.nn.Parameter of the model")


def require_unwritten(written: "Written", tensors: dict, training: bool) -> None:
    """Refuses a forward pass that writes to a tensor other than a registered buffer. Checkpoints do not contain such a change,
    and ddptrain cannot revert it when it discards a step."""
    kinds = [("parameter", written.parameters), ("constant", written.constants)] + ([] if training else [("buffer", written.buffers)])
    for kind, known in kinds:
        for name, tensor in known.items():
            if not same(tensors[kind, name], tensor):
                where = "in its forward pass" if training else "in evaluation mode"
                raise Refused(f"the model writes to the {kind} '{name}' {where}; ddptrain keeps only values that the forward pass of training writes to registered buffers")


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
    """Compares the results of the graph with the results of the model. Returns True if they are bitwise equal. Raises Refused
    if they differ by more than rounding."""
    batch, where = cut(written.subject.batch, size), f"with {size} samples in {'training' if training else 'evaluation'} mode"
    theirs, state = eager(written.subject, batch, training)
    try:
        ours, own_state = from_graph(written, batch, training)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"the exported graph fails {where}, but the model does not: {first_lines(error)}") from error
    bits = True
    for name, a, b in zip(["loss", *written.subject.figures], theirs, ours):
        bits = bits and same(a, b)
        if not close(b, a):
            raise Refused(f"the {name} of the exported graph is {b.item()!r} {where}, but the {name} of the model is {a.item()!r}")
    for (kind, name), tensor in own_state.items():
        bits = bits and same(tensor, state[kind, name])
        if not close(tensor, state[kind, name]):
            raise Refused(f"the {kind} of '{name}' differs between the exported graph and the model {where}"
                          if kind == "gradient" else f"the buffer '{name}' differs between the exported graph and the model {where}")
    return bits


def accepts(subject: Subject, size: int, training: bool) -> bool:
    """Returns True if the model runs with this number of samples. For example, batch norm in training mode fails with a single
    value."""
    try:
        eager(subject, cut(subject.batch, size), training)
    except Refused:
        raise
    except Exception:
        return False
    return True


def sizes_of(subject: Subject, training: bool) -> list[int]:
    """Returns the batch sizes to compare: the size of the example batch, and smaller sizes that the model accepts. The last
    batch of an epoch can be smaller than the others."""
    whole = len(next(iter(subject.batch.values())))
    smaller = sorted({whole - 1, whole // 2, 1} - {0, whole}, reverse=True)
    return [whole, *(size for size in smaller if accepts(subject, size, training))]


def smallest_of(subject: Subject) -> int:
    """Returns the smallest number of samples with which the model can be trained."""
    whole = len(next(iter(subject.batch.values())))
    return next((size for size in range(1, whole) if accepts(subject, size, True)), whole)
