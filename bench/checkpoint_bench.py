"""Measures what checkpoints of a 500 MB state cost. There are three parts. `--only` selects one by its name (stall, writing or
speed):

- Stall: the time for which a save stops training, compared with torch.save and torch.distributed.checkpoint.async_save.
- Writing: the throughput, compared with dd with the same flags (O_DIRECT, fsync) on the same disk in the same run.
- Speed: the training speed in stretches of 50 steps that start with a save, compared with stretches without a save. Both kinds
  alternate in one run, because the speed of a machine differs between two runs by more than the target.

The network is an MLP with AdamW. It has 163 MB of weights, and the moments are twice as large. A save of ddptrain computes
checksums, calls fsync and publishes the checkpoint atomically. async_save only calls fsync, and torch.save does none of these.
"""

import json
import pathlib
import shutil
import sys
import tempfile

from measure import RunOptions, Row, Series, Table, Tools, environment, progress, timed
from training_cases import FASHION_MNIST

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN = [6000, 6000]
STRETCH = 50  # length of a stretch in training steps; every second stretch starts with a save
WARM_UP = 50
# Number of steps between two saves. The Python programs and all parts except SPEED use it. Each save must end before the next
# one starts.
EVERY = 25
MAX_REPEATS = 3  # one repeat takes 100 s

STALL, PLAIN, WRITING = "Stall of training for a checkpoint", "Stall of training for a checkpoint, against a plain save", "Writing a checkpoint during training"
SPEED = f"Speed with a checkpoint every {STRETCH} steps"


def read_steps(file: pathlib.Path) -> list[tuple[int, int]]:
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(e["step"], e["time_ns"]) for e in events if e["event"] == "step"]


def settings(steps: int, every: int) -> dict:
    return {"name": "bench", "model": {"type": "mlp", "hidden": HIDDEN}, "data": {"type": "idx", "dir": str(FASHION_MNIST), "mean": 0.2860, "std": 0.3530,
            "test_samples": 16}, "epochs": 100, "max_steps": steps, "batch_size": 8, "eval_every_epochs": 0,
            "optimizer": {"type": "adamw", "lr": 1e-4}, "log": {"every_steps": 10, "tensorboard": False},
            "checkpoint": {"every_steps": every, "keep": 2}}


def checkpoints(file: pathlib.Path, last: int) -> list[dict]:
    """Returns all saves except the first and the last save. During the first save, memory is allocated. The last save happens
    at the end of the run."""
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [e for e in events if e["event"] == "checkpoint" and e["step"] != last][1:]


def train(tools: Tools, folder: pathlib.Path, name: str, steps: int, every: int) -> pathlib.Path:
    config = folder / f"{name}.json"
    config.write_text(json.dumps(settings(steps, every)), encoding="utf-8")
    run_dir = folder / name
    timed([tools.ddprun, "-q", "--nproc-per-node", "1", "--run-dir", str(run_dir), str(config)], env=environment())
    return run_dir / "metrics.jsonl"


def speeds(metrics: pathlib.Path) -> tuple[list[float], list[float]]:
    """Returns the steps per second in the stretches that start with a save, and in the stretches without a save. The first
    kind includes the pause of training for the save."""
    at = {step: ns / 1e9 for step, ns in read_steps(metrics)}
    last = max(at)
    begins = range(WARM_UP, last - STRETCH + 1, STRETCH)
    rate = {b: STRETCH / (at[b + STRETCH] - at[b]) for b in begins}
    return [r for b, r in rate.items() if b % (2 * STRETCH) == 0], [r for b, r in rate.items() if b % (2 * STRETCH)]


def dd_mb_per_s(folder: pathlib.Path, megabytes: int) -> float:
    """Returns the throughput of dd. Like ddptrain's writer, dd writes blocks of 4 MiB past the page cache, and then calls
    fsync."""
    file = folder / "dd.bin"
    blocks = megabytes // 4
    seconds = timed(["dd", "if=/dev/zero", f"of={file}", "bs=4M", f"count={blocks}", "oflag=direct", "conv=fsync"])
    file.unlink()
    return 4 * blocks * 1.048576 / seconds


def peer_stalls(folder: pathlib.Path, how: str, saves: int) -> list[float]:
    work = folder / "peer"
    work.mkdir()
    config, out = folder / "peer.json", folder / "peer.jsonl"
    config.write_text(json.dumps(settings(EVERY * saves + 1, EVERY)), encoding="utf-8")
    timed([sys.executable, str(HERE / "python_checkpoint.py"), how, str(config), str(out), str(work)], env=environment())
    shutil.rmtree(work)
    return [e["pause_s"] * 1000 for e in checkpoints(out, -1)]


def run(tools: Tools, how: RunOptions) -> list[Table]:
    wants = {title: how.only.lower() in title.lower() for title in (STALL, PLAIN, WRITING, SPEED)}
    saves = 2 if how.quick else 4
    every, behind = (2 * STRETCH, STRETCH) if wants[SPEED] else (EVERY, 0)
    steps = every * saves + behind + 1
    stalls, plain, asynchronous, writing, raw, saving, calm = [], [], [], [], [], [], []
    megabytes = 0
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        for i in range(min(how.repeats, MAX_REPEATS)):
            progress(f"checkpoint: {i + 1} of {min(how.repeats, MAX_REPEATS)}")
            metrics = train(tools, folder, "ours", steps, every)
            events = checkpoints(metrics, steps)
            stalls += [e["pause_s"] * 1000 for e in events]
            writing += [e["bytes"] / 1e6 / e["save_s"] for e in events]
            if wants[SPEED]:
                for values, more in zip((saving, calm), speeds(metrics)):
                    values += more
            megabytes = events[0]["bytes"] >> 20
            shutil.rmtree(folder / "ours")
            if wants[WRITING]:
                raw += [dd_mb_per_s(folder, megabytes) for _ in range(3)]
            if wants[STALL]:
                asynchronous += peer_stalls(folder, "async_save", saves)
            if wants[PLAIN]:
                plain += peer_stalls(folder, "torch.save", saves)
    size = f"{megabytes} MiB of weights and optimizer moments"
    rows = {STALL: ("torch.distributed.checkpoint.async_save", Row(size, "ms", Series(stalls), Series(asynchronous), factor=5.0)),
            PLAIN: ("torch.save", Row(size, "ms", Series(stalls), Series(plain))),
            WRITING: ("dd oflag=direct conv=fsync on an idle machine",
                      Row(size, "MB/s", Series(writing), Series(raw), larger_is_better=True, factor=0.8)),
            SPEED: ("the 50 steps without a save, in the same run", Row(size, "steps/s", Series(saving), Series(calm), larger_is_better=True, factor=0.97))}
    return [Table(title, peer, [row]) for title, (peer, row) in rows.items() if wants[title]]
