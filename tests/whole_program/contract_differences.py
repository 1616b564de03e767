"""Compares the results of one case under torchrun and under ddprun. Only the intended differences in DIFFERENCES are allowed;
docs/torchrun.md describes these differences for users. test_torchrun_contract.py and test_torchrun_nodes.py contain the
cases."""

import dataclasses
import pathlib
import re
import time

import contract
import pytest
from contract import Case
from contract_launchers import Ddprun, Launcher
from node_agents import PATIENCE


@dataclasses.dataclass(frozen=True)
class Difference:
    """An intended difference. The regular expressions `name`, `theirs` and `ours` must fully match the name of the compared
    value, the value of torchrun and the value of ddprun. `cases` must fully match the name of the case."""

    name: str
    theirs: str
    ours: str
    why: str
    cases: str = ".*"
    nodes: bool = False  # true if the difference occurs only in test_torchrun_nodes.py
    since: str = ""  # the first torchrun version in which the difference occurs; empty for all versions


CHOSEN_BY_THE_LAUNCHER = "c10d.*|standalone.*|.*: standalone, module|rdzv-conf in quotes"  # cases in which the launcher chooses the address and the port
EMPTY = ".*an empty folder"

DIFFERENCES = [
    Difference(r"workers/.*/environment/MASTER_ADDR", ".*", "127.0.0.1", "on one machine no name must be resolved", CHOSEN_BY_THE_LAUNCHER),
    Difference(r"workers/.*/environment/MASTER_PORT", r"\d+", r"\d+", "a free port, another in each run", CHOSEN_BY_THE_LAUNCHER),
    Difference("exit", "1", "2", "a command line that cannot be obeyed is a usage error, whichever part of it"),
    Difference("exit", "1", r"[3-9]|1[2-4]\d", "the failed worker's own exit code, 128+N for a signal"),
    Difference(r"(temporary|logs)/.*report\.json", "<nothing>", "a report", "each run leaves a report where its logs are"),
    Difference("temporary/.*", EMPTY, "<nothing>", "a temporary log folder without logs is removed after success and usage errors"),
    Difference("out", ".*\N{REPLACEMENT CHARACTER}.*", r".*xff.*xfe.*", "teed bytes that are not UTF-8 stay as they are", "tee of odd bytes"),
    Difference("workers/.*/python", ".*spawn_main.*", ".*'-u'.*", "its own interpreter, not a fork of the launcher's", ".*run-path.*"),
    Difference("workers/.*/leads", ".*", r"\['session', 'group'\]", "each worker leads its own session, here as well", ".*run-path.*"),
    Difference("exit|workers/.*", "2|<nothing>", ".*", "options end at the script: its arguments are never taken for abbreviations",
               "script arguments that start like options"),
    Difference("workers/.*/(argv|python)", ".*'--', 'x', '--'.*", ".*'--', '--', 'x', '--'.*", "a -- after the script is the script's",
               "-- after the script only"),
    Difference("exit|workers/.*", "1|<nothing>", ".*", "quotes round the whole configuration work under static as well",
               "rdzv-conf in quotes, static"),
    Difference("exit|workers/.*", "1|<nothing>", ".*", "an endpoint's port may be left out", "static endpoint without a port"),
    Difference("exit|workers/.*", "1|<nothing>", ".*", "an empty variable is as good as none", "a flag's variable that is empty"),
    Difference("workers/.*/environment/ROLE_NAME", "", "default", "an empty variable is as good as none, here too", "an empty variable"),
    Difference("workers/.*/ignored", "[0-9a-f]{15}0", "[0-9a-f]{15}1", "what nohup protects stays protected, its workers too", "nohup"),
    Difference("workers/.*/ignored", ".*1....", ".*0....", "an ignored SIGCHLD would lose the exit codes of all children", ".*SIGCHLD"),
    Difference("workers/.*/blocked", ".*", "0{16}", "a worker that blocks SIGTERM could not be stopped", ".*caller blocks"),
    Difference("workers/.*/environment/TORCHELASTIC_RESTART_COUNT", "0", "1", "restarts are counted once for the whole job", "c10d: a restart",
               nodes=True),
    Difference("logs/.*attempt_[01]/.*|workers/.*/TORCHELASTIC_ERROR_FILE", ".*", ".*", "each attempt has its folder on every node; torchrun's "
               "healthy node writes over its first one", "c10d: a restart", nodes=True),
    Difference("workers/.*/environment/(TORCHELASTIC_(RUN_ID|ERROR_FILE)|MASTER_(ADDR|PORT))", ".*", ".*none.*|127.0.0.1|29500",
               "a job on one machine that names no port is still static: 29500 and the id none, or a free port where 29500 is taken",
               "defaults", since="2.15"),
    Difference("workers/.*/environment/DDPRUN_CHANNEL", "<nothing>", "fd:3", "a script may report its progress (import ddprun)"),
    Difference("workers/.*/environment/DDPRUN_CHANNEL_INODE", "<nothing>", r"\d+", "and know that the descriptor is still its channel"),
    Difference("workers/.*/environment/DDPRUN_SNAPSHOTS", "<nothing>", r"/proc/\d+/fd/\d+:\d+", "a script may keep snapshots (import ddprun)"),
    Difference(r"workers/.*/environment/DDPRUN_(GENERATION|NODE_ADDRESS)", "<nothing>", ".*", "a node without a snapshot gets another one's",
               nodes=True),
    Difference(r"workers/.*/environment/DDPRUN_(RESTART_CAUSE|OOM_COUNT)", "<nothing>", ".*", "a script receives the cause of its restart"),
    Difference("exit", "1", "0", "completion needs no package", "print.completion of a shell", since="2.15"),
    Difference("exit|workers/.*", "1|<nothing>", ".*", "names a Python class, which has no effect", "logs.specs"),
]

PORT_TAKEN = r"EADDRINUSE|address already in use|master port \d+ is "
used: set[Difference] = set()


def compare(torchrun: Launcher, ddprun_bin: pathlib.Path, case: Case, folder: pathlib.Path) -> None:
    theirs, ours = on_a_free_port(torchrun, Ddprun(ddprun_bin), case, folder)
    output = "".join(f"\n--- {name}, node {number}:\n{seen.output}" for name, nodes in (("torchrun", theirs), ("ddprun", ours))
                     for number, seen in enumerate(nodes))
    assert sum(len(seen.workers) for seen in theirs) == case.workers, f"torchrun started another number of workers than this case expects:{output}"
    left = [f"node {number}: {line}" for number, (their, our) in enumerate(zip(theirs, ours, strict=True))
            for line in differences(case, their.flat(), our.flat())]
    left += [f"{name}: workers of one attempt have several masters: {found}" for name, nodes in (("torchrun", theirs), ("ddprun", ours))
             for found in masters(nodes) if len(found) > case.masters]
    assert not left, "\n".join(left) + output


def masters(nodes: list[contract.Seen]) -> list[set[str]]:
    """Returns for each attempt the set of MASTER_ADDR:MASTER_PORT values that its workers received."""
    found: dict[str, set[str]] = {}
    for seen in nodes:
        for worker_name, worker in seen.workers.items():
            environment = worker["environment"]
            found.setdefault(f"{environment['TORCHELASTIC_RUN_ID']} {worker_name.partition('.')[2]}", set()).add(
                f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}")
    return list(found.values())


def on_a_free_port(torchrun: Launcher, ddprun: Launcher, case: Case, folder: pathlib.Path) -> list[list[contract.Seen]]:
    """Runs the case under both launchers. If another process binds the port before a launcher can bind it, both launchers run
    again with a different port."""
    by_default = case.name in ("defaults", "static endpoint without a port")
    for last in [False] * 9 + [True]:
        port = default_port() if by_default else contract.free_port()
        seen = []
        for launcher in (torchrun, ddprun):
            seen.append(contract.observe(launcher, case, folder, port))
            gave_way = by_default and launcher is ddprun and any(not master.endswith(f":{port}") for found in masters(seen[-1]) for master in found)
            if not last and (gave_way or any(re.search(PORT_TAKEN, node.output) for node in seen[-1])):
                break
        else:
            return seen
    raise AssertionError("not reached")


def default_port() -> int:
    """Waits until port 29500 is free, because another test may use it. Polls, because the kernel has no event for a port that
    becomes free."""
    end = time.monotonic() + PATIENCE
    while not contract.can_be_bound(29500):
        if time.monotonic() > end:
            pytest.skip("port 29500 is taken by another process")
        time.sleep(0.1)
    return 29500


def workers_of(flat: dict[str, object]) -> set[str]:
    return {name.split("/")[1] for name in flat if name.startswith("workers/")}


def differences(case: Case, theirs: dict[str, object], ours: dict[str, object]) -> list[str]:
    left = []
    only_one = {f"workers/{worker_name}" for worker_name in workers_of(theirs) ^ workers_of(ours)}
    theirs, ours = ({name: value for name, value in flat.items() if not any(name.startswith(worker_name + "/") for worker_name in only_one)}
                    | {worker_name: "a worker" for worker_name in only_one if worker_name.removeprefix("workers/") in workers_of(flat)} for flat in (theirs, ours))
    for name in sorted({*theirs, *ours}):
        their, our = str(theirs.get(name, "<nothing>")), str(ours.get(name, "<nothing>"))
        if their == our:
            continue
        allowed = [d for d in DIFFERENCES if re.fullmatch(d.name, name) and re.fullmatch(d.theirs, their, re.DOTALL)
                   and re.fullmatch(d.ours, our, re.DOTALL) and re.fullmatch(d.cases, case.name)]
        used.update(allowed)
        if not allowed:
            left.append(f"{name}: torchrun {their}, ddprun {our}")
    return left
