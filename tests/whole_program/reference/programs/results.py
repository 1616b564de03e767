"""Functions that the programs in this folder call to write their results and to exit. Each rank writes one JSON file to the
folder in argument 1. All data and initial weights come from fixed seeds, so the results of two runs can be compared bit by
bit."""

import json
import os
import pathlib
import sys


def leave(result: dict) -> None:
    folder = pathlib.Path(sys.argv[1])
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result), encoding="utf-8")


def end() -> None:
    """Skips the normal exit of the interpreter, because threads of PyTorch's Gloo group may abort the process during that exit
    (docs/internals/decisions/tests/python-sigabrt.md)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
