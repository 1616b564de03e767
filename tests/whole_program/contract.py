"""Runs one case under torchrun and under ddprun and says where they differ: what the workers saw, the signals they got, exit code,
their lines on stdout and stderr, the files in the log folder. test_torchrun_contract.py has the cases and the intended differences."""

import dataclasses
import json
import os
import pathlib
import queue
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import jobs

HERE = pathlib.Path(__file__).resolve().parent
PROBE = HERE / "reference" / "probe.py"
SERVER = HERE / "reference" / "torchrun_server.py"
DEADLINE = 60  # seconds for one run; a run takes half a second


@dataclasses.dataclass(frozen=True)
class Case:
    """`arguments` is split at spaces unless it is a list; @script, @program, @python, @module, @port, @dir and @logs are filled in."""

    name: str
    arguments: str | list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    do: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # by worker: "rank.attempt", "rank", "*.attempt" or "*"
    workers: int = 1  # that come up, over all attempts; 0: a usage error
    send: tuple[str, ...] = ()  # signals for the launcher when all workers are up, one after the other was received
    find: tuple[str, ...] = ()  # expressions that the launcher's output has or has not
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # written into the working directory


@dataclasses.dataclass
class Seen:
    """What one launcher made of a case, ready to be compared."""

    exit: int
    workers: dict[str, dict]
    signals: dict[str, list[str]]
    out: list[str]
    err: list[str]
    logs: dict[str, object]
    temporary: dict[str, object]
    left: list[str]
    found: dict[str, bool]
    output: str  # not compared: for messages

    def flat(self) -> dict[str, object]:
        """One value a name, such as workers/1.0/environment/RANK."""
        flat: dict[str, object] = {}

        def add(name: str, value: object) -> None:
            if isinstance(value, dict) and (value or name.count("/") < 1):
                for key, inner in value.items():
                    add(f"{name}/{key}", inner)
            else:
                flat[name] = value

        for field in dataclasses.fields(self):
            if field.name != "output":
                add(field.name, getattr(self, field.name))
        return flat


class Meeting:
    """The socket where probes say what they see. Workers of one attempt go on when all of them have come. Then the launcher is sent the
    case's signals, each when all workers have told of the one before."""

    def __init__(self, name: str, expected: int, send: tuple[str, ...]) -> None:
        self.workers: dict[str, dict] = {}
        self.signals: dict[str, list[str]] = {}
        self._expected, self._waiting = expected, {}
        self._send, self._sent, self._pid = send, 0, queue.SimpleQueue()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + name)
        self._listener.listen(64)
        self._wake, self._ended = os.pipe()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def launcher_is(self, pid: int) -> None:
        self._pid.put(pid)

    def close(self) -> None:
        os.close(self._ended)
        self._thread.join()
        self._listener.close()
        os.close(self._wake)

    def _serve(self) -> None:
        unfinished: dict[socket.socket, bytes] = {}
        while True:
            ready, _, _ = select.select([self._wake, self._listener, *unfinished], [], [])
            if self._listener in ready:
                unfinished[self._listener.accept()[0]] = b""
            for link in [link for link in ready if link in unfinished]:
                try:
                    data = link.recv(1 << 16)
                except ConnectionResetError:  # it ended without reading our answer; what it said comes with the next recv
                    continue
                *lines, rest = (unfinished.pop(link) + data).split(b"\n")
                for line in lines:
                    self._heard(json.loads(line), link)
                if data:
                    unfinished[link] = rest
                else:
                    link.close()
            if self._wake in ready and len(ready) == 1:
                for link in unfinished:
                    link.close()
                return

    def _heard(self, message: dict, link: socket.socket) -> None:
        who = message["who"]
        if "signal" in message:
            self.signals.setdefault(who, []).append(message["signal"])
            self._send_next()
            return
        self.workers[who] = message["seen"]
        together = self._waiting.setdefault(who.partition(".")[2], [])
        together.append(link)
        if len(together) == int(message["seen"]["environment"]["WORLD_SIZE"]):
            for each in together:
                each.sendall(b"!")
            self._send_next()

    def _send_next(self) -> None:
        told_of = sum(map(len, self.signals.values()))
        if self._sent < len(self._send) and len(self.workers) == self._expected and told_of == self._sent * self._expected:
            pid = self._pid.get(timeout=DEADLINE)
            self._pid.put(pid)
            self._sent += 1
            os.kill(pid, getattr(signal, self._send[self._sent - 1]))


class Launcher:
    """start() says the pid, wait() the exit code. An order has arguments, environment, cwd, stdout and stderr (files that exist)."""

    def start(self, order: dict) -> int:
        raise NotImplementedError

    def wait(self) -> int:
        raise NotImplementedError

    def run(self, order: dict, seconds: float, started: Callable[[int], None] = lambda pid: None) -> int:
        """The exit code. A run that takes longer than `seconds` is killed, all its processes with it, and fails the test."""
        pid = self.start(order)
        late = threading.Timer(seconds, kill_all, [pid])
        late.start()
        try:
            started(pid)
            code = self.wait()
        finally:
            in_time = late.is_alive()
            late.cancel()
        said = "\n".join(pathlib.Path(order[name]).read_text(errors="replace") for name in ("stdout", "stderr"))
        assert in_time, f"{type(self).__name__} was not done in {seconds} s:\n{said}"
        return code


class Torchrun(Launcher):
    """torchrun_server.py and the case that it runs."""

    def __init__(self) -> None:
        environment = jobs.clean_environment()
        environment.pop("OMP_NUM_THREADS")
        self._server = subprocess.Popen([sys.executable, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        env=environment)
        self.options = json.loads(self._server.stdout.readline())

    def start(self, order: dict) -> int:
        print(json.dumps(order), file=self._server.stdin)
        return json.loads(self._server.stdout.readline())

    def wait(self) -> int:
        return json.loads(self._server.stdout.readline())

    def close(self) -> None:
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(timeout=30)


class Ddprun(Launcher):
    def __init__(self, program: pathlib.Path) -> None:
        self._program = program
        self._running: subprocess.Popen | None = None

    def start(self, order: dict) -> int:
        with open(order["stdout"], "ab") as out, open(order["stderr"], "ab") as err:
            self._running = subprocess.Popen([str(self._program), *order["arguments"]], env=order["environment"], cwd=order["cwd"],
                                             stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        return self._running.pid

    def wait(self) -> int:
        return self._running.wait()


def observe(launcher: Launcher, case: Case, folder: pathlib.Path, port: int) -> Seen:
    """Runs the case in `folder`, which is made anew: both launchers get the very same paths."""
    shutil.rmtree(folder, ignore_errors=True)
    work, temporary, logs = folder / "work", folder / "tmp", folder / "logs"
    for each in (work, temporary):
        each.mkdir(parents=True)
    program = folder / "program"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -u "{PROBE}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -X utf8 "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    for name, content in case.files.items():
        (work / name).write_text(content, encoding="utf-8")
    (folder / "stdout").touch()
    (folder / "stderr").touch()

    places = {"@script": PROBE, "@program": program, "@python": python, "@module": "probe", "@port": port, "@dir": folder, "@logs": logs}

    def filled(text: str) -> str:
        for token, value in places.items():
            text = text.replace(token, str(value))
        return text

    arguments = case.arguments.split() if isinstance(case.arguments, str) else case.arguments
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    environment |= {"TMPDIR": str(temporary), "PYTHONPATH": str(PROBE.parent), "PYTHONDONTWRITEBYTECODE": "1",
                    "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
                    "PROBE_SOCKET": f"ddprun-contract-{os.getpid()}", "PROBE_DO": json.dumps(case.do)}
    for name, value in case.environment.items():
        environment[name] = filled(value)
    meeting = Meeting(environment["PROBE_SOCKET"], case.workers, case.send)
    order = {"arguments": [filled(each) for each in arguments], "environment": environment, "cwd": str(work),
             "stdout": str(folder / "stdout"), "stderr": str(folder / "stderr")}
    try:
        code = launcher.run(order, DEADLINE, meeting.launcher_is)
    finally:
        meeting.close()
    out, err = ((folder / name).read_bytes().decode("utf-8", "backslashreplace") for name in ("stdout", "stderr"))
    return Seen(exit=code, workers={who: normalised(seen) for who, seen in sorted(meeting.workers.items())},
                signals=dict(sorted(meeting.signals.items())), out=told(out), err=told(err), logs=tree(logs), temporary=tree(temporary),
                left=sorted(str(p.relative_to(work)) for p in work.rglob("*") if p.name not in case.files),
                found={pattern: bool(re.search(filled(pattern), out + err, re.MULTILINE)) for pattern in case.find}, output=out + err)


def kill_all(pid: int) -> None:
    for each in [pid, *jobs.children(pid)]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass


def told(text: str) -> list[str]:
    """The workers' lines, which all have probe.py's mark, in an order of their own: ranks interleave as they like."""
    return sorted(line for line in text.splitlines() if "~>" in line)


RANDOM_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def normalised(seen: dict) -> dict:
    """What is random by intention: ids, and the folder names made from them."""
    environment = seen["environment"]
    if re.fullmatch(RANDOM_ID, environment.get("TORCHELASTIC_RUN_ID", "")):
        environment["TORCHELASTIC_RUN_ID"] = "<uuid>"
    if "TORCHELASTIC_ERROR_FILE" in environment:
        environment["TORCHELASTIC_ERROR_FILE"] = without_random(environment["TORCHELASTIC_ERROR_FILE"])
    return seen


def without_random(path: str) -> str:
    path = re.sub(RANDOM_ID, "<uuid>", path)
    path = re.sub(r"torchelastic_[^/]+", "torchelastic_*", path)
    return re.sub(r"_(?:[A-Za-z0-9]{6}|[a-z0-9_]{8})(?=/attempt_\d)", "_*", path)


def tree(folder: pathlib.Path) -> dict[str, object]:
    """Files with their text, error files without the time, and empty folders."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = without_random(str(path.relative_to(folder)))
        if path.is_dir():
            if not any(path.iterdir()):
                found[name + "/"] = "an empty folder"
        elif path.name == "report.json":  # ddprun's, tested elsewhere
            found[name] = "a report"
        elif path.suffix == ".json":
            found[name] = without_time(json.loads(path.read_text(encoding="utf-8")))
        else:
            found[name] = sorted(path.read_bytes().decode("utf-8", "backslashreplace").splitlines(keepends=True))
    return found


def without_time(value: object) -> object:
    if isinstance(value, dict):
        return {key: "<time>" if key == "timestamp" else without_time(inner) for key, inner in value.items()}
    return value


def free_port() -> int:
    """Free on every address: launchers listen on all of them."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as s:
        if s.family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("", 0))
        return s.getsockname()[1]


def can_be_bound(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
