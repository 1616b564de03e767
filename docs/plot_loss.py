"""Draws the loss and the test accuracy of runs from their metrics.jsonl: `python docs/plot_loss.py runs/NAME docs/loss.svg`.

The picture in the README was made by it. Needs matplotlib; nothing else of the project does.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: plot_loss.py RUN_DIR OUT.svg")
    metrics = pathlib.Path(sys.argv[1]) / "metrics.jsonl"
    events = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    evals = [e for e in events if e["event"] == "eval"]
    resumes = [e for e in events if e["event"] in ("restart", "resume")]
    figure, axis = pyplot.subplots(figsize=(7, 3))
    axis.plot([e["step"] for e in steps], [e["loss"] for e in steps], linewidth=0.9, label="training loss")
    for e in resumes:
        axis.axvline(e["step"], color="tab:red", linewidth=0.8, linestyle="--", label="resumed here after a worker was killed")
    axis.set_xlabel("step")
    axis.set_ylabel("loss")
    axis.set_ylim(bottom=0)
    accuracy = axis.twinx()
    accuracy.plot([e["step"] for e in evals], [100 * e["accuracy"] for e in evals], "o-", color="tab:green", label="test accuracy")
    accuracy.set_ylabel("test accuracy, %")
    accuracy.set_ylim(80, 95)
    lines = [*axis.get_legend_handles_labels()[0], *accuracy.get_legend_handles_labels()[0]]
    names = [*axis.get_legend_handles_labels()[1], *accuracy.get_legend_handles_labels()[1]]
    figure.legend(lines, names, loc="upper center", ncols=3, frameon=False, fontsize="small")
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(sys.argv[2])


main()
