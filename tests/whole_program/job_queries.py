"""Provides running jobs for tests of the commands that query a job: a job whose workers wait, functions that query it, and a
simulated agent whose answers a test chooses."""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import jobs
import pytest
from jobs import clean_environment
from node_agents import PATIENCE

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas/status.schema.json").read_text(encoding="utf-8"))
WAITS = """
import os, sys, time
print("rank", os.environ["RANK"], "waits", flush=True)
print("a word on stderr", file=sys.stderr, flush=True)
open(os.environ["READY"] + os.environ["RANK"], "w").close()
sys.stdin.readline()
print("rank", os.environ["RANK"], "continues", flush=True)
sys.stdin.readline()
"""


class Job:
    def __init__(self, ddprun_bin, folder, *words, **variables):
        self.variables = {"XDG_RUNTIME_DIR": str(folder / "runtime"), "PYTHON_EXEC": sys.executable, **variables}
        self.bin, self.folder, self.runtime = ddprun_bin, folder, pathlib.Path(self.variables["XDG_RUNTIME_DIR"])
        self.process = subprocess.Popen([ddprun_bin, *[str(word) for word in words]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=clean_environment(**self.variables), text=True, cwd=folder)
        self.pid = self.process.pid

    def until(self, pattern):
        seen = ""
        while not re.search(pattern, seen):
            line = self.process.stdout.readline()
            assert line, seen
            seen += line
        return seen

    def until_it_listens(self):
        """Waits for the job's socket, which the agent creates about a tenth of a second after its start."""
        jobs.wait_for(lambda: (self.runtime / "ddprun" / f"{self.pid}.sock").exists(), "the job's socket")

    def query(self, *words, code=0):
        done = subprocess.run([self.bin, *[str(word) for word in words]], capture_output=True, text=True, timeout=PATIENCE, cwd=self.folder, check=False,
                              env=clean_environment(**self.variables))
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def status(self, *which):
        # The import is only in this function, because the machine of ./dev gpu also imports this file and may not have this
        # module.
        import jsonschema

        status = json.loads(self.query("status", *which, "--json"))
        jsonschema.validate(status, SCHEMA)
        assert status.keys() == SCHEMA["properties"].keys() - {"job"}
        return status

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        return self.process.wait(timeout=PATIENCE)


@pytest.fixture
def start(ddprun_bin, tmp_path):
    (tmp_path / "runtime").mkdir()
    started = []

    def start_job(*words, **variables):
        started.append(Job(ddprun_bin, tmp_path, *words, **variables))
        return started[-1]

    yield start_job
    for job in started:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGCONT)
            job.process.kill()
        job.process.wait()
        job.process.stdin.close()
        job.process.stdout.close()


@pytest.fixture
def waiting(start, tmp_path):
    """Returns a function that starts a job with two workers. Each worker waits for a line on its standard input."""
    (tmp_path / "waits.py").write_text(WAITS)

    def start_waiting(*options, name="waits.py", listens=True, **variables):
        job = start("--nproc-per-node", 2, *options, name, READY=str(tmp_path / "ready"), **variables)
        job.until(r"(?s)(rank \d waits.*){2}" if not options else "waits")
        if listens:
            job.until_it_listens()
        return job

    return start_waiting


class FakeAgent(threading.Thread):
    """Listens at an agent's socket and sends the given answers, for example the answers of a newer, broken or hostile agent.
    If an answer is a function, its return value is sent. None means that nothing is sent."""

    def __init__(self, runtime, answers, pid=os.getpid()):
        super().__init__(daemon=True)
        self.answers = answers
        (runtime / "ddprun").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(runtime / "ddprun" / f"{pid}.sock"))
        self.listener.listen()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with client:
                    word = client.makefile().readline().split()[0]
                    answer = self.answers.get(word)
                    if callable(answer):
                        answer = answer()
                    if answer is not None:
                        client.sendall(json.dumps(answer).encode() + b"\n")

    def end(self):
        """Closes the socket after the thread has ended. If the socket were closed earlier, the next test could open a socket
        with the same descriptor, and this thread could accept a connection on that socket."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.join()
        self.listener.close()
