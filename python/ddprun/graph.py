"""The text form of a graph that torch.export has traced. text_of() writes it, and ddptrain reads it
(trainer/exported/graph.hpp). run() executes the text in Python, so that the exporter can compare the results of the graph with
the results of the model. An example:

    ddprun graph 1
    %0 = parameter fc.weight
    %1 = parameter fc.bias
    %2 = batch image
    %3 = op aten::flatten.using_ints %2 i1 default
    %4 = op aten::linear %3 %0 %1
    return %4

Each line is a node, and %N is the result of line N. The kinds of nodes are

    parameter, buffer, constant, batch    a tensor, by its name
    op                                    an operator, with all arguments of its schema
    get                                   one of several results: a node and an index
    compute                               a function on numbers: one of the functions in KNOWN
    gradients                             true or false: whether the later nodes record gradients; it has no result. true means
                                          the mode that was active before the run

An argument is %N (a node), iN, fN, sTEXT, true, false, none, default (of the schema), device (on which the graph runs),
dtype:NAME, layout:NAME, format:NAME, or a list: [ ... ]."""

import math
import operator
import re
import urllib.parse

import torch

FIRST_LINE = "ddprun graph 1"
SET_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
FORMATS = {
    torch.contiguous_format: "contiguous",
    torch.preserve_format: "preserve",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
}
# Functions of numbers that a graph may contain. A graph uses them, for example, to compute a shape from the batch size.
KNOWN = {name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")}
KNOWN |= {"float": torch.sym_float, "max": torch.sym_max, "min": torch.sym_min}
DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Refused(Exception):
    """Raised if a model cannot be exported. The text states the reason for the author of the model."""


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="_.-:,>/")


def _argument(value, numbers: dict) -> str:
    if isinstance(value, torch.fx.Node):
        if not isinstance(numbers[value], int):
            raise Refused(f"the graph uses {value.name} as one value, but {value.name} has several results")
        return f"%{numbers[value]}"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return f"f{value!r}"
    if isinstance(value, str):
        return f"s{_quoted(value)}"
    if isinstance(value, torch.dtype):
        return "dtype:" + str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return "device"
    if isinstance(value, torch.layout):
        if value != torch.strided:
            raise Refused(f"the graph creates tensors with the layout {value}; ddptrain supports torch.strided only")
        return "layout:strided"
    if isinstance(value, torch.memory_format):
        return "format:" + FORMATS[value]
    if isinstance(value, (list, tuple)):
        return " ".join(["[", *(_argument(each, numbers) for each in value), "]"])
    raise Refused(f"an operator has the argument {value!r} of type {type(value).__name__}, which a graph cannot contain")


def _operator_line(node: torch.fx.Node, numbers: dict) -> str:
    schema = node.target._schema
    words = [f"op {schema.name}" + (f".{schema.overload_name}" if schema.overload_name else "")]
    for place, argument in enumerate(schema.arguments):
        if place < len(node.args) and not argument.kwarg_only:
            words.append(_argument(node.args[place], numbers))
        elif argument.name in node.kwargs:
            words.append(_argument(node.kwargs[argument.name], numbers))
        else:
            words.append("default")
    return " ".join(words)


def _inner(node: torch.fx.Node) -> torch.fx.GraphModule:
    """Returns the graph of the code inside a block of torch.no_grad() or torch.enable_grad()."""
    return getattr(node.graph.owning_module, node.args[1].target)


def _refused_in(graph: torch.fx.Graph) -> set[str]:
    refused = set()
    for node in graph.nodes:
        if node.op == "get_attr":
            continue  # the node is a sub-graph, which is checked together with the operator that uses it
        if node.op != "call_function" or node.target is operator.getitem or node.target in KNOWN.values():
            continue
        if node.target is SET_GRAD:
            refused |= _refused_in(_inner(node).graph)
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            refused.add(getattr(node.target, "__name__", str(node.target)))
        elif node.target.namespace != "aten":
            refused.add(node.target._schema.name)
    return refused


def _refuse_operators(graph: torch.fx.Graph) -> None:
    """Reports all unsupported operators in one error."""
    if refused := _refused_in(graph):
        raise Refused("ddptrain cannot run these operators, which are not PyTorch's own (aten): " + ", ".join(sorted(refused)))


def text_of(program: torch.export.ExportedProgram, name_of: dict[str, tuple[str, str]]) -> str:
    """Returns the text of a traced program. `name_of` maps each placeholder of the program's inputs to (kind, name)."""
    _refuse_operators(program.graph)
    text = _Text(name_of)
    text.write(program.graph, {})
    changed = [spec for spec in program.graph_signature.output_specs if "MUTATION" in spec.kind.name]
    results = text.results[len(changed):]
    return "\n".join([FIRST_LINE, *text.lines, "return " + " ".join(f"%{number}" for number in results)]) + "\n"


class _Text:
    """Collects the text lines of a graph and of its sub-graphs."""

    def __init__(self, name_of: dict[str, tuple[str, str]]):
        self.name_of, self.lines, self.count, self.results = name_of, [], 0, []

    def add(self, line: str) -> int:
        self.lines.append(f"%{self.count} = {line}")
        self.count += 1
        return self.count - 1

    def write(self, graph: torch.fx.Graph, given: dict, grad: bool = True) -> list[int]:
        """Appends the lines of `graph`. Returns the numbers of the nodes that are its results. For a sub-graph, `given` is
        {placeholder: number of the node that is passed as its value}. `grad` is True if the code around the sub-graph records
        gradients."""
        functions = {function: name for name, function in KNOWN.items()}
        numbers = {}
        for node in graph.nodes:
            if node.op == "output":
                for each in node.args[0]:
                    if not isinstance(each, torch.fx.Node) or not isinstance(numbers[each], int):
                        raise Refused(f"the graph returns {each}, which is not a value computed in the graph")
                self.results = [numbers[each] for each in node.args[0]]
                return self.results
            if node.op == "placeholder":
                kind, name = self.name_of.get(node.name, ("", ""))
                numbers[node] = given[node.name] if given else self.add(f"{kind} {_quoted(name)}")
            elif node.op == "get_attr":
                if not isinstance(getattr(graph.owning_module, node.target, None), torch.fx.GraphModule):
                    raise Refused(f"the graph has the attribute {node.target}, which ddptrain does not support")
            elif node.target is SET_GRAD:
                numbers[node] = self._under(node, numbers, grad)
            elif node.target is operator.getitem and not isinstance(numbers[node.args[0]], int):
                numbers[node] = numbers[node.args[0]][node.args[1]]
            elif node.target is operator.getitem:
                numbers[node] = self.add(f"get {_argument(node.args[0], numbers)} {_argument(node.args[1], numbers)}")
            elif node.target in functions:
                numbers[node] = self.add(" ".join([f"compute {functions[node.target]}", *(_argument(each, numbers) for each in node.args)]))
            else:
                numbers[node] = self.add(_operator_line(node, numbers))
        raise Refused("the graph returns no values")

    def _under(self, node: torch.fx.Node, numbers: dict, grad: bool) -> list[int]:
        inner = _inner(node).graph
        names = [each.name for each in inner.nodes if each.op == "placeholder"]
        self.add(f"gradients {_argument(node.args[0], numbers)}")
        given = {name: numbers[operand] for name, operand in zip(names, node.args[2:])}
        results = self.write(inner, given or {"": 0}, node.args[0])
        self.add(f"gradients {_argument(grad, numbers)}")
        return results


def operators_of(text: str) -> list[str]:
    return sorted(set(re.findall(r"^%\d+ = op (\S+)", text, re.MULTILINE)))


class _Reader:
    def __init__(self, words: list[str], values: list):
        self.words, self.values = words, values

    def next(self, default=None):
        word = self.words.pop(0)
        if word == "[":
            found = []
            while self.words[0] != "]":
                found.append(self.next())
            self.words.pop(0)
            return found
        if word[0] == "%":
            return self.values[int(word[1:])]
        if word in ("true", "false", "none"):
            return {"true": True, "false": False, "none": None}[word]
        if word == "default":
            return default
        if word == "device":
            return torch.device("cpu")
        kind, _, name = word.partition(":")
        if kind == "dtype":
            return DTYPES[name]
        if kind == "layout":
            return torch.strided
        if kind == "format":
            return {name: value for value, name in FORMATS.items()}[name]
        if word[0] == "i":
            return int(word[1:])
        if word[0] == "f":
            return float(word[1:])
        return urllib.parse.unquote(word[1:])

    def rest(self) -> list:
        found = []
        while self.words:
            found.append(self.next())
        return found


_OMITTED = object()


def _call(words: list[str], values: list):
    name, _, overload = words.pop(0).partition(".")
    namespace, _, function = name.partition("::")
    target = getattr(getattr(getattr(torch.ops, namespace), function), overload or "default")
    reader, args, kwargs = _Reader(words, values), [], {}
    for argument in target._schema.arguments:
        value = reader.next(_OMITTED)
        if value is _OMITTED:
            continue
        if argument.kwarg_only or len(args) + len(kwargs) < target._schema.arguments.index(argument):
            kwargs[argument.name] = value
        else:
            args.append(value)
    return target(*args, **kwargs)


def run(text: str, inputs: dict[tuple[str, str], torch.Tensor]) -> list[torch.Tensor]:
    """Runs the graph and returns its results. `inputs` is {(kind, name): tensor}."""
    before = torch.is_grad_enabled()
    try:
        return _run(text, inputs, before)
    finally:
        torch.set_grad_enabled(before)


def _run(text: str, inputs: dict[tuple[str, str], torch.Tensor], before: bool) -> list[torch.Tensor]:
    values = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if words[0] == "return":
            return _Reader(words[1:], values).rest()
        verb, rest = words[2], words[3:]
        if verb == "op":
            values.append(_call(rest, values))
        elif verb == "get":
            reader = _Reader(rest, values)
            values.append(reader.next()[reader.next()])
        elif verb == "gradients":
            values.append(torch.set_grad_enabled(before and rest[0] == "true") and None)
        elif verb == "compute":
            values.append(KNOWN[rest[0]](*_Reader(rest[1:], values).rest()))
        else:
            values.append(inputs[verb, urllib.parse.unquote(rest[0])])
    raise Refused("the graph returns nothing")
