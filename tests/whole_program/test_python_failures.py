"""Tests of failing Python scripts. ddprun must report the exception of the script as the cause. The exception may be anywhere
in the output, and the output may go to the console or to files."""

import json
import os
import pathlib
import re
import signal
import sys

import jobs
import pytest

LAST_OUTPUT = "import atexit, sys\natexit.register(lambda: print('wandb: synced 5 files\\nbye', file=sys.stderr))\n"
RANKED = LAST_OUTPUT + """
import traceback
def hook(kind, value, stack):
    for line in traceback.format_exception(kind, value, stack):
        sys.stderr.write("".join("[rank0]: " + part + "\\n" for part in line.splitlines()))
sys.excepthook = hook
"""
CASES = {
    "plain": (LAST_OUTPUT + "raise ValueError('3 is not 4')", "ValueError: 3 is not 4"),
    "with torch's prefix": (RANKED + "raise ValueError('3 is not 4')", "ValueError: 3 is not 4"),
    "chain": (LAST_OUTPUT + "try:\n    {}['x']\nexcept KeyError as e:\n    raise RuntimeError('no x\\nin shard 3') from e", "RuntimeError: no x"),
    "syntax": ("x = = 1\n", "SyntaxError: invalid syntax"),
    "import": (LAST_OUTPUT + "import no_such_module", f"ModuleNotFoundError: No module named 'no_such_module'; its Python is {sys.executable}"),
}
if sys.version_info >= (3, 11):
    CASES["group"] = (LAST_OUTPUT + "raise ExceptionGroup('shards', [ValueError('a'), OSError('b')])",
                      "ExceptionGroup: shards (2 sub-exceptions): ValueError: a; OSError: b")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("redirects", [[], ["--redirects", "3"], ["--tee", "3"]], ids=["console", "file", "tee"])
def test_the_exception_is_the_cause(ddprun_bin, run, tmp_path, case, redirects):
    script, expected = CASES[case]
    (tmp_path / "train.py").write_text(script)
    done = run([ddprun_bin, "--standalone", "--log-dir", "logs", *redirects, "train.py"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 1
    assert f") failed: exit code 1: {expected}\n" in done.stderr, done.stderr
    (report,) = (tmp_path / "logs").glob("*/report.json")
    cause = json.loads(report.read_text())["rounds"][-1]["first_cause"]
    assert cause["cause"] == "exit_code" and cause["message"].splitlines()[0] == expected
    if case == "chain":
        assert cause["message"].splitlines()[1] == "in shard 3"


def test_an_exception_of_an_earlier_round_is_not_repeated(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text("import os\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': raise ValueError('first')\nos._exit(3)\n")
    done = run([ddprun_bin, "--standalone", "--max-restarts", "1", "train.py"], PYTHON_EXEC=sys.executable, PATH=os.environ["PATH"])
    assert done.returncode == 3
    first, second = [line for line in done.stderr.splitlines() if ") failed: " in line]
    assert first.endswith("exit code 1: ValueError: first") and second.endswith("failed: exit code 3")


def test_a_handled_exception_is_not_the_cause(ddprun_bin, run, tmp_path):
    """The script prints the traceback of a handled exception and continues. It exits with code 0, so no failure is reported."""
    (tmp_path / "train.py").write_text("import traceback\ntry:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\n")
    done = run([ddprun_bin, "--standalone", "train.py"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 0 and "failed" not in done.stderr


@pytest.mark.parametrize("name", ["python3", pathlib.Path(sys.executable).resolve().name])
def test_python_is_found_in_the_path(ddprun_bin, run, tmp_path, name):
    (tmp_path / "train.py").write_text("import os, sys\nprint(os.environ['RANK'], sys.argv, sys.stdout.write_through)\n")
    (tmp_path / "python3").mkdir()  # a folder of that name in the current folder must be ignored
    if name != "python3":
        (tmp_path / "python3").rename(tmp_path / name)
    done = run([ddprun_bin, "--standalone", name, "train.py", "--lr", "1"], PATH=f"{pathlib.Path(sys.executable).resolve().parent}:{os.environ['PATH']}")
    assert done.returncode == 0 and done.stdout == "0 ['train.py', '--lr', '1'] True\n", done.stderr


def test_a_missing_python_is_named(ddprun_bin, run, tmp_path):
    done = run([ddprun_bin, "--standalone", "python3.1", "train.py"])
    assert done.returncode == 2 and "program python3.1 is not on PATH" in done.stderr


IGNORES_SIGNALS = "import signal, time\nfor number in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(number, signal.SIG_IGN)\nprint('up', flush=True)\nsignal.pause()\n"


def test_a_stop_reports_its_timeout_and_killed_workers(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text(IGNORES_SIGNALS)
    job = jobs.start([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--shutdown-timeout", "0.5", tmp_path / "train.py"], PYTHON_EXEC=sys.executable)
    assert [job.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    job.send_signal(signal.SIGINT)
    assert job.wait(60) == 130
    errors = job.stderr.read()
    assert "SIGINT: stopping the workers; press Ctrl-C again to kill them; they have 0.5 s to end\n" in errors
    assert "ranks 0, 1 did not stop in time and were killed (SIGKILL)\n" in errors


def test_a_restart_reports_round_and_restart_duration(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text("import os\nraise SystemExit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) == 0)\n")
    done = run([ddprun_bin, "--standalone", "--max-restarts", "2", "train.py"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 0
    assert re.search(r"ddprun: restart 1 of 2; the round had lasted \d+\.\d s\nddprun: restarted \d+\.\d\d s after the failure\n$", done.stderr), done.stderr


@pytest.mark.parametrize("silent", [0, 4])
def test_a_silent_restart_reports_its_last_output(ddprun_bin, run, tmp_path, silent):
    job = tmp_path / "job.sh"
    job.write_text(f'#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1\n[ $RANK = 1 ] && sleep {silent} && echo here || sleep {silent}\n')
    job.chmod(0o755)
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--max-restarts", "1", job])
    assert done.returncode == 0 and "here" in done.stdout
    assert re.search(r"^ddprun: first output \d+ s after the restart$", done.stderr, re.M) if silent else "first output" not in done.stderr
    if silent:
        return
    result = run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--max-restarts", "1", "--json", job])
    first = [e for e in map(json.loads, result.stdout.splitlines()) if e["event"] == "first_output"]
    assert [e["rank"] for e in first] == [1] and silent <= first[0]["seconds"] < silent + 30
