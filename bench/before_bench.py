"""This build of ddprun against an earlier one: the figures of the launch and the rendezvous benchmark, both programs in turns. Started by
`./dev bench before --before PATH/ddprun`. The coordinator of many agents is compared where a rendezvous_crowd lies beside that ddprun. A ratio near 1 says nothing without its interval, so each row has 15 pairs and the 95 % interval of the ratio of the
medians (bootstrap over the pairs, with a fixed seed)."""

import dataclasses
import pathlib
import random
import statistics
import tempfile

from agents import NotHere, Side, TooLate
from launch_bench import FAILURES, STARTING, Figure
from measure import How, Row, Series, Table, Tools, progress
from rendezvous_bench import crowd, round_times

before: pathlib.Path | None = None
PAIRS = 15
SLOW = ("last call", "leases", "until it is said", "SIGTERM", "Ctrl-C", "next round")  # seconds of waiting, which no build changes


def one_run(program: str, row: Figure) -> float:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-", ignore_cleanup_errors=True) as name, Side([program], True, pathlib.Path(name)) as side:
        return row.measure(side)


def interval(pairs: list[tuple[float, float]], samples: int = 2000) -> tuple[float, float]:
    """Of median(now) / median(before)."""
    generator = random.Random(1)
    ratios = []
    for _ in range(samples):
        drawn = generator.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(now for now, _ in drawn) / statistics.median(then for _, then in drawn))
    ratios.sort()
    return ratios[int(samples * 0.025)], ratios[int(samples * 0.975)]


def compared(name: str, unit: str, pairs: list[tuple[float, float]]) -> Row:
    low, high = interval(pairs)
    ratio = statistics.median(now for now, _ in pairs) / statistics.median(then for _, then in pairs)
    name = f"{name}: {ratio:.3f} of before ({low:.3f}-{high:.3f})"
    progress(name)
    return Row(name, unit, Series([now for now, _ in pairs]), Series([then for _, then in pairs]))


def in_turns(programs: tuple, turns: int, measure) -> list[tuple]:
    """What `measure` says of both programs, who goes first in turns."""
    pairs = []
    for turn in range(turns):
        measured = {program: measure(program) for program in (programs if turn % 2 == 0 else programs[::-1])}
        pairs.append(tuple(measured[program] for program in programs))
    return pairs


def launching(programs: tuple[str, str], how: How, turns: int) -> list[Row]:
    rows = []
    for row in [*STARTING, *FAILURES]:
        if how.only not in row.name or any(words in row.name for words in SLOW):
            continue
        progress(row.name)
        try:
            pairs = in_turns(programs, turns, lambda program, row=row: one_run(program, row))
        except (NotHere, TooLate) as reason:
            progress(f"left out: {reason}")
            continue
        rows.append(compared(row.name, row.unit, pairs))
    return rows


def restarting(tools: Tools, programs: tuple[str, str], how: How) -> list[Row]:
    name = "two nodes, from a worker's failure to both nodes' next workers"
    if how.only not in name:
        return []
    progress(name)
    times = in_turns(programs, 1 if how.quick else 3, lambda program: round_times(dataclasses.replace(tools, ddprun=program), False))
    return [compared(name, "ms", [pair for now, then in times for pair in zip(now, then)])]


def of_many_agents(programs: tuple[str, str], how: How, turns: int) -> list[Row]:
    crowds = tuple(pathlib.Path(program).with_name("rendezvous_crowd") for program in programs)
    if "agents" not in how.only and how.only != "":
        return []
    if not all(program.exists() for program in crowds):
        progress("left out: many agents, since rendezvous_crowd is not beside both programs")
        return []
    rows = []
    for agents in (100, 1000) if how.quick else (100, 1000, 10000):
        progress(f"{agents} agents")
        results = in_turns(crowds, turns, lambda program, agents=agents: crowd(program, agents))
        for name, unit, key in (("until all are released into a round", "ms", "joined_ms"),
                                ("from a worker's failure until all are in the next round", "ms", "restarted_ms"),
                                ("memory of the coordinator for each", "KB", "coordinator_kb_per_agent")):
            rows.append(compared(f"{agents:,} agents: {name}", unit, [(now[key], then[key]) for now, then in results]))
    return rows


def run(tools: Tools, how: How) -> list[Table]:
    if before is None:
        raise SystemExit("bench: 'before' needs --before PATH/ddprun, the build to compare with")
    programs = (str(tools.ddprun), str(before))
    turns = 3 if how.quick else max(how.repeats, PAIRS)
    rows = [*launching(programs, how, turns), *restarting(tools, programs, how), *of_many_agents(programs, how, turns)]
    return [Table("Beside an earlier build", "before", rows)]
