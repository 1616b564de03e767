"""The launchers alone: --help, no-op jobs, memory of the agent, and the time from a worker's failure to its replacement's start."""

import pathlib
import tempfile

from measure import Row, Series, Table, Tools, environment, peak_memory_mb, progress, timed

# Each worker notes when it started; rank 1 of the first round notes the time and kills itself, the others sleep until stopped.
# bash's EPOCHREALTIME needs no further process, so the clock is read as near to the start as a shell can.
FAILING_WORKER = """#!/bin/bash
echo "start $TORCHELASTIC_RESTART_COUNT $RANK $EPOCHREALTIME" >> "$NOTES"
if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
  if [ "$RANK" = 1 ]; then
    while [ "$(grep -c 'start 0' "$NOTES")" -lt "$WORLD_SIZE" ]; do read -r -t 0.05 _ <> <(:); done
    echo "fail 0 1 $EPOCHREALTIME" >> "$NOTES"
    kill -9 $$
  fi
  exec sleep 60
fi
"""


def failure_to_replacement(launch: list[str], folder: pathlib.Path, number: int) -> float:
    """Milliseconds from just before rank 1 kills itself to the first line of the last worker of the next round."""
    notes = folder / f"notes-{number}"
    script = folder / "worker.sh"
    script.write_text(FAILING_WORKER, encoding="utf-8")
    script.chmod(0o755)
    timed([*launch, str(script)], env=environment(NOTES=str(notes)))
    lines = [line.split() for line in notes.read_text(encoding="utf-8").splitlines()]
    failed = next(float(f[3]) for f in lines if f[0] == "fail")
    started = max(float(f[3]) for f in lines if f[0] == "start" and f[1] == "1")
    return (started - failed) * 1000


def run(tools: Tools, _quick: bool, repeats: int) -> list[Table]:
    ours_repeats, peer_repeats = 10 * repeats, repeats
    rows = []

    def compare(name: str, ours: list[str], peer: list[str], **bars) -> None:
        progress(name)
        a, b = [], []
        for _ in range(peer_repeats):  # interleaved: a block of ours, then one of the slow peer
            a += [timed(ours) * 1000 for _ in range(ours_repeats // peer_repeats)]
            b.append(timed(peer) * 1000)
        rows.append(Row(name, "ms", Series(a), Series(b), **bars))

    compare("`--help`", [tools.ddprun, "--help"], [*tools.torchrun, "--help"], at_most=10, factor=100)
    for n in (1, 2, 8):
        flags = ["--nproc-per-node", str(n), "--no-python", "true"]
        compare(f"no-op job, {n} worker{'s' if n > 1 else ''}", [tools.ddprun, *flags], [*tools.torchrun, *flags],
                at_most=10, factor=100)

    progress("worker failure to replacement")
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        flags = ["--nproc-per-node", "2", "--max-restarts", "1", "--no-python"]
        a, b = [], []
        for i in range(peer_repeats):
            a += [failure_to_replacement([tools.ddprun, *flags], folder, i * 100 + j) for j in range(4)]
            b.append(failure_to_replacement([*tools.torchrun, *flags], folder, i * 100 + 50))
        rows.append(Row("worker failure to the last replacement's first line, 2 workers", "ms", Series(a), Series(b), at_most=10))

    progress("memory of the agent")
    a, b = [], []
    for _ in range(repeats):
        flags = ["--nproc-per-node", "2", "--no-python", "sleep"]
        a.append(peak_memory_mb([tools.ddprun, *flags, "1"], 0.7))
        b.append(peak_memory_mb([*tools.torchrun, *flags, "6"], 5.0))
    rows.append(Row("peak memory of the agent, 2 workers", "MB", Series(a), Series(b), at_most=10))
    return [Table("Launching", "torchrun", rows)]
