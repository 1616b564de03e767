"""ddptrain under ddprun against Python DistributedDataParallel under torchrun: time to the first finished step, and steady speed.

Both train the same network on the same data with the same batch, optimizer and number of logged steps, one intra-op thread a worker.
ddptrain evaluates at the end, here on 16 samples, behind what is measured. Each run writes the wall-clock time of logged steps; speed is taken between two of them, behind the warm-up.
"""

import json
import pathlib
import tempfile
import time

from measure import How, Row, Series, Table, Tools, environment, progress, timed

HERE = pathlib.Path(__file__).resolve().parent
DATA = "/usr/share/datasets/fashion-mnist"

# model, batch of each worker, steps, logged every, least factor on one and on two workers
CASES = [
    ("mlp", 1, 2000, 100, 1.5, 1.1),
    ("mlp", 64, 1500, 100, 1.5, 1.1),
    ("cnn", 64, 200, 20, 1.0, 1.0),
    ("resnet18", 16, 24, 4, 1.0, 1.0),
]


def settings(model: str, batch: int, steps: int, every: int) -> dict:
    return {"name": "bench", "model": {"type": model}, "data": {"type": "idx", "dir": DATA, "mean": 0.2860, "std": 0.3530, "test_samples": 16},
            "epochs": 100, "max_steps": steps, "batch_size": batch, "eval_every_epochs": 0,
            "optimizer": {"type": "sgd", "lr": 0.005, "momentum": 0.9}, "log": {"every_steps": every, "tensorboard": False}}


def read_steps(file: pathlib.Path) -> list[tuple[int, int]]:
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(e["step"], e["time_ns"]) for e in events if e["event"] == "step"]


def one_run(command: list[str], metrics: pathlib.Path, batch: int, every: int) -> tuple[float, float]:
    """(seconds from launch to the first finished step, samples per second behind the warm-up)"""
    begin = time.time_ns()
    timed(command, env=environment(), timeout=1200)
    steps = read_steps(metrics)
    first = (steps[0][1] - begin) / 1e9
    steady = [s for s in steps if s[0] >= 2 * every]
    (s0, t0), (s1, t1) = steady[0], steady[-1]
    return first, (s1 - s0) * batch / ((t1 - t0) / 1e9)


def run(tools: Tools, how: How) -> list[Table]:
    starts, speeds = [], []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        for model, per_worker_batch, steps, every, factor_one, factor_two in CASES:
            if how.only not in model:
                continue
            if how.quick:
                steps, every = max(steps // 4, 6 * every // 4), max(1, every // 4)
            for workers, factor in ((1, factor_one), (2, factor_two)):
                batch = per_worker_batch * workers
                config = folder / f"{model}-{batch}-{workers}.json"
                config.write_text(json.dumps(settings(model, batch, steps, every)), encoding="utf-8")
                label = f"{model}, batch {per_worker_batch} a worker, {workers} worker{'s' if workers > 1 else ''}"
                ours_first, ours_speed, peer_first, peer_speed = [], [], [], []
                for i in range(how.repeats):
                    progress(f"{label}: {i + 1} of {how.repeats}")
                    run_dir = folder / f"run-{model}-{batch}-{workers}-{i}"
                    first, speed = one_run([tools.ddprun, "-q", "--nproc-per-node", str(workers), "--run-dir", str(run_dir), str(config)],
                                           run_dir / "metrics.jsonl", batch, every)
                    ours_first.append(first)
                    ours_speed.append(speed)
                    out = folder / f"python-{model}-{batch}-{workers}-{i}.jsonl"
                    first, speed = one_run([*tools.torchrun, "--standalone", "--nproc-per-node", str(workers),
                                            str(HERE / "python_ddp.py"), str(config), str(out)], out, batch, every)
                    peer_first.append(first)
                    peer_speed.append(speed)
                starts.append(Row(label, "s", Series(ours_first), Series(peer_first), factor=4.0))
                speeds.append(Row(label, "samples/s", Series(ours_speed), Series(peer_speed), larger_is_better=True, factor=factor))
    return [Table("Launch to the first finished step", "torchrun + Python DDP", starts),
            Table("Steady training speed", "torchrun + Python DDP", speeds)]
