"""Injects stragglers of each kind into a script that uses ddprun.watch(). Measures how many of them are reported with the
correct rank and kind, and after how many steps. After that the job runs without stragglers for DDPRUN_IDLE_S seconds (default
60, with --quick 10), in which no rank may be reported. --only KIND injects a single kind of straggler. DDPRUN_PLANTS is the
number of injected stragglers (default 100, with --quick 10)."""

import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import straggler_job
from agents import NotAvailable
from measure import RunOptions, Row, Series, Table, Tools, environment, progress

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = 2
TIMEOUT_S = 20
STEPS = 20  # maximum number of steps until a straggler must be reported
REPORT_DELAY_STEPS = 10  # number of steps in 0.2 s, which is the interval between two messages of a rank


def plant(job: straggler_job.ScriptJob, kind: str, rank: int) -> tuple[str, int]:
    """Injects one straggler. Returns the first report about it, and the number of steps until this report. The report has the
    form "KIND of rank RANK", or is "none" if the straggler was not reported."""
    before = job.of("straggler")
    if before and not before[-1]["ended"]:
        job.wait_for_end_of(before[-1], TIMEOUT_S)
    since = len(job.events)
    at = job.step()
    with job.planted(kind, rank):
        reported = job.wait("straggler", TIMEOUT_S, since, ended=False)
    if reported is not None:
        job.wait_for_end_of(reported, TIMEOUT_S)
    job.wait_for_step(job.step() + 30, TIMEOUT_S)
    if reported is None:
        return "none", 0
    return f"{reported['kind']} of rank {reported.get('rank')}", reported["step"] - at


def run(tools: Tools, how: RunOptions):
    count = int(os.environ.get("DDPRUN_PLANTS", "10" if how.quick else "100"))
    idle_s = float(os.environ.get("DDPRUN_IDLE_S", "10" if how.quick else "60"))
    kinds = [kind for kind in straggler_job.KINDS if how.only in ("", kind)]
    order = random.Random(7)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        job = straggler_job.ScriptJob(tools.ddprun, pathlib.Path(folder), environment(PYTHONPATH=str(ROOT / "python"), PYTHON_EXEC=sys.executable), RANKS)
        try:
            if not job.wait_for_step(60, 120):
                raise RuntimeError("the job did not start training")
            found = {kind: [] for kind in kinds}
            for i in range(count):
                kind, rank = kinds[i % len(kinds)], order.randrange(RANKS)
                progress(f"{i + 1} of {count}: {kind} of rank {rank}")
                try:
                    reported, steps = plant(job, kind, rank)
                except NotAvailable as reason:
                    progress(str(reason))
                    continue
                right = reported == f"{straggler_job.KINDS[kind]} of rank {rank}"
                found[kind].append((right, steps))
                if not right:
                    print(f"injected {kind} of rank {rank}: reported {reported}", flush=True)
            for kind, tries in found.items():
                if not tries:
                    continue
                right = sum(1 for is_right, _ in tries if is_right)
                steps = [float(after) for is_right, after in tries if is_right] or [float("nan")]
                print(f"{kind}: {right} of {len(tries)} reports are correct, after {min(steps):.0f} to {max(steps):.0f} steps, median {statistics.median(steps):.0f}", flush=True)
                rows.append(Row(f"{kind}, injected {len(tries)} times: reports that are missing or wrong", "", Series([float(len(tries) - right)]), None, at_most=0.05 * len(tries)))
                rows.append(Row(f"{kind}: steps until the report", "steps", Series(steps), None, at_most=STEPS + REPORT_DELAY_STEPS))
            since = len(job.events)
            time.sleep(idle_s)
            alarms = job.of("straggler", since)
            for alarm in alarms:
                print(f"undisturbed: {alarm['message']}", flush=True)
            rows.append(Row(f"undisturbed for {idle_s:.0f} s: reported stragglers", "", Series([float(len(alarms))]), None, at_most=0))
        finally:
            job.end()
    yield Table("Stragglers injected into a script", "torchrun", rows)
