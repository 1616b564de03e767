"""What checkpoints of a 500 MB state cost: the stall of training for a save, against torch.save and
torch.distributed.checkpoint.async_save; the throughput of writing, against dd with fsync on the same disk; and the speed of a
run that saves every 50 steps, against one that does not.

The network is an MLP with AdamW: 163 MB of weights and twice that of moments. ddptrain's saves include checksums, fsync and
atomic publication, async_save's fsync, torch.save's neither.
"""

import json
import pathlib
import shutil
import sys
import tempfile

from measure import How, Row, Series, Table, Tools, environment, progress, timed
from training_bench import DATA, HERE, read_steps

HIDDEN = [6000, 6000]
EVERY = 50


def settings(steps: int, every: int) -> dict:
    return {"name": "bench", "model": {"type": "mlp", "hidden": HIDDEN}, "data": {"type": "idx", "dir": DATA, "mean": 0.2860, "std": 0.3530,
            "test_samples": 16}, "epochs": 100, "max_steps": steps, "batch_size": 8, "eval_every_epochs": 0,
            "optimizer": {"type": "adamw", "lr": 1e-4}, "log": {"every_steps": 10, "tensorboard": False},
            "checkpoint": {"every_steps": every, "keep": 2}}


def checkpoints(file: pathlib.Path, last: int) -> list[dict]:
    """Those beside training: neither the run's last nor the first, for which both sides get their memory."""
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [e for e in events if e["event"] == "checkpoint" and e["step"] != last][1:]


def train(tools: Tools, folder: pathlib.Path, name: str, steps: int, every: int) -> pathlib.Path:
    config = folder / f"{name}.json"
    config.write_text(json.dumps(settings(steps, every)), encoding="utf-8")
    run_dir = folder / name
    timed([tools.ddprun, "-q", "--nproc-per-node", "1", "--run-dir", str(run_dir), str(config)], env=environment())
    return run_dir / "metrics.jsonl"


def speed(metrics: pathlib.Path) -> float:
    """Steps a second, saves included, behind the warm-up."""
    (s0, t0), *_, (s1, t1) = [s for s in read_steps(metrics) if s[0] >= 20]
    return (s1 - s0) / ((t1 - t0) / 1e9)


def dd_mb_per_s(folder: pathlib.Path, megabytes: int) -> float:
    file = folder / "dd.bin"
    seconds = timed(["dd", "if=/dev/zero", f"of={file}", "bs=1M", f"count={megabytes}", "conv=fsync"])
    file.unlink()
    return megabytes * 1.048576 / seconds


def peer_stalls(folder: pathlib.Path, how: str, steps: int, every: int) -> list[float]:
    work = folder / "peer"
    work.mkdir()
    config, out = folder / "peer.json", folder / "peer.jsonl"
    config.write_text(json.dumps(settings(steps, every)), encoding="utf-8")
    timed([sys.executable, str(HERE / "python_checkpoint.py"), how, str(config), str(out), str(work)], env=environment())
    shutil.rmtree(work)
    return [e["pause_s"] * 1000 for e in checkpoints(out, -1)]


def run(tools: Tools, how: How) -> list[Table]:
    every, saves = 25, 3 if how.quick else 6
    steps = every * saves + 1
    stalls, plain, asynchronous, writing, raw, saving, calm = [], [], [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        for i in range(how.repeats):
            progress(f"stalls: {i + 1} of {how.repeats}")
            events = checkpoints(train(tools, folder, "stall", steps, every), steps)
            stalls += [e["pause_s"] * 1000 for e in events]
            writing += [e["bytes"] / 1e6 / e["save_s"] for e in events]
            megabytes = events[0]["bytes"] >> 20
            shutil.rmtree(folder / "stall")
            raw += [dd_mb_per_s(folder, megabytes) for _ in range(2)]
            asynchronous += peer_stalls(folder, "async_save", steps, every)
            plain += peer_stalls(folder, "torch.save", steps, every)
            progress(f"speed: {i + 1} of {how.repeats}")
            steps_of_speed = 2 * EVERY + 20 if how.quick else 4 * EVERY + 20
            for every_steps, values in ((EVERY, saving), (0, calm)):
                values.append(speed(train(tools, folder, "speed", steps_of_speed, every_steps)))
                shutil.rmtree(folder / "speed")
    size = f"{megabytes} MiB of weights and moments"
    return [Table("Stall of training for a checkpoint", "torch.distributed.checkpoint.async_save",
                  [Row(size, "ms", Series(stalls), Series(asynchronous), factor=5.0)]),
            Table("Stall of training for a checkpoint, against a plain save", "torch.save", [Row(size, "ms", Series(stalls), Series(plain))]),
            Table("Writing a checkpoint beside training", "dd conv=fsync, nothing beside it",
                  [Row(size, "MB/s", Series(writing), Series(raw), larger_is_better=True, factor=0.8)]),
            Table(f"Speed with a checkpoint every {EVERY} steps", "the same without",
                  [Row(size, "steps/s", Series(saving), Series(calm), larger_is_better=True, factor=0.97)])]
