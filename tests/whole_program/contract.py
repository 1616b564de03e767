"""Runs one case under torchrun or ddprun and collects everything that a user could observe: the environment and arguments of
the workers, the signals that they received, the exit code, the workers' lines on stdout and stderr, and the files in the log
folder.

test_torchrun_contract.py contains the cases on one machine, and test_torchrun_nodes.py the cases on several nodes.
contract_differences.py compares the results of both launchers and lists the intended differences."""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import socket
import sys

from contract_launchers import Launcher
from contract_meeting import Meeting

HERE = pathlib.Path(__file__).resolve().parent
PROBE = HERE / "reference" / "probe.py"
DEADLINE = 60  # time limit of a run in seconds; a typical run takes half a second


@dataclasses.dataclass(frozen=True)
class Case:
    """One command line with its environment and files. `arguments` is split at spaces unless it is a list. In `arguments`, the
    words @script, @program, @python, @module, @dir and @logs are replaced by paths, and @port by the port."""

    name: str
    arguments: str | list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    # Actions of the workers. A key selects workers: "rank.attempt", "rank", "*.attempt" or "*".
    do: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    workers: int = 1  # number of workers expected to start in all attempts together; 0 for a usage error
    # Signals that the launcher receives after all workers have started. The next signal is sent when all workers have reported
    # the previous signal.
    send: tuple[str, ...] = ()
    find: tuple[str, ...] = ()  # regular expressions; each must match the output of both launchers, or of neither launcher
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # files written into the working directory
    nodes: tuple[str, ...] = ("",)  # options of each agent, which precede `arguments`
    node_environment: tuple[dict[str, str], ...] = ()  # environment variables of each agent, in addition to `environment`
    ignored: tuple[str, ...] = ()  # signals that are ignored when the launcher starts
    blocked: tuple[str, ...] = ()
    masters: int = 1  # number of distinct MASTER_ADDR:MASTER_PORT values of the workers in one attempt
    since: str = ""  # an option that the case needs; the case is skipped if this torchrun lacks it


@dataclasses.dataclass
class Seen:
    """All observations of one agent while it ran a case, in a format that can be compared."""

    exit: int
    workers: dict[str, dict]
    signals: dict[str, list[str]]
    out: list[str]
    err: list[str]
    logs: dict[str, object]
    temporary: dict[str, object]
    left: list[str]
    found: dict[str, bool]
    output: str  # not compared, but shown in failure messages

    def flat(self) -> dict[str, object]:
        """Returns all values in one flat dictionary, with keys such as workers/1.0/environment/RANK."""
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


def observe(launcher: Launcher, case: Case, folder: pathlib.Path, port: int) -> list[Seen]:
    """Runs the case in `folder`. The folder is first deleted and created again, so that both launchers receive the same paths.
    Returns the observations of each node."""
    shutil.rmtree(folder, ignore_errors=True)
    meeting_name = f"ddprun-contract-{os.getpid()}"
    places = [folder / f"node-{number}" if len(case.nodes) > 1 else folder for number in range(len(case.nodes))]
    orders = [worker_order(case, number, place, port, meeting_name) for number, place in enumerate(places)]
    meeting = Meeting(meeting_name, len(orders), case.workers, case.send)
    try:
        codes = launcher.run_nodes(orders, DEADLINE, meeting.launchers_are)
    finally:
        meeting.close()
    return [observed_result(case, place, port, *result) for place, *result in zip(places, codes, meeting.workers, meeting.signals, strict=True)]


def tokens(folder: pathlib.Path, port: int) -> dict[str, object]:
    return {"@script": PROBE, "@program": folder / "program", "@python": folder / "python", "@module": "probe", "@port": port, "@dir": folder,
            "@logs": folder / "logs"}


def filled(text: str, places: dict[str, object]) -> str:
    for token, value in places.items():
        text = text.replace(token, str(value))
    return text


def worker_order(case: Case, number: int, folder: pathlib.Path, port: int, meeting_name: str) -> dict:
    work, temporary = folder / "work", folder / "tmp"
    for each in (work, temporary):
        each.mkdir(parents=True)
    for name, command in (("program", f'"{sys.executable}" -u "{PROBE}"'), ("python", f'"{sys.executable}" -X utf8')):
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    for name, content in case.files.items():
        (work / name).write_text(content, encoding="utf-8")
    (folder / "stdout").touch()
    (folder / "stderr").touch()
    places = tokens(folder, port)
    arguments = [*case.nodes[number].split(), *(case.arguments.split() if isinstance(case.arguments, str) else case.arguments)]
    environment = {name: os.environ[name] for name in ("HOME", "LANG", "LD_LIBRARY_PATH") if name in os.environ}
    environment |= {"TMPDIR": str(temporary), "PYTHONPATH": str(PROBE.parent), "PYTHONDONTWRITEBYTECODE": "1",
                    "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(folder / "state"),
                    "PROBE_SOCKET": meeting_name, "PROBE_NODE": str(number), "PROBE_DO": json.dumps(case.do)}
    own = case.node_environment[number] if case.node_environment else {}
    environment |= {name: filled(value, places) for name, value in (case.environment | own).items()}
    return {"arguments": [filled(each, places) for each in arguments], "environment": environment, "cwd": str(work),
            "stdout": str(folder / "stdout"), "stderr": str(folder / "stderr"), "ignored": case.ignored, "blocked": case.blocked}


def observed_result(case: Case, folder: pathlib.Path, port: int, code: int, workers: dict, signals: dict) -> Seen:
    out, err = ((folder / name).read_bytes().decode("utf-8", "backslashreplace") for name in ("stdout", "stderr"))
    work = folder / "work"
    return Seen(exit=code, workers={worker: normalised(seen) for worker, seen in sorted(workers.items())},
                signals=dict(sorted(signals.items())), out=worker_lines(out), err=worker_lines(err), logs=tree(folder / "logs"), temporary=tree(folder / "tmp"),
                left=sorted(str(p.relative_to(work)) for p in work.rglob("*") if p.name not in case.files),
                found={pattern: bool(re.search(filled(pattern, tokens(folder, port)), out + err, re.MULTILINE)) for pattern in case.find},
                output=out + err)


def worker_lines(text: str) -> list[str]:
    """Returns the output lines of the workers, which contain the marker of probe.py. The lines are sorted, because lines of
    different ranks arrive in random order."""
    return sorted(line for line in text.splitlines() if "~>" in line)


RANDOM_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def normalised(seen: dict) -> dict:
    """Replaces random ids, and the names of folders that contain such ids, by fixed texts. So two runs can be compared."""
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
    """Returns {path of each file: its text} for the files below the folder. For an empty folder, the text is a fixed word.
    Times in error files are removed."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = without_random(str(path.relative_to(folder)))
        if path.is_dir():
            if not any(path.iterdir()):
                found[name + "/"] = "an empty folder"
        elif path.name == "report.json":  # only ddprun writes this file; test_report.py tests it
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
    """Returns a port that is free on every address, because launchers listen on all addresses."""
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
