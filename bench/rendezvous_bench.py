"""Rounds of two nodes compared with torchrun's. Without a peer, since torchrun has no equivalent: one coordinator for up to ten thousand agents over
real connections, all on this machine (crowd.cpp), with the time of rounds and the cost of each agent; and two nodes under a flood of strangers
(flood.py). bench.py calls run()."""

import json
import pathlib
import subprocess
import sys
import tempfile

import launch_figures as figures
from agents import Side, c10d, free_port, listening
from launch_bench import NODE_LOST, REPLACED_ON_TWO_NODES, TWO_AGENTS, Figure, beside_torchrun
from measure import How, Row, Series, Table, Tools, progress

TWO_NODES = [
    TWO_AGENTS,
    REPLACED_ON_TWO_NODES,
    NODE_LOST,
    Figure(f"a node joins under 1:2, to the larger world (last call {figures.LAST_CALL} s)", "s", figures.node_joins, figures.LAST_CALL + 1, most=2),
]

AT_MOST_MS = {10000: 8000}  # until all agents are released


def crowd(program: pathlib.Path, agents: int) -> dict:
    done = subprocess.run([program, str(agents)], stdout=subprocess.PIPE, check=True, text=True, timeout=180)
    return json.loads(done.stdout)


RESTARTS = 6
# Rounds of less than a second would be a crash loop, in which restarts are delayed.
FAILS_AFTER_A_SECOND = f"""if [ "$TORCHELASTIC_RESTART_COUNT" = {RESTARTS} ]; then exit 0; fi
if [ "$RANK" = 0 ]; then sleep 1000; fi
sleep 1.1
echo "failed $RANK $EPOCHREALTIME" >> "$NOTES"
exit 5"""


def round_times(tools: Tools, flooded: bool) -> list[float]:
    """Milliseconds from a worker's failure until both nodes' next workers have started; one value for each restart."""
    flood = None
    with tempfile.TemporaryDirectory() as folder, Side([str(tools.ddprun)], True, pathlib.Path(folder)) as side:
        port = free_port()
        command = [*c10d("2", port), "--max-restarts", str(RESTARTS), side.script(FAILS_AFTER_A_SECOND)]
        try:
            side.start(*command)
            side.until(lambda: listening(port), 10, "nobody listens")
            if flooded:
                flood = subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("flood.py"), "127.0.0.1", str(port), "60"],
                                         stdout=subprocess.DEVNULL)
            side.start(*command)
            for agent in (0, 1):
                side.ended(agent, 50)
        finally:
            if flood is not None:
                flood.kill()
                flood.wait()
        failed = [float(line[2]) for line in side.lines("failed")]
        begun: dict[int, float] = {}
        for line in side.lines():
            begun[int(line[3])] = max(begun.get(int(line[3]), 0.0), float(line[2]))
    return [(begun[restart + 1] - when) * 1000 for restart, when in enumerate(failed)]


def flooded_rounds(tools: Tools, how: How) -> Table:
    calm, flooded = [], []
    for _ in range(how.repeats):
        progress("two nodes restart, alone and under a flood of strangers")
        calm += round_times(tools, False)
        flooded += round_times(tools, True)
    return Table("A flood of strangers at the coordinator's port", "",
                 [Row("from a worker's failure to both nodes' next workers", "ms", Series(calm), None),
                  Row("the same while strangers connect as fast as they can", "ms", Series(flooded), None,
                      at_most=round(2 * Series(calm).median, 1))])


def run(tools: Tools, how: How) -> list[Table]:
    build = pathlib.Path(tools.ddprun).parent.parent
    program = build / "bin" / "rendezvous_crowd"
    if not program.exists():
        progress("building the crowd")
        subprocess.run(["cmake", "--build", str(build), "--target", program.name], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for agents in (100, 1000) if how.quick else (100, 1000, 10000):
        progress(f"{agents} agents")
        results = [crowd(program, agents) for _ in range(how.repeats)]

        def row(name: str, unit: str, key: str, results: list[dict] = results, agents: int = agents, **bars) -> Row:
            return Row(f"{agents:,} agents: {name}", unit, Series([result[key] for result in results]), None, **bars)

        rows += [row("until all are released into a round", "ms", "joined_ms", at_most=AT_MOST_MS.get(agents)),
                 row("from a worker's failure until all are in the next round", "ms", "restarted_ms"),
                 row("memory of the coordinator for each", "KB", "coordinator_kb_per_agent", at_most=80)]
    return [*beside_torchrun(tools, how, [("Two nodes", TWO_NODES)]), Table("One coordinator for many agents", "", rows), flooded_rounds(tools, how)]
