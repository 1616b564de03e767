"""Runs a job in which one rank can be slowed down, and reads ddprun's straggler reports. straggler_bench.py and
tests/whole_program/test_stragglers.py use this module.

In each step, each rank computes for a while, sleeps for a longer time, and reads a block from the disk without the page cache.
A rank is slowed down in one of five ways: pulses of SIGSTOP, a CPU quota, a limit on disk reads, a data loader that sleeps, or
more computation.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

from agents import NotAvailable

BUSY_S = 0.008
ASLEEP_S = 0.016  # a rank sleeps for most of a step, so other processes can use the CPUs
BLOCK = 128 << 10
SCRIPT = f"""\
import mmap, os, time
import torch
import torch.distributed as dist
import ddprun
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(3)
dist.init_process_group("gloo")
planted = mmap.mmap(os.open("plant", os.O_RDONLY), 2, prot=mmap.PROT_READ)
disk = os.open("block", os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, {BLOCK})


def is_planted(kind):
    return planted[0] == kind and planted[1] == ddprun.rank


def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Slow(torch.nn.Linear):
    def forward(self, x):
        busy({BUSY_S} * (3 if is_planted(2) else 1))
        time.sleep({ASLEEP_S})
        return super().forward(x)


model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), Slow(64, 8)))
if "WATCH" in os.environ:
    ddprun.watch(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for n in range(1, int(os.environ.get("STEPS", "1000000000")) + 1):
    os.preadv(disk, [page], 0)
    if is_planted(1):
        time.sleep({ASLEEP_S})
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ddprun.step(n, loss=loss.item())
    if ddprun.should_save():
        ddprun.stopped()
if ddprun.rank == 0:
    print("at last", sum(p.double().sum().item() for p in model.parameters()), flush=True)
"""
KINDS = {"pulses": "processor", "quota": "processor", "disk": "disk", "data": "data", "compute": "compute"}
BY_SCRIPT = {"data": 1, "compute": 2}


class Job:
    """A job with --json. A thread reads its events as they arrive."""

    def __init__(self, command: list, folder: pathlib.Path, env: dict):
        self.folder = folder
        self.events: list[dict] = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen([str(word) for word in command], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(folder / "errors", "w"),
                                        text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            event = json.loads(line)
            with self.changed:
                self.events.append(event)
                self.changed.notify_all()
        with self.changed:
            self.events.append({"event": "end of output"})
            self.changed.notify_all()

    def wait_for_end_of(self, straggler: dict, seconds: float) -> bool:
        return self.wait("straggler", seconds, self.events.index(straggler) + 1, ended=True) is not None

    def of(self, name: str, since: int = 0) -> list[dict]:
        return [event for event in self.events[since:] if event["event"] == name]

    def wait(self, name: str, seconds: float, since: int = 0, **fields) -> dict | None:
        """Waits for the first event with this name and these fields, and returns it. Returns None if no such event arrives in
        time."""
        def found() -> dict | None:
            return next((e for e in self.of(name, since) if all(e.get(key) == value for key, value in fields.items())), None)

        def is_over() -> bool:
            return found() is not None or bool(self.of("end of output"))

        with self.changed:
            self.changed.wait_for(is_over, seconds)
            return found()

    def step(self) -> int:
        with self.changed:
            return max([e["step"] for e in self.of("progress")], default=0)

    def wait_for_step(self, step: int, seconds: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: any(e["step"] >= step for e in self.of("progress")), seconds)

    def pid(self, rank: int) -> int:
        return [e["pid"] for e in self.of("worker_started") if e["rank"] == rank][-1]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.reader.join()
        return code


class ScriptJob(Job):
    """A job that runs the training script SCRIPT of this file."""

    def __init__(self, ddprun, folder: pathlib.Path, env: dict, workers: int = 2, options: tuple = (), watch: bool = True, steps: int = 10**9):
        (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
        (folder / "plant").write_bytes(b"\0\0")
        with open(folder / "block", "wb") as file:
            file.write(os.urandom(BLOCK))
            os.fsync(file.fileno())
        super().__init__([ddprun, "--standalone", "--json", "--nproc-per-node", workers, "--log-dir", folder / "logs", *options, folder / "train.py"], folder,
                         {**env, "STEPS": str(steps), **({"WATCH": "1"} if watch else {})})

    @contextlib.contextmanager
    def planted(self, kind: str, rank: int):
        """Slows a rank down by the method `kind` until the with block ends."""
        if kind in BY_SCRIPT:
            with open(self.folder / "plant", "r+b") as plant:  # changed in place, since the ranks have mapped the file
                plant.write(bytes([BY_SCRIPT[kind], rank]))
                plant.flush()
                yield
                plant.seek(0)
                plant.write(b"\0\0")
            return
        with {"pulses": pulses, "quota": quota, "disk": slow_disk}[kind](self.pid(rank), self.folder):
            yield


@contextlib.contextmanager
def pulses(pid: int, _folder: pathlib.Path | None = None, stopped: float = 0.08):
    """Stops the process repeatedly with SIGSTOP, each time for `stopped` seconds. Between two stops it runs for 0.12 s."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(0.12):
            os.kill(pid, signal.SIGSTOP)
            over.wait(stopped)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def controller(name: str) -> tuple[pathlib.Path, bool]:
    """Returns a pair: the folder in which cgroups with this controller can be created, and True if this folder belongs to a
    cgroup v2 hierarchy."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, after = line.split(" - ")
        kind, _, options = after.split(" ")[:3]
        where = pathlib.Path(before.split(" ")[4])
        if kind == "cgroup" and name in options.split(",") and os.access(where, os.W_OK):
            return where, False
        version = {"cpu": "cpu", "blkio": "io"}[name]
        if kind == "cgroup2" and version in (where / "cgroup.subtree_control").read_text().split() and os.access(where, os.W_OK):
            return where, True
    raise NotAvailable(f"no cgroup with the controller {name} can be created here")


@contextlib.contextmanager
def in_cgroup(pid: int, name: str, limits: dict[str, str], limits_of_2: dict[str, str]):
    where, is_2 = controller(name)
    folder = where / f"ddprun-slow-{os.getpid()}-{pid}"
    folder.mkdir()
    try:
        for file, value in (limits_of_2 if is_2 else limits).items():
            (folder / file).write_text(value)
        (folder / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            (where / "cgroup.procs").write_text(str(pid))
        for _ in range(100):
            try:
                folder.rmdir()
                break
            except OSError:  # a process in the cgroup has not exited yet
                time.sleep(0.01)


def quota(pid: int, _folder: pathlib.Path):
    """Limits the process to a seventh of a CPU."""
    return in_cgroup(pid, "cpu", {"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "7000"}, {"cpu.max": "7000 50000"})


def slow_disk(pid: int, folder: pathlib.Path):
    """Limits the reads of the process from the disk that holds `folder` to eight blocks per second."""
    device = os.stat(folder).st_dev
    which = f"{os.major(device)}:{os.minor(device)}"
    rate = 8 * BLOCK
    return in_cgroup(pid, "blkio", {"blkio.throttle.read_bps_device": f"{which} {rate}"}, {"io.max": f"{which} rbps={rate}"})
