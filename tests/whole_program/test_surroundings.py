"""Tests of failures of the machine around a job: full disks and /dev/shm, a closed console, floods of output, a removed run
directory, a network without IPv4, and changes of the system clock. Either training must continue, or a single line must report
the problem."""

import json
import os
import pathlib
import re
import resource
import select
import shutil
import struct
import subprocess
import sys
import threading

import jobs
import pytest
from disks import small_disk


class Gate:
    """A FIFO at which workers wait with `read word < GATE`. After open(n), n of the workers continue. The object keeps the
    FIFO open, because unread words would be lost when a worker closes the last descriptor."""

    def __init__(self, path: pathlib.Path):
        os.mkfifo(path)
        self.path, self.fd = path, os.open(path, os.O_RDWR)

    def __str__(self) -> str:
        return str(self.path)

    def open(self, workers: int) -> None:
        os.write(self.fd, b"on\n" * workers)


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path / "gate")
    yield gate
    os.close(gate.fd)


def until(job: subprocess.Popen, stream, word: str) -> list[str]:
    """Reads and returns the lines of the stream, up to the line that contains `word`. Kills the job after 60 s."""
    lines = []
    watchdog = threading.Timer(60, job.kill)
    watchdog.start()
    try:
        for line in stream:
            lines.append(line)
            if word in line:
                return lines
    finally:
        watchdog.cancel()
    raise AssertionError(f"{word!r} was not printed: {lines}")


def own_namespaces(setup: str, command: list, *kinds: str) -> list[str]:
    """Returns a command that creates new namespaces, runs `setup` in them, and then runs `command`. Skips the test if the
    namespaces cannot be created."""
    words = ["unshare", *kinds, "sh", "-c", f'{setup} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"cannot create these namespaces on this machine: {' '.join(kinds)}")
    return [*words, *[str(word) for word in command]]


# ---- disks ----


def test_a_full_dev_shm_is_tolerated(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=1))
    fill = "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"
    done = jobs.run(own_namespaces(fill, [ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, config], "-m"))
    assert done.returncode == 0, done.stderr
    assert jobs.losses(run_dir)[-1][0] == 20


def test_full_log_disks_are_reported_once_and_the_console_has_all(ddprun_bin, tmp_path):
    line = "y" * 99
    with small_disk(tmp_path / "disk", "256k") as disk:
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--log-dir", disk, "--tee", 3, "--no-python", "sh", "-c", f"yes {line} | head -n 10000"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(line) == 20000
    assert done.stderr.count("No space left on device") <= 2, done.stderr  # each worker prints the error at most once
    assert "No space left on device" in done.stderr


# ---- output ----


def test_a_file_size_limit_does_not_end_the_agent(ddprun_bin, tmp_path):
    """If the report is larger than `ulimit -f`, write(2) fails and the kernel sends SIGXFSZ. The agent must ignore this
    signal. If it did not, the signal would kill it."""
    done = jobs.run(["sh", "-c", f"ulimit -f 1; exec {ddprun_bin} --standalone --log-dir logs --no-python true"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_job_continues_without_its_reader(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=20))
    job = jobs.start([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, "-v", config])
    until(job, job.stdout, "step")
    job.stdout.close()
    job.stderr.close()
    assert job.wait(60) == 0
    assert jobs.losses(run_dir)[-1][0] == 400
    assert jobs.report(run_dir)["exit"]["code"] == 0


def test_a_script_continues_without_its_reader(ddprun_bin, tmp_path, gate):
    job = jobs.start([ddprun_bin, "--no-python", "sh", "-c", f"echo up; read word < {gate}; yes | head -n 500000; touch {tmp_path}/done"])
    until(job, job.stdout, "up")
    job.stdout.close()
    gate.open(1)
    assert job.wait(60) == 0
    assert (tmp_path / "done").exists()
    assert job.stderr.read() == "ddprun: stdout is a closed pipe: output to it is dropped, and the job continues\n"


def peak_memory_mb(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def test_a_gigabyte_of_output_takes_no_memory(ddprun_bin, tmp_path, gate):
    """At first, the test does not read the output. If the agent buffered all of it, the memory of the agent would grow during
    this time."""
    half = 512 << 20
    flood = f"echo up $RANK; yes {'z' * 127} | head -c {half}; echo; echo all $RANK; read word < {gate}"
    job = jobs.start([ddprun_bin, "--nproc-per-node", 2, "--no-python", "sh", "-c", flood], text=False)
    fd = os.pidfd_open(job.pid)
    assert not select.select([fd], [], [], 0.5)[0]
    os.close(fd)
    seen, ended = 0, 0
    while ended < 2:
        block = os.read(job.stdout.fileno(), 1 << 20)
        assert block, job.stderr.read()
        seen += len(block)
        ended += block.count(b"all ")
    memory = peak_memory_mb(job.pid)
    gate.open(2)
    rest, _ = job.communicate(timeout=30)
    assert job.returncode == 0
    assert seen + len(rest) >= 2 * half
    assert memory < 16, f"{memory:.1f} MB"


# ---- the run directory ----


def test_a_removed_run_directory_is_reported_once(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=30, checkpoint={"every_steps": 100}))
    job = jobs.start([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", run_dir, config])
    until(job, job.stdout, '"progress"')
    removed = run_dir.rename(tmp_path / "elsewhere")
    removal = json.loads(until(job, job.stdout, "run_directory_removed")[-1])
    shutil.rmtree(removed)
    assert removal["path"] == str(run_dir)
    output, errors = job.communicate(timeout=60)
    assert job.returncode == 0, output + errors
    assert "run_directory_removed" not in output
    assert json.loads((run_dir / "checkpoints" / "latest" / "manifest.json").read_text())["step"] == 600
    report = jobs.report(run_dir)
    assert report["exit"]["code"] == 0 and report["invocations"][-1]["run_directory_removed_ns"] > 0
    again = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, config, "epochs=31"])
    assert again.returncode == 0 and "continuing from step 600" in again.stdout, again.stdout + again.stderr


def test_a_lazily_unmounted_run_directory_is_reported(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=100000, checkpoint={"every_steps": 100}))
    with small_disk(tmp_path / "disk", "64m") as disk:
        job = jobs.start([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", disk / "run", config])
        until(job, job.stdout, '"progress"')
        subprocess.run(["umount", "-l", str(disk)], check=True)
        until(job, job.stdout, "run_directory_removed")
        job.terminate()
        output, errors = job.communicate(timeout=60)
        assert job.returncode == 85, output[-3000:] + errors
        # After the lazy unmount, the trainer has created a new run directory in the underlying folder.
        saved = json.loads((disk / "run" / "checkpoints" / "latest" / "manifest.json").read_text())["step"]
        again = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", disk / "run", config, f"max_steps={saved + 1}"])
        assert again.returncode == 0 and f"continuing from step {saved}" in again.stdout, again.stdout + again.stderr
        subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], check=True)  # the unmount at the end needs this mount


def test_a_restart_in_a_removed_run_directory(ddprun_bin, run_dir, gate):
    script = f'test $TORCHELASTIC_RESTART_COUNT = 1 || {{ echo up; read word < {gate}; exit 3; }}; echo again'
    job = jobs.start([ddprun_bin, "--max-restarts", 1, "--run-dir", run_dir, "--no-python", "sh", "-c", script])
    until(job, job.stdout, "up")
    shutil.rmtree(run_dir)
    warning = until(job, job.stderr, "was removed")[-1]
    assert f"the run directory {run_dir} was removed or renamed while the job was running: the job continues" in warning
    gate.open(1)
    output, errors = job.communicate(timeout=30)
    assert job.returncode == 0, errors
    assert "was removed" not in errors
    assert "again" in (run_dir / "logs" / "round-001" / "rank-00000" / "stdout.log").read_text()


# ---- descriptors ----


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_descriptor_shortage_at_run_time_is_reported(ddprun_bin, run_dir, gate, left):
    """The test lowers the agent's limit on open descriptors. The limit is reached when the workers are restarted. Depending on
    the limit, the agent then fails to open a port, to send a request to the guardian, or to create a pipe."""
    job = jobs.start([ddprun_bin, "--nproc-per-node", 2, "--max-restarts", 3, "--run-dir", run_dir, "--no-python", "sh", "-c",
                      f"echo up; read word < {gate}; exit 3"])
    until(job, job.stdout, "up")
    until(job, job.stdout, "up")
    below = jobs.children(job.pid)
    in_use = len(list(pathlib.Path(f"/proc/{job.pid}/fd").iterdir()))
    limit = 3 + left if left == 0 else in_use - 6 + left
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (limit, limit))
    gate.open(2)
    _, errors = job.communicate(timeout=30)
    assert job.returncode == 89, errors
    assert "Too many open files" in errors and "ulimit" in errors, errors
    assert not [pid for pid in below if pathlib.Path(f"/proc/{pid}").exists()]


# ---- a network without IPv4 ----

NO_IPV4 = "ip link set lo up && ip -4 addr flush dev lo && ip -6 addr show dev lo | grep -q ::1"


def test_training_without_ipv4(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=1))
    done = jobs.run(own_namespaces(NO_IPV4, [ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, config], "-n"))
    assert done.returncode == 0, done.stderr
    assert jobs.losses(run_dir)[-1][0] == 20


# ---- a changed system clock ----


class Clock:
    """Simulates the wall clock of jobs that are started with environment(). The test can change this clock."""

    def __init__(self, folder: pathlib.Path):
        compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("needs a C compiler")
        self.library, self.file = folder / "set_clock.so", folder / "was-set"
        source = pathlib.Path(__file__).with_name("set_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source)], check=True)
        self.file.write_bytes(struct.pack("<qq", 0, 0))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_WAS_SET": str(self.file)}

    def set(self, hours: int) -> None:
        """Sets the clock to `hours` ahead of the real time. The file is changed in place, because the programs have mapped it
        into memory."""
        with self.file.open("r+b") as f:
            f.write(struct.pack("<q", 3600 * hours))

    def sleep(self, seconds: int) -> None:
        """Simulates that the machine was suspended for `seconds`. Clocks that count suspended time jump forward, and other
        clocks do not."""
        with self.file.open("r+b") as f:
            f.write(struct.pack("<qq", 0, seconds))


@pytest.fixture
def clock(tmp_path) -> Clock:
    return Clock(tmp_path)


def test_a_suspended_machine_notices_its_expired_lease(nodes, clock, tmp_path):
    """While a node was suspended, the other node may have continued without it. When the suspended node wakes up, it must kill
    its workers immediately and join the job again."""
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/starts-$GROUP_RANK\nuntil [ -e {tmp_path}/enough ]; do sleep 0.05; done\n")
    script.chmod(0o755)
    port = jobs.free_port()
    for rank in range(2):
        nodes.start("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={int(rank == 0)}",
                    "--no-python", script, **(clock.environment() if rank == 1 else {}))
    starts = [tmp_path / f"starts-{rank}" for rank in range(2)]
    nodes.until(lambda: all(file.exists() for file in starts), "both workers")
    worker = starts[1].read_text().split()[0]
    guardian = pathlib.Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1]
    timers = [file.read_text() for file in pathlib.Path(f"/proc/{guardian}/fdinfo").iterdir()]
    # The guardian's timer uses CLOCK_BOOTTIME, which counts suspended time. So the timer expires as soon as the machine wakes
    # up.
    assert any("clockid: 7\n" in timer for timer in timers), timers
    clock.sleep(60)
    nodes.until(lambda: all(len(file.read_text().split()) == 2 for file in starts), "the next round")
    (tmp_path / "enough").touch()
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert "the coordinator did not answer" in nodes.text(1) or "does not answer" in nodes.text(1), nodes.text(1)


@pytest.mark.parametrize("agents", [1, 2])
def test_a_changed_clock_has_no_effect(ddprun_bin, data, tmp_path, clock, agents):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=40, checkpoint={"every_seconds": 1, "every_steps": 0}))
    command = [ddprun_bin, "--json", "--nproc-per-node", 2 // agents, "--run-dir", tmp_path / "run", "--hang-timeout", 5]
    if agents > 1:
        command += ["--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", jobs.free_port()]
    started = [jobs.start([*command, config], **clock.environment()) for _ in range(agents)]
    until(started[0], started[0].stdout, '"progress"')
    for hours in (30, -30, 7):
        clock.set(hours)
        until(started[0], started[0].stdout, '"progress"')
    for job in started:
        output, errors = job.communicate(timeout=120)
        assert job.returncode == 0, output + errors
    report = jobs.report(tmp_path / "run")
    assert len(report["rounds"]) == 1 and report["failures"] == {}
    assert 0 < sum(seconds for name, seconds in report["time"].items() if name != "lost_s") < 600, report["time"]


def test_durations_do_not_use_the_wall_clock(ddprun_bin, tmp_path, clock):
    script = f"echo started; until [ -e {tmp_path}/enough ]; do sleep 0.05; done; exit 3"
    job = jobs.start([ddprun_bin, "--no-python", "sh", "-c", script], **clock.environment())
    until(job, job.stdout, "started")
    clock.set(30)
    (tmp_path / "enough").touch()
    _, errors = job.communicate(timeout=60)
    assert re.search(r"ended with exit code 3.*\((\d+ min )?\d+(\.\d+)? s[;)]", errors), errors


def test_a_crash_loop_backs_off_despite_a_changed_clock(ddprun_bin, tmp_path, clock, run_dir):
    """Each time the script is started, it sets the clock forward by a day, as if it had run for a day. The restarts must still
    be delayed as in a crash loop."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"max_restarts": 2, "pause": {"instant_s": 600, "first_s": 0.5}}), encoding="utf-8")
    script = tmp_path / "loop.py"
    script.write_text("import os, struct, sys\n"
                      "number = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
                      "if number == 2: sys.exit(0)\n"
                      f"with open({str(clock.file)!r}, 'r+b') as f: f.write(struct.pack('<q', 86400 * (number + 1)))\n"
                      "sys.exit(3)\n", encoding="utf-8")
    done = jobs.run([ddprun_bin, "--restart-policy", policy, "--run-dir", run_dir, script], PYTHON_EXEC=sys.executable, **clock.environment())
    assert done.returncode == 0, done.stderr
    report = jobs.report(run_dir)
    # The difference between the start times shows that the script has changed the clock.
    assert report["rounds"][2]["started_ns"] - report["rounds"][0]["started_ns"] > 2 * 86400e9
    assert "in 500 ms" in report["rounds"][1]["why"]
    assert sum(report["time"].values()) < 600
