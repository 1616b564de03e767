"""Runs one case under torchrun and under ddprun and reports the differences: what the workers saw, the signals that they got, the exit code, their
lines on stdout and stderr, and the files in the log folder. test_torchrun_contract.py has the cases on one machine, test_torchrun_nodes.py those on
several machines, and contract_differences.py the intended differences."""

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
DEADLINE = 60  # seconds that one run may take; a typical run takes half a second


@dataclasses.dataclass(frozen=True)
class Case:
    """`arguments` is split at spaces unless it is a list; @script, @program, @python, @module, @port, @dir and @logs are filled in."""

    name: str
    arguments: str | list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    do: dict[str, list[str]] = dataclasses.field(default_factory=dict)  # by worker: "rank.attempt", "rank", "*.attempt" or "*"
    workers: int = 1  # workers expected to start, summed over all attempts; 0: a usage error
    send: tuple[str, ...] = ()  # signals for the launcher once all workers are up; each is sent after the previous one was received
    find: tuple[str, ...] = ()  # regular expressions that the launcher's output must or must not match
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # files written into the working directory
    nodes: tuple[str, ...] = ("",)  # options of single agents; they come before `arguments`
    node_environment: tuple[dict[str, str], ...] = ()  # per-agent variables, in addition to `environment`
    ignored: tuple[str, ...] = ()  # signals that the launcher's caller ignores
    blocked: tuple[str, ...] = ()
    masters: int = 1  # distinct MASTER_ADDR:MASTER_PORT values in one attempt
    since: str = ""  # an option that the case needs; a torchrun without it is too old for this case


@dataclasses.dataclass
class Seen:
    """Everything observed of one agent's run of a case, ready for comparison."""

    exit: int
    workers: dict[str, dict]
    signals: dict[str, list[str]]
    out: list[str]
    err: list[str]
    logs: dict[str, object]
    temporary: dict[str, object]
    left: list[str]
    found: dict[str, bool]
    output: str  # not compared: used in messages only

    def flat(self) -> dict[str, object]:
        """All values in one flat dictionary, with names such as workers/1.0/environment/RANK."""
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
    """Runs the case in `folder`, which is deleted and created first, so both launchers get the same paths. Returns the observations of each node."""
    shutil.rmtree(folder, ignore_errors=True)
    meeting_name = f"ddprun-contract-{os.getpid()}"
    places = [folder / f"node-{number}" if len(case.nodes) > 1 else folder for number in range(len(case.nodes))]
    orders = [order_for(case, number, place, port, meeting_name) for number, place in enumerate(places)]
    meeting = Meeting(meeting_name, len(orders), case.workers, case.send)
    try:
        codes = launcher.run_nodes(orders, DEADLINE, meeting.launchers_are)
    finally:
        meeting.close()
    return [seen_of(case, place, port, *result) for place, *result in zip(places, codes, meeting.workers, meeting.signals, strict=True)]


def tokens(folder: pathlib.Path, port: int) -> dict[str, object]:
    return {"@script": PROBE, "@program": folder / "program", "@python": folder / "python", "@module": "probe", "@port": port, "@dir": folder,
            "@logs": folder / "logs"}


def filled(text: str, places: dict[str, object]) -> str:
    for token, value in places.items():
        text = text.replace(token, str(value))
    return text


def order_for(case: Case, number: int, folder: pathlib.Path, port: int, meeting_name: str) -> dict:
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


def seen_of(case: Case, folder: pathlib.Path, port: int, code: int, workers: dict, signals: dict) -> Seen:
    out, err = ((folder / name).read_bytes().decode("utf-8", "backslashreplace") for name in ("stdout", "stderr"))
    work = folder / "work"
    return Seen(exit=code, workers={who: normalised(seen) for who, seen in sorted(workers.items())},
                signals=dict(sorted(signals.items())), out=told(out), err=told(err), logs=tree(folder / "logs"), temporary=tree(folder / "tmp"),
                left=sorted(str(p.relative_to(work)) for p in work.rglob("*") if p.name not in case.files),
                found={pattern: bool(re.search(filled(pattern, tokens(folder, port)), out + err, re.MULTILINE)) for pattern in case.find},
                output=out + err)


def told(text: str) -> list[str]:
    """The workers' lines, which all carry probe.py's mark. They are sorted, because ranks interleave at random."""
    return sorted(line for line in text.splitlines() if "~>" in line)


RANDOM_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def normalised(seen: dict) -> dict:
    """Replaces values that are random by design: ids, and the folder names made from them."""
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
    """All files with their text (error files without the time), and empty folders."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = without_random(str(path.relative_to(folder)))
        if path.is_dir():
            if not any(path.iterdir()):
                found[name + "/"] = "an empty folder"
        elif path.name == "report.json":  # ddprun's own files, tested elsewhere
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
    """A port that is free on every address, because launchers listen on all of them."""
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
