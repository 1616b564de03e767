"""Compares ddprun with torchrun: starts, failures, stops and user errors. The rows are the same as in the table "Behaviour to
beat" in docs/internals/torchrun-contract.md. The two launchers run alternately. launch_measurements.py measures the rows that
have a number, and launch_observations.py describes the results of the other rows in words. bench.py calls run().
rendezvous_bench.py also calls compare_with_torchrun()."""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable

import launch_measurements as measurements
import launch_observations as observations
from agents import NotAvailable, Side, DeadlineExceeded
from measure import RunOptions, Row, Series, Table, Tools, progress


@dataclasses.dataclass(frozen=True)
class Measurement:
    name: str
    unit: str
    measure: Callable[[Side], float]
    at_most: float
    factor: float | None = None
    ours_each: int = 1  # ddprun runs this many times for each run of torchrun
    most: int = 99  # maximum number of runs of torchrun; lower for rows in which a run takes half a minute


@dataclasses.dataclass(frozen=True)
class Observation:
    name: str
    measure: Callable[[Side], str]
    wanted: str
    ours_each: int = 1
    most: int = 2


# rendezvous_bench.py also measures the next three rows.
TWO_AGENTS = Measurement("`--nnodes 2`: from the start of both agents to the first output line of the last worker", "ms", measurements.two_agents, 100, ours_each=3)
REPLACED_ON_TWO_NODES = Measurement("two nodes: from the failure of a worker to the first output line of the last replacement", "ms", measurements.replaced_on_two_nodes, 100, ours_each=3)
NODE_LOST = Measurement("`--nnodes 1:2`: from the loss of a node to the start of the next round", "ms", measurements.node_lost, 5000)

STARTING = [
    Measurement("`--help`", "ms", measurements.show_help, 10, 100, ours_each=10),
    *[Measurement(f"no-op job, {n} worker{'s' if n > 1 else ''}", "ms", measurements.nothing_to_do(n), 10, 100, ours_each=10) for n in (1, 2, 8)],
    Measurement("from the start of a job until the last of 64 workers has started", "ms", measurements.many_workers, 100, ours_each=3),
    TWO_AGENTS,
    Measurement("`--nnodes 1:2`, one agent: from its start to the first output line of its worker, including the wait for a second node", "s", measurements.one_agent_of_two, 2.2, most=2),
    Measurement("`--nnodes 1:2`, one agent on a machine without earlier jobs (it waits 1.25 leases): from its start to the first output line of its worker", "s", measurements.one_agent_without_state, 6.5, most=2),
    Measurement("peak memory of the agent, 2 workers", "MB", measurements.memory, 10),
]

FAILURES = [
    Measurement("one node, 2 workers: from the failure of a worker to the first output line of the last replacement", "ms", measurements.replaced_on_one_node, 10, ours_each=4),
    REPLACED_ON_TWO_NODES,
    NODE_LOST,
    Measurement("three nodes: from the loss of the coordinator to the start of the next round", "ms", measurements.coordinator_lost, 10000),
    Measurement("from SIGKILL of the agent to the end of its workers", "ms", measurements.agent_killed, 1000),
    Measurement("workers that ignore SIGTERM: from SIGTERM to the end of the job, with `--shutdown-timeout 1` (torchrun 2.11 lacks this option)", "s", measurements.sigterm_ignored, 1.2, most=2),
    Measurement("workers that ignore Ctrl-C: from the first of two Ctrl-C presses, 0.3 s apart, to the end of the workers", "s", measurements.second_interrupt, 0.5, most=2),
    Measurement("from the start to the error message about a missing program", "ms", measurements.missing_program, 10, ours_each=4),
    Measurement("from the start to the error message about a wrong run id", "s", measurements.wrong_run_id, 5, most=2),
    Measurement("from the start to the error message about a port that does not answer", "s", measurements.silent_port, 5, most=2),
]

OBSERVATIONS = [
    Observation("message about a missing program", observations.missing_program_lines, "1 line"),
    Observation("exit code after a worker's `exit 7`", observations.exit_code, "7"),
    Observation("`TORCHELASTIC_RESTART_COUNT` on two nodes after a restart", observations.restart_counts, "1 and 1"),
    Observation("number of restarts if two nodes fail alternately, with `--max-restarts 2`", observations.budget, "2 restarts"),
    Observation("reported root cause if rank 1 fails 30 ms before rank 0", observations.root_cause, "rank 1"),
    Observation("failure of rank 1 after rank 0 has exited with 0", observations.left_early, "reported"),
    Observation("reported cause if the OOM killer kills a worker", observations.out_of_memory, "out of memory"),
    Observation("torn lines among 800 output lines of 6,000 bytes from four workers", observations.torn_lines, "none torn"),
    Observation("`--nnodes 1:2`: second node that starts late", observations.late_node, "joins"),
    Observation("start of a job with 1,000 idle connections at its endpoint", observations.idle_connections, "the job starts"),
    Observation("two jobs at one endpoint: state of the second job after the first job ends", observations.two_jobs, "continues to its end"),
    Observation("unknown peer that connects to the endpoint", observations.foreign_worker, "gets nothing"),
    Observation("two hosts whose own names resolve to 127.0.1.1", observations.names_of_loopback, "works"),
]

TABLES = [("Launching", STARTING), ("Failures, stops and mistakes", FAILURES), ("Behaviour after errors", OBSERVATIONS)]


def one_run(tools: Tools, ours: bool, row: Measurement | Observation) -> float | str:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-", ignore_cleanup_errors=True) as name:
        with Side([tools.ddprun] if ours else tools.torchrun, ours, pathlib.Path(name)) as side:
            try:
                return row.measure(side)
            except DeadlineExceeded as late:
                return str(late)


def combined_runs(results: list[float | str], unit: str) -> Series | str:
    """Returns the measured numbers. If any result is a text, returns one text: all different results, joined by " or "."""
    if not any(isinstance(each, str) for each in results):
        return Series(results)
    return " or ".join(dict.fromkeys(each if isinstance(each, str) else f"{each:.0f} {unit}" for each in results))


def side_by_side(tools: Tools, row: Measurement | Observation, repeats: int) -> Row:
    ours, peers = [], []
    for _ in range(min(repeats, row.most)):
        ours += [one_run(tools, True, row) for _ in range(row.ours_each)]
        peers.append(one_run(tools, False, row))
    if isinstance(row, Observation):
        return Row(row.name, "", combined_runs(ours, ""), combined_runs(peers, ""), wanted=row.wanted)
    return Row(row.name, row.unit, combined_runs(ours, row.unit), combined_runs(peers, row.unit), at_most=row.at_most, factor=row.factor)


def run(tools: Tools, how: RunOptions) -> list[Table]:
    return compare_with_torchrun(tools, how, TABLES)


def compare_with_torchrun(tools: Tools, how: RunOptions, wanted_tables: list[tuple[str, list]]) -> list[Table]:
    tables = []
    for title, wanted in wanted_tables:
        rows = []
        for row in wanted:
            if how.only not in f"{title}: {row.name}":
                continue
            progress(row.name)
            try:
                rows.append(side_by_side(tools, row, how.repeats))
            except NotAvailable as reason:
                progress(f"skipped: {reason}")
        if rows:
            tables.append(Table(title, "torchrun", rows))
    return tables
