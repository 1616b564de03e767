"""Kills one of two workers with SIGKILL. Measures the time until the next new step is finished, and the number of repeated
steps.

ddptrain runs under ddprun in three ways: a standby replaces the lost worker, the lost worker is started again, or all workers
restart from a checkpoint. In the first two ways, the other worker keeps its state. ddptrain is compared with
DistributedDataParallel in Python under torchrun, which restarts from its newest checkpoint. Both programs save every 50 steps.
By default torchrun's workers share a store with their agent. Without the shared store torchrun recovers more reliably, so the
table has rows for both.
"""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from measure import RunOptions, Row, Series, Table, Tools, environment, progress
from training_cases import FASHION_MNIST, MLP, SGD

HERE = pathlib.Path(__file__).resolve().parent
SAVE_EVERY = 50
KILL_AFTER = 3 * SAVE_EVERY + SAVE_EVERY // 2  # step of the kill: half an interval after a checkpoint
TIMEOUT_S = 60
OURS = {"standby": ["--standby", "1"], "live": ["--recovery", "live"], "checkpoint": ["--recovery", "checkpoint"]}
TITLES = {"standby": "a standby takes over", "live": "state kept", "checkpoint": "all workers restarted"}
MAX_SECONDS = {"standby": 0.3, "live": 1.0, "checkpoint": None}  # maximum time to recover


def steps_in(file: pathlib.Path) -> list[tuple[int, int]]:
    if not file.exists():
        return []
    lines = file.read_bytes().split(b"\n")[:-1]
    events = [json.loads(line) for line in lines if b'"step"' in line]
    return [(e["step"], e["time_ns"]) for e in events if e["event"] == "step"]


def newest_step(file: pathlib.Path) -> int:
    """Returns the newest step in the file, or -1. This function is called repeatedly while the workers train, so it reads only
    the end of the file."""
    try:
        with open(file, "rb") as metrics:
            metrics.seek(max(0, metrics.seek(0, os.SEEK_END) - 4096))
            lines = metrics.read().split(b"\n")[1:-1]
    except FileNotFoundError:
        return -1
    return next((json.loads(line)["step"] for line in reversed(lines) if b'"event":"step"' in line.replace(b" ", b"")), -1)


def worker_of_rank(rank: int, run: str) -> int:
    """Returns the pid of the process that was started with this rank and has `run` in its command line."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if f"RANK={rank}".encode() in variables and run.encode() in command:
            return int(entry.name)
    raise RuntimeError(f"no worker with rank {rank} found")


def wait_for_step(metrics: pathlib.Path, step: int, process: subprocess.Popen) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if newest_step(metrics) >= step:
            return True
        time.sleep(0.02)
    return False


def wait_for_standby(console: pathlib.Path, process: subprocess.Popen) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if b'"standby_waits"' in console.read_bytes():
            return True
        time.sleep(0.02)
    return False


def one_run(command: list[str], metrics: pathlib.Path, run: str, env: dict, console: pathlib.Path | None = None) -> tuple[float, int] | None:
    """Starts the command, kills rank 1, and waits for the recovery. Returns the seconds from the kill to the first new step and
    the number of repeated steps, or None if the job did not recover. If the job has a standby process, `console` is the file
    with the job's output. A line in this file reports that the standby is ready."""
    with open(console or os.devnull, "wb") as out:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
    try:
        if not wait_for_step(metrics, KILL_AFTER, process) or (console and not wait_for_standby(console, process)):
            raise RuntimeError(f"{' '.join(command)} did not start training")
        killed_ns = time.time_ns()
        os.kill(worker_of_rank(1, run), signal.SIGKILL)
        time.sleep(0.05)  # after this time, lines that were being written at the time of the kill are complete
        before = [(s, t) for s, t in steps_in(metrics) if t < killed_ns + 50_000_000]
        newest = before[-1][0]
        if not wait_for_step(metrics, newest + 2, process):
            return None
        after = [(s, t) for s, t in steps_in(metrics) if t > before[-1][1]]
        first_new = min(t for s, t in after if s > newest)
        again = {s for s, t in after if s <= newest}
        # ddptrain removes repeated steps from its metrics file. So their number is computed from the restart event, which
        # contains the step at which training resumed.
        restarts = [json.loads(line) for line in metrics.read_bytes().split(b"\n")[:-1] if b'"restart"' in line]
        made_again = newest - restarts[-1]["step"] if restarts else len(again)
        return (first_new - killed_ns) / 1e9, made_again
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def write_config(folder: pathlib.Path) -> pathlib.Path:
    config = folder / "train.json"
    content = {"name": "bench", "model": MLP, "data": {"type": "idx", "dir": str(FASHION_MNIST), "mean": 0.2860, "std": 0.3530, "test_samples": 16},
               "epochs": 10_000, "max_steps": 1_000_000, "batch_size": 128, "eval_every_epochs": 0, "optimizer": SGD,
               "checkpoint": {"every_steps": SAVE_EVERY}, "log": {"every_steps": 1, "tensorboard": False}}
    config.write_text(json.dumps(content), encoding="utf-8")
    return config


def our_run(ddprun: str, kind: str, config: pathlib.Path, folder: pathlib.Path) -> tuple[float, int] | None:
    """Calls one_run() for a job of ddptrain, with a temporary run directory."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        run_dir = pathlib.Path(name, "run")
        console = pathlib.Path(name, "console.json") if kind == "standby" else None
        command = [ddprun, "--json" if console else "-q", "--nproc-per-node", "2", *OURS[kind], "--run-dir", str(run_dir), str(config)]
        return one_run(command, run_dir / "metrics.jsonl", str(run_dir), environment(), console)


def run(tools: Tools, how: RunOptions) -> list[Table]:
    found: dict[str, list[tuple[float, int] | None]] = {}
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        config = write_config(folder)
        peer = {"default store": {}, "store not shared": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}}
        for repeat in range(how.repeats):
            for kind in OURS:
                found.setdefault(kind, []).append(our_run(tools.ddprun, kind, config, folder))
                progress(f"{kind}: {found[kind][-1]}")
            for label, variables in peer.items():
                mark = folder / f"{label.replace(' ', '-')}-{repeat}"
                script = [str(HERE / "python_ddp.py"), str(config), f"{mark}.jsonl", str(SAVE_EVERY), f"{mark}.pt"]
                command = [*tools.torchrun, "--standalone", "--nproc-per-node", "2", "--max-restarts", "3", *script]
                found.setdefault(label, []).append(one_run(command, pathlib.Path(f"{mark}.jsonl"), f"{mark}.jsonl", environment(**variables)))
                progress(f"torchrun, {label}: {found[label][-1]}")

    def series(which: str, index: int) -> Series | str:
        values = [float(one[index]) for one in found[which] if one]
        return Series(values) if values else "did not recover"

    def recovered(which: str) -> str:
        return f"{sum(1 for one in found[which] if one)} of {len(found[which])}"

    rows = []
    for ours, name in TITLES.items():
        bar = MAX_SECONDS[ours]
        for label in peer:
            rows.append(Row(f"{name}; {label}", "s", series(ours, 0), series(label, 0), at_most=bar))
            rows.append(Row(f"{name}; {label}: recovered", "", recovered(ours), recovered(label), wanted=f"{how.repeats} of {how.repeats}"))
        rows.append(Row(f"{name}: repeated steps", "steps", series(ours, 1), series("store not shared", 1), at_most=None if ours == "checkpoint" else 0))
    return [Table("From SIGKILL of one of two workers to the next new step", "torchrun + Python DDP, a checkpoint every 50 steps", rows)]
