"""File systems of a few kilobytes, for tests of what happens when they are full; skipped where none can be mounted."""

import contextlib
import pathlib
import subprocess

import pytest


@contextlib.contextmanager
def small_disk(folder: pathlib.Path, size: str):
    """A tmpfs of its own, where this user may mount one."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
