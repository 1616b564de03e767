"""Stores the results of Python programs with which ddptrain and ddprun are compared, so that later test runs can use them.

A comparison spends most of its time in Python: each process needs 2.5 s of CPU time to import torch, and torchrun with two
workers consists of three processes. Most changes to this repository do not affect the results of the Python programs.
Therefore fill() stores these results outside the clone, in ${XDG_CACHE_HOME:-~/.cache}/ddprun/references. They are not
committed, and the folder may be deleted at any time.

The name of a result is a digest of everything that determines its bits: the inputs that the test passes to fill(), the
programs in reference/, all installed Python packages with their versions, the processor with its instruction sets, and the
environment variables that select kernels. If one of these inputs changes, the name changes, and the program runs again. For
example, an edit of reference/models.py or an upgrade of numpy invalidates all results.

`./dev test --long` does not use the folder, so that a wrong stored result cannot hide an error. A machine with a GPU does not
use the folder either, because no file describes the kernels of its GPU. A result that was not read for 30 days is deleted.
"""

import functools
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import tempfile
import time
from collections.abc import Callable

STORE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "ddprun" / "references"
PROGRAMS = pathlib.Path(__file__).parent / "reference"
KEPT_DAYS = 30
# The lines of /proc/cpuinfo that identify the processor. The clock rate is excluded, because it varies.
PROCESSOR = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
CHOOSES_KERNELS = ("ATEN_", "DNNL_", "MKL_", "ONEDNN_", "TORCH_")


def fill(out: pathlib.Path, make: Callable[[], None], *inputs: object) -> None:
    """Fills the new folder `out`. If an earlier call with the same inputs has stored its result, copies the stored files. If
    there is no stored result, calls make(), which must write the files, and stores these files. A path in `inputs` stands for
    the content of the file, or of all files in the folder. An input must not contain a path or a port that differs between
    runs."""
    kept = STORE / digest_of([everything_else(), *inputs])
    used = not os.environ.get("DDPRUN_LONG_TESTS") and not list(pathlib.Path("/dev").glob("nvidia[0-9]*"))
    if used and kept.is_dir():
        shutil.copytree(kept, out)
        os.utime(kept)
        return
    out.mkdir(parents=True)
    make()
    if used:
        keep(out, kept)


def keep(out: pathlib.Path, kept: pathlib.Path) -> None:
    """Copies the files of `out` to the store. Other processes see either all files or no file. If the store cannot be written,
    this is not an error."""
    try:
        STORE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=STORE, prefix="incomplete-", ignore_cleanup_errors=True) as place:
            shutil.copytree(out, pathlib.Path(place, "files")).rename(kept)
        oldest = time.time() - KEPT_DAYS * 86400
        for each in STORE.iterdir():
            if each.stat().st_mtime < oldest:
                shutil.rmtree(each, ignore_errors=True)
    except OSError:
        pass  # for example, the disk is full, or another process has stored the same result


def digest_of(inputs: list) -> str:
    digest = hashlib.sha256()
    for each in inputs:
        files = sorted(each.rglob("*")) if isinstance(each, pathlib.Path) and each.is_dir() else [each]
        for file in files:
            if isinstance(file, pathlib.Path):
                if not file.is_file() or file.suffix == ".pyc":
                    continue
                content = file.read_bytes()
            else:
                content = repr(file).encode()
            name = str(file.relative_to(each)) if file != each else ""
            digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()


@functools.cache
def everything_else() -> str:
    """Returns a digest of the inputs that are equal for all results of this test run."""
    packages = sorted(f"{package.name} {package.version}" for package in importlib.metadata.distributions())
    lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    processor = [line for line in lines if line.startswith(PROCESSOR)]
    variables = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(CHOOSES_KERNELS))
    return digest_of([PROGRAMS, platform.python_version(), packages, processor, variables])
