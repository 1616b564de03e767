"""Tests of --on-failure and --on-checkpoint. After a failure or a checkpoint the agent starts a shell command given by the
user. Variables in the command's environment describe the event. The secret token is removed from that environment. The job
does not wait for the command."""

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
RECORD = 'env | grep "^DDPRUN_" | sort > $DDPRUN_EVENT.$DDPRUN_EVENT_STEP'


def start(ddprun_bin, tmp_path, body: str, *options: str, **env: str) -> subprocess.CompletedProcess:
    (tmp_path / "train.py").write_text("import ddprun, os, sys, time\n" + body)
    return jobs.run([ddprun_bin, "--standalone", "--log-dir", "logs", *options, "train.py"], cwd=tmp_path, **{**ENV, **env})


def variables(file: pathlib.Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_hooks_get_the_event_but_not_the_token(ddprun_bin, tmp_path):
    done = start(ddprun_bin, tmp_path, "ddprun.step(4)\nif ddprun.restart == 0:\n    raise ValueError('bad luck')\nddprun.saved('model.pt', step=4)\n",
                 "--max-restarts", "1", "--tee", "3", "--on-failure", RECORD, "--on-checkpoint", RECORD, DDPRUN_TOKEN="0123456789abcdef0123456789abcdef")
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


def test_hooks_run_asynchronously_and_the_newest_event_is_queued(ddprun_bin, tmp_path):
    """The command for checkpoint 1 runs until the script has reported all three checkpoints. Then a command runs only for the
    newest of the waiting checkpoints. So no command runs for checkpoint 2."""
    os.mkfifo(tmp_path / "continues")
    done = start(ddprun_bin, tmp_path, "for n in (1, 2, 3):\n    ddprun.saved(n)\n    while n == 1 and not os.path.exists('seen.1'): time.sleep(0.01)\n"
                 "open('continues', 'w').close()\n", "--on-checkpoint", 'echo > seen.$DDPRUN_EVENT_STEP; [ $DDPRUN_EVENT_STEP = 3 ] || cat "continues"')
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("seen.*")) == ["seen.1", "seen.3"]


def test_the_job_waits_for_hooks_then_kills_them(ddprun_bin, tmp_path):
    """At its end the job waits for the command and for processes that the command's shell has started. It kills processes that
    take too long."""
    done = start(ddprun_bin, tmp_path, "ddprun.saved(1)\nwhile not os.path.exists('pid'): time.sleep(0.01)\n", "--shutdown-timeout", "0.3",
                 "--on-checkpoint", "sleep 1000 & echo $! > pid~; mv pid~ pid; wait")
    assert done.returncode == 0, done.stderr
    assert re.search(r"ddprun: waiting for --on-checkpoint \(process \d+\), at most 0.3 s\n", done.stderr), done.stderr
    assert not lives(int((tmp_path / "pid").read_text()))


def test_a_failing_hook_is_reported(ddprun_bin, tmp_path):
    done = start(ddprun_bin, tmp_path, "ddprun.saved(1)\nwhile not os.path.exists('ended'): time.sleep(0.01)\nddprun.saved(2)\n"
                 "while not os.path.exists('again'): time.sleep(0.01)\n", "--on-checkpoint", "[ -e ended ] && echo > again; echo > ended; exit 7")
    assert done.returncode == 0, done.stderr
    assert "ddprun: --on-checkpoint ended with exit code 7\n" in done.stderr


def test_job_signals_do_not_reach_hooks(ddprun_bin, tmp_path):
    """Ctrl-C sends SIGINT to the whole process group of the terminal. A command of --on-checkpoint, for example an upload, must
    not receive the signal."""
    (tmp_path / "train.py").write_text("import ddprun, os, signal\nddprun.saved(1)\nprint('at work', flush=True)\nsignal.pause()\n")
    command = "cd %s; trap 'exit 9' INT; echo > started; while [ ! -e goes ]; do sleep 0.02; done; echo > done" % tmp_path
    process = jobs.start(["setsid", ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--on-checkpoint", command, tmp_path / "train.py"], **ENV)
    assert process.stdout.readline() == "at work\n"
    while not (tmp_path / "started").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    while "stopping the workers" not in (line := process.stderr.readline()):
        assert line
    (tmp_path / "goes").touch()
    process.communicate(timeout=60)
    assert process.returncode == 130 and (tmp_path / "done").exists()


def command_of(pid: int) -> str:
    """Returns the name of the process's command, or "" if the process has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def test_hook_processes_end_with_a_killed_agent(ddprun_bin, tmp_path):
    """The command of --on-checkpoint starts three processes: one in the background, one in a separate session, and one whose
    shell exits. All three processes must end when the agent is killed."""
    (tmp_path / "train.py").write_text("import ddprun, signal\nddprun.saved(1)\nsignal.pause()\n")
    command = f"cd {tmp_path}; sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); echo > started~; mv started~ started"
    process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--on-checkpoint", command, tmp_path / "train.py"], **ENV)
    sleepers = []

    def all_sleep():
        sleepers[:] = [pid for pid in jobs.children(process.pid) if command_of(pid) == "sleep"]
        return (tmp_path / "started").exists() and len(sleepers) == 3

    jobs.wait_for(all_sleep, "the command's processes")
    process.kill()
    process.communicate(timeout=60)
    jobs.wait_for(lambda: not any(lives(pid) for pid in sleepers), "the end of the command's processes", 20)


@pytest.mark.parametrize("option", ["--on-failure", "--on-checkpoint"])
def test_an_empty_command_is_refused(ddprun_bin, tmp_path, option):
    done = start(ddprun_bin, tmp_path, "", option, " ")
    assert done.returncode == 2
    assert f"{option}: expected a shell command, but got ' ' (flag {option})" in done.stderr
