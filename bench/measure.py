"""Code that the benchmarks share. It runs and times commands, computes medians with their spread, and writes tables.

A Series has the measured values of one quantity for one program. A Row compares the values of ddprun with the values of
another program (`peer`), and may have a target. In a `paired` row, the two values with the same index were measured directly
one after the other, in alternating order. If the machine is slow for some seconds, this affects both values of a pair. The
ratio of a pair is therefore more precise than the ratio of two medians.
"""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import time


@dataclasses.dataclass
class Tools:
    ddprun: str
    ddptrain: str
    torchrun: list[str]
    python: str

    @staticmethod
    def find(folder: pathlib.Path) -> "Tools":
        for name in ("ddprun", "ddptrain"):
            if not (folder / name).exists():
                sys.exit(f"bench: {folder / name} does not exist; run ./dev build first")
        neighbour = pathlib.Path(sys.executable).with_name("torchrun")
        torchrun = [str(neighbour)] if neighbour.exists() else [shutil.which("torchrun") or sys.exit("bench: torchrun not found")]
        return Tools(str(folder / "ddprun"), str(folder / "ddptrain"), torchrun, sys.executable)


@dataclasses.dataclass(frozen=True)
class RunOptions:
    quick: bool  # run fewer steps, only to show that the benchmark works; the results mean nothing
    repeats: int  # how often each pair of programs is measured
    only: str  # measure only the tables and rows whose name contains this text


def environment(**more: str) -> dict:
    """Returns the environment variables for both programs. They set one intra-op thread per worker. Variables of a job in which
    the benchmark itself may run are removed."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")}
    # The folder of the running Python comes first in PATH, so that both launchers start the same Python.
    path = f"{pathlib.Path(sys.executable).parent}:{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}


def timed(command: list[str], timeout: float = 600, **keywords) -> float:
    """Runs the command and returns its duration in seconds. If the command fails, prints its output and exits."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=keywords.pop("env", None) or environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False, **keywords)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(command)} exited with {done.returncode}:\n{done.stdout.decode(errors='replace')[-4000:]}")
    return seconds


def peak_memory_mb(command: list[str], settle: float) -> float:
    """Returns the peak memory (VmHWM) of the started process, without its children, `settle` seconds after its start. The
    process must still be running at that time.

    ru_maxrss of wait4 would be wrong here, because a child starts with the peak of the process that forked it.
    """
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        time.sleep(settle)
        with open(f"/proc/{process.pid}/status", encoding="utf-8") as f:
            line = next(line for line in f if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    finally:
        process.wait(timeout=120)


def interval_of_median(values: list[float], samples: int = 2000) -> tuple[float, float]:
    """Returns the 90 % confidence interval of the median, computed by the percentile bootstrap.

    The bootstrap draws a sample of the same size from the values, with replacement, and takes its median. It repeats this 2,000
    times. 5 % of these medians are below the lower end of the interval, and 5 % are above the upper end. The seed is fixed, so
    the result is reproducible.
    """
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(samples))
    return medians[samples // 20], medians[-1 - samples // 20]


@dataclasses.dataclass
class Series:
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, unit: str) -> str:
        digits = 0 if self.median >= 100 else 1 if self.median >= 10 else 2
        return f"{self.median:.{digits}f} {unit} ({min(self.values):.{digits}f}-{max(self.values):.{digits}f})"


@dataclasses.dataclass
class Row:
    """One row of a table. It has the measured values, or a description in words, for ddprun and for the compared program
    (`peer`)."""

    name: str
    unit: str
    ours: Series | str
    peer: Series | str | None
    larger_is_better: bool = False
    at_most: float | None = None  # target: maximum for the median of ddprun's values
    factor: float | None = None  # target: minimum factor by which ddprun must be better than the compared program
    wanted: str = ""  # the observation that is expected of ddprun, for rows without numbers
    # True if the i-th values of ddprun and of the other program are a pair, for each i. The factor is then the median of the
    # pairs' ratios.
    paired: bool = False
    low: float | None = None  # target: minimum for the lower end of the confidence interval of the pairs' ratios

    def ratios(self) -> list[float]:
        """Returns, for each pair, the factor by which ddprun is better than the compared program."""
        pairs = zip(self.ours.values, self.peer.values, strict=True)
        return [a / b if self.larger_is_better else b / a for a, b in pairs]

    @property
    def interval(self) -> tuple[float, float] | None:
        """Returns the 90 % confidence interval of the median of the ratios, or None if the row is not paired."""
        return interval_of_median(self.ratios()) if self.paired else None

    @property
    def times_better(self) -> float | None:
        if not isinstance(self.ours, Series) or not isinstance(self.peer, Series):
            return None
        if self.paired:
            return statistics.median(self.ratios())
        a, b = self.ours.median, self.peer.median
        over, under = (a, b) if self.larger_is_better else (b, a)
        return over / under if under else None  # both values can be 0, for example because no step was repeated

    @property
    def met(self) -> bool | None:
        if self.at_most is None and self.factor is None and self.low is None and not self.wanted:
            return None
        if isinstance(self.ours, str):
            return self.ours == self.wanted
        good = True
        if self.at_most is not None:
            good = good and self.ours.median <= self.at_most
        if self.factor is not None:
            good = good and self.times_better is not None and self.times_better >= self.factor
        if self.low is not None:
            good = good and self.interval[0] >= self.low
        return good

    def bar(self) -> str:
        parts = [self.wanted] if self.wanted else []
        if self.at_most is not None:
            parts.append(f"at most {self.at_most:g} {self.unit}")
        if self.factor is not None:
            parts.append(f"{self.factor:g}x")
        if self.low is not None:
            parts.append(f"lower end {self.low:g}x")
        return ", ".join(parts)


@dataclasses.dataclass
class Table:
    title: str
    peer: str
    rows: list[Row]

    def as_dict(self) -> dict:
        return {"title": self.title, "peer": self.peer, "rows": [
            {"name": r.name, "unit": r.unit, "ours": values(r.ours), "peer": values(r.peer), "times_better": r.times_better,
             "interval": r.interval, "bar": r.bar(), "met": r.met} for r in self.rows]}

    def as_markdown(self) -> str:
        return "\n".join([f"### {self.title}", "", *markdown(self.as_dict())]) + "\n"


def values(side: Series | str | None) -> list[float] | str | None:
    return side.values if isinstance(side, Series) else side


def markdown(table: dict) -> list[str]:
    """Returns a table as lines of Markdown. The table must have the form that as_dict() returns."""
    def cell(side: list[float] | str | None, unit: str) -> str:
        return Series(side).text(unit) if isinstance(side, list) else side or ""

    lines = [f"| | ddprun | {table['peer']} | times better | bar | met |", "|---|---|---|---|---|---|"]
    for r in table["rows"]:
        better = f"{r['times_better']:.1f}" if r["times_better"] is not None else ""
        if ends := r.get("interval"):
            better = f"{r['times_better']:.2f} ({ends[0]:.2f}-{ends[1]:.2f})"
        met = {True: "yes", False: "**no**", None: ""}[r["met"]]
        lines.append(f"| {r['name']} | {cell(r['ours'], r['unit'])} | {cell(r['peer'], r['unit'])} | {better} | {r['bar']} | {met} |")
    return lines


def progress(text: str) -> None:
    print(f"   {text}", flush=True)


def keep_newest(path: pathlib.Path, results: dict) -> list[dict]:
    """Merges the results into the file at `path`, which has the newest values for each row of the tables. A row that was not
    measured this time keeps its earlier values. The file also has the machine and the settings of the newest run of each
    table. Returns all tables."""
    kept = {t["title"]: t for t in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    for table in results["tables"]:
        rows = {r["name"]: r for r in kept.get(table["title"], {"rows": []})["rows"]}
        rows.update({r["name"]: r for r in table["rows"]})
        kept[table["title"]] = {**table, "rows": list(rows.values()), "machine": results["machine"], "quick": results["quick"]}
    path.write_text(json.dumps(list(kept.values()), indent=1) + "\n", encoding="utf-8")
    return list(kept.values())


def write_docs(path: pathlib.Path, tables: list[dict]) -> None:
    """Writes these tables to the page. Other tables on the page stay as they are."""
    head = "\n".join(["# Benchmarks", "",
                      "`./dev bench --docs` writes this page. Each row compares two programs, whose runs alternated on one",
                      "machine, with OMP_NUM_THREADS=1 and the same LibTorch. Each value is the median of all repeats, with",
                      "the smallest and the largest value in brackets. If a program did not finish a measurement, the row",
                      "states what happened instead. The column `bar` contains the value that ddprun must reach.",
                      "",
                      "In some rows, the column `times better` also contains an interval in brackets. In these rows, each",
                      "pair of measurements consists of one run of each program. The two runs followed each other directly,",
                      "in alternating order. The value of `times better` is the median of the ratios of all pairs. The",
                      "brackets contain its 90 % confidence interval, computed by a bootstrap of the median with a fixed",
                      "seed.",
                      ""])
    earlier = path.read_text(encoding="utf-8").split("\n## ")[1:] if path.exists() else []
    sections = {text.split("\n", 1)[0]: text.rstrip("\n") for text in earlier}
    for table in tables:
        machine = table["machine"]
        sections[table["title"]] = "\n".join([
            table["title"], "",
            f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']},"
            f" torch {machine['torch']}, {machine['date']}." +
            (" Made with `--quick`: one run of the compared program for each row, so each value is only an indication." if table["quick"] else ""), "",
            *markdown(table)])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join([head, *(f"\n## {text}\n" for text in sections.values())]), encoding="utf-8")
