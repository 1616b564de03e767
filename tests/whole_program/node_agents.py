"""Provides the agents of a multi-node job, and readers of the files that their workers write. The tests of multi-node jobs,
private hosts and network faults use this file."""

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

PATIENCE = 60  # time limit in seconds; only a failing test waits for so long


def lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def suspended_process(pid: int):
    """Stops a process with SIGSTOP during the `with` block. Without this stop, a small job on a fast machine would end before
    the event for which the test waits."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):  # the process has ended in the meantime
            os.kill(pid, signal.SIGCONT)


def keep_records(state: pathlib.Path, host: str | None = None) -> str:
    """Creates the state folder of a machine on which jobs have run before, and returns the value for $XDG_STATE_HOME. If this
    folder did not exist, the first node would start the job and would not query the other nodes."""
    (state / "ddprun" / "nodes" / (host or socket.gethostname())).mkdir(parents=True, exist_ok=True)
    return str(state)


def subcommand_words(words: list[str]) -> list[str]:
    """Removes the words that must precede the options, and returns them."""
    count = {"join": 2, "doctor": 1}.get(words[0], 0) if words else 0
    return [words.pop(0) for _ in range(count)]


class Nodes:
    """The agents of one job. The output of each agent is in a file. Agents that are still running at the end of the test are
    killed."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path):
        self.ddprun, self.folder = ddprun, folder
        self.agents: list[subprocess.Popen] = []
        self.token = folder / "token"
        self.token.write_text(os.urandom(32).hex() + "\n")
        self.token.chmod(0o600)
        self.environment = jobs.clean_environment(XDG_CONFIG_HOME=str(folder / "config"), XDG_STATE_HOME=keep_records(folder / "state"),
                                                  TMPDIR=str(folder))

    def start(self, *args, token: pathlib.Path | None = None, **environment: str) -> subprocess.Popen:
        """Starts an agent with these arguments, which follow the option `--token-file`."""
        number = len(self.agents)
        words = [str(a) for a in args]
        first = subcommand_words(words)
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
        """Polls until the condition returns a true value, and returns that value. Polling is necessary, because other
        processes write the files, and there is no event for this."""
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            if time.monotonic() > end:
                pytest.fail(f"timeout while waiting for {what}\n{self.all_text()}")
            time.sleep(0.01)
        return found

    def until_printed(self, number: int, pattern: str) -> re.Match:
        return self.until(lambda: re.search(pattern, self.text(number)), f"agent {number} to print {pattern}")

    def close(self):
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()


LINE = ('echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK $ROLE_WORLD_SIZE '
        '$TORCHELASTIC_RESTART_COUNT" > $OUT/tmp-$RANK-$TORCHELASTIC_RESTART_COUNT; '
        'mv $OUT/tmp-$RANK-$TORCHELASTIC_RESTART_COUNT $OUT/rank-$RANK-$TORCHELASTIC_RESTART_COUNT')


def worker_line(tmp_path, rank: int, restart: int = 0) -> list[str]:
    return (tmp_path / "out" / f"rank-{rank}-{restart}").read_text().split()
