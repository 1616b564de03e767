"""Compares the rounds of ddprun (starts of all workers) on two nodes with the rounds of torchrun. Two more tables have no
values for torchrun, which has nothing equivalent. In the first, one coordinator has up to ten thousand agents, with real
connections on this machine (crowd.cpp). The table contains the time to start a round and the memory per agent. In the second,
two nodes run while unknown peers flood them with connections (flood.py). bench.py calls run()."""

import json
import pathlib
import subprocess
import sys
import tempfile

import launch_measurements as figures
from agents import Side, c10d, free_port, listening
from launch_bench import NODE_LOST, REPLACED_ON_TWO_NODES, TWO_AGENTS, Measurement, compare_with_torchrun
from measure import RunOptions, Row, Series, Table, Tools, progress

TWO_NODES = [
    TWO_AGENTS,
    REPLACED_ON_TWO_NODES,
    NODE_LOST,
    Measurement(f"`--nnodes 1:2`: from the start of a second node to the first round of two nodes (`last_call_timeout` {figures.LAST_CALL} s)", "s", figures.node_joins, figures.LAST_CALL + 1, most=2),
]

MAX_MS = {10000: 8000}  # {number of agents: maximum milliseconds until all agents may start their workers}


def crowd(program: pathlib.Path, agents: int) -> dict:
    done = subprocess.run([program, str(agents)], stdout=subprocess.PIPE, check=True, text=True, timeout=180)
    return json.loads(done.stdout)


RESTARTS = 6
# The workers run for a second before they fail. If they failed sooner, ddprun would treat the failures as a crash loop and
# would delay the restarts.
FAILS_AFTER_A_SECOND = f"""if [ "$TORCHELASTIC_RESTART_COUNT" = {RESTARTS} ]; then exit 0; fi
if [ "$RANK" = 0 ]; then sleep 1000; fi
sleep 1.1
echo "failed $RANK $EPOCHREALTIME" >> "$NOTES"
exit 5"""


def round_times(tools: Tools, flooded: bool) -> list[float]:
    """Returns, for each restart, the milliseconds from a worker's failure until the next workers of both nodes have started."""
    flood = None
    with tempfile.TemporaryDirectory() as folder, Side([str(tools.ddprun)], True, pathlib.Path(folder)) as side:
        port = free_port()
        command = [*c10d("2", port), "--max-restarts", str(RESTARTS), side.script(FAILS_AFTER_A_SECOND)]
        try:
            side.start(*command)
            side.until(lambda: listening(port), 10, "no listener")
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
        started: dict[int, float] = {}
        for line in side.lines():
            started[int(line[3])] = max(started.get(int(line[3]), 0.0), float(line[2]))
    return [(started[restart + 1] - when) * 1000 for restart, when in enumerate(failed)]


def flooded_rounds(tools: Tools, how: RunOptions) -> Table:
    calm, flooded = [], []
    for _ in range(how.repeats):
        progress("restarts of two nodes, first without and then with a flood of unknown peers")
        calm += round_times(tools, False)
        flooded += round_times(tools, True)
    return Table("A flood of unknown peers at the coordinator's port", "",
                 [Row("from the failure of a worker to the start of the next workers on both nodes", "ms", Series(calm), None),
                  Row("the same, while unknown peers open connections to the port as fast as possible", "ms", Series(flooded), None,
                      at_most=round(2 * Series(calm).median, 1))])


def run(tools: Tools, how: RunOptions) -> list[Table]:
    build = pathlib.Path(tools.ddprun).parent.parent
    program = build / "bin" / "rendezvous_crowd"
    if not program.exists():
        progress("building rendezvous_crowd")
        subprocess.run(["cmake", "--build", str(build), "--target", program.name], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for agents in (100, 1000) if how.quick else (100, 1000, 10000):
        progress(f"{agents} agents")
        results = [crowd(program, agents) for _ in range(how.repeats)]

        def row(name: str, unit: str, key: str, results: list[dict] = results, agents: int = agents, **bars) -> Row:
            return Row(f"{agents:,} agents: {name}", unit, Series([result[key] for result in results]), None, **bars)

        rows += [row("from the start of the agents to the first round of all agents", "ms", "joined_ms", at_most=MAX_MS.get(agents)),
                 row("from the failure of a worker to the next round of all agents", "ms", "restarted_ms"),
                 row("memory of the coordinator per agent", "KB", "coordinator_kb_per_agent", at_most=80)]
    return [*compare_with_torchrun(tools, how, [("Two nodes", TWO_NODES)]), Table("One coordinator for many agents", "", rows), flooded_rounds(tools, how)]
