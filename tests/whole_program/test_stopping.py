"""Tests of signals to the agent and of the sudden end of the agent: the exit code, the saved state, and that all processes
end."""

import contextlib
import json
import os
import pathlib
import select
import signal

import jobs
import pytest


class Job:
    """A running agent. Tests read its events from the JSON console output."""

    def __init__(self, command: list, **env: str):
        self.process = jobs.start(command, **env)
        self.lines: list[str] = []

    def wait_for(self, wanted) -> str:
        """Reads lines of the console output until `wanted` returns True for a line, and returns this line."""
        for line in self.process.stdout:
            self.lines.append(line)
            if wanted(line):
                return line
        raise AssertionError("the console ended:\n" + "".join(self.lines) + self.process.stderr.read())

    def end(self, timeout: float = 60) -> int:
        out, err = self.process.communicate(timeout=timeout)
        self.lines += [out, err]
        return self.process.returncode

    def text(self) -> str:
        return "".join(self.lines)


def is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_gone(pids: list[int], seconds: float) -> list[int]:
    """Waits until the processes have ended, at most `seconds` for each process. Uses pidfds instead of polling. Returns the
    processes that are still running."""
    left = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([fd], [], [], seconds)[0]:
                left.append(pid)
        finally:
            os.close(fd)
    return left


def long_job(ddprun, tmp_path, data, *flags, **env) -> Job:
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=10000, checkpoint={"every_steps": 100, "keep": 3}))
    return Job([ddprun, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", *flags, config], **env)


def training(line: str) -> bool:
    """Returns True if a console line reports step 3 or later."""
    try:
        event = json.loads(line)
    except ValueError:
        return False
    return event.get("event") == "progress" and event.get("step", 0) >= 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_exits_for_requeue(ddprun_bin, data, tmp_path, number):
    job = long_job(ddprun_bin, tmp_path, data)
    job.wait_for(training)
    below = jobs.children(job.process.pid)
    assert len(below) >= 3  # the guardian process and two workers are running
    job.process.send_signal(number)
    assert job.end() == 85, job.text()
    assert wait_gone(below, 5) == []
    last = jobs.metrics(tmp_path / "run", "step")[-1]["step"]
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "latest" / "manifest.json").read_text())
    assert manifest["step"] == last
    assert jobs.report(tmp_path / "run")["exit"]["code"] == 85


def test_a_preempted_run_resumes_with_the_same_numbers(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=15))
    calm = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", config])
    assert calm.returncode == 0, calm.stderr
    job = Job([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config])
    job.wait_for(training)
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 85, job.text()
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config])
    assert done.returncode == 0, done.stderr
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(tmp_path / "calm")
    assert jobs.losses(tmp_path / "run") == jobs.losses(tmp_path / "calm")


def test_a_time_limit_of_slurm_saves(ddprun_bin, data, tmp_path):
    """At the time limit, Slurm sends SIGTERM, SIGCONT and SIGTERM again to every process of the job step."""
    job = long_job(ddprun_bin, tmp_path, data, "--signals-to-handle", "SIGTERM,SIGUSR1")
    job.wait_for(training)
    processes = [job.process.pid, *jobs.children(job.process.pid)]
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGTERM):
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    assert job.end() == 85, job.text()
    saved = (tmp_path / "run" / "checkpoints" / "latest").resolve().name
    # The job must react in the same way to the signal that `sbatch --signal=USR1` sends only to the agent.
    again = long_job(ddprun_bin, tmp_path, data, "--signals-to-handle", "SIGTERM,SIGUSR1")
    again.wait_for(training)
    again.process.send_signal(signal.SIGUSR1)
    assert again.end() == 85, again.text()
    assert (tmp_path / "run" / "checkpoints" / "latest").resolve().name > saved


def test_a_repeated_sigterm_lets_a_script_finish_saving(ddprun_bin, tmp_path):
    gate, saved = tmp_path / "gate", tmp_path / "saved"
    os.mkfifo(gate)
    (tmp_path / "worker.py").write_text("import signal, sys\n"
                                        "def save(*_):\n"
                                        "    print('saving', flush=True)\n"
                                        f"    open({str(gate)!r}).read()\n"
                                        f"    open({str(saved)!r}, 'w').write('all')\n"
                                        "    sys.exit(0)\n"
                                        "signal.signal(signal.SIGTERM, save)\n"
                                        "print('ready', flush=True)\n"
                                        "signal.pause()\n")
    job = Job([ddprun_bin, tmp_path / "worker.py"])
    job.wait_for(lambda line: "ready" in line)
    job.process.send_signal(signal.SIGTERM)
    job.wait_for(lambda line: "saving" in line)
    job.process.send_signal(signal.SIGTERM)
    assert any("SIGTERM again" in line for line in job.process.stderr)
    gate.write_text("on\n")
    assert job.end() == 143, job.text()
    assert saved.read_text() == "all"


def test_a_killed_agent_leaves_no_process(ddprun_bin, data, tmp_path):
    job = long_job(ddprun_bin, tmp_path, data)
    job.wait_for(training)
    below = jobs.children(job.process.pid)
    assert len(below) >= 3
    job.process.kill()
    job.process.wait()
    assert wait_gone(below, 1) == []
    assert jobs.report(tmp_path / "run")["exit"]["code"] == 137
    # The run directory must not be locked any more, so that the run can be resumed.
    again = long_job(ddprun_bin, tmp_path, data)
    again.wait_for(training)
    again.process.send_signal(signal.SIGTERM)
    assert again.end() == 85, again.text()


def test_hidden_grandchildren_end_with_a_killed_agent(ddprun_bin, tmp_path):
    hidden = tmp_path / "hidden"
    script = ("import os, signal, time\n"
              "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
              "if os.fork() == 0:\n"
              "    os.setsid()\n"
              "    if os.fork() == 0:\n"
              f"        open({str(hidden)!r}, 'w').write(str(os.getpid()))\n"
              "        print('hidden', flush=True)\n"
              "    time.sleep(600)\n"
              "time.sleep(600)\n")
    (tmp_path / "worker.py").write_text(script)
    job = Job([ddprun_bin, "--nproc-per-node", 1, tmp_path / "worker.py"])
    job.wait_for(lambda line: "hidden" in line)
    below = [*jobs.children(job.process.pid), int(hidden.read_text())]
    job.process.kill()
    job.process.wait()
    assert wait_gone(below, 1) == []


def test_a_stopped_guardian_continues_after_its_agents_death(ddprun_bin, data, tmp_path):
    """The guardian process is suspended with SIGSTOP, so it cannot detect that its agent was killed. Then the kernel must
    resume the guardian, which ends the workers."""
    job = long_job(ddprun_bin, tmp_path, data)
    job.wait_for(training)
    below = jobs.children(job.process.pid)
    guardian = next(pid for pid in below if pathlib.Path(f"/proc/{pid}/exe").resolve() == ddprun_bin)
    os.kill(guardian, signal.SIGSTOP)
    job.process.kill()
    job.process.wait()
    left = wait_gone(below, 1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
    assert jobs.report(tmp_path / "run")["exit"]["code"] == 137


def test_a_second_interrupt_kills_immediately(ddprun_bin, tmp_path):
    (tmp_path / "worker.sh").write_text("#!/bin/bash\ntrap '' INT TERM\necho ready\nwhile :; do read -r -t 60 _ <> <(:); done\n")
    (tmp_path / "worker.sh").chmod(0o755)
    job = Job([ddprun_bin, "--nproc-per-node", 2, "--shutdown-timeout", 300, "--no-python", tmp_path / "worker.sh"])
    job.wait_for(lambda line: "ready" in line)
    job.wait_for(lambda line: "ready" in line)
    below = jobs.children(job.process.pid)
    job.process.send_signal(signal.SIGINT)
    assert wait_gone(below[:1], 0.3) != []  # the workers ignore the first signal, so they are still running
    job.process.send_signal(signal.SIGINT)
    assert job.end(timeout=5) == 130, job.text()
    assert wait_gone(below, 1) == []


def test_shutdown_timeout_kills_workers_that_ignore_signals(ddprun_bin, tmp_path):
    (tmp_path / "worker.sh").write_text("#!/bin/bash\ntrap '' TERM\necho ready\nwhile :; do read -r -t 60 _ <> <(:); done\n")
    (tmp_path / "worker.sh").chmod(0o755)
    job = Job([ddprun_bin, "--shutdown-timeout", 0.2, "--no-python", tmp_path / "worker.sh"])
    job.wait_for(lambda line: "ready" in line)
    job.process.send_signal(signal.SIGTERM)
    assert job.end(timeout=10) == 143, job.text()


@pytest.mark.parametrize("script,code", [("exit 3", 3), ("kill -SEGV $$$$", 139), ("kill -KILL $$$$", 137), ("exit 0", 0)])
def test_the_exit_code_is_that_of_the_worker(ddprun_bin, script, code):
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--no-python", "sh", "-c", script])
    assert done.returncode == code, done.stderr


def listening_inodes() -> dict[str, str]:
    """Returns {inode: local address} for all listening TCP sockets."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found[fields[9]] = fields[1].rsplit(":", 1)[0]
    return found


def listeners_of(pid: int) -> list[str]:
    listening, found = listening_inodes(), []
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith("socket:[") and target[8:-1] in listening:
            found.append(listening[target[8:-1]])
    return found


def test_one_node_opens_only_gloo_ports_on_loopback(ddprun_bin, data, tmp_path):
    job = long_job(ddprun_bin, tmp_path, data)
    job.wait_for(training)
    assert listeners_of(job.process.pid) == []
    loopback = {"0100007F", "00000000000000000000000001000000"}
    for pid in jobs.children(job.process.pid):
        assert set(listeners_of(pid)) <= loopback
    job.process.send_signal(signal.SIGTERM)
    assert job.end() == 85


def test_under_nohup_a_job_outlives_its_terminal(ddprun_bin, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    job = Job(["nohup", ddprun_bin, "--standalone", "--no-python", "sh", "-c", f"kill -HUP $$$$; echo up; read word < {gate}"])
    job.wait_for(lambda line: "up" in line)
    job.process.send_signal(signal.SIGHUP)
    gate.write_text("on\n")
    assert job.end() == 0, job.text()
