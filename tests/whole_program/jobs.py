"""Provides small training jobs for the whole-program tests: a data set cut from Fashion-MNIST, configs, functions that run
jobs, and readers of the files that a run writes."""

import gzip
import hashlib
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import time

DATASET = pathlib.Path(os.environ.get("DDPRUN_DATASET", "/usr/share/datasets/fashion-mnist"))
TRAIN, TEST = 640, 200  # number of training and test samples in the small data set


def write_small_dataset(folder: pathlib.Path, size: int = 28) -> pathlib.Path:
    """Writes a small part of Fashion-MNIST as uncompressed IDX files: the first TRAIN and TEST samples, cropped to size x size
    pixels at the center. Returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    first = (28 - size) // 2 * 29  # offset of the upper left pixel
    for split, count in (("train", TRAIN), ("t10k", TEST)):
        with gzip.open(DATASET / f"{split}-images-idx3-ubyte.gz") as f:
            pixels = f.read(16 + count * 784)[16:]
        with gzip.open(DATASET / f"{split}-labels-idx1-ubyte.gz") as f:
            labels = f.read(8 + count)[8:]
        pixels = b"".join(pixels[row:row + size] for image in range(count) for row in range(image * 784 + first, image * 784 + first + size * 28, 28))
        header = b"".join(n.to_bytes(4, "big") for n in (0x803, count, size, size))
        (folder / f"{split}-images-idx3-ubyte").write_bytes(header + pixels)
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(b"".join(n.to_bytes(4, "big") for n in (0x801, count)) + labels)
    return folder


def config(dataset: pathlib.Path, **changes) -> dict:
    """Returns a config with two epochs of 20 steps, a checkpoint every 7 steps, every step in the log, and a ledger. `changes`
    replaces keys of the config. Dicts are merged, except `model` and `optimizer`."""
    base = {
        "name": "small",
        "model": {"type": "mlp", "hidden": [32]},
        "data": {"type": "idx", "dir": str(dataset), "ledger": True},
        "epochs": 2,
        "batch_size": 32,
        "optimizer": {"type": "adamw", "lr": 1e-3},
        "checkpoint": {"every_steps": 7, "keep": 3},
        "log": {"every_steps": 1},
        "seed": 3,
    }
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict) and key != "model" and key != "optimizer":
            base[key] = {**base[key], **value}
        else:
            base[key] = value
    return base


def shipped_config(name: str) -> dict:
    """Returns a config file of configs/ as a dict. Removes the comments first, because the JSON parser of Python does not
    accept comments."""
    text = (pathlib.Path(__file__).parents[2] / f"configs/{name}.json").read_text(encoding="utf-8")
    config = json.loads(re.sub(r"\s//[^\n]*|^//[^\n]*", "", text, flags=re.M))
    del config["$schema"]
    return config


def write_config(path: pathlib.Path, content: dict) -> pathlib.Path:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return path


def free_port() -> int:
    """Returns a port that is free on every address, because agents listen on all addresses. The port is below the kernel's
    ephemeral range, from which the kernel may assign ports to other processes at any time."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10000, max(lowest, 20000)), 100):
        with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as s:
            if s.family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                s.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def clean_environment(**more: str) -> dict:
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("DDPRUN_", "PET_", "SLURM_", "OMPI_", "PMIX_", "TORCHELASTIC_", "DDPTRAIN_"))
            and k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def run(command: list, timeout: float = 120, cwd: pathlib.Path | None = None, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(c) for c in command], env=clean_environment(**env), stdin=subprocess.DEVNULL, cwd=cwd,
                          capture_output=True, text=True, errors="replace", timeout=timeout, check=False)


_started: list[subprocess.Popen] = []


def start(command: list, text: bool = True, **env: str) -> subprocess.Popen:
    """Starts a job that runs in parallel with the test. Its output goes to pipes. The job is killed when the test ends."""
    process = subprocess.Popen([str(c) for c in command], env=clean_environment(**env), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text)
    _started.append(process)
    return process


def end_started() -> None:
    """Kills the jobs of start() that are still running. Their workers exit when their agent is killed. conftest.py calls this
    function after each test."""
    while _started:
        with _started.pop() as process:
            if process.poll() is None:
                process.kill()


def weights_digest(run_dir: pathlib.Path) -> str:
    """Returns a digest of the model file and optimizer file of the newest checkpoint."""
    newest = (run_dir / "checkpoints" / "latest").resolve(strict=True)
    digest = hashlib.sha256()
    for name in ("model.safetensors", "optimizer.safetensors"):
        digest.update((newest / name).read_bytes())
    return digest.hexdigest()


def newest_step(run_dir: pathlib.Path) -> int:
    return max(int(p.name[5:]) for p in (run_dir / "checkpoints").glob("step-?????????"))


def metrics(run_dir: pathlib.Path, event: str | None = None) -> list[dict]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if event is None or line["event"] == event]


def losses(run_dir: pathlib.Path) -> list[tuple[int, float]]:
    return [(e["step"], e["loss"]) for e in metrics(run_dir, "step")]


def report(run_dir: pathlib.Path) -> dict:
    return json.loads((run_dir / "report.json").read_text(encoding="utf-8"))


def wait_for(condition, what: str, seconds: float = 60) -> None:
    """Polls until condition() is true. If it is not true after `seconds`, the test fails. Use this only for conditions that
    cause no event."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def assert_each_sample_once(run_dir: pathlib.Path, epochs: int, samples: int = TRAIN) -> None:
    """Checks that the ledgers of all ranks together contain every sample of every epoch exactly once."""
    used: dict[int, list[int]] = {}
    for file in sorted((run_dir / "ledger").glob("rank-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            used.setdefault(entry["epoch"], []).extend(entry["samples"])
    assert sorted(used) == list(range(epochs))
    for epoch, indices in used.items():
        assert sorted(indices) == list(range(samples)), f"epoch {epoch}: {len(indices)} uses of {len(set(indices))} samples"


def children(pid: int) -> list[int]:
    """Returns the pids of all running descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found
