"""Draws a run in which a worker was killed, from the files of its run directory.

    python docs/draw_run.py RUN UNDISTURBED_RUN OUT.svg

The colours follow the reader's light or dark scheme. The left chart has the training loss of both runs by step, and marks the kill. The right chart has the finished
steps by time, from shortly before the kill until shortly after the recovery. README shows the result. Only Python's standard library is needed.
"""

import dataclasses
import html
import json
import pathlib
import sys

WIDTH, HEIGHT = 860, 300
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
BEFORE_S, AFTER_S = 2.0, 3.0  # the time around the kill that the right chart shows


# Colours by role, in the light and in the dark scheme.
COLOURS = {
    "back": ("#ffffff", "#12171d"),
    "text": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9aa4af"),
    "grid": ("#d9dee3", "#323a43"),
    "run": ("#0b5cad", "#6cb6ff"),
    "other": ("#a9cbee", "#2f5d8c"),
    "kill": ("#c42b1c", "#ff7b72"),
    "good": ("#17803d", "#56d364"),
}


def style(scheme: int) -> str:
    return " ".join(f".{role}{{fill:{colours[scheme]}}} .{role}-line{{stroke:{colours[scheme]}}}" for role, colours in COLOURS.items())


@dataclasses.dataclass(frozen=True)
class Run:
    steps: list[int]
    losses: list[float]
    times_ns: list[int]
    report: dict

    @classmethod
    def read(cls, folder: pathlib.Path) -> "Run":
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        steps = [line for line in lines if line["event"] == "step"]
        return cls([line["step"] for line in steps], [line["loss"] for line in steps], [line["time_ns"] for line in steps],
                   json.loads((folder / "report.json").read_text(encoding="utf-8")))


@dataclasses.dataclass(frozen=True)
class Loss:
    """The first failure of a run, and its recovery."""

    rank: int
    signal: str
    step: int
    time_ns: int
    seconds: float
    kept: list[int]

    @classmethod
    def of(cls, run: Run) -> "Loss":
        failed = [(i, r) for i, r in enumerate(run.report["rounds"]) if r["first_cause"] and r["decision"] == "regroup"]
        if not failed:
            sys.exit("draw_run: no worker of this run was lost and replaced; kill one with `kill -9 PID` while it trains")
        number, lost = failed[0]
        cause, regroup = lost["first_cause"], run.report["rounds"][number + 1]["regroup"]
        return cls(cause["rank"], cause.get("signal_name", "SIGKILL"), regroup["step"], cause["time_ns"], regroup["seconds"], regroup["kept"])


class Chart:
    """A chart with axes, ticks and titles, as elements of an SVG."""

    def __init__(self, place: tuple[float, float, float, float], x: tuple[float, float], y: tuple[float, float]):
        self.left, self.top, self.width, self.height = place
        self.x, self.y = x, y
        self.parts: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * self.width,
                self.top + self.height - (y - self.y[0]) / (self.y[1] - self.y[0]) * self.height)

    def text(self, x: float, y: float, words: str, role: str, anchor: str = "start", size: int = 12, bold: bool = False) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{role}" font-size="{size}" text-anchor="{anchor}"'
                          f'{" font-weight=" + chr(34) + "600" + chr(34) if bold else ""}>{html.escape(words)}</text>')

    def line(self, points: list[tuple[float, float]], role: str, width: float, dashes: str = "") -> None:
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<polyline points="{text}" fill="none" class="{role}-line" stroke-width="{width}" stroke-linejoin="round"{dashed}/>')

    def curve(self, xs: list, ys: list, role: str, width: float) -> None:
        self.line([self.at(x, min(max(y, self.y[0]), self.y[1])) for x, y in zip(xs, ys)], role, width)

    def axes(self, title: str, x_name: str, x_ticks: list, y_ticks: list) -> None:
        right, bottom = self.left + self.width, self.top + self.height
        self.text(self.left, self.top - 14, title, "text", size=13, bold=True)
        for tick in y_ticks:
            _, y = self.at(self.x[0], tick)
            self.line([(self.left, y), (right, y)], "grid", 1)
            self.text(self.left - 7, y + 4, f"{tick:,}", "faint", "end", 11)
        for tick in x_ticks:
            x, _ = self.at(tick, self.y[0])
            self.line([(x, bottom), (x, bottom + 4)], "faint", 1)
            self.text(x, bottom + 17, f"{tick:,}", "faint", "middle", 11)
        self.line([(self.left, bottom), (right, bottom)], "faint", 1)
        self.text(right, bottom + 33, x_name, "faint", "end", 11)

    def mark(self, x: float, role: str) -> None:
        self.line([self.at(x, self.y[0]), self.at(x, self.y[1])], role, 1.5, "4 3")

    def dot(self, x: float, y: float, role: str) -> None:
        px, py = self.at(x, y)
        self.parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4.5" class="{role}"/>')

    def cross(self, x: float, y: float, role: str) -> None:
        px, py = self.at(x, y)
        for sign in (1, -1):
            self.line([(px - 5, py - 5 * sign), (px + 5, py + 5 * sign)], role, 2.5)


def round_step(span: float, ticks: int) -> int:
    """A distance of 1, 2 or 5 times a power of ten, for about `ticks` ticks."""
    size = 1
    while True:
        for factor in (1, 2, 5):
            if span / (size * factor) <= ticks:
                return size * factor
        size *= 10


def by_step(run: Run, other: Run, loss: Loss) -> list[str]:
    top = max(1, round(max(run.losses) + 0.4))
    chart = Chart((48, 44, 430, 190), (0, run.steps[-1]), (0, top))
    gap = round_step(run.steps[-1], 6)
    chart.axes("Training loss", "step", list(range(0, run.steps[-1] + 1, gap)), list(range(0, top + 1)))
    chart.curve(other.steps, other.losses, "other", 5)
    chart.curve(run.steps, run.losses, "run", 1.2)
    chart.mark(loss.step, "kill")
    x, _ = chart.at(loss.step, 0)
    left_of_mark = loss.step > 0.45 * run.steps[-1]  # the labels need more than half of the width
    at, anchor = (x - 8, "end") if left_of_mark else (x + 8, "start")
    chart.text(at, chart.top + 14, f"{loss.signal} to rank {loss.rank} after step {loss.step:,}", "kill", anchor, bold=True)
    chart.text(at, chart.top + 36, "narrow line: this run", "run", anchor)
    chart.text(at, chart.top + 53, "wide line: the same run, undisturbed", "faint", anchor)
    same = run.losses == other.losses
    chart.text(at, chart.top + 70, "all losses are equal, bit for bit" if same else "the losses differ", "faint", anchor)
    return chart.parts


def by_time(run: Run, loss: Loss) -> list[str]:
    times = [(ns - loss.time_ns) / 1e9 for ns in run.times_ns]
    shown = [(t, s) for t, s in zip(times, run.steps) if -BEFORE_S <= t <= loss.seconds + AFTER_S]
    first_new = next((t, s) for t, s in shown if s > loss.step)
    low, high = shown[0][1], shown[-1][1]
    chart = Chart((560, 44, 280, 190), (-BEFORE_S, loss.seconds + AFTER_S), (low, high + (high - low) * 0.15))
    gap = round_step(high - low, 5)
    chart.axes("Finished steps around the kill", "seconds since the kill", list(range(-int(BEFORE_S), int(loss.seconds + AFTER_S) + 1)),
               list(range(-(-low // gap) * gap, high + 1, gap)))
    points: list[tuple[float, int]] = []
    for t, s in shown:  # a step's number is held until the next one is finished
        if points:
            points.append((t, points[-1][1]))
        points.append((t, s))
    chart.curve([t for t, _ in points], [s for _, s in points], "run", 2)
    chart.cross(0, loss.step, "kill")
    chart.dot(*first_new, "good")
    x, y = chart.at(0, loss.step)
    chart.text(x - 2, y - 26, "killed", "kill", "end", bold=True)
    x, y = chart.at(*first_new)
    chart.text(x + 10, y + 18, f"replaced in {loss.seconds:.2f} s,", "good", bold=True)
    chart.text(x + 10, y + 34, "no step lost", "good", bold=True)
    return chart.parts


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: draw_run.py RUN UNDISTURBED_RUN OUT.svg")
    run, other = (Run.read(pathlib.Path(word)) for word in sys.argv[1:3])
    loss = Loss.of(run)
    words = (f"Rank {loss.rank} of {run.report['rounds'][0]['world_size']} workers is killed after step {loss.step} and replaced in {loss.seconds:.2f} s. "
             "The loss continues as in an undisturbed run.")
    parts = by_step(run, other, loss) + by_time(run, loss)
    pathlib.Path(sys.argv[3]).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}" role="img">\n'
        f"<title>{html.escape(words)}</title>\n<style>{style(0)} @media (prefers-color-scheme: dark) {{ {style(1)} }}</style>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" class="back"/>\n' + "\n".join(parts) + "\n</svg>\n", encoding="utf-8")


if __name__ == "__main__":
    main()
