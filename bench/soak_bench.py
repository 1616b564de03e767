"""The soak: a job of two workers into which faults of all kinds are injected, drawn from a seed, five seconds apart on average; in the
end its weights are those of the undisturbed run, every fault has been counted and nothing is left. And what the agent itself
costs: its memory over 1,000 restarts, and its CPU time while workers train.

    ./dev bench soak --seed 7        300 faults, about an hour;  --quick: 20 faults, one second apart
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from measure import How, Row, Series, Table, Tools, environment, progress, timed
from training_bench import DATA

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "whole_program"))
import jobs  # noqa: E402
import rehearsal  # noqa: E402

RESTARTS = 1000
WATCHED_SECONDS = 20
seed = 1  # set by bench.py


def settings(steps: int) -> dict:
    return {"name": "soak", "model": {"type": "mlp", "hidden": [64]}, "data": {"type": "idx", "dir": DATA, "test_samples": 1000},
            "epochs": 100000, "max_steps": steps, "batch_size": 64, "eval_every_epochs": 0, "optimizer": {"type": "adamw", "lr": 1e-4},
            "log": {"every_steps": 100, "tensorboard": False}, "checkpoint": {"every_seconds": 2, "keep": 2}}


def train(tools: Tools, folder: pathlib.Path, name: str, steps: int, flags: list[str]) -> float:
    config = folder / f"{name}.json"
    config.write_text(json.dumps(settings(steps)), encoding="utf-8")
    return timed([tools.ddprun, "-q", "--nproc-per-node", "2", "--run-dir", str(folder / name), *flags, str(config)],
                 timeout=6 * 3600, env=environment())


def soak(tools: Tools, folder: pathlib.Path, faults_wanted: int, apart: float) -> float:
    """Percent of the time that was useful."""
    pilot = 2000
    train(tools, folder, "pilot", pilot, [])
    training_s = jobs.report(folder / "pilot")["time"]["training_s"]
    steps = int(faults_wanted * apart * pilot / training_s)
    progress(f"{steps} steps at {pilot / training_s:.0f} steps/s, {faults_wanted} faults, seed {seed}")
    train(tools, folder, "calm", steps, [])
    faults = rehearsal.draw(seed, count=faults_wanted, steps=steps, workers=2, hangs=faults_wanted // 10)
    before = rehearsal.things_that_stay(folder)
    # Whole command lines are limited to 128 KiB an argument; 300 faults are 15.
    train(tools, folder, "run", steps, rehearsal.flags(folder, faults, hang_timeout=2))
    report = jobs.report(folder / "run")
    wrong = []
    if jobs.weights_digest(folder / "run") != jobs.weights_digest(folder / "calm"):
        wrong.append("the weights differ from those of the undisturbed run")
    if report["failures"] != rehearsal.expected_causes(faults) or rehearsal.struck(folder / "run") != len(faults):
        wrong.append(f"counted {report['failures']}, injected {rehearsal.expected_causes(faults)}")
    left = {what: now - before[what] for what, now in rehearsal.things_that_stay(folder).items()}
    left["temporary files"] -= {"run.json"}
    if any(left.values()):
        wrong.append(f"left behind: {left}")
    if wrong:
        sys.exit(f"soak with seed {seed}: " + "; ".join(wrong))
    parts = {name: value for name, value in report["time"].items() if name != "lost_s"}
    useful = parts["training_s"] + parts["evaluation_s"] - report["time"]["lost_s"]
    progress(f"{report['failures']}, {report['steps_lost']} steps lost; seconds: {parts}")
    return 100 * useful / sum(parts.values())


def memory_growth_mb(tools: Tools, folder: pathlib.Path, restarts: int) -> float:
    """Of the agent, from its 100th restart to the last."""
    policy = folder / "restarts.json"
    policy.write_text(json.dumps({"max_restarts": restarts, "pause": {"first_s": 0, "longest_s": 0}}), encoding="utf-8")
    process = subprocess.Popen([tools.ddprun, "--json", "--standalone", "--restart-policy", str(policy), "--no-python", "false"],
                               env=environment(TMPDIR=str(folder)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    sizes = {}
    for line in process.stdout:
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "round_started" and event["restart_count"] in (100, restarts):
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            sizes[event["restart_count"]] = int(next(l for l in status.splitlines() if l.startswith("VmRSS")).split()[1]) / 1024
    process.wait(timeout=60)
    return max(0.0, sizes[restarts] - sizes[100])


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def agent_cpu_percent(tools: Tools, folder: pathlib.Path, watched: float) -> float:
    config = folder / "cpu.json"
    config.write_text(json.dumps(settings(10**7)), encoding="utf-8")
    process = subprocess.Popen([tools.ddprun, "--nproc-per-node", "2", "--run-dir", str(folder / "cpu"), str(config)],
                               env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        next(line for line in process.stdout if "step" in line)
        begin = cpu_seconds(process.pid)
        time.sleep(watched)
        return 100 * (cpu_seconds(process.pid) - begin) / watched
    finally:
        process.terminate()
        process.communicate(timeout=60)


def run(tools: Tools, how: How) -> list[Table]:
    faults, apart = (20, 1.0) if how.quick else (300, 5.0)
    with tempfile.TemporaryDirectory(prefix="ddprun-soak-") as name:
        folder = pathlib.Path(name)
        rows = [Row("agent's CPU time while 2 workers train", "%",
                    Series([agent_cpu_percent(tools, folder, 5 if how.quick else WATCHED_SECONDS)]), None, at_most=0.1),
                Row(f"agent's memory, growth over {RESTARTS} restarts", "MB", Series([memory_growth_mb(tools, folder, RESTARTS)]), None,
                    at_most=1),
                Row(f"useful share of the time, {faults} faults {apart:g} s apart, seed {seed}", "%",
                    Series([soak(tools, folder, faults, apart)]), None, larger_is_better=True)]
    return [Table("Failures", "", rows)]
