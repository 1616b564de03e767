"""Tests in which the kernel kills a worker because memory is exhausted. The agent must continue, report the worker with its
memory usage and limit, and leave no cgroup behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import cgroups
import jobs
import pytest

LIMIT = 160 << 20
# Rank 1 allocates memory until the kernel kills it. The other ranks wait for a signal of the agent.
GREEDY = """
import os, signal, time
if os.environ["RANK"] == "1":
    time.sleep(float(os.environ.get("AFTER", "0")))
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1) * (1 << 20)))
signal.pause()
"""


@pytest.fixture
def greedy(tmp_path) -> pathlib.Path:
    script = tmp_path / "greedy.py"
    script.write_text(GREEDY, encoding="utf-8")
    return script


def finish(folder, command, **env):
    process = cgroups.start_in(folder, command, env=jobs.clean_environment(**env), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


@pytest.mark.parametrize("after", ["0", "0.5"], ids=["at its start", "in its own cgroup"])
def test_the_oom_killer_kills_a_worker(ddprun, greedy, tmp_path, after):
    with cgroups.limited(LIMIT) as folder:
        code, _, err = finish(folder, [ddprun, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", greedy], AFTER=after)
    assert code == 137, err  # the exit code of the killed worker
    assert "rank 1" in err and "killed by the kernel: out of memory" in err
    assert "limit 160 MiB" in err
    first = jobs.report(tmp_path / "run")["rounds"][0]["first_cause"]
    assert first["cause"] == "host_out_of_memory" and first["rank"] == 1
    assert any("limit 160 MiB" in line for line in first["evidence"])


def test_a_restart_after_an_oom_kill(ddprun, tmp_path):
    script = tmp_path / "once.py"
    script.write_text(GREEDY.replace('== "1"', '== "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"')
                      .replace("signal.pause()", "signal.pause() if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else None"),
                      encoding="utf-8")
    with cgroups.limited(LIMIT) as folder:
        code, _, err = finish(folder, [ddprun, "--nproc-per-node", 3, "--max-restarts", 1, script], AFTER="0.3")
    assert code == 0, err
    assert "out of memory" in err and "restart 1 of 1" in err


def test_a_worker_stays_in_the_cgroup_it_entered(ddprun, tmp_path):
    """The worker moves itself to another cgroup, as under cgexec or systemd-run. The agent moves its workers to cgroups shortly
    after their start, so the worker waits a second before it allocates memory."""
    script = tmp_path / "own.sh"
    script.write_text(f"""#!/bin/sh
echo $$ > "$OWN/cgroup.procs" || exit 3
exec {sys.executable} -c '
import os, signal, time
time.sleep(1)
print(open("/proc/self/cgroup").read(), flush=True)
hoard = [bytearray(os.urandom(1) * (1 << 20)) for _ in range(400)]'
""")
    script.chmod(0o755)
    with cgroups.limited(LIMIT) as folder:
        done = jobs.run([ddprun, "--run-dir", tmp_path / "run", "--no-python", script], OWN=str(folder))
    assert folder.name in done.stdout, done.stdout
    assert done.returncode == 137, done.stdout + done.stderr
    assert jobs.report(tmp_path / "run")["rounds"][0]["first_cause"]["cause"] == "host_out_of_memory"


def test_a_foreign_sigkill_is_not_blamed_on_memory(ddprun, tmp_path):
    script = tmp_path / "victim.py"
    script.write_text("import os, signal\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\nsignal.pause()\n")
    done = jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", script])
    assert done.returncode == 137
    first = jobs.report(tmp_path / "run")["rounds"][0]["first_cause"]
    assert first["cause"] == "signal"
    assert any(line.startswith("memory: ") for line in first["evidence"])  # the memory usage on which the conclusion is based


def test_no_cgroup_is_left_when_the_agent_is_killed(ddprun, tmp_path):
    """The worker has a child in another session. The child was started before the agent moved the worker to its cgroup."""
    script = tmp_path / "forks.py"
    script.write_text(
        "import os, signal, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "placed = lambda pid: 'ddprun-' in open(f'/proc/{pid}/cgroup').read()\n"
        "while not (placed(os.getpid()) and placed(child.pid)): time.sleep(0.01)\n"
        "print('placed', flush=True)\nsignal.pause()\n")
    with cgroups.limited(LIMIT) as folder:
        process = cgroups.start_in(folder, [ddprun, script], env=jobs.clean_environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "placed\n", process.stderr.read()
        below = jobs.children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)  # the workers inherit the pipes, so an end of file means that all workers have ended
        for pid in below:
            wait_for_end(pid)


def wait_for_end(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    import select
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(30_000), f"process {pid} still exists"
    os.close(fd)


def test_the_oom_killer_prefers_workers(ddprun, tmp_path):
    script = tmp_path / "score.py"
    script.write_text("print(open('/proc/self/oom_score_adj').read().strip(), open(f'/proc/{__import__(\"os\").getppid()}/oom_score_adj').read().strip())")
    done = jobs.run([ddprun, script])
    worker, guardian = map(int, done.stdout.split())
    assert worker >= 500 and worker > guardian, json.dumps(done.stdout)
