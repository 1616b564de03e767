"""One coordinator for up to ten thousand agents over real connections, all on this machine (crowd.cpp): how long rounds take, and what each
agent costs. Nothing to compare with: what torchrun can do is in the launch benchmark. run() is called by bench.py."""

import json
import pathlib
import subprocess

from measure import How, Row, Series, Table, Tools, progress

AT_MOST_MS = {10000: 8000}  # until all are released


def crowd(program: pathlib.Path, agents: int) -> dict:
    done = subprocess.run([program, str(agents)], stdout=subprocess.PIPE, check=True, text=True, timeout=180)
    return json.loads(done.stdout)


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
    return [Table("One coordinator for many agents", "nobody", rows)]
