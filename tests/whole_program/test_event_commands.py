"""--on-failure and --on-checkpoint: at an event, the agent starts a shell with the facts in its environment and without the token. The job does not
wait for it."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import jobs
import pytest
from node_agents import lives

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
TELL = 'env | grep "^DDPRUN_" | sort > $DDPRUN_EVENT.$DDPRUN_EVENT_STEP'


def start(ddprun_bin, tmp_path, body: str, *options: str, **env: str) -> subprocess.CompletedProcess:
    (tmp_path / "train.py").write_text("import ddprun, os, sys, time\n" + body)
    return jobs.run([ddprun_bin, "--standalone", "--log-dir", "logs", *options, "train.py"], cwd=tmp_path, **{**ENV, **env})


def variables(file: pathlib.Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_they_are_told_what_happened_and_not_the_token(ddprun_bin, tmp_path):
    done = start(ddprun_bin, tmp_path, "ddprun.step(4)\nif ddprun.restart == 0:\n    raise ValueError('bad luck')\nddprun.saved('model.pt', step=4)\n",
                 "--max-restarts", "1", "--tee", "3", "--on-failure", TELL, "--on-checkpoint", TELL, DDPRUN_TOKEN="0123456789abcdef0123456789abcdef")
    assert done.returncode == 0, done.stderr
    failure, checkpoint = variables(tmp_path / "failure.4"), variables(tmp_path / "checkpoint.4")
    log = failure.pop("DDPRUN_EVENT_PATH")
    assert "bad luck" in pathlib.Path(log).read_text()
    assert failure == {"DDPRUN_EVENT": "failure", "DDPRUN_EVENT_CAUSE": "exit_code", "DDPRUN_EVENT_RANK": "0", "DDPRUN_EVENT_STEP": "4",
                       "DDPRUN_EVENT_HOST": os.uname().nodename, "DDPRUN_EVENT_MESSAGE": failure["DDPRUN_EVENT_MESSAGE"],
                       "DDPRUN_EVENT_DECISION": "restart", "DDPRUN_EVENT_RUN_DIR": ""}
    assert "ValueError: bad luck" in failure["DDPRUN_EVENT_MESSAGE"]
    assert checkpoint == {"DDPRUN_EVENT": "checkpoint", "DDPRUN_EVENT_RANK": "0", "DDPRUN_EVENT_STEP": "4", "DDPRUN_EVENT_PATH": f"{tmp_path}/model.pt",
                          "DDPRUN_EVENT_RUN_DIR": ""}


def test_the_job_does_not_wait_and_the_newest_event_waits(ddprun_bin, tmp_path):
    """The first command runs until the script has reported all its checkpoints; only the last of them is left for the second command. All ranks
    report."""
    os.mkfifo(tmp_path / "goes on")
    done = start(ddprun_bin, tmp_path, "for n in (1, 2, 3):\n    ddprun.saved(n)\n    while n == 1 and not os.path.exists('told.1'): time.sleep(0.01)\n"
                 "open('goes on', 'w').close()\n", "--on-checkpoint", 'echo > told.$DDPRUN_EVENT_STEP; [ $DDPRUN_EVENT_STEP = 3 ] || cat "goes on"')
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("told.*")) == ["told.1", "told.3"]


def test_the_end_waits_for_a_while_and_then_kills(ddprun_bin, tmp_path):
    """The wait and the kill include processes that the shell has started."""
    done = start(ddprun_bin, tmp_path, "ddprun.saved(1)\nwhile not os.path.exists('pid'): time.sleep(0.01)\n", "--shutdown-timeout", "0.3",
                 "--on-checkpoint", "sleep 1000 & echo $! > pid~; mv pid~ pid; wait")
    assert done.returncode == 0, done.stderr
    assert re.search(r"ddprun: waiting for --on-checkpoint \(process \d+\), at most 0.3 s\n", done.stderr), done.stderr
    assert not lives(int((tmp_path / "pid").read_text()))


def test_one_that_fails_is_said(ddprun_bin, tmp_path):
    done = start(ddprun_bin, tmp_path, "ddprun.saved(1)\nwhile not os.path.exists('ended'): time.sleep(0.01)\nddprun.saved(2)\n"
                 "while not os.path.exists('again'): time.sleep(0.01)\n", "--on-checkpoint", "[ -e ended ] && echo > again; echo > ended; exit 7")
    assert done.returncode == 0, done.stderr
    assert "ddprun: --on-checkpoint ended with exit code 7\n" in done.stderr


def test_signals_to_the_job_do_not_reach_them(ddprun_bin, tmp_path):
    """Ctrl-C goes to the terminal's whole process group, but an upload continues."""
    (tmp_path / "train.py").write_text("import ddprun, os, signal\nddprun.saved(1)\nprint('at work', flush=True)\nsignal.pause()\n")
    command = "cd %s; trap 'exit 9' INT; echo > begun; while [ ! -e goes ]; do sleep 0.02; done; echo > done" % tmp_path
    process = jobs.start(["setsid", ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--on-checkpoint", command, tmp_path / "train.py"], **ENV)
    assert process.stdout.readline() == "at work\n"
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    while "stopping the workers" not in (line := process.stderr.readline()):
        assert line
    (tmp_path / "goes").touch()
    process.communicate(timeout=60)
    assert process.returncode == 130 and (tmp_path / "done").exists()


def test_no_process_of_a_command_outlives_a_killed_agent(ddprun_bin, tmp_path):
    """This includes a process in the background, one in its own session, and one whose shell has ended."""
    (tmp_path / "train.py").write_text("import ddprun, signal\nddprun.saved(1)\nsignal.pause()\n")
    command = f"cd {tmp_path}; sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); echo > begun~; mv begun~ begun"
    process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--on-checkpoint", command, tmp_path / "train.py"], **ENV)
    sleepers = []

    def all_sleep():
        sleepers[:] = [pid for pid in jobs.children(process.pid) if pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
        return (tmp_path / "begun").exists() and len(sleepers) == 3

    jobs.wait_for(all_sleep, "the command's processes")
    process.kill()
    process.communicate(timeout=60)
    jobs.wait_for(lambda: not any(lives(pid) for pid in sleepers), "the end of the command's processes", 20)


@pytest.mark.parametrize("option", ["--on-failure", "--on-checkpoint"])
def test_an_empty_command_is_refused(ddprun_bin, tmp_path, option):
    done = start(ddprun_bin, tmp_path, "", option, " ")
    assert done.returncode == 2
    assert f"{option}: expected a command for the shell, but got ' ' (flag {option})" in done.stderr
