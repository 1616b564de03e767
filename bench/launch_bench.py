"""ddprun against torchrun: starts, failures, stops and mistakes. The rows are those of the table "Behaviour to beat" of torchrun's contract, with
both launchers in turns. launch_figures.py has the measurements, launch_sights.py the observations. bench.py calls run(), and rendezvous_bench.py also
beside_torchrun()."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable

import launch_figures as figures
import launch_sights as sights
from agents import NotHere, Side, TooLate
from measure import How, Row, Series, Table, Tools, progress


@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    measure: Callable[[Side], float]
    at_most: float
    factor: float | None = None
    ours_each: int = 1  # runs of ours per run of the peer
    most: int = 99  # largest number of the peer's runs, for rows that take half a minute


@dataclasses.dataclass(frozen=True)
class Sight:
    name: str
    measure: Callable[[Side], str]
    wanted: str
    ours_each: int = 1
    most: int = 2


# The rendezvous benchmark has these rows as well.
TWO_AGENTS = Figure("two agents, 2:2, to the last worker's first line", "ms", figures.two_agents, 100, ours_each=3)
REPLACED_ON_TWO_NODES = Figure("worker failure to the last replacement's first line, two nodes", "ms", figures.replaced_on_two_nodes, 100, ours_each=3)
NODE_LOST = Figure("a node is lost under 1:2, to the next round", "ms", figures.node_lost, 5000)

STARTING = [
    Figure("`--help`", "ms", figures.show_help, 10, 100, ours_each=10),
    *[Figure(f"no-op job, {n} worker{'s' if n > 1 else ''}", "ms", figures.nothing_to_do(n), 10, 100, ours_each=10) for n in (1, 2, 8)],
    Figure("64 workers up", "ms", figures.many_workers, 100, ours_each=3),
    TWO_AGENTS,
    Figure("one agent, 1:2, to its worker's first line (the last call)", "s", figures.one_agent_of_two, 2.2, most=2),
    Figure("one agent, 1:2, to its worker's first line, in a new place (1.25 leases)", "s", figures.one_agent_of_two_that_knows_nothing, 6.5, most=2),
    Figure("peak memory of the agent, 2 workers", "MB", figures.memory, 10),
]

FAILURES = [
    Figure("worker failure to the last replacement's first line, 2 workers", "ms", figures.replaced_on_one_node, 10, ours_each=4),
    REPLACED_ON_TWO_NODES,
    NODE_LOST,
    Figure("the coordinator of three nodes is lost, to the next round", "ms", figures.coordinator_lost, 10000),
    Figure("the agent is SIGKILLed, until its workers are gone", "ms", figures.agent_killed, 1000),
    Figure("workers ignore SIGTERM; `--shutdown-timeout 1` (torchrun 2.11 has none)", "s", figures.sigterm_ignored, 1.2, most=2),
    Figure("Ctrl-C twice within 0.3 s, until workers that ignore it are gone", "s", figures.second_interrupt, 0.5, most=2),
    Figure("a program that is not there, until it is said", "ms", figures.missing_program, 10, ours_each=4),
    Figure("a wrong run id, until it is said", "s", figures.wrong_run_id, 5, most=2),
    Figure("a port that answers nothing, until it is said", "s", figures.silent_port, 5, most=2),
]

SIGHTS = [
    Sight("words about a program that is not there", sights.missing_program_lines, "1 line"),
    Sight("exit code after a worker's `exit 7`", sights.exit_code, "7"),
    Sight("`TORCHELASTIC_RESTART_COUNT` on two nodes after a restart", sights.restart_counts, "1 and 1"),
    Sight("two nodes fail in turns, `--max-restarts 2`", sights.budget, "2 restarts"),
    Sight("root cause when rank 1 fails 30 ms before rank 0", sights.root_cause, "rank 1"),
    Sight("rank 0 had ended well when rank 1 fails", sights.left_early, "said"),
    Sight("the kernel kills a worker for memory", sights.out_of_memory, "out of memory"),
    Sight("800 lines of 6,000 bytes by four workers", sights.torn_lines, "none torn"),
    Sight("a second node comes late, 1:2", sights.late_node, "is absorbed"),
    Sight("1,000 idle connections at the endpoint", sights.idle_connections, "the job starts"),
    Sight("the second job at an endpoint when the first one ends", sights.two_jobs, "continues to its end"),
    Sight("a stranger at the endpoint", sights.stranger, "gets nothing"),
    Sight("two hosts whose own names are 127.0.1.1", sights.names_of_loopback, "works"),
]

TABLES = [("Launching", STARTING), ("Failures, stops and mistakes", FAILURES), ("What is seen when things go wrong", SIGHTS)]


def one_run(tools: Tools, ours: bool, row: Figure | Sight) -> float | str:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-", ignore_cleanup_errors=True) as name:
        with Side([tools.ddprun] if ours else tools.torchrun, ours, pathlib.Path(name)) as side:
            try:
                return row.measure(side)
            except TooLate as late:
                return str(late)


def of_all_runs(results: list[float | str], unit: str) -> Series | str:
    """The measured values, or each different observation once."""
    if not any(isinstance(each, str) for each in results):
        return Series(results)
    return " or ".join(dict.fromkeys(each if isinstance(each, str) else f"{each:.0f} {unit}" for each in results))


def side_by_side(tools: Tools, row: Figure | Sight, repeats: int) -> Row:
    ours, peers = [], []
    for _ in range(min(repeats, row.most)):
        ours += [one_run(tools, True, row) for _ in range(row.ours_each)]
        peers.append(one_run(tools, False, row))
    if isinstance(row, Sight):
        return Row(row.name, "", of_all_runs(ours, ""), of_all_runs(peers, ""), wanted=row.wanted)
    return Row(row.name, row.unit, of_all_runs(ours, row.unit), of_all_runs(peers, row.unit), at_most=row.at_most, factor=row.factor)


def run(tools: Tools, how: How) -> list[Table]:
    return beside_torchrun(tools, how, TABLES)


def beside_torchrun(tools: Tools, how: How, wanted_tables: list[tuple[str, list]]) -> list[Table]:
    tables = []
    for title, wanted in wanted_tables:
        rows = []
        for row in wanted:
            if how.only not in f"{title}: {row.name}":
                continue
            progress(row.name)
            try:
                rows.append(side_by_side(tools, row, how.repeats))
            except NotHere as reason:
                progress(f"left out: {reason}")
        if rows:
            tables.append(Table(title, "torchrun", rows))
    return tables
