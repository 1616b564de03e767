"""Compares this build of ddprun with an earlier one: launch, failures, rendezvous, training speed and recovery. The two builds
run alternately.

Start it with `./dev bench before --before PATH/ddprun`. The earlier ddptrain must be in the same folder. The rows about many
agents need a rendezvous_crowd in both folders. A ratio above 1 means that this build is better. A ratio near 1 means nothing
without its confidence interval, so each row has at least 15 pairs. The lower end of each interval should be at least 0.95.
"""

import dataclasses
import pathlib
import statistics
import tempfile

import recovery_bench
import training_bench
import training_cases
from agents import NotAvailable, Side, DeadlineExceeded
from launch_bench import FAILURES, STARTING, Measurement
from measure import RunOptions, Row, Series, Table, Tools, progress
from rendezvous_bench import crowd, round_times

before: pathlib.Path | None = None
PAIRS = 15
# {number of agents: runs per pair}. The results of shorter runs vary more, so these runs are repeated more often.
RUNS_OF_A_PAIR = {100: 3, 1000: 2, 10000: 1}
# Each program runs this many times, and the best run is its value in a pair. Other processes and other virtual machines can
# only slow a run down. So the best of several runs varies less than one run (docs/internals/decisions/bench/best-of-three.md).
BEST_OF = 3
LOW = 0.95  # target for the lower end of each confidence interval of the ratios
SLOW = ("last call", "leases", "until it is reported", "SIGTERM", "Ctrl-C", "next round")  # rows with fixed waits are skipped


def one_run(program: str, row: Measurement) -> float:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-", ignore_cleanup_errors=True) as name, Side([program], True, pathlib.Path(name)) as side:
        return row.measure(side)


def compared(name: str, unit: str, pairs: list[tuple[float, float]], larger_is_better: bool = False) -> Row:
    now, then = (Series(list(side)) for side in zip(*pairs))
    row = Row(name, unit, now, then, larger_is_better=larger_is_better, paired=True, low=LOW)
    progress(f"{name}: {row.times_better:.3f} ({row.interval[0]:.3f}-{row.interval[1]:.3f})")
    return row


def interleaved(programs: tuple, turns: int, measure) -> list[tuple]:
    """Measures both programs `turns` times and returns the pairs of results. The two programs take turns at running first."""
    pairs = []
    for turn in range(turns):
        measured = {program: measure(program) for program in (programs if turn % 2 == 0 else programs[::-1])}
        pairs.append(tuple(measured[program] for program in programs))
    return pairs


def best_of(programs: tuple, measure, best) -> tuple:
    """Measures both programs BEST_OF times, alternately, and returns the best value of each program."""
    return tuple(best(values) for values in zip(*interleaved(programs, BEST_OF, measure)))


def medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    """Returns a pair: the median of the runs of each program. A single run would not be enough. It takes only milliseconds, so
    other processes easily disturb it."""
    now, then = zip(*runs)
    return statistics.median(now), statistics.median(then)


def launching(programs: tuple[str, str], how: RunOptions, turns: int) -> list[Row]:
    rows = []
    for row in [*STARTING, *FAILURES]:
        if how.only not in row.name or any(words in row.name for words in SLOW):
            continue
        progress(row.name)
        try:
            pairs = [medians(interleaved(programs, row.ours_each, lambda program, row=row: one_run(program, row))) for _ in range(turns)]
        except (NotAvailable, DeadlineExceeded) as reason:
            progress(f"skipped: {reason}")
            continue
        rows.append(compared(row.name, row.unit, pairs))
    return rows


def restarting(tools: Tools, programs: tuple[str, str], how: RunOptions) -> list[Row]:
    name = "two nodes: from the failure of a worker to the start of the next workers on both nodes"
    if how.only not in name:
        return []
    progress(name)
    times = interleaved(programs, 1 if how.quick else 8, lambda program: round_times(dataclasses.replace(tools, ddprun=program), False))
    return [compared(name, "ms", [pair for now, then in times for pair in zip(now, then)])]


def many_agents(programs: tuple[str, str], how: RunOptions, turns: int) -> list[Row]:
    crowds = tuple(pathlib.Path(program).with_name("rendezvous_crowd") for program in programs)
    if "agents" not in how.only and how.only:
        return []
    if not all(program.exists() for program in crowds):
        progress("skipped: the benchmark of many agents needs the program rendezvous_crowd in the folders of both ddprun programs")
        return []
    rows = []
    for agents in (100, 1000) if how.quick else (100, 1000, 10000):
        if how.only not in f"{agents:,} agents":
            continue
        progress(f"{agents} agents")
        each = 1 if how.quick else RUNS_OF_A_PAIR[agents]
        results = [interleaved(crowds, each, lambda program, agents=agents: crowd(program, agents)) for _ in range(turns)]
        for name, unit, key in (("from the start of the agents to the first round of all agents", "ms", "joined_ms"),
                                ("from the failure of a worker to the next round of all agents", "ms", "restarted_ms"),
                                ("memory of the coordinator per agent", "KB", "coordinator_kb_per_agent")):
            rows.append(compared(f"{agents:,} agents: {name}", unit, [medians([(now[key], then[key]) for now, then in pair]) for pair in results]))
    return rows


def training(tools: Tools, programs: tuple[str, str], how: RunOptions, turns: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = training_cases.Folder(pathlib.Path(name))
        for case in training_cases.CASES:
            workers = max(case.workers)
            label = f"training speed: {case.label(workers)}"
            # A data loader changes only the Python program, so cases with a data loader are skipped.
            if case.data_loader or how.only not in label:
                continue
            progress(label)
            config = folder.config(dataclasses.replace(case, steps=case.steps // 4) if how.quick else case, workers)
            measure = lambda program, config=config, workers=workers: training_bench.Job(
                dataclasses.replace(tools, ddprun=program), config, workers, folder.path).measure()
            pairs = [best_of(programs, measure, max) for _ in range(turns)]
            rows.append(compared(label, "samples/s", pairs, larger_is_better=True))
    return rows


def recovered(program: str, kind: str, config: pathlib.Path, folder: pathlib.Path) -> float:
    """Kills a worker of a job. Returns the seconds until the job has finished a step that it had not finished before."""
    measured = recovery_bench.our_run(program, kind, config, folder)
    if measured is None:
        raise SystemExit(f"bench: a job of {program} did not recover")
    return measured[0]


def recovery(programs: tuple[str, str], how: RunOptions, turns: int) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        config = recovery_bench.write_config(folder)
        for kind, title in recovery_bench.TITLES.items():
            label = f"from SIGKILL of a worker to the next new step: {title}"
            if how.only not in label:
                continue
            progress(label)
            rows.append(compared(label, "s", [best_of(programs, lambda program, kind=kind: recovered(program, kind, config, folder), min)
                                              for _ in range(turns)]))
    return rows


def run(tools: Tools, how: RunOptions) -> list[Table]:
    if before is None:
        raise SystemExit("bench: the benchmark 'before' needs the option --before PATH/ddprun: the ddprun of the build to compare with")
    programs = (str(tools.ddprun), str(before))
    turns = 3 if how.quick else max(how.repeats, PAIRS)
    rows = [*launching(programs, how, turns), *restarting(tools, programs, how), *many_agents(programs, how, turns),
            *training(tools, programs, how, turns), *recovery(programs, how, turns)]
    return [Table("Compared with an earlier build", "before", rows)]
