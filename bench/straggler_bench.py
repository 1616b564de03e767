"""Stragglers of each kind are injected into a script that uses ddprun.watch(): how many are named with the correct rank and kind, and after how many
steps. Then the same job runs undisturbed for DDPRUN_IDLE_S seconds (60 s; 10 s with --quick), in which no rank may be named.

--only KIND injects that kind alone. DDPRUN_PLANTS is the number of stragglers in total (100; 10 with --quick)."""

import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

import straggler_job
from agents import NotHere
from measure import How, Row, Series, Table, Tools, environment, progress

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = 2
PATIENCE_S = 20
STEPS = 20  # within this number of steps a straggler must be named
TOLD_AFTER = 10  # steps: a message may be 0.2 s old


def plant(job: straggler_job.ScriptJob, kind: str, rank: int) -> tuple[str, int]:
    """The first kind that was reported, and the number of steps until then."""
    before = job.of("straggler")
    if before and not before[-1]["ended"]:
        job.wait_for_end_of(before[-1], PATIENCE_S)
    since = len(job.events)
    at = job.step()
    with job.planted(kind, rank):
        said = job.wait("straggler", PATIENCE_S, since, ended=False)
    if said is not None:
        job.wait_for_end_of(said, PATIENCE_S)
    job.wait_for_step(job.step() + 30, PATIENCE_S)
    if said is None:
        return "nobody", 0
    return f"{said['kind']} of rank {said.get('rank')}", said["step"] - at


def run(tools: Tools, how: How):
    count = int(os.environ.get("DDPRUN_PLANTS", "10" if how.quick else "100"))
    idle_s = float(os.environ.get("DDPRUN_IDLE_S", "10" if how.quick else "60"))
    kinds = [kind for kind in straggler_job.KINDS if how.only in ("", kind)]
    order = random.Random(7)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        job = straggler_job.ScriptJob(tools.ddprun, pathlib.Path(folder), environment(PYTHONPATH=str(ROOT / "python"), PYTHON_EXEC=sys.executable), RANKS)
        try:
            if not job.wait_for_step(60, 120):
                raise RuntimeError("the job does not begin")
            found = {kind: [] for kind in kinds}
            for i in range(count):
                kind, rank = kinds[i % len(kinds)], order.randrange(RANKS)
                progress(f"{i + 1} of {count}: {kind} of rank {rank}")
                try:
                    said, steps = plant(job, kind, rank)
                except NotHere as reason:
                    progress(str(reason))
                    continue
                right = said == f"{straggler_job.KINDS[kind]} of rank {rank}"
                found[kind].append((right, steps))
                if not right:
                    print(f"planted {kind} of rank {rank}: found {said}", flush=True)
            for kind, tries in found.items():
                if not tries:
                    continue
                right = sum(1 for is_right, _ in tries if is_right)
                steps = [float(after) for is_right, after in tries if is_right] or [float("nan")]
                print(f"{kind}: {right} of {len(tries)} right, after {min(steps):.0f} to {max(steps):.0f} steps, {statistics.median(steps):.0f} in the middle", flush=True)
                rows.append(Row(f"{kind}, planted {len(tries)} times: wrong or unnamed", "", Series([float(len(tries) - right)]), None, at_most=0.05 * len(tries)))
                rows.append(Row(f"{kind}: until it is named", "steps", Series(steps), None, at_most=STEPS + TOLD_AFTER))
            since = len(job.events)
            time.sleep(idle_s)
            alarms = job.of("straggler", since)
            for alarm in alarms:
                print(f"undisturbed: {alarm['message']}", flush=True)
            rows.append(Row(f"undisturbed for {idle_s:.0f} s: named", "", Series([float(len(alarms))]), None, at_most=0))
        finally:
            job.end()
    yield Table("Stragglers that are planted in a script", "torchrun", rows)
