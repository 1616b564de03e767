"""Agents under measurement: one launcher's commands, a folder in which its workers write notes, and a cleanup that leaves no process. launch_bench.py
makes a Side of each launcher for every run of a row."""

import os
import pathlib
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from measure import environment

# Workers note their start; a row's script follows. bash's EPOCHREALTIME needs no further process, so the clock is read as early as a shell can.
NOTING = 'echo "start $RANK $EPOCHREALTIME $TORCHELASTIC_RESTART_COUNT $$ $WORLD_SIZE" >> "$NOTES"\n'


class TooLate(Exception):
    """The expected event did not come in time. The text is for a table."""


class NotHere(Exception):
    """This machine cannot run the row; the text gives the reason."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def c10d(nodes: str, port: int, run_id: str = "job", host: str = "localhost") -> list[str]:
    return ["--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-id", run_id, "--no-python"]


def listening(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port)).close()
    except OSError:
        return False
    return True


def lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Side:
    """One launcher, for one run of a row."""

    def __init__(self, launcher: list[str], ours: bool, folder: pathlib.Path):
        self.launcher, self.ours, self.folder = launcher, ours, folder
        self.notes = folder / "notes"
        self.notes.touch()
        self.agents: list[subprocess.Popen] = []
        self.environment = environment(NOTES=str(self.notes), TMPDIR=str(folder), XDG_CONFIG_HOME=str(folder),
                                       XDG_STATE_HOME=str(folder / "state"))

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_unused) -> None:
        groups = [agent.pid for agent in self.agents] + [int(line[4]) for line in self.lines()]  # torchrun's workers may outlive it
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        for agent in self.agents:
            agent.wait()

    def script(self, body: str, before: str = "") -> str:
        """A worker that notes its start after it has run `before`. A reader of the note can rely on that."""
        path = self.folder / "worker.sh"
        path.write_text(f"#!/bin/bash\n{before}\n{NOTING}{body}\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def start(self, *arguments: str, prefix: tuple[str, ...] = (), **keywords) -> subprocess.Popen:
        with open(self.folder / f"output-{len(self.agents)}", "wb") as output:
            self.agents.append(subprocess.Popen([*prefix, *self.launcher, *arguments], env=self.environment, cwd=self.folder,
                                                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                                start_new_session=True, **keywords))
        return self.agents[-1]

    def output(self, agent: int = 0) -> str:
        return (self.folder / f"output-{agent}").read_text(encoding="utf-8", errors="replace")

    def lines(self, kind: str = "start") -> list[list[str]]:
        return [line.split() for line in self.notes.read_text(encoding="utf-8").splitlines() if line.startswith(kind + " ")]

    def until(self, condition: Callable[[], object], seconds: float, missing: str) -> float:
        """The time of the event by time.time(). It polls, because other processes' files and ports give no event."""
        end = time.time() + seconds
        while not condition():
            if time.time() > end:
                raise TooLate(f"{missing} in {seconds:g} s")
            time.sleep(0.002)
        return time.time()

    def until_started(self, count: int, seconds: float = 60) -> float:
        """The time at which the last of the first `count` workers started, by that worker's own clock."""
        self.until(lambda: self.notes.read_bytes().count(b"\n") >= count, seconds, "not up")
        return max(float(line[2]) for line in self.lines()[:count])

    def ended(self, agent: int = 0, seconds: float = 60) -> float:
        pidfd = os.pidfd_open(self.agents[agent].pid)  # Popen.wait() with a time limit polls every 50 ms
        ready = select.select([pidfd], [], [], seconds)[0]
        now = time.time()
        os.close(pidfd)
        if not ready:
            raise TooLate(f"not ended in {seconds:g} s")
        self.agents[agent].wait()
        return now
