"""Starts torchrun and ddprun for contract.py and other tests: one agent, or all agents of a multi-node job, each with its own arguments, environment
and folder. A run that takes too long is killed with all its processes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import jobs
from reference.caller_signals import take_signals

SERVER = pathlib.Path(__file__).resolve().parent / "reference" / "torchrun_server.py"


class Launcher:
    """start() returns the pids and wait() the exit codes, one agent per order. An order has arguments, environment, cwd, the files stdout and stderr
    (which exist), and the names of the signals that its caller ignores and blocks."""

    name = ""

    def start(self, orders: list[dict]) -> list[int]:
        raise NotImplementedError

    def wait(self) -> list[int]:
        raise NotImplementedError

    def run_nodes(self, orders: list[dict], seconds: float, started: Callable[[list[int]], None] = lambda pids: None) -> list[int]:
        """Returns the exit codes. A run that takes longer than `seconds` is killed with all its processes, and the test fails."""
        pids = self.start(orders)
        late = threading.Timer(seconds, kill_all, [pids])
        late.start()
        try:
            started(pids)
            codes = self.wait()
        finally:
            in_time = late.is_alive()
            late.cancel()
        said = "\n".join(pathlib.Path(order[name]).read_text(errors="replace") for order in orders for name in ("stdout", "stderr"))
        assert in_time, f"{type(self).__name__} was not done in {seconds} s:\n{said}"
        return codes

    def run(self, order: dict, seconds: float) -> int:
        return self.run_nodes([order], seconds)[0]


class Torchrun(Launcher):
    """Runs torchrun_server.py, which runs the agents."""

    name = "torchrun"

    def __init__(self) -> None:
        environment = jobs.clean_environment()
        environment.pop("OMP_NUM_THREADS")
        self._server = subprocess.Popen([sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=environment)
        self.options = json.loads(self._server.stdout.readline())

    def start(self, orders: list[dict]) -> list[int]:
        print(json.dumps(orders), file=self._server.stdin)
        return json.loads(self._server.stdout.readline())

    def wait(self) -> list[int]:
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(timeout=30)


class Ddprun(Launcher):
    """Runs ddprun. Multi-node jobs get one token, which torchrun does not need."""

    name = "ddprun"

    def __init__(self, program: pathlib.Path) -> None:
        self._program = program
        self._running: list[subprocess.Popen] = []

    def start(self, orders: list[dict]) -> list[int]:
        token = {"DDPRUN_TOKEN": os.urandom(32).hex()} if len(orders) > 1 else {}
        self._running = []
        for order in orders:
            # If nothing else decides which node is first, torchrun orders nodes by pid, and ddprun by arrival.
            if self._running:
                self._wait_for_coordinator(orders[0])
            with open(order["stdout"], "ab") as out, open(order["stderr"], "ab") as err:
                self._running.append(subprocess.Popen([str(self._program), *order["arguments"]], env={**order["environment"], **token},
                                                      cwd=order["cwd"], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                                      preexec_fn=lambda order=order: take_signals(order)))
        return [each.pid for each in self._running]

    def wait(self) -> list[int]:
        return [each.wait() for each in self._running]

    def _wait_for_coordinator(self, order: dict) -> None:
        """Polls the log of another process, because its output gives no event here."""
        while "coordinates the job" not in pathlib.Path(order["stderr"]).read_text() and self._running[0].poll() is None:
            time.sleep(0.005)


def kill_all(pids: list[int]) -> None:
    for each in [process for pid in pids for process in (pid, *jobs.children(pid))]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass
