"""The soak test runs three jobs of two workers, on one agent or on two, and injects faults of all kinds. The faults are drawn
from a seed, and occur every five seconds on average. One kind of fault blocks writes to the run directory for some seconds. At
the end three conditions must hold: the weights are equal to the weights of a run without faults, every fault was counted, and no
process or file is left. The benchmark also measures the agent's cost: the growth of its memory over 1,000 restarts, and its CPU
time while workers train.

    ./dev bench soak --seed 7        300 to 1,000 faults (chosen by the seed) for each of three jobs; three hours and more
    ./dev bench soak --seed 8 --faults 24 --only "two agents"       one piece of a soak test; its table covers all pieces so far
    ./dev bench soak --network-mbit 20       on a slow network, where workers wait instead of keeping the processors busy
    ./dev bench soak --only agent            only the agent's cost
    ./dev bench soak --quick                 20 faults, one second apart
"""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from measure import RunOptions, Row, Series, Table, Tools, environment, progress
from slow_network import slow_network
from soak_pieces import Piece, Pieces
from training_cases import FASHION_MNIST

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "whole_program"))
import jobs  # noqa: E402
import pytest  # noqa: E402
import rehearsal  # noqa: E402
from disks import StallingDisk, stalling_disk  # noqa: E402

RESTARTS = 1000
BEGINNING_SECONDS = 6  # in the first seconds of a run workers send more messages, so these seconds are not measured
WATCHED_SECONDS = 30
JOBS = (("one agent", 1, ["--recovery", "checkpoint"]), ("one agent, --recovery live", 1, ["--recovery", "live"]), ("two agents", 2, []))
ONLY_AGENT = "agent"
seed, apart, network_mbit, results = 1, 5.0, 0.0, pathlib.Path()  # bench.py sets these from its options
faults: int | None = None  # from an option, as above; None if the number is drawn from the seed


def settings(steps: int) -> dict:
    return {"name": "soak", "model": {"type": "mlp", "hidden": [64]}, "data": {"type": "idx", "dir": str(FASHION_MNIST), "test_samples": 1000},
            "epochs": 100000, "max_steps": steps, "batch_size": 64, "eval_every_epochs": 0, "optimizer": {"type": "adamw", "lr": 1e-4},
            "log": {"every_steps": 10, "tensorboard": False}, "checkpoint": {"every_seconds": 2, "keep": 2}, "ddp": rehearsal.COMPARED}


def undisturbed(tools: Tools, place: rehearsal.Place, pieces: Pieces, number: int, seconds_apart: float) -> dict:
    """Returns the number of steps and the digest of the weights of a run without faults. The run has as many steps as a run
    with `number` faults needs. The speed from which this number of steps is computed is measured in `place`. The run itself
    does not use the slow network."""
    length = f"{number} faults {seconds_apart:g} s apart" + (f" at {network_mbit:g} Mbit/s" if network_mbit else "")
    if known := pieces.calm(tools.ddptrain, length):
        return known
    pilot = 100 if network_mbit else 2000
    place.train(tools.ddprun, "pilot", settings(pilot), 1, [])
    speed = pilot / jobs.report(place.run_dir("pilot"))["time"]["training_s"]
    steps = int(number * seconds_apart * speed)
    rehearsal.Place(place.folder).train(tools.ddprun, "calm", settings(steps), 1, [], timeout=6 * 3600)
    run = {"steps": steps, "digest": jobs.weights_digest(place.folder / "calm")}
    pieces.store_baseline(tools.ddptrain, length, run)
    return run


def soak(tools: Tools, place: rehearsal.Place, pieces: Pieces, mix: rehearsal.Mix, seconds_apart: float, only: str) -> None:
    """Runs every job once with its own faults. Stores each result as one piece of the soak test."""
    calm = undisturbed(tools, place, pieces, mix.count, seconds_apart)
    progress(f"{calm['steps']} steps and {mix.count} faults for each job, of which {mix.stalls} stall the run directory; seed {seed}")
    for place_in_list, (what, agents, more) in enumerate(JOBS):
        if only and only not in ("faults", what):
            continue
        faults = rehearsal.draw(1000 * place_in_list + seed, mix, steps=calm["steps"], workers=2)
        name = f"run-{place_in_list}"
        # All faults are passed to ddprun in one argument. The kernel allows 128 KiB for one argument, and 1,000 faults need 50
        # KiB.
        flags = [*more, *rehearsal.flags(place.folder, faults)]
        try:
            text = place.train(tools.ddprun, name, settings(calm["steps"]), agents, flags, timeout=6 * 3600, faults=faults)
            wrong = place.describe_problem(calm["digest"], name, faults)
        except AssertionError as failed:
            text, wrong = str(failed), ["the job failed"]
        piece = Piece(what, seed, mix.count, seconds_apart, wrong, network_mbit=network_mbit, stalls=mix.stalls)
        if not wrong:
            report = jobs.report(place.run_dir(name))
            piece.causes, piece.seconds, piece.steps_lost = report["failures"], report["time"], report["steps_lost"]
            progress(f"{what}: {piece}")
        pieces.add(piece)
        if wrong:
            kept = tempfile.mkdtemp(prefix="ddprun-soak-failed-")
            shutil.copytree(place.folder, kept, dirs_exist_ok=True, symlinks=True)
            sys.exit(f"{text[-3000:]}\nthe soak of '{what}' with seed {seed} failed: {'; '.join(wrong)}\nits files are kept in {kept}")


@contextlib.contextmanager
def stalling_disk_folder(folder: pathlib.Path) -> Iterator[StallingDisk | None]:
    with contextlib.ExitStack() as stack:
        try:
            disk = stack.enter_context(stalling_disk(folder))
        except pytest.skip.Exception as reason:
            progress(f"this soak does not stall the run directory: {reason}")
            disk = None
        yield disk


def memory_growth_mb(tools: Tools, folder: pathlib.Path, restarts: int) -> float:
    """Returns by how many MB the agent's memory grows from its 100th restart to its last one."""
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
    """Returns the CPU seconds that a process with one thread has used. They are read from schedstat, which counts nanoseconds.
    /proc/PID/stat counts ticks, and the agent uses less than two ticks in 20 s."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e9


def agent_cpu_percent(tools: Tools, folder: pathlib.Path, watched: float) -> float:
    config = folder / "cpu.json"
    config.write_text(json.dumps(settings(10**7)), encoding="utf-8")
    process = subprocess.Popen([tools.ddprun, "--nproc-per-node", "2", "--run-dir", str(folder / "cpu"), str(config)],
                               env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        next(line for line in process.stdout if "step" in line)
        time.sleep(BEGINNING_SECONDS)
        begin = cpu_seconds(process.pid)
        time.sleep(watched)
        return 100 * (cpu_seconds(process.pid) - begin) / watched
    finally:
        process.terminate()
        process.communicate(timeout=60)


def run(tools: Tools, how: RunOptions) -> list[Table]:
    number, seconds_apart = (20, 1.0) if how.quick else (faults, apart)
    with tempfile.TemporaryDirectory(prefix="ddprun-soak-") as name:
        folder = pathlib.Path(name)
        rows = []
        if how.only in ("", ONLY_AGENT):
            rows += [Row("agent's CPU time while 2 workers train", "%",
                         Series([agent_cpu_percent(tools, folder, 5 if how.quick else WATCHED_SECONDS)]), None, at_most=0.1),
                     Row(f"agent's memory, growth over {RESTARTS} restarts", "MB", Series([memory_growth_mb(tools, folder, RESTARTS)]), None,
                         at_most=1)]
        if how.only != ONLY_AGENT:
            pieces = Pieces(results)
            with stalling_disk_folder(folder / "disk") as disk, slow_network(network_mbit) if network_mbit else contextlib.nullcontext(()) as begin_with:
                place = rehearsal.Place(folder, begin_with=begin_with, disk=disk)
                soak(tools, place, pieces, rehearsal.Mix.of(seed, number, stalls=disk is not None), seconds_apart, how.only)
            rows += pieces.rows()
    return [Table("Soak: faults of all kinds in one job", "", rows)]
