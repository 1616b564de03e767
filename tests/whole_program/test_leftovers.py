"""Tests of processes that still run after the worker that started them has exited. ddprun kills them, or waits for them if they
work for the job."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import jobs
import pytest
from node_agents import lives
from test_stopping import Job, wait_gone

ENV = {"PYTHON_EXEC": sys.executable}


def script(tmp_path, text: str, name: str = "run.sh") -> pathlib.Path:
    path = tmp_path / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("end", ["os._exit(5)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_shared_memory_of_a_dead_worker_is_removed(ddprun_bin, tmp_path, end):
    (tmp_path / "t.py").write_text("import os, signal\nfrom multiprocessing import shared_memory\n"
                                   "m = shared_memory.SharedMemory(create=True, size=4096)\n"
                                   "open('name.' + os.environ['RANK'] + os.environ['TORCHELASTIC_RESTART_COUNT'], 'w').write(m.name)\n"
                                   f"{end}\n")
    jobs.run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "t.py"], cwd=tmp_path, **ENV)
    # After the end of one worker, the agent kills the other one, perhaps before it has written its file.
    names = [name for path in tmp_path.glob("name.*") if (name := path.read_text().strip("/"))]
    assert names and [name for name in names if pathlib.Path("/dev/shm", name).exists()] == []


def test_a_restart_does_not_wait_for_an_orphan_that_holds_nothing(ddprun_bin, tmp_path):
    """A worker leaves an orphan process that ignores SIGTERM and exits only after the restart. The orphan holds no resource of
    the job, so the restart must not wait for it."""
    run = script(tmp_path, 'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then\n'
                           "  python3 -c 'import os, signal, time\n"
                           "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                           'open("ready", "w").close()\n'
                           'while not os.path.exists("second"): time.sleep(0.01)\n'
                           'open("seen", "w").close()\' &\n'
                           "  while [ ! -e ready ]; do sleep 0.01; done\n  exit 3\nfi\n"
                           "touch second; while [ ! -e seen ]; do sleep 0.01; done\n")
    done = jobs.run([ddprun_bin, "--standalone", "--max-restarts", 1, "--no-python", run], cwd=tmp_path, **ENV)
    assert done.returncode == 0, done.stderr


def test_an_orphan_of_the_job_is_ended_and_named(ddprun_bin, tmp_path):
    run = script(tmp_path, "sleep 1234 &\necho $! > pid\nexit 0\n")
    done = jobs.run([ddprun_bin, "--standalone", "--log-dir", "logs", "--json", "--no-python", run], cwd=tmp_path)
    pid = int((tmp_path / "pid").read_text())
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if '"leftovers"' in line]
    assert [(event["what"], event["processes"]) for event in events] == [("ended", [f"{pid} sleep 1234"])], done.stdout
    report = json.loads(next((tmp_path / "logs").rglob("report.json")).read_text())
    assert report["rounds"][0]["leftovers"][0]["processes"] == [f"{pid} sleep 1234"]
    assert not lives(pid)
    text = jobs.run([ddprun_bin, "--standalone", "--no-python", run], cwd=tmp_path)
    assert "ddprun: a process that a worker left behind was ended: " in text.stderr


CONNECTS = ("import os, socket, time\n"
            "store = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
            "open('connected.' + os.environ['RANK'], 'w').close()\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "open('trained.' + os.environ['RANK'], 'w').close()\n")


def test_background_training_is_waited_for(ddprun_bin, tmp_path, monkeypatch):
    """A start script exits while its trainer still runs in the background. The exit code of the job must be the exit code of
    the script, and the later output of the trainer must not be lost."""
    (tmp_path / "train.py").write_text(CONNECTS + "print('trained', flush=True)\nos._exit(7)\n")
    run = script(tmp_path, f"{sys.executable} train.py &\nwhile [ ! -e connected.$RANK ]; do sleep 0.01; done\n")
    monkeypatch.chdir(tmp_path)
    job = Job([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--json", "--no-python", run])
    for _ in range(2):
        event = json.loads(job.wait_for(lambda line: '"leftovers"' in line))
        assert event["what"] == "awaited" and "train.py" in event["processes"][0]
    (tmp_path / "go").touch()
    assert job.end() == 0, job.text()
    assert (tmp_path / "trained.0").exists() and (tmp_path / "trained.1").exists()
    assert "trained" in job.text()


def test_a_daemonized_script_is_waited_for(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text("import os, time\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(2.5)\nopen('trained', 'w').close()\n")
    done = jobs.run([ddprun_bin, "--standalone", "train.py"], cwd=tmp_path, **ENV)
    assert done.returncode == 0 and (tmp_path / "trained").exists(), done.stderr


@pytest.mark.parametrize("number,code", [("TERM", 143), ("INT", 130)])
def test_a_worker_can_stop_the_job_by_its_parent_pid(ddprun_bin, tmp_path, number, code):
    """The worker signals its parent process. Under torchrun the parent is the launcher. Under ddprun the parent is the guardian
    process, which must act like the launcher."""
    run = script(tmp_path, f"if [ $RANK = 0 ]; then kill -{number} $PPID; fi\nexec sleep 600\n")
    done = jobs.run([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--no-python", run], cwd=tmp_path)
    assert done.returncode == code, done.stderr


def test_killing_all_processes_by_name_leaves_none(ddprun_bin, tmp_path):
    """Kills the processes that `pkill -9 ddprun` would kill: the processes with this name in /proc/PID/comm."""
    run = script(tmp_path, "setsid sleep 600 &\nsleep 600 &\necho up\nwait\n")
    job = Job([ddprun_bin, "--standalone", "--no-python", run])
    job.wait_for(lambda line: "up" in line)
    below = jobs.children(job.process.pid)
    assert len(below) >= 4
    for pid in [*below, job.process.pid]:
        if "ddprun" in pathlib.Path(f"/proc/{pid}/comm").read_text():
            os.kill(pid, signal.SIGKILL)
    job.process.wait()
    assert wait_gone(below, 10) == []


def test_an_interrupt_that_the_caller_ignores_stays_ignored(ddprun_bin, tmp_path, monkeypatch):
    """A shell without job control starts background processes with SIGINT ignored. In this case ddprun must continue to ignore
    SIGINT."""
    run = script(tmp_path, "echo up; while [ ! -e go ]; do sleep 0.02; done\n")
    monkeypatch.chdir(tmp_path)
    job = Job(["sh", "-c", f"trap '' INT QUIT; exec {ddprun_bin} --standalone --no-python {run}"])
    job.wait_for(lambda line: "up" in line)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGINT):
        job.process.send_signal(number)
    (tmp_path / "go").touch()
    assert job.end() == 0, job.text()


def has_namespaces() -> bool:
    return subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_namespaces(), reason="this user cannot make pid namespaces")
def test_as_pid_1_it_reaps_orphans(ddprun_bin, tmp_path):
    """A container in which ddprun has pid 1 gets orphan processes from `docker exec`, for example after a health check. ddprun
    must reap them."""
    run = script(tmp_path, "echo up; exec sleep 600\n")
    job = Job(["unshare", "--pid", "--fork", "--mount-proc", ddprun_bin, "--standalone", "--no-python", run])
    job.wait_for(lambda line: "up" in line)
    agent = jobs.children(job.process.pid)[0]
    inside = ["nsenter", "-t", str(agent), "-p", "-m", "sh", "-c"]
    for _ in range(5):
        subprocess.run([*inside, "(sleep 0.05 & ) ; exit 0"], check=True)
    zombies = [*inside, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null; grep -l '^sleep$' /proc/[0-9]*/comm | wc -l"]
    jobs.wait_for(lambda: subprocess.run(zombies, check=False, capture_output=True, text=True).stdout == "1\n", "the end of all zombies", 30)
    os.kill(agent, signal.SIGTERM)
    assert job.end() == 143, job.text()
