"""Kills one of eight workers that have imported torch. Measures the time until all eight new workers have printed their first
line.

The script imports torch, prints a line and waits. It runs in three jobs: under ddprun with eight spares (Python interpreters
that have already imported torch), under ddprun without spares, and under torchrun. Each job is restarted many times. With
spares, the next kill waits until all eight spares are ready again. The table also has the time that this takes.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from measure import RunOptions, Row, Series, Table, Tools, environment, progress

WORKERS = 8
TIMEOUT_S = 300
SCRIPT = """\
import os, time
import torch
os.write(1, f"first line {os.environ['RANK']} {os.getpid()}\\n".encode())  # in one write: torchrun mixes the pieces of several ranks
time.sleep(3600)
"""


class Output:
    """The lines that a job has printed, each with the time at which it was read."""

    def __init__(self, process: subprocess.Popen):
        self.process, self.lines = process, []
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            with self.changed:
                self.lines.append((time.monotonic(), line))
                self.changed.notify()

    def wait_for(self, text: str, count: int, since: int) -> list[tuple[float, str]]:
        """Ignores the first `since` output lines, then waits for `count` lines that contain the text, and returns them."""
        def found() -> list[tuple[float, str]]:
            return [(t, line) for t, line in self.lines[since:] if text in line]

        with self.changed:
            if not self.changed.wait_for(lambda: len(found()) >= count or self.process.poll() is not None, TIMEOUT_S) or len(found()) < count:
                raise RuntimeError("the job did not print the expected lines:\n" + "".join(line for _, line in self.lines[-40:]))
            return found()[:count]


def one_job(command: list[str], repeats: int, spares: bool) -> tuple[list[float], list[float]]:
    """Returns two lists with a value for each kill. The first list has the seconds until every worker has printed its first
    line. The second list has the seconds from these lines until all spares are ready."""
    process = subprocess.Popen(command, env=environment(PYTHON_EXEC=sys.executable), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output = Output(process)
    seconds, refills = [], []
    try:
        begin = 0
        lines = output.wait_for("first line", WORKERS, begin)
        for _ in range(repeats):
            if spares:
                ready = output.wait_for("spare interpreter ready", WORKERS, begin)
                refills.append(ready[-1][0] - lines[-1][0])
            time.sleep(1)  # after this time the machine is idle again
            begin = len(output.lines)
            victim = next(int(line.split()[-1]) for _, line in lines if "first line 1 " in line)
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            lines = output.wait_for("first line", WORKERS, begin)
            seconds.append(lines[-1][0] - killed)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
    return seconds, refills


def run(tools: Tools, how: RunOptions) -> list[Table]:
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        script = pathlib.Path(name) / "first_line.py"
        script.write_text(SCRIPT, encoding="utf-8")
        common = ["--nproc-per-node", str(WORKERS), "--max-restarts", str(how.repeats)]
        with_spares, refills = one_job([tools.ddprun, "-v", *common, "--standby", str(WORKERS), str(script)], how.repeats, True)
        progress(f"spares: {with_spares}, refilled in {refills}")
        without, _ = one_job([tools.ddprun, *common, str(script)], how.repeats, False)
        progress(f"without spares: {without}")
        peer, _ = one_job([*tools.torchrun, "--standalone", *common, str(script)], how.repeats, False)
        progress(f"torchrun: {peer}")
    rows = [Row("eight spares are ready", "s", Series(with_spares), Series(peer), at_most=0.15),
            Row("without spares", "s", Series(without), Series(peer)),
            Row("time until eight new spares are ready", "s", Series(refills), None)]
    return [Table("From SIGKILL of one of eight workers to the first lines of eight new ones that import torch", "torchrun", rows)]
