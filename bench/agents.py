"""Runs the processes of one launcher (ddprun or torchrun) in a measurement. A Side has the launcher's command and a folder in
which its workers write notes. At the end, the Side kills all processes that are left. launch_bench.py creates a new Side for
every run of a row of its table."""

import os
import pathlib
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from measure import environment

# This is the first line of each worker script. It records the start time of the worker. bash can read EPOCHREALTIME without
# starting another process. Such a start would delay the record.
NOTING = 'echo "start $RANK $EPOCHREALTIME $TORCHELASTIC_RESTART_COUNT $$ $WORLD_SIZE" >> "$NOTES"\n'


class DeadlineExceeded(Exception):
    """Raised if an expected event did not occur in time. The cell of the table shows the text of the error."""


class NotAvailable(Exception):
    """Raised if this row of the table cannot be measured on this machine. The text of the error is the reason."""


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


def is_alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Side:
    """The processes of one launcher during one measurement for a row of the table."""

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
        # torchrun's workers can outlive their agent, so they are killed, too
        groups = [agent.pid for agent in self.agents] + [int(line[4]) for line in self.lines()]
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        for agent in self.agents:
            agent.wait()

    def script(self, body: str, before: str = "") -> str:
        """Writes a worker script and returns its path. The worker runs `before`, records its start time, and then runs `body`.
        So when a start time is recorded, `before` has finished."""
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
        """Waits until condition() is true, and returns the time.time() at which it became true. No event reports changes of
        other processes' files and ports, so this function polls."""
        end = time.time() + seconds
        while not condition():
            if time.time() > end:
                raise DeadlineExceeded(f"{missing} after {seconds:g} s")
            time.sleep(0.002)
        return time.time()

    def until_started(self, count: int, seconds: float = 60) -> float:
        """Waits until `count` workers have started. Returns the start time of the last one, as recorded by the worker itself.
        """
        self.until(lambda: self.notes.read_bytes().count(b"\n") >= count, seconds, "not up")
        return max(float(line[2]) for line in self.lines()[:count])

    def ended(self, agent: int = 0, seconds: float = 60) -> float:
        pidfd = os.pidfd_open(self.agents[agent].pid)  # Popen.wait() with a time limit polls only every 50 ms
        ready = select.select([pidfd], [], [], seconds)[0]
        now = time.time()
        os.close(pidfd)
        if not ready:
            raise DeadlineExceeded(f"not ended after {seconds:g} s")
        self.agents[agent].wait()
        return now
