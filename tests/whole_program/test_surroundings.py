"""The machine causes failures, rather than a worker: full disks and /dev/shm, readers that leave, floods of output, a run directory that is removed,
no IPv4, a clock that is set. Training continues, or one line names the problem."""

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


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


class Gate:
    """Workers that run `read word < GATE` wait until open() lets that many of them continue. The FIFO is kept open here: otherwise unread words would
    be lost when a worker closes it."""

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
    """Returns the lines up to the one with that word. Kills the job if it does not come."""
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
    raise AssertionError(f"{word!r} did not come: {lines}")


def own_namespaces(setup: str, command: list, *kinds: str) -> list[str]:
    """The command in new namespaces in which `setup` was run first. Skips the test if they cannot be made."""
    words = ["unshare", *kinds, "sh", "-c", f'{setup} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {' '.join(kinds)}")
    return [*words, *[str(word) for word in command]]


# ---- disks ----


def test_a_full_dev_shm_is_no_hindrance(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=1))
    fill = "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full"
    done = jobs.run(own_namespaces(fill, [ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, config], "-m"))
    assert done.returncode == 0, done.stderr
    assert jobs.losses(run_dir)[-1][0] == 20


def test_where_log_files_find_no_room_the_console_has_all_and_it_is_said_once(ddprun_bin, tmp_path):
    line = "y" * 99
    with small_disk(tmp_path / "disk", "256k") as disk:
        done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--log-dir", disk, "--tee", 3, "--no-python", "sh", "-c", f"yes {line} | head -n 10000"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(line) == 20000
    assert done.stderr.count("No space left on device") <= 2, done.stderr  # once per worker
    assert "No space left on device" in done.stderr


# ---- output ----


def test_a_limit_of_file_sizes_does_not_end_the_agent(ddprun_bin, tmp_path):
    """A report larger than `ulimit -f` makes write(2) fail. No signal ends the agent."""
    done = jobs.run(["sh", "-c", f"ulimit -f 1; exec {ddprun_bin} --standalone --log-dir logs --no-python true"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_job_goes_on_when_its_reader_leaves(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=20))
    job = jobs.start([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, "-v", config])
    until(job, job.stdout, "step")
    job.stdout.close()
    job.stderr.close()
    assert job.wait(60) == 0
    assert jobs.losses(run_dir)[-1][0] == 400
    assert jobs.report(run_dir)["exit"]["code"] == 0


def test_a_script_goes_on_when_its_reader_leaves(ddprun_bin, tmp_path, gate):
    job = jobs.start([ddprun_bin, "--no-python", "sh", "-c", f"echo up; read word < {gate}; yes | head -n 500000; touch {tmp_path}/done"])
    until(job, job.stdout, "up")
    job.stdout.close()
    gate.open(1)
    assert job.wait(60) == 0
    assert (tmp_path / "done").exists()
    assert job.stderr.read() == "ddprun: nobody reads standard output any more; the job continues without it\n"


def peak_memory_mb(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def test_a_gigabyte_of_output_takes_no_memory(ddprun_bin, tmp_path, gate):
    """The output is not read at first, although that time would be enough to print much."""
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


def test_a_run_directory_that_is_removed_is_said_once_and_training_goes_on(ddprun_bin, data, tmp_path, run_dir):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=30, checkpoint={"every_steps": 100}))
    job = jobs.start([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", run_dir, config])
    until(job, job.stdout, '"progress"')
    removed = run_dir.rename(tmp_path / "elsewhere")
    told = json.loads(until(job, job.stdout, "run_directory_removed")[-1])
    shutil.rmtree(removed)
    assert told["path"] == str(run_dir)
    output, errors = job.communicate(timeout=60)
    assert job.returncode == 0, output + errors
    assert "run_directory_removed" not in output
    assert json.loads((run_dir / "checkpoints" / "latest" / "manifest.json").read_text())["step"] == 600
    report = jobs.report(run_dir)
    assert report["exit"]["code"] == 0 and report["invocations"][-1]["run_directory_removed_ns"] > 0
    again = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, config, "epochs=31"])
    assert again.returncode == 0 and "going on from step 600" in again.stdout, again.stdout + again.stderr


def test_a_lazy_unmount_of_the_run_directory_is_said_and_the_next_start_goes_on(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=100000, checkpoint={"every_steps": 100}))
    with small_disk(tmp_path / "disk", "64m") as disk:
        job = jobs.start([ddprun_bin, "--json", "--nproc-per-node", 2, "--run-dir", disk / "run", config])
        until(job, job.stdout, '"progress"')
        subprocess.run(["umount", "-l", str(disk)], check=True)
        until(job, job.stdout, "run_directory_removed")
        job.terminate()
        output, errors = job.communicate(timeout=60)
        assert job.returncode == 85, output[-3000:] + errors
        # A run directory is now in the folder where the disk was mounted.
        saved = json.loads((disk / "run" / "checkpoints" / "latest" / "manifest.json").read_text())["step"]
        again = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", disk / "run", config, f"max_steps={saved + 1}"])
        assert again.returncode == 0 and f"going on from step {saved}" in again.stdout, again.stdout + again.stderr
        subprocess.run(["mount", "-t", "tmpfs", "none", str(disk)], check=True)  # for the unmount at the end


def test_a_restart_in_a_run_directory_that_was_removed(ddprun_bin, run_dir, gate):
    script = f'test $TORCHELASTIC_RESTART_COUNT = 1 || {{ echo up; read word < {gate}; exit 3; }}; echo again'
    job = jobs.start([ddprun_bin, "--max-restarts", 1, "--run-dir", run_dir, "--no-python", "sh", "-c", script])
    until(job, job.stdout, "up")
    shutil.rmtree(run_dir)
    said = until(job, job.stderr, "was removed")[-1]
    assert f"the run directory {run_dir} was removed or renamed while the job runs: the job goes on" in said
    gate.open(1)
    output, errors = job.communicate(timeout=30)
    assert job.returncode == 0, errors
    assert "was removed" not in errors
    assert "again" in (run_dir / "logs" / "round-001" / "rank-00000" / "stdout.log").read_text()


# ---- descriptors ----


@pytest.mark.parametrize("left", [0, 1, 3])
def test_descriptors_that_run_out_while_it_runs_are_named(ddprun_bin, run_dir, gate, left):
    """It happens at the start of the next round, for which all descriptors are free again: at a port, in a request to the guardian, or at a pipe."""
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


# ---- a clock that is set ----


class Clock:
    """The wall clock of the jobs that are started with environment()."""

    def __init__(self, folder: pathlib.Path):
        compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("needs a C compiler")
        self.library, self.file = folder / "set_clock.so", folder / "was-set"
        source = pathlib.Path(__file__).with_name("set_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source)], check=True)
        self.file.write_bytes(struct.pack("<qq", 0, 0))

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "CLOCK_WAS_SET": str(self.file)}

    def set(self, hours: int) -> None:
        """Shifts the clock by that many hours from now on. The file is changed in place, because programs have it mapped."""
        with self.file.open("r+b") as f:
            f.write(struct.pack("<q", 3600 * hours))

    def sleep(self, seconds: int) -> None:
        """Simulates sleep of that length: clocks that include sleep advance, the others do not."""
        with self.file.open("r+b") as f:
            f.write(struct.pack("<qq", 0, seconds))


@pytest.fixture
def clock(tmp_path) -> Clock:
    return Clock(tmp_path)


def test_a_machine_that_has_slept_past_its_lease_knows_it(nodes, clock, tmp_path):
    """The others may have continued without this node. Its workers are killed immediately, and it joins again."""
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
    assert any("clockid: 7\n" in timer for timer in timers), timers  # CLOCK_BOOTTIME: it ends a grant as soon as a machine wakes up
    clock.sleep(60)
    nodes.until(lambda: all(len(file.read_text().split()) == 2 for file in starts), "the next round")
    (tmp_path / "enough").touch()
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert "the coordinator did not answer" in nodes.text(1) or "does not answer" in nodes.text(1), nodes.text(1)


@pytest.mark.parametrize("agents", [1, 2])
def test_a_clock_that_is_set_changes_nothing(ddprun_bin, data, tmp_path, clock, agents):
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


def test_how_long_a_job_took_is_told_by_no_clock_that_is_set(ddprun_bin, tmp_path, clock):
    script = f"echo begun; until [ -e {tmp_path}/enough ]; do sleep 0.05; done; exit 3"
    job = jobs.start([ddprun_bin, "--no-python", "sh", "-c", script], **clock.environment())
    until(job, job.stdout, "begun")
    clock.set(30)
    (tmp_path / "enough").touch()
    _, errors = job.communicate(timeout=60)
    assert re.search(r"ended with exit code 3.*\((\d+ min )?\d+(\.\d+)? s[;)]", errors), errors


def test_a_crash_loop_is_slowed_down_although_the_clock_is_set(ddprun_bin, tmp_path, clock, run_dir):
    """The clock is set forward by a day in each round, as if the round had lasted that long."""
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
    assert report["rounds"][2]["started_ns"] - report["rounds"][0]["started_ns"] > 2 * 86400e9  # the clock was set
    assert "in 500 ms" in report["rounds"][1]["why"]
    assert sum(report["time"].values()) < 600
