"""Traces a model with torch.export, in training mode and in evaluation mode. Both graphs are converted to text, and the tensors
that they use are collected."""

import os
import traceback

import torch

from ddprun import graph
from ddprun._export_subject import Step, Subject, require_own_memory
from ddprun.graph import Refused


def first_lines(error: Exception) -> str:
    """Returns the message of an error, without references to documentation."""
    text = " ".join(str(error).split("The error above occurred")[0].split("For more information")[0].split())
    return text[:500] or type(error).__name__


def place_in_the_model(error: Exception) -> str:
    """Returns the line of the user's code that caused the error, in the form (model.py:12), or an empty string. Frames of
    PyTorch and of ddprun are skipped, since a user cannot fix those."""
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
        raise Refused(f"torch.export rejects the model: {first_lines(error)}{place_in_the_model(error)}") from error
    with torch.no_grad():
        for name, tensor in [*step.named_parameters(), *step.named_buffers()]:
            tensor.copy_(before[name])
    return program


class Written:
    """The text of both graphs (training and evaluation), and the parameters, buffers and constants that they use, by name."""

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
                                  # if the loss uses a parameter directly, the graph contains it as a constant
                                  known.shape == tensor.shape and known.requires_grad), None)
                found = ("parameter", parameter) if parameter else ("constant", f"{'train' if training else 'eval'}.{target}")
                if not parameter:
                    self.constants[found[1]] = tensor
            elif kind == "USER_INPUT":
                found = ("batch", next(batch))
            else:
                raise Refused(f"the graph of the model has the input {spec.arg.name} of kind {kind}, which ddptrain does not support")
            named[spec.arg.name] = found
        return graph.text_of(program, named)

    def _buffer(self, target: str) -> str:
        """Returns the name under which a buffer is stored. If a buffer has several names, it is stored under the first
        name."""
        if target in self.buffers or target in self.constants:
            return target
        same = dict(self.subject.model.named_buffers(remove_duplicate=False))[target]
        return next(name for name, tensor in [*self.buffers.items(), *self.constants.items()] if tensor is same)

    def tensors(self) -> dict[tuple[str, str], torch.Tensor]:
        """Returns a copy of the model's tensors by kind and name. Tied parameters share one copy."""
        copies, made = {}, {}
        for kind, tensors in (("parameter", self.parameters), ("buffer", self.buffers), ("constant", self.constants)):
            for name, tensor in tensors.items():
                if id(tensor) not in made:
                    made[id(tensor)] = tensor.detach().clone().requires_grad_(kind == "parameter" and tensor.requires_grad)
                copies[kind, name] = made[id(tensor)]
        return copies


def changed_buffers(program: torch.export.ExportedProgram) -> set[str]:
    """Returns the buffers that the graph writes to: statistics of batch norm and instance norm, and tensors that an operator
    changes in place."""
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
