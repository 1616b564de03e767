"""Tests of a script's output, log files and error files: the layout, redirects, tees and failure summary of torchrun, and the
improvements of ddprun."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import termios
import time

import jobs
import pytest

# Ranks 0 and 2 report through a FIFO that they are running, and then wait for a signal. Rank 1 fails after both reports.
JOB = """
import json, os, signal, sys
rank = int(os.environ["RANK"])
print("apple", rank)
print("pear", rank)
sys.stdout.flush()
os.write(2, b"bad byte \\xff of %d\\nno newline" % rank)
if rank != 1:
    with open("there", "w") as fifo:
        fifo.write("x")
    signal.pause()
fifo, seen = os.open("there", os.O_RDWR), b""
while len(seen) < 2:
    seen += os.read(fifo, 2)
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback:\\n  a call\\nValueError: x\\n",
                                                                     "timestamp": "1700000000"}}}, file)
sys.exit(3)
"""


def tree(folder: pathlib.Path) -> dict[str, bytes | None]:
    """Maps each name below the folder to the contents of the file, or to None for a folder. Reports are omitted."""
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.name != "report.json"}


def root_cause(stderr: str) -> list[str]:
    """Returns the part of the failure summary that starts at the root cause. Removes the texts that differ between runs."""
    lines = stderr[stderr.index("Root Cause (first observed failure):"):].splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("==="))
    volatile = re.compile(r"pid: \d+|^\[\d\]|(?<=host      : ).*|(?<=error_file: ).*")
    return [volatile.sub("", line) for line in lines[:end] if line.strip()]


def start(command: list, cwd: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
    return subprocess.run([str(word) for word in command], cwd=cwd, env={**kept, **environment}, stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=120, check=False)


@pytest.fixture
def options(ddprun_bin, run):
    """Skips the test if this ddprun does not have the torchrun options --redirects and --tee."""
    checked = run([ddprun_bin, "--dry-run", "-r", "3", "-t", "3", "--no-python", "sh"])
    if checked.returncode == 2 and "unknown option" in checked.stderr:
        pytest.skip("this ddprun does not read --redirects and --tee")


@pytest.mark.needs_torch_python
def test_files_summary_and_error_file_match_torchrun(ddprun_bin, tmp_path, options):
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("there is no torchrun next to this Python")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    outcome = {}
    for name, launcher in (("torchrun", torchrun), ("ddprun", ddprun_bin)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "job.py").write_text(JOB, encoding="utf-8")
        os.mkfifo(folder / "there")
        done = start([launcher, "--nproc-per-node", 3, "--log-dir", "logs", "-r", "0:3,1:2", "-t", "1:1", "--duplicate-stdout-filters", "apple",
                      "--role", "trainer", "--master-port", port, "job.py"], folder, TORCHELASTIC_ERROR_FILE=str(folder / "error.json"),
                     **({"PYTHON_EXEC": sys.executable} if name == "ddprun" else {}))
        assert done.returncode != 0
        (run,) = (folder / "logs").iterdir()
        assert run.name.startswith("none_")
        outcome[name] = {
            "files": tree(run),
            "stdout": sorted(done.stdout.splitlines()),
            "summary": root_cause(done.stderr),
            "error file": json.loads((folder / "error.json").read_text(encoding="utf-8")),
        }
        assert "job.py FAILED" in done.stderr
    assert outcome["ddprun"] == outcome["torchrun"]
    files = outcome["ddprun"]["files"]
    assert files["attempt_0/filtered_stdout.log"] == b"[trainer1]:apple 1\n"
    assert files["attempt_0/0/stderr.log"] == b"bad byte \xff of 0\nno newline"
    assert "attempt_0/2/stdout.log" not in files
    assert outcome["ddprun"]["error file"]["message"]["errorCode"] == 3


def program(ddprun_bin, script: str, *options) -> list:
    return [ddprun_bin, "--standalone", *options, "--no-python", "sh", "-c", script]


def test_all_attempts_share_one_folder_without_extra_files(ddprun_bin, run, tmp_path):
    done = run(program(ddprun_bin, "echo $TORCHELASTIC_ERROR_FILE; [ $TORCHELASTIC_RESTART_COUNT = 1 ]", "--log-dir", "logs",
                       "--max-restarts", 1))
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "logs").iterdir()
    assert done.stdout.splitlines() == [f"{folder}/attempt_{n}/0/error.json" for n in (0, 1)]
    assert sorted(tree(folder)) == ["attempt_0", "attempt_0/0", "attempt_1", "attempt_1/0"]
    report = run([ddprun_bin, "report", folder])
    assert report.returncode == 0 and "restart 1 of 1" in report.stdout
    assert run([ddprun_bin, "report", tmp_path / "logs"]).stdout == report.stdout


def test_the_default_folder_is_removed_after_success(ddprun_bin, run, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    script = "echo $TORCHELASTIC_ERROR_FILE; exit $CODE"
    done = run(program(ddprun_bin, script), TMPDIR=str(temporary), CODE="0")
    assert re.fullmatch(rf"{temporary}/torchelastic_\w+/[^/]+_\w+/attempt_0/0/error\.json\n", done.stdout)
    assert list(temporary.iterdir()) == []
    done = run(program(ddprun_bin, script), TMPDIR=str(temporary), CODE="1")
    assert pathlib.Path(done.stdout.strip()).parent.is_dir()
    assert run(program(ddprun_bin, script), TMPDIR="/nonexistent", CODE="0").stdout.startswith("/tmp/torchelastic_")


def test_no_files_at_all_with_dev_null(ddprun_bin, run, tmp_path, options):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = run(program(ddprun_bin, "echo [$TORCHELASTIC_ERROR_FILE] >&2; exit 4", "--log-dir", "/dev/null", "-r", "3"), TMPDIR=str(temporary))
    assert done.returncode == 4
    assert done.stderr.startswith("[]\n")
    assert list(temporary.iterdir()) == []


def test_a_redirected_failure_shows_its_last_lines(ddprun_bin, run, tmp_path, options):
    done = run(program(ddprun_bin, "echo out; echo on the way >&2; echo why >&2; exit 5", "-r", "3"), TMPDIR=str(tmp_path))
    assert done.returncode == 5 and done.stdout == ""
    (folder,) = tmp_path.glob("torchelastic_*/*")
    assert f"ddprun: logs are in {folder}\n" in done.stderr
    assert re.search(r"^ddprun: rank 0 \(pid \d+\) failed: exit code 5: why\n    \| on the way\n", done.stderr, flags=re.MULTILINE)
    assert (folder / "attempt_0/0/stdout.log").read_text() == "out\n"
    assert json.loads((folder / "report.json").read_text())["rounds"][0]["first_cause"]["stderr_tail"] == ["on the way", "why"]


def test_a_blocked_standard_output_is_reported(ddprun_bin, tmp_path):
    for mode in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([ddprun_bin, *mode, "--standalone", "--no-python", "echo", "x"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        assert done.returncode == 0
        assert done.stderr.count("standard output could not be written completely: No space left on device") == 1, done.stderr


def pipe_holds(pipe) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def has_written(pid: int) -> str:
    try:
        return next(line for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines() if line.startswith("wchar"))
    except (FileNotFoundError, ProcessLookupError):
        return "ended"


def test_a_pipe_gets_every_line_in_addition_to_logs(ddprun_bin, tmp_path, options):
    """The workers print 100 MB to log files and to a pipe. The test reads the pipe only after the output has stopped, because
    both workers then wait for the reader. No line may be lost."""
    lines, mark = 500_000, b"[default%d]:"
    # The programs flush each line. ddprun would show a line in two parts if a worker got no CPU time for 100 ms within the
    # line.
    numbers = f"stdbuf -oL seq -f '%.0f {'x' * 90}' {lines}"
    command = program(ddprun_bin, f"{numbers}; touch done-$RANK", "--nproc-per-node", 2, "--tee", "3", "--log-dir", "logs")
    with subprocess.Popen([str(word) for word in command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as job:
        def until_idle():
            seen, equal_reads = [], 0
            while equal_reads < 20:  # 0.4 s
                time.sleep(0.02)
                now = [pipe_holds(job.stdout), *map(has_written, [job.pid, *jobs.children(job.pid)])]
                equal_reads = equal_reads + 1 if now == seen else 0
                seen = now

        jobs.wait_for(lambda: pipe_holds(job.stdout) > 0, "the first line")
        shown, ends = bytearray(), []
        for part in (0, 30_000_000):
            while len(shown) < part and (piece := job.stdout.read(1 << 16)):
                shown += piece
            until_idle()
            ends += [path.name for path in tmp_path.glob("done-*")]
        while piece := job.stdout.read(1 << 16):
            shown += piece
        shown_errors = job.stderr.read()
    assert job.returncode == 0
    assert ends == [], "no worker may end before its output is read"
    assert b"not shown" not in shown + shown_errors
    shown = shown.splitlines()
    for rank in range(2):
        assert [int(line.split(b":", 1)[1].split()[0]) for line in shown if line.startswith(mark % rank)] == list(range(1, lines + 1))
    shutil.rmtree(tmp_path / "logs")


def test_a_worker_blocked_on_output_is_not_a_hang(ddprun_bin, tmp_path):
    command = program(ddprun_bin, f"seq -f '%.0f {'x' * 60}' 100000", "--hang-timeout", 1, "--log-dir", "/dev/null")
    with subprocess.Popen([str(word) for word in command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        time.sleep(3.5)  # the pipe is not read for more than two hang timeouts
        shown, shown_errors = job.communicate(timeout=60)
    assert job.returncode == 0, shown_errors
    assert shown.count(b"\n") == 100000


@pytest.mark.long
def test_an_early_exit_is_reported_once(ddprun_bin, run, tmp_path):
    script = 'if [ $RANK = 1 ]; then exit 0; fi; sleep 12'
    done = run(program(ddprun_bin, script, "--nproc-per-node", 3, "--log-dir", "logs"))
    line = "ddprun: rank 1 ended with exit code 0, 10 s ago, and ranks 0, 2 still run, perhaps waiting for it\n"
    assert done.returncode == 0 and done.stderr.count(line) == 1, done.stderr


def test_shown_lines_are_not_repeated(ddprun_bin, run):
    done = run(program(ddprun_bin, "echo on the way >&2; echo why >&2; exit 5"))
    assert done.stderr.count("on the way") == 1
    assert re.search(r"^sh FAILED$|/sh FAILED$", done.stderr, flags=re.MULTILINE)
    quiet = run(program(ddprun_bin, "echo why >&2; exit 5", "-q"))
    assert "FAILED" not in quiet.stderr and "exit code 5: why" in quiet.stderr


def test_the_filter_hides_other_ranks(ddprun_bin, run, tmp_path, options):
    done = run(program(ddprun_bin, "echo out $RANK; echo err $RANK >&2", "--nproc-per-node", 3, "--local-ranks-filter", "1", "-t", "0:1", "--log-dir",
                       "logs"))
    assert (done.stdout, done.stderr) == ("out 1\n", "err 1\n")
    (log,) = (tmp_path / "logs").glob("*/attempt_0/0/stdout.log")
    assert log.read_text() == "out 0\n"


def test_the_prefix_follows_the_template(ddprun_bin, run, options):
    done = run(program(ddprun_bin, "echo line", "-t", "1", "--role", "r"), TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="<${role_name}/$rank/${other}>")
    assert done.stdout == "<r/0/${other}>line\n"


def test_the_earlier_error_file_is_the_root_cause(ddprun_bin, tmp_path):
    """Each error file has a timestamp. Rank 0 has the earlier timestamp, so it must be reported as the root cause, even though
    its process ended last."""
    script = """
import json, os, sys
rank = int(os.environ["RANK"])
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump({"message": f"of rank {rank}", "timestamp": 10 + 10 * rank}, file)
if rank == 1:
    open("there").read()
    sys.exit(1)
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
open("there", "w").close()
signal.pause()
"""
    (tmp_path / "job.py").write_text(script, encoding="utf-8")
    os.mkfifo(tmp_path / "there")
    done = start([ddprun_bin, "--nproc-per-node", 2, "--log-dir", "logs", "--standalone", "job.py"], tmp_path, PYTHON_EXEC=sys.executable)
    (report,) = (tmp_path / "logs").glob("*/report.json")
    failed = json.loads(report.read_text())["rounds"][0]
    assert failed["first_cause"]["rank"] == 0 and failed["first_cause"]["message"] == "of rank 0"
    assert failed["consequences"][0]["message"] == "of rank 1"
    assert "  traceback : of rank 0\n" in done.stderr
    assert done.returncode == 7


def test_a_rank_that_ended_early_is_named(ddprun_bin, run, tmp_path):
    os.mkfifo(tmp_path / "pid")
    (tmp_path / "job.py").write_text("""
import os, select, sys
if os.environ["RANK"] == "0":
    with open("pid", "w") as fifo:
        fifo.write(str(os.getpid()))
    sys.exit(0)
peer = os.pidfd_open(int(open("pid").read()))
select.select([peer], [], [])
sys.exit(1)
""", encoding="utf-8")
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--log-dir", "logs", "job.py"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 1
    assert "ddprun: rank 0 had ended before that with exit code 0, " in done.stderr
    shown = run([ddprun_bin, "report", "logs"]).stdout
    assert "left early   rank 0: exit code 0 while others continued" in shown


def test_a_run_directory_logs_all_and_shows_the_selected(ddprun_bin, run, run_dir, options):
    done = run(program(ddprun_bin, "echo out $RANK", "--nproc-per-node", 3, "--run-dir", run_dir, "-r", "0:1", "-t", "1:1"))
    assert sorted(done.stdout.splitlines()) == ["[default1]:out 1", "out 2"]
    for rank in range(3):
        assert (run_dir / f"logs/round-000/rank-{rank:05}/stdout.log").read_text() == f"out {rank}\n"
    assert (run_dir / "report.json").exists()
