"""This build of ddprun against an earlier one: the launch benchmark's figures, both programs in turns. Started by `./dev bench before
--before PATH/ddprun`. A ratio near 1 says nothing without its interval, so each row has 15 pairs and the 95 % interval of the ratio of the
medians (bootstrap over the pairs, with a fixed seed)."""

import pathlib
import random
import statistics
import tempfile

from agents import NotHere, Side, TooLate
from launch_bench import FAILURES, STARTING, Figure
from measure import How, Row, Series, Table, Tools, progress

before: pathlib.Path | None = None
PAIRS = 15
SLOW = ("last call", "until it is said", "SIGTERM", "Ctrl-C", "next round")  # seconds of waiting, which no build changes


def one_run(program: str, row: Figure) -> float:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-", ignore_cleanup_errors=True) as name, Side([program], True, pathlib.Path(name)) as side:
        return row.measure(side)


def interval(pairs: list[tuple[float, float]], samples: int = 2000) -> tuple[float, float]:
    """Of median(now) / median(before)."""
    generator = random.Random(1)
    ratios = []
    for _ in range(samples):
        drawn = generator.choices(pairs, k=len(pairs))
        ratios.append(statistics.median(now for now, _ in drawn) / statistics.median(then for _, then in drawn))
    ratios.sort()
    return ratios[int(samples * 0.025)], ratios[int(samples * 0.975)]


def run(tools: Tools, how: How) -> list[Table]:
    if before is None:
        raise SystemExit("bench: 'before' needs --before PATH/ddprun, the build to compare with")
    rows = []
    for row in [*STARTING, *FAILURES]:
        if how.only not in row.name or any(words in row.name for words in SLOW):
            continue
        progress(row.name)
        pairs = []
        try:
            for turn in range(3 if how.quick else max(how.repeats, PAIRS)):
                order = (tools.ddprun, str(before)) if turn % 2 == 0 else (str(before), tools.ddprun)
                measured = {program: one_run(program, row) for program in order}
                pairs.append((measured[tools.ddprun], measured[str(before)]))
        except (NotHere, TooLate) as reason:
            progress(f"left out: {reason}")
            continue
        low, high = interval(pairs)
        name = f"{row.name}: {statistics.median(n for n, _ in pairs) / statistics.median(b for _, b in pairs):.3f} of before ({low:.3f}-{high:.3f})"
        progress(name)
        rows.append(Row(name, row.unit, Series([now for now, _ in pairs]), Series([then for _, then in pairs])))
    return [Table("Launching beside an earlier build", "before", rows)]
