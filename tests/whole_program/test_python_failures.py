"""A Python script fails: the reported cause is its exception, wherever it stands in the output, and however the output is stored."""

import json
import os
import pathlib
import re
import signal
import sys

import jobs
import pytest

FAREWELL = "import atexit, sys\natexit.register(lambda: print('wandb: synced 5 files\\nbye', file=sys.stderr))\n"
RANKED = FAREWELL + """
import traceback
def hook(kind, value, stack):
    for line in traceback.format_exception(kind, value, stack):
        sys.stderr.write("".join("[rank0]: " + part + "\\n" for part in line.splitlines()))
sys.excepthook = hook
"""
CASES = {
    "plain": (FAREWELL + "raise ValueError('3 is not 4')", "ValueError: 3 is not 4"),
    "with torch's prefix": (RANKED + "raise ValueError('3 is not 4')", "ValueError: 3 is not 4"),
    "chain": (FAREWELL + "try:\n    {}['x']\nexcept KeyError as e:\n    raise RuntimeError('no x\\nin shard 3') from e", "RuntimeError: no x"),
    "syntax": ("x = = 1\n", "SyntaxError: invalid syntax"),
    "import": (FAREWELL + "import no_such_module", f"ModuleNotFoundError: No module named 'no_such_module'; its Python is {sys.executable}"),
}
if sys.version_info >= (3, 11):
    CASES["group"] = (FAREWELL + "raise ExceptionGroup('shards', [ValueError('a'), OSError('b')])",
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


def test_an_exception_of_an_earlier_round_is_not_told_again(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text("import os\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': raise ValueError('first')\nos._exit(3)\n")
    done = run([ddprun_bin, "--standalone", "--max-restarts", "1", "train.py"], PYTHON_EXEC=sys.executable, PATH=os.environ["PATH"])
    assert done.returncode == 3
    first, second = [line for line in done.stderr.splitlines() if ") failed: " in line]
    assert first.endswith("exit code 1: ValueError: first") and second.endswith("failed: exit code 3")


def test_a_program_that_handled_its_exception_is_not_blamed_for_it(ddprun_bin, run, tmp_path):
    """The script printed a traceback and continued. The exit code is reported with the last printed exception, because no better evidence exists."""
    (tmp_path / "train.py").write_text("import traceback\ntry:\n    {}['x']\nexcept KeyError:\n    traceback.print_exc()\n")
    done = run([ddprun_bin, "--standalone", "train.py"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 0 and "failed" not in done.stderr


@pytest.mark.parametrize("name", ["python3", pathlib.Path(sys.executable).resolve().name])
def test_the_word_python_starts_the_python_of_the_path(ddprun_bin, run, tmp_path, name):
    (tmp_path / "train.py").write_text("import os, sys\nprint(os.environ['RANK'], sys.argv, sys.stdout.write_through)\n")
    (tmp_path / "python3").mkdir()  # a folder with that name does not count
    if name != "python3":
        (tmp_path / "python3").rename(tmp_path / name)
    done = run([ddprun_bin, "--standalone", name, "train.py", "--lr", "1"], PATH=f"{pathlib.Path(sys.executable).resolve().parent}:{os.environ['PATH']}")
    assert done.returncode == 0 and done.stdout == "0 ['train.py', '--lr', '1'] True\n", done.stderr


def test_a_python_that_is_not_there_is_named(ddprun_bin, run, tmp_path):
    done = run([ddprun_bin, "--standalone", "python3.1", "train.py"])
    assert done.returncode == 2 and "program python3.1 is not on PATH" in done.stderr


DEAF = "import signal, time\nfor number in (signal.SIGINT, signal.SIGTERM):\n    signal.signal(number, signal.SIG_IGN)\nprint('up', flush=True)\nsignal.pause()\n"


def test_a_stop_says_how_long_it_waits_and_who_was_killed(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text(DEAF)
    job = jobs.start([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--shutdown-timeout", "0.5", tmp_path / "train.py"], PYTHON_EXEC=sys.executable)
    assert [job.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    job.send_signal(signal.SIGINT)
    assert job.wait(60) == 130
    said = job.stderr.read()
    assert "SIGINT: stopping the workers; once more kills them; they have 0.5 s to end\n" in said
    assert "ranks 0, 1 did not stop when told to and were killed (SIGKILL)\n" in said


def test_a_restart_says_how_long_the_round_lasted_and_the_restart_took(ddprun_bin, run, tmp_path):
    (tmp_path / "train.py").write_text("import os\nraise SystemExit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) == 0)\n")
    done = run([ddprun_bin, "--standalone", "--max-restarts", "2", "train.py"], PYTHON_EXEC=sys.executable)
    assert done.returncode == 0
    assert re.search(r"ddprun: restart 1 of 2; the round had lasted \d+\.\d s\nddprun: restarted \d+\.\d\d s after the failure\n$", done.stderr), done.stderr


@pytest.mark.parametrize("silent", [0, 4])
def test_a_restart_that_is_silent_for_long_says_when_it_printed(ddprun_bin, run, tmp_path, silent):
    job = tmp_path / "job.sh"
    job.write_text(f'#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 1\n[ $RANK = 1 ] && sleep {silent} && echo here || sleep {silent}\n')
    job.chmod(0o755)
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--max-restarts", "1", job])
    assert done.returncode == 0 and "here" in done.stdout
    assert re.search(r"^ddprun: first output \d+ s after the restart$", done.stderr, re.M) if silent else "first output" not in done.stderr
    if silent:
        return
    told = run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--max-restarts", "1", "--json", job])
    first = [e for e in map(json.loads, told.stdout.splitlines()) if e["event"] == "first_output"]
    assert [e["rank"] for e in first] == [1] and silent <= first[0]["seconds"] < silent + 30
