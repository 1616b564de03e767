"""Shared code of the benchmarks: running and timing a command, medians with their spread, and tables.

A Series is the values of one quantity for one program. A Row compares ours with the peer's and may have a target. The values of a `paired` row belong
together: value i of both sides was measured directly one after the other, in changing order. A machine that is slow for some seconds is then slow for
both sides, so the ratio of each pair is more precise than that of two medians."""

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
                sys.exit(f"bench: {folder / name} is not there; run ./dev build first")
        beside = pathlib.Path(sys.executable).with_name("torchrun")
        torchrun = [str(beside)] if beside.exists() else [shutil.which("torchrun") or sys.exit("bench: torchrun not found")]
        return Tools(str(folder / "ddprun"), str(folder / "ddptrain"), torchrun, sys.executable)


@dataclasses.dataclass(frozen=True)
class How:
    quick: bool  # fewer steps: only shows that it works, not for quoting
    repeats: int  # repeats of each pair of programs
    only: str  # only tables and rows with this in their name


def environment(**more: str) -> dict:
    """One intra-op thread per worker on both sides, and the quiet settings of both programs."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")}
    # The programs of this Python's environment come first, so that both launchers start the same Python.
    path = f"{pathlib.Path(sys.executable).parent}:{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}


def timed(command: list[str], timeout: float = 600, **keywords) -> float:
    """Seconds from before the start of the command to its end. Raises if it fails."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=keywords.pop("env", None) or environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False, **keywords)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(command)} exited with {done.returncode}:\n{done.stdout.decode(errors='replace')[-4000:]}")
    return seconds


def peak_memory_mb(command: list[str], settle: float) -> float:
    """VmHWM of the started process itself (not its children) after `settle` seconds; the command must run longer than that.

    wait4's ru_maxrss would not do: a child inherits the high-water mark of the process that forked it.
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
    """The 90 % interval of the median by the percentile bootstrap. It draws as many values from these with replacement, 2,000 times, and takes the
    median of each draw; 5 % of the medians are below the lower end and 5 % above the upper one. The seed is fixed, so the same values have the same
    interval."""
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
    """Our numbers and the peer's, or observations as text."""

    name: str
    unit: str
    ours: Series | str
    peer: Series | str | None
    larger_is_better: bool = False
    at_most: float | None = None  # target for our median
    factor: float | None = None  # target for the factor by which ours is better than the peer's
    wanted: str = ""  # the expected observation, if there is no number
    paired: bool = False  # value i of both sides is a pair: the factor is the median of the pairs' ratios
    low: float | None = None  # target for the lower end of the interval of those ratios

    def ratios(self) -> list[float]:
        """For each pair, the factor by which ours is better."""
        pairs = zip(self.ours.values, self.peer.values, strict=True)
        return [a / b if self.larger_is_better else b / a for a, b in pairs]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 90 % interval of the median of the ratios."""
        return interval_of_median(self.ratios()) if self.paired else None

    @property
    def times_better(self) -> float | None:
        if not isinstance(self.ours, Series) or not isinstance(self.peer, Series):
            return None
        if self.paired:
            return statistics.median(self.ratios())
        a, b = self.ours.median, self.peer.median
        over, under = (a, b) if self.larger_is_better else (b, a)
        return over / under if under else None  # no step was lost or repeated

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
    """The lines of a table in as_dict()'s format."""
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
    """Keeps the newest values of each row of each table, including rows of earlier runs, with the machine and the settings of the newest run."""
    kept = {t["title"]: t for t in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    for table in results["tables"]:
        rows = {r["name"]: r for r in kept.get(table["title"], {"rows": []})["rows"]}
        rows.update({r["name"]: r for r in table["rows"]})
        kept[table["title"]] = {**table, "rows": list(rows.values()), "machine": results["machine"], "quick": results["quick"]}
    path.write_text(json.dumps(list(kept.values()), indent=1) + "\n", encoding="utf-8")
    return list(kept.values())


def write_docs(path: pathlib.Path, tables: list[dict]) -> None:
    """Tables without results here keep their contents."""
    head = "\n".join(["# Benchmarks", "",
                      "`./dev bench --docs` writes this page. The programs of each row ran interleaved in one run, with OMP_NUM_THREADS=1 and the same",
                      "LibTorch on both sides. Each value is the median, with the smallest and largest value of all repeats in brackets. If a program has",
                      "no value to compare, the row states what happened instead.",
                      "",
                      "Some rows have an interval after the value of `times better`. For these rows both programs were measured in pairs, one right",
                      "after the other, with alternating order. The value is the median of the pairs' ratios. The brackets contain its 90 % interval,",
                      "from a bootstrap of that median with a fixed seed.",
                      ""])
    earlier = path.read_text(encoding="utf-8").split("\n## ")[1:] if path.exists() else []
    sections = {text.split("\n", 1)[0]: text.rstrip("\n") for text in earlier}
    for table in tables:
        machine = table["machine"]
        sections[table["title"]] = "\n".join([
            table["title"], "",
            f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']},"
            f" torch {machine['torch']}, {machine['date']}." +
            (" Made with `--quick`: one run of the peer for each row, so a figure here is an indication." if table["quick"] else ""), "",
            *markdown(table)])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join([head, *(f"\n## {text}\n" for text in sections.values())]), encoding="utf-8")
