"""Faults for --chaos, drawn from a seed, and what must hold afterwards. Shared by test_soak.py and bench/soak_bench.py."""

import json
import os
import pathlib
import random

KINDS = ("kill", "segv", "exit=7", "exit=1")  # oom changes the sums' order, so the bits do not stay
PHASES = ("step", "backward", "optimizer")
CAUSES = {"kill": "signal", "segv": "signal", "exit=7": "exit_code", "exit=1": "exit_code", "stop": "hang", "hang": "hang"}


def draw(seed: int, count: int, steps: int, workers: int, hangs: int) -> list[str]:
    """`count` faults at different steps, `hangs` of them hangs; no two in neighbouring steps, and none before the first checkpoint's
    interval is over."""
    randomness = random.Random(seed)
    at = sorted(randomness.sample(range(4, steps - 2, 2), count))
    hanging = set(randomness.sample(range(count), hangs))
    faults = []
    for i, step in enumerate(at):
        kind = randomness.choice(("stop", "hang")) if i in hanging else randomness.choice(KINDS)
        fault = f"{kind} rank={randomness.randrange(workers)} step={step} phase={randomness.choice(PHASES)}"
        faults.append(fault)
    return faults


def expected_causes(faults: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for fault in faults:
        cause = CAUSES[fault.split()[0]]
        counts[cause] = counts.get(cause, 0) + 1
    return counts


def flags(folder: pathlib.Path, faults: list[str], hang_timeout: float = 2) -> list[str]:
    """Neither the budget nor a pause stands in the way: the faults come faster than any real ones."""
    policy = folder / "policy.json"
    policy.write_text(json.dumps({"max_restarts": 2 * len(faults), "same_failure_rounds": 0,
                                  "pause": {"first_s": 0, "longest_s": 0}}), encoding="utf-8")
    return ["--restart-policy", str(policy), "--hang-timeout", str(hang_timeout), "--chaos", "; ".join(faults)]


def struck(run_dir: pathlib.Path) -> int:
    return len(list((run_dir / "chaos").glob("fault-*")))


def things_that_stay(folder: pathlib.Path) -> dict[str, set]:
    """Temporary files and cgroups; processes are looked for by what they were started with."""
    cgroups = {str(path) for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified")
               for path in pathlib.Path(root).glob("**/ddprun-*") if not _is_of_another_job(path)}
    processes = {entry.name for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and _mentions(entry, str(folder / "run"))}
    temporary = {path.name for path in folder.iterdir() if path.name not in ("run", "calm", "policy.json")}
    return {"cgroups": cgroups, "processes": processes, "temporary files": temporary}


def _is_of_another_job(path: pathlib.Path) -> bool:
    """Named after the pid of its agent, which still lives."""
    return pathlib.Path("/proc", path.name.removeprefix("ddprun-")).exists()


def _mentions(entry: pathlib.Path, text: str) -> bool:
    try:
        return int(entry.name) != os.getpid() and text in (entry / "cmdline").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
