"""This build of ddprun against an earlier one: launch, failures, rendezvous, training speed and recovery. Both programs run in turns.

Start it with `./dev bench before --before PATH/ddprun`; the earlier ddptrain is the one in the same folder. Many agents are compared if both folders
have rendezvous_crowd. A ratio near 1 says nothing without its interval, so each row has at least 15 pairs. The target is a lower end of the interval
of the pairs' ratios of at least 0.95 times better than before."""

import dataclasses
import pathlib
import tempfile

import recovery_bench
import training_bench
import training_cases
from agents import NotHere, Side, TooLate
from launch_bench import FAILURES, STARTING, Figure
from measure import How, Row, Series, Table, Tools, progress
from rendezvous_bench import crowd, round_times

before: pathlib.Path | None = None
PAIRS = 15
LOW = 0.95  # target for the lower end of each interval
SLOW = ("last call", "leases", "until it is said", "SIGTERM", "Ctrl-C", "next round")  # rows that wait for seconds, which no build changes


def one_run(program: str, row: Figure) -> float:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-", ignore_cleanup_errors=True) as name, Side([program], True, pathlib.Path(name)) as side:
        return row.measure(side)


def compared(name: str, unit: str, pairs: list[tuple[float, float]], larger_is_better: bool = False) -> Row:
    now, then = (Series(list(side)) for side in zip(*pairs))
    row = Row(name, unit, now, then, larger_is_better=larger_is_better, paired=True, low=LOW)
    progress(f"{name}: {row.times_better:.3f} ({row.interval[0]:.3f}-{row.interval[1]:.3f})")
    return row


def in_turns(programs: tuple, turns: int, measure) -> list[tuple]:
    """Returns the results of `measure` for both programs, which take turns in going first."""
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
    if "agents" not in how.only and how.only:
        return []
    if not all(program.exists() for program in crowds):
        progress("left out: many agents, since rendezvous_crowd is not in the folders of both programs")
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


def training(tools: Tools, programs: tuple[str, str], how: How, turns: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = training_cases.Folder(pathlib.Path(name))
        for case in training_cases.CASES:
            workers = max(case.workers)
            label = f"training speed: {case.label(workers)}"
            if case.data_loader or how.only not in label:  # only the peer has a data loader
                continue
            progress(label)
            config = folder.config(dataclasses.replace(case, steps=case.steps // 4) if how.quick else case, workers)
            pairs = in_turns(programs, turns, lambda program, config=config, workers=workers:
                             training_bench.Job(dataclasses.replace(tools, ddprun=program), config, workers, folder.path).measure())
            rows.append(compared(label, "samples/s", pairs, larger_is_better=True))
    return rows


def recovery(programs: tuple[str, str], how: How, turns: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        config = recovery_bench.write_config(folder)
        for kind, title in recovery_bench.TITLES.items():
            label = f"from SIGKILL of a worker to the next new step: {title}"
            if how.only not in label:
                continue
            progress(label)
            pairs = in_turns(programs, turns, lambda program, kind=kind: recovery_bench.our_run(program, kind, config, folder))
            if lost := sum(one is None for pair in pairs for one in pair):
                raise SystemExit(f"bench: {lost} of {2 * turns} jobs did not recover")
            rows.append(compared(label, "s", [(now[0], then[0]) for now, then in pairs]))
    return rows


def run(tools: Tools, how: How) -> list[Table]:
    if before is None:
        raise SystemExit("bench: 'before' needs --before PATH/ddprun, the build to compare with")
    programs = (str(tools.ddprun), str(before))
    turns = 3 if how.quick else max(how.repeats, PAIRS)
    rows = [*launching(programs, how, turns), *restarting(tools, programs, how), *of_many_agents(programs, how, turns),
            *training(tools, programs, how, turns), *recovery(programs, how, turns)]
    return [Table("Compared with an earlier build", "before", rows)]
