"""The agents of a multi-node job, and the files that their workers leave. Used by the tests of nodes, hosts and networks."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import jobs
import pytest

PATIENCE = 60  # seconds; only a failing test waits that long


def lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def held_up(pid: int):
    """Stops the process meanwhile. Otherwise a small job on a fast machine ends before the event that the test waits for."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # the process was ended meanwhile
            os.kill(pid, signal.SIGCONT)


def keep_records(state: pathlib.Path, host: str | None = None) -> str:
    """Sets $XDG_STATE_HOME to that of a machine on which jobs have run before. A first node that finds no state there would not query the others."""
    (state / "ddprun" / "nodes" / (host or socket.gethostname())).mkdir(parents=True, exist_ok=True)
    return str(state)


class Nodes:
    """The agents of one job, each with its output in a file. Agents that still run at the end are killed."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path):
        self.ddprun, self.folder = ddprun, folder
        self.agents: list[subprocess.Popen] = []
        self.token = folder / "token"
        self.token.write_text(os.urandom(32).hex() + "\n")
        self.token.chmod(0o600)
        self.environment = jobs.clean_environment(XDG_CONFIG_HOME=str(folder / "config"), XDG_STATE_HOME=keep_records(folder / "state"),
                                                  TMPDIR=str(folder))

    def start(self, *args, token: pathlib.Path | None = None, **environment: str) -> subprocess.Popen:
        """Options first; --token-file goes before them."""
        number = len(self.agents)
        words = [str(a) for a in args]
        first = [words.pop(0), words.pop(0)] if words and words[0] == "join" else []
        command = [str(self.ddprun), *first, "--token-file", str(token or self.token), *words]
        with open(self.output(number), "wb") as output:
            agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                     cwd=self.folder, env={**self.environment, **environment})
        self.agents.append(agent)
        return agent

    def output(self, number: int) -> pathlib.Path:
        return self.folder / f"agent-{number}.log"

    def text(self, number: int) -> str:
        return self.output(number).read_text(errors="replace")

    def all_text(self) -> str:
        return "".join(f"--- agent {n} ---\n{self.text(n)}" for n in range(len(self.agents)))

    def wait(self) -> list[int]:
        end = time.monotonic() + PATIENCE
        try:
            return [agent.wait(timeout=max(0.1, end - time.monotonic())) for agent in self.agents]
        except subprocess.TimeoutExpired:
            pytest.fail(self.all_text())

    def until(self, condition, what: str):
        """Polls the files, because other processes give no other event here."""
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            if time.monotonic() > end:
                pytest.fail(f"waited in vain for {what}\n{self.all_text()}")
            time.sleep(0.01)
        return found

    def until_said(self, number: int, pattern: str) -> re.Match:
        return self.until(lambda: re.search(pattern, self.text(number)), f"agent {number} saying {pattern}")

    def close(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()


LINE = ('echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE '
        '$TORCHELASTIC_RESTART_COUNT" > $OUT/tmp-$RANK-$TORCHELASTIC_RESTART_COUNT; '
        'mv $OUT/tmp-$RANK-$TORCHELASTIC_RESTART_COUNT $OUT/rank-$RANK-$TORCHELASTIC_RESTART_COUNT')


def said(tmp_path, rank: int, restart: int = 0) -> list[str]:
    return (tmp_path / "out" / f"rank-{rank}-{restart}").read_text().split()
