"""Writes a PyTorch model as a folder that ddptrain trains without Python.

usage: python -m ddprun.export MY_MODEL.py:build -o MODEL.ddp [--batch N]
       python -m ddprun.export --hf CONFIG.json -o MODEL.ddp [--batch N] [--tokens N] [--seed N]

The second form exports a model from Hugging Face's transformers (hugging_face.py). In the first form, build() returns a dict:
    `model`    a torch.nn.Module. Its forward() receives the tensors of `batch` whose names equal the names of its arguments
    `batch`    an example: a dict of tensors whose first dimension is the number of samples, 2 or more. The data files have
               the tensors in the same order
    `loss`     a function of (output, batch) that returns the mean loss, a float32 scalar
    `figures`  optional metrics of evaluations: a dict of more such functions
    `inputs`   optional names of batch tensors that forward() gets by position, if its arguments have different names

torch.export traces the forward pass in training mode and in evaluation mode. The resulting graphs are then run and compared
with the model, for several batch sizes. If loss, gradients, buffers or metrics differ by more than rounding, nothing is
written. We allow for rounding because fused kernels of PyTorch (attention, the encoder's fast path) sum in a different order
than the graph."""

import argparse
import importlib.util
import json
import pathlib
import re
import sys
import tempfile

import torch

from ddprun import graph, hugging_face, tensor_file
from ddprun._export_check import SEED, compare, eager, from_graph, require_settled, sizes_of, smallest_of
from ddprun._export_mean import warning_of
from ddprun._export_subject import Subject, cut
from ddprun._export_trace import Written
from ddprun.graph import Refused

FORMAT = 1
FILES = {"model.json", "train.graph", "eval.graph", "init.safetensors", "check.safetensors"}


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
    """Runs the graph on the example batch. Returns the batch with the results, and True if the results depend on random
    numbers."""
    subject, tensors = written.subject, {}
    torch.manual_seed(SEED)
    before = torch.get_rng_state()
    results, state = from_graph(written, subject.batch, True)  # ddptrain compares its own results with these results bit by bit
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
    """Writes the complete folder. If an error occurs, a folder that already exists stays unchanged."""
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
        raise Refused(f"{to} exists and is not an exported model, so it is not overwritten. Choose another folder")
    others = sorted(file.name for file in to.iterdir() if file.name not in FILES) if to.exists() else []
    if others:
        raise Refused(f"{to} contains files that do not belong to an exported model: {', '.join(others[:5])}; the folder is not overwritten. Remove these files, or choose another folder")
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
            to.rename(pathlib.Path(folder) / "before")  # removed with the temporary folder
        new.rename(to)


def export(built: dict, to: pathlib.Path | str, batch: int | None = None) -> list[int]:
    """Exports the result of build() to the folder `to`. Returns the batch sizes that were compared. Raises Refused."""
    return exported(built, pathlib.Path(to), batch)[0]


def exported(built: dict, to: pathlib.Path, batch: int | None = None) -> tuple[list[int], bool]:
    """Does the same as export(). Returns the batch sizes, and True if graph and model gave bitwise equal results."""
    threads = torch.get_num_threads()
    # The number of threads can change the last bits of a result. ddprun's workers run with one thread by default, so use one
    # here.
    torch.set_num_threads(1)
    try:
        subject = Subject(built)
        if batch is not None:
            whole = len(next(iter(subject.batch.values())))
            if not 2 <= batch <= whole:
                raise Refused(f"--batch {batch}: expected 2 to {whole}, the number of samples in the batch of build()")
            subject.batch = cut(subject.batch, batch)
        # Run the model once before the export. An error in the user's code is then raised with its own traceback.
        eager(subject, subject.batch, True)
        written = Written(subject)
        sizes = {training: sizes_of(subject, training) for training in (True, False)}
        bits = all([compare(written, size, training) for training, several in sizes.items() for size in several])
        require_settled(subject)
        if warning := warning_of(subject):
            print(f"ddprun.export: note: {warning}", file=sys.stderr)
        if kept := outermost(subject.kept_in_evaluation):
            print(f"ddprun.export: note: these modules stay in evaluation mode in every step, as set by eval() in build(): {', '.join(kept[:5])}"
                  f"{f' and {len(kept) - 5} more' if len(kept) > 5 else ''}", file=sys.stderr)
        write(written, to)
        return sizes[True], bits
    finally:
        torch.set_num_threads(threads)


def outermost(names: set[str]) -> list[str]:
    """Returns the modules of the set that are not inside another module of the set, by name."""
    return sorted(name for name in names if not any(name.startswith(other + ".") for other in names))


def built_by(source: str) -> dict:
    file, _, function = source.rpartition(":")
    if not file or not function.isidentifier():
        raise Refused(f"expected FILE.py:FUNCTION, found '{source}'")
    path = pathlib.Path(file).resolve()
    if not path.is_file():
        raise Refused(f"{file} is not a file")
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
    parser.add_argument("source", metavar="FILE.py:FUNCTION", nargs="?", help="function that returns the model, its loss and an example batch")
    parser.add_argument("--hf", metavar="CONFIG.json", type=pathlib.Path,
                        help="export a model from Hugging Face's transformers instead: its config.json, or a folder with config.json and the weights")
    parser.add_argument("-o", "--output", metavar="MODEL.ddp", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--batch", metavar="N", type=int, help="use N samples of the example batch")
    parser.add_argument("--tokens", metavar="N", type=int, help="with --hf: tokens per text sample (default: 128, or the number of positions of the model if that is smaller)")
    parser.add_argument("--seed", metavar="N", type=int, help="with --hf: seed of the example batch and of missing weights (default: 0)")
    options = parser.parse_args(arguments)
    if (options.source is None) == (options.hf is None):
        parser.error("expected FILE.py:FUNCTION or --hf CONFIG.json")
    if options.hf is None and (options.tokens, options.seed) != (None, None):
        parser.error("--tokens and --seed need --hf; with FILE.py:FUNCTION, the function chooses both")
    try:
        if options.hf is None:
            sizes, bits = exported(built_by(options.source), options.output, options.batch)
        else:
            sizes, bits = exported(hugging_face.built_from(options.hf, options.tokens, options.batch, options.seed or 0), options.output)
    except Refused as reason:
        print(f"ddprun.export: {options.hf or options.source}: {reason}", file=sys.stderr)
        return 2
    content = json.loads((options.output / "model.json").read_text(encoding="utf-8"))
    print(f"{options.output}: {len(content['parameters'])} parameters, {len(content['operators'])} operators; loss and gradients of the "
          f"exported graph are {'bitwise equal' if bits else 'equal up to rounding'} to those of the model "
          f"(compared with batch sizes {', '.join(map(str, sizes))})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
