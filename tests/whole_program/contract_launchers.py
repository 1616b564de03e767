"""Starts torchrun and ddprun for contract.py and other tests: one agent, or all agents of a multi-node job, each with its own
arguments, environment and folder. A run that exceeds its timeout is killed with all its processes."""

import functools
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
    """Starts agents. start() takes a list with one dict per agent (an order: what to start), and returns the pids. wait()
    returns the exit codes. An order contains `arguments`, `environment`, `cwd`, the paths of the existing files `stdout` and
    `stderr`, and the names of the signals that are ignored and blocked when the agent starts."""

    name = ""

    def start(self, orders: list[dict]) -> list[int]:
        raise NotImplementedError

    def wait(self) -> list[int]:
        raise NotImplementedError

    def run_nodes(self, orders: list[dict], seconds: float, started: Callable[[list[int]], None] = lambda pids: None) -> list[int]:
        """Runs the agents and returns their exit codes. If they run longer than `seconds`, they are killed with all their
        processes, and the test fails."""
        pids = self.start(orders)
        late = threading.Timer(seconds, kill_all, [pids])
        late.start()
        try:
            started(pids)
            codes = self.wait()
        finally:
            in_time = late.is_alive()
            late.cancel()
        output = "\n".join(pathlib.Path(order[name]).read_text(errors="replace") for order in orders for name in ("stdout", "stderr"))
        assert in_time, f"{type(self).__name__} did not finish within {seconds} s:\n{output}"
        return codes

    def run(self, order: dict, seconds: float) -> int:
        return self.run_nodes([order], seconds)[0]


class Torchrun(Launcher):
    """Starts torchrun. It sends the orders to the process torchrun_server.py, which runs the agents."""

    name = "torchrun"

    @functools.cached_property
    def _started(self) -> tuple[subprocess.Popen, list]:
        """Returns the server process and the options of torchrun. The server imports torch, so it is started only on first
        use. A test that uses stored results of torchrun (references.py) does not need the server."""
        environment = jobs.clean_environment()
        environment.pop("OMP_NUM_THREADS")
        server = subprocess.Popen([sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment)
        return server, json.loads(server.stdout.readline())

    @property
    def _server(self) -> subprocess.Popen:
        return self._started[0]

    @property
    def options(self) -> list:
        return self._started[1]

    def start(self, orders: list[dict]) -> list[int]:
        print(json.dumps(orders), file=self._server.stdin)
        return json.loads(self._server.stdout.readline())

    def wait(self) -> list[int]:
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        if "_started" in vars(self):
            self._server.stdin.close()
            self._server.stdout.close()
            self._server.wait(timeout=30)


class Ddprun(Launcher):
    """Runs ddprun. The agents of a multi-node job share a secret token, which torchrun does not have."""

    name = "ddprun"

    def __init__(self, program: pathlib.Path) -> None:
        self._program = program
        self._running: list[subprocess.Popen] = []

    def start(self, orders: list[dict]) -> list[int]:
        token = {"DDPRUN_TOKEN": os.urandom(32).hex()} if len(orders) > 1 else {}
        self._running = []
        for order in orders:
            # If no option sets the order of the nodes, torchrun sorts them by pid, and ddprun sorts them by the order of their
            # arrival. So the nodes are started one after the other.
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
        """Waits until the first agent has become the coordinator. Polls the log of the agent, because there is no event for
        new data in a file."""
        while "coordinates the job" not in pathlib.Path(order["stderr"]).read_text() and self._running[0].poll() is None:
            time.sleep(0.005)


def kill_all(pids: list[int]) -> None:
    for each in [process for pid in pids for process in (pid, *jobs.children(pid))]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass
