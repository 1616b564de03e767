"""Compares the training speed of ddptrain under ddprun with DistributedDataParallel in eager Python under torchrun. There is a
row for each model of ddptrain, in fp32.

Both programs train the same network on the same data, with the same batch size, optimizer and logged steps. Both use one
intra-op thread per worker. Each run reports the wall-clock time of its logged steps. The speed is computed from two of these
times after the warm-up. Speeds are measured in pairs, in alternating order. For ddptrain, a measurement is a whole job. The
Python program is started once, and each measurement is one training run in it (python_rounds.py). Exported models are measured
in the same alternation. They are compared with the hand-written model and with Python's DDP.
"""

import contextlib
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from measure import RunOptions, Row, Series, Table, Tools, environment, progress, timed
from training_cases import CASES, Case, Folder

HERE = pathlib.Path(__file__).resolve().parent
PEER = "torchrun + Python DDP"
START, SPEED, HAND_WRITTEN, PARTS, MEMORY = ("Launch to the first finished step", "Steady training speed", "Exported and hand-written models",
                                       "Where the time of a step goes", "Peak memory of a worker")
# {kind of measurement: the tables to which it adds rows}
FILLS = {START: (START,), SPEED: (SPEED, HAND_WRITTEN, PARTS), MEMORY: (MEMORY,)}
# A row's ratio has two targets: the median of its pairs must reach FACTOR, and the lower end of its confidence interval must
# reach LOW.
FACTOR, LOW = 1.0, 0.95
PART_NAMES = ("data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms")
STARTS, PEAKS = 5, 3  # maximum number of repeats of the measurements of the start time and of the memory


def speed(steps: list[tuple[int, int]], batch: int) -> float:
    """Returns the samples per second after the warm-up. The warm-up is the first fifth of the steps."""
    (first, begin), *_, (last, end) = [step for step in steps if step[0] >= steps[-1][0] // 5]
    return (last - first) * batch / ((end - begin) / 1e9)


class Job:
    """Measures ddptrain. Each measurement is a separate job."""

    def __init__(self, tools: Tools, config: pathlib.Path, workers: int, folder: pathlib.Path):
        self.command = [tools.ddprun, "-q", "--nproc-per-node", str(workers)]
        self.config, self.folder, self.batch = config, folder, json.loads(config.read_text())["batch_size"]
        self.parts: list[dict] = []

    def run(self) -> list[dict]:
        with tempfile.TemporaryDirectory(dir=self.folder) as run_dir:
            timed([*self.command, "--run-dir", f"{run_dir}/run", str(self.config)], env=environment(), timeout=300)
            lines = pathlib.Path(run_dir, "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == "step"]

    def measure(self) -> float:
        events = self.run()
        self.parts += events[2:]  # the first two events belong to the warm-up
        return speed([(e["step"], e["time_ns"]) for e in events], self.batch)

    def where_time_goes(self) -> str:
        means = {part: statistics.mean(e[part] for e in self.parts) for part in PART_NAMES}
        whole = sum(means.values())
        return f"{whole:.3g} ms: " + ", ".join(f"{part[:-3]} {100 * mean / whole:.1f} %" for part, mean in means.items())


class Peer:
    """Measures the Python program that is compared with ddptrain. The program is started once, and can then be measured many
    times."""

    def __init__(self, tools: Tools, config: pathlib.Path, workers: int, *options: str, before: list[str] | None = None):
        self.workers, self.batch = workers, json.loads(config.read_text())["batch_size"]
        self.stderr_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*tools.torchrun, "--standalone", "--nproc-per-node", str(workers), *(before or []),
                                         str(HERE / "python_rounds.py"), str(config), *options],
                                        env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr_file)

    def round(self) -> list[tuple[int, int]]:
        with contextlib.suppress(BrokenPipeError):  # the Python program has exited; the code below prints its output
            self.process.stdin.write(b"g" * self.workers)
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.stderr_file.seek(0)
            sys.exit(f"bench: the compared program ended:\n{self.stderr_file.read().decode(errors='replace')[-4000:]}")
        return json.loads(line)

    def measure(self) -> float:
        return speed(self.round(), self.batch)

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.stderr_file.close()


def interleaved(programs: dict, turns: int) -> dict[str, Series]:
    """Measures all programs `turns` times. The order rotates, so that each program is sometimes the first."""
    values = {name: Series([]) for name in programs}
    names = list(programs)
    for turn in range(turns):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            values[name].values.append(programs[name].measure())
    return values


@dataclasses.dataclass
class Speeds:
    rows: list[Row] = dataclasses.field(default_factory=list)
    hand_written: list[Row] = dataclasses.field(default_factory=list)
    parts: list[Row] = dataclasses.field(default_factory=list)

    def add(self, case: Case, workers: int, turns: int, tools: Tools, folder: Folder) -> None:
        label = case.label(workers)
        config = folder.config(case, workers)
        programs = {"ours": Job(tools, config, workers, folder.path)}
        if case.exported and workers == max(case.workers):
            programs["exported"] = Job(tools, folder.exported(case, workers), workers, folder.path)
        with contextlib.closing(Peer(tools, config, workers, *["--data-loader"] * case.data_loader)) as peer:
            # This training run is not measured. When the run ends, the Python program has started and waits without using a
            # CPU.
            peer.round()
            measured = interleaved({**programs, "peer": peer}, turns)
        factor = case.factors[workers - 1] if case.factors else FACTOR
        self.rows.append(paired(label, measured["ours"], measured["peer"], factor))
        if "exported" in measured:
            self.rows.append(paired(f"exported {label}", measured["exported"], measured["peer"]))
            self.hand_written.append(paired(f"exported {label}", measured["exported"], measured["ours"], None))
        for name, job in programs.items():
            self.parts.append(Row(f"exported {label}" if name == "exported" else label, "", job.where_time_goes(), None))
        for row in self.rows[-len(programs):]:
            progress(f"{row.name}: {row.times_better:.3f} ({row.interval[0]:.3f}-{row.interval[1]:.3f})")


def paired(label: str, ours: Series, peer: Series, factor: float | None = FACTOR) -> Row:
    return Row(label, "samples/s", ours, peer, larger_is_better=True, factor=factor, paired=True, low=LOW)


def start(case: Case, workers: int, repeats: int, tools: Tools, folder: Folder) -> Row:
    config = folder.config(dataclasses.replace(case, steps=1, steps_alone=1), workers)
    ours, peer = Series([]), Series([])
    for _ in range(repeats):
        begin = time.time_ns()
        ours.values.append((Job(tools, config, workers, folder.path).run()[0]["time_ns"] - begin) / 1e9)
        begin = time.time_ns()
        with contextlib.closing(Peer(tools, config, workers)) as started:
            peer.values.append((started.round()[0][1] - begin) / 1e9)
    return Row(case.label(workers), "s", ours, peer, factor=4.0)


def memory(case: Case, workers: int, repeats: int, tools: Tools, folder: Folder) -> Row:
    """Measures the peak resident memory of the worker with the highest peak. Both programs train the same number of steps on
    the same data. The Python program keeps images as bytes until they are in a batch."""
    config = folder.config(case, workers)
    ours, peer = Series([]), Series([])
    for turn in range(repeats):
        peaks = {name: folder.path / f"peak-{name}-{turn}" for name in ("ours", "peer")}
        small = [sys.executable, "-S", str(HERE / "peak_of.py")]
        with tempfile.TemporaryDirectory(dir=folder.path) as run_dir:
            timed([tools.ddprun, "-q", "--no-python", "--nproc-per-node", str(workers), *small, str(peaks["ours"]),
                   tools.ddptrain, "--run-dir", f"{run_dir}/run", str(config)], env=environment(), timeout=300)
        with contextlib.closing(Peer(tools, config, workers, "--bytes", before=["--no-python", *small, str(peaks["peer"]), sys.executable])) as started:
            started.round()
        for series, file in ((ours, peaks["ours"]), (peer, peaks["peer"])):
            series.values.append(max(map(int, file.read_text().split())) / 1024)
    return Row(case.label(workers), "MB", ours, peer, factor=2.0)


def run(tools: Tools, how: RunOptions) -> list[Table]:
    """Returns the tables with their rows. Only rows and tables whose names contain the text `how.only` are measured."""
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder, speeds, rows = Folder(pathlib.Path(name)), Speeds(), {START: [], MEMORY: []}
        for case in CASES:
            if how.quick:
                case = dataclasses.replace(case, steps=max(6, case.steps // 4), steps_alone=case.steps_alone // 4)
            for workers in case.workers:
                label = case.label(workers)
                requested = [title for title, fills in FILLS.items() if any(how.only in text for text in (label, *fills))]
                if SPEED in requested or (case.exported and how.only in f"exported {label}"):
                    speeds.add(case, workers, how.repeats, tools, folder)
                for title, wanted, measure, most in ((START, case.start, start, STARTS),
                                                     (MEMORY, case.memory and workers == max(case.workers), memory, PEAKS)):
                    if wanted and title in requested:
                        rows[title].append(measure(case, workers, min(most, how.repeats), tools, folder))
                        progress(f"{title}: {label}: {rows[title][-1].times_better:.1f}x")
    tables = [Table(START, PEER, rows[START]), Table(SPEED, PEER, speeds.rows), Table(HAND_WRITTEN, "hand-written", speeds.hand_written),
              Table(PARTS, "", speeds.parts), Table(MEMORY, PEER, rows[MEMORY])]
    return [table for table in tables if table.rows]
