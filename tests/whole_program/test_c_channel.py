"""Tests of the C ABI of the worker channel, in a plain C program and through Python's ctypes. They test progress reports, the
report about the step of a hanging rank, and errors that decide whether the job is restarted. They also test that all ranks
save and stop at the same step."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import jobs
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def library(ddprun_bin):
    return ddprun_bin.parent.parent / "lib/ddprun/libddprun_channel.so"


@pytest.fixture(scope="module")
def c_worker(library, tmp_path_factory):
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("c") / "channel_worker"
    done = subprocess.run(["cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT}/sdk/include", HERE / "channel_worker.c",
                           "-o", program, library, f"-Wl,-rpath,{library.parent}"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(params=["c", "ctypes"])
def command(request, library):
    """Returns command(ddprun, folder, mode, *options), which returns the command line of a job with two workers. The workers
    are written in C or use ctypes."""
    def words(ddprun_bin, folder, mode, *options):
        worker = ["--no-python", request.getfixturevalue("c_worker")] if request.param == "c" else [HERE / "channel_worker.py"]
        return [ddprun_bin, "--standalone", "--log-dir", folder / "logs", "--nproc-per-node", 2, *options, *worker, mode]

    return words


@pytest.fixture
def env(library):
    return {"CHANNEL_LIBRARY": str(library), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


def report_in(folder: pathlib.Path) -> dict:
    (report,) = (folder / "logs").glob("*/report.json")
    return json.loads(report.read_text(encoding="utf-8"))


def test_progress_and_checkpoints_are_reported(ddprun_bin, command, env, tmp_path):
    turns = {f"TURN_{i}": str(tmp_path / f"turn_{i}") for i in range(2)}
    for turn in turns.values():
        os.mkfifo(turn)
    done = jobs.run(command(ddprun_bin, tmp_path, "progress", "--json"), **env, **turns)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (hello, _) = [event for event in events if event["event"] == "hello"]
    assert hello["version"] == "channel_worker 1.0", hello
    first, *between, last = [event for event in events if event["event"] == "progress" and event["rank"] == 0]
    assert (first["step"], first["loss"], first["figures"]) == (1, 1.0, {"accuracy": 0.5})
    assert (last["step"], last["steps_total"], last["samples"], last["loss"]) == (1000, 1000, 8000, 0.001)
    assert len(between) < 100, "ddprun must send only a few progress events per second"
    of_rank_1 = [event for event in events if event["event"] == "progress" and event["rank"] == 1]
    assert of_rank_1 and not any(event.get("loss") or event.get("figures") for event in of_rank_1), "only rank 0 sends its loss and metrics"
    assert [(event["rank"], event["kind"]) for event in events if event["event"] == "straggler"] == [(1, "compute")], "by ddprun_step_time()"
    report = report_in(tmp_path)
    assert report["last_step"] == 1000
    assert report["checkpoints"]["latest"] == {"step": 1000, "path": "/a/model", "bytes": 77, "save_s": 0.25}


def test_a_usage_error_is_not_restarted(ddprun_bin, command, env, tmp_path):
    done = jobs.run(command(ddprun_bin, tmp_path, "error", "--max-restarts", 3), **env)
    assert done.returncode == 1 and "no restart after a usage error" in done.stderr, done.stderr
    cause = report_in(tmp_path)["rounds"][0]["first_cause"]
    assert (cause["cause"], cause["step"], cause["message"]) == ("usage", 7, "shard 3 is missing")


def test_the_rank_one_step_behind_is_blamed(ddprun_bin, command, env, tmp_path):
    done = jobs.run(command(ddprun_bin, tmp_path, "behind", "--hang-timeout", 1), **env)
    assert done.returncode == 82, done.stderr
    assert re.search(r"rank 1 \(pid \d+\) hangs: no progress for .*; it is in step 4; rank 0 waits in step 5", done.stderr), done.stderr


def test_all_ranks_stop_at_one_step_for_a_requeue(ddprun_bin, command, env, tmp_path):
    process = jobs.start(command(ddprun_bin, tmp_path, "save", "--shutdown-timeout", 60), **env)
    for _ in range(2):
        while "at_work" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 85, err
    saved = sorted(tuple(line.split()[1:]) for line in out.splitlines() if line.startswith("saved"))
    assert [rank for rank, _ in saved] == ["0", "1"] and len({step for _, step in saved}) == 1, out


def test_outside_a_job_it_does_nothing(command, library, request, env):
    worker = command("ddprun", pathlib.Path("/"), "no job")
    words = worker[worker.index("--no-python") + 1:] if "--no-python" in worker else [sys.executable, *worker[-2:]]
    for channel in ({}, {"DDPRUN_CHANNEL": "fd:1"}, {"DDPRUN_CHANNEL": "fd:x"}):
        done = jobs.run(words, **env, **channel)
        assert (done.returncode, done.stdout, done.stderr) == (0, "no job 0 -1\n", "")
    with socket.socket(socket.AF_INET) as other:  # the variable names a descriptor that does not belong to the channel
        done = subprocess.run([str(word) for word in words], env=jobs.clean_environment(**env, DDPRUN_CHANNEL=f"fd:{other.fileno()}"), pass_fds=[other.fileno()],
                              capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "no job 0 -1\n", "")
    # A wrapper such as sudo has closed the channel's descriptor. Its number now belongs to a socket of the program.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        number, inode = theirs.fileno(), os.fstat(theirs.fileno()).st_ino
        done = subprocess.run([str(word) for word in words], pass_fds=[number], capture_output=True, text=True, timeout=60, check=False,
                              env=jobs.clean_environment(**env, DDPRUN_CHANNEL=f"fd:{number}", DDPRUN_CHANNEL_INODE=str(inode + 1)))
        assert (done.returncode, done.stdout, done.stderr) == (0, "no job 0 -1\n", "")
        theirs.close()
        assert ours.recv(64) == b""


def test_a_closed_channel_wakes_a_waiting_thread(library, env):
    """A thread that waits for the step at which all ranks stop must return when the channel fails. The test shuts down the
    agent's end for reading, so the worker's next message fails."""
    code = """
import ctypes, json, os, socket, struct, threading
ours, theirs = socket.socketpair()
os.environ['DDPRUN_CHANNEL'] = f'fd:{ours.detach()}'
lib = ctypes.CDLL(os.environ['CHANNEL_LIBRARY'])
lib.ddprun_hello.restype = ctypes.c_void_p
worker = ctypes.c_void_p(lib.ddprun_hello(b'test'))
stop = json.dumps({'type': 'stop', 'mode': 'save', 'deadline_ms': 60000, 'reason': ''}).encode()
theirs.sendall(struct.pack('<II', len(stop) + 4, len(stop)) + stop)
while b'"stop_ready"' not in theirs.recv(65536): pass
waiter = threading.Thread(target=lib.ddprun_should_stop, args=(worker,))
waiter.start()
while b'"saves_on_stop"' not in theirs.recv(65536): pass
theirs.shutdown(socket.SHUT_RD)
DDPRUN_SAVING = 3
lib.ddprun_enter(worker, DDPRUN_SAVING, ctypes.c_int64(1), ctypes.c_int64(0))
waiter.join(20)
print('waits' if waiter.is_alive() else 'woken', flush=True)
os._exit(0)
"""
    done = jobs.run([sys.executable, "-c", code], **env)
    assert done.stdout == "woken\n", done.stdout + done.stderr


def test_the_library_exports_only_its_abi(library):
    if not shutil.which("nm"):
        pytest.skip("needs nm")
    names = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], capture_output=True, text=True, timeout=60, check=True).stdout
    shown = {line.split()[0] for line in names.splitlines()}
    declared = set(re.findall(r"^[a-z][\w *]*?\*?(ddprun_\w+)\(", (ROOT / "sdk/include/ddprun_worker.h").read_text(encoding="utf-8"), re.M))
    assert len(declared) == 9 and shown == declared
