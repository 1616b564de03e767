"""Creates a cgroup with a memory limit, in which a test starts a job. The machine must provide the memory controller of cgroup
v1, or a delegated cgroup v2. If it provides neither, the test is skipped."""

import contextlib
import os
import pathlib
import subprocess

import pytest


def own_folders() -> tuple[pathlib.Path | None, pathlib.Path | None]:
    """Returns two cgroup folders of this process: the folder in the memory controller of v1, and the folder in v2. If a folder
    does not exist, None is returned in its place."""
    mounts = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ")
        kind, _, options = after.split(" ")[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            mounts[kind] = pathlib.Path(before.split(" ")[4])
    memory = unified = None
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") and "cgroup" in mounts:
            memory = mounts["cgroup"] / path.lstrip("/")
        elif not controllers and "cgroup2" in mounts:
            unified = mounts["cgroup2"] / path.lstrip("/")
    return memory, unified


@contextlib.contextmanager
def limited(limit_bytes: int):
    """Yields the folder of a new cgroup whose memory is limited to limit_bytes, and removes it afterwards. The test fails if
    another cgroup is left in this folder."""
    memory, unified = own_folders()
    name = f"ddprun-test-{os.getpid()}"
    if memory is not None and os.access(memory, os.W_OK):
        folder, file = memory / name, "memory.limit_in_bytes"
    elif unified is not None and os.access(unified, os.W_OK) and "memory" in (unified / "cgroup.subtree_control").read_text():
        folder, file = unified / name, "memory.max"
    else:
        pytest.skip("this machine does not allow a cgroup with a memory limit")
    folder.mkdir()
    try:
        (folder / file).write_text(str(limit_bytes))
        yield folder
        left = [str(below) for below in folder.iterdir() if below.is_dir()]
        assert not left, f"left behind: {left}"
    finally:
        for below in folder.iterdir():
            if below.is_dir():
                for inner in below.iterdir():
                    if inner.is_dir():
                        inner.rmdir()
                below.rmdir()
        folder.rmdir()


def start_in(folder: pathlib.Path, command: list, **options) -> subprocess.Popen:
    """Starts the command in the cgroup `folder`. The process is in the cgroup from its first instruction."""
    script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    return subprocess.Popen(["/bin/sh", "-c", script, str(folder), *[str(word) for word in command]], **options)
