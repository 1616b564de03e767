"""Where the programs in this folder leave what they computed: one JSON file a rank in the folder that is their first argument. Rank 0's
batches, weights and losses are made from plain seeds, so that two runs can be compared to the bit. And how they end."""

import json
import os
import pathlib
import sys


def leave(result: dict) -> None:
    folder = pathlib.Path(sys.argv[1])
    (folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(result), encoding="utf-8")


def end() -> None:
    """Ends this process here: while the interpreter ends, PyTorch's threads of a Gloo group may abort it (docs/internals/decisions/tests/python-sigabrt.md)."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
