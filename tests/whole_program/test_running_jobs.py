"""Tests of the commands that query and stop a running job from another shell: ddprun ps, status, top, logs, stop, stacks and
attach."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import termios
import threading

import jobs
import pytest
from job_queries import WAITS, FakeAgent
from jobs import clean_environment
from node_agents import PATIENCE


def test_ps_and_status_show_a_job(waiting, tmp_path):
    job = waiting()
    (row,) = job.query("ps").splitlines()[1:]
    assert re.match(rf"{job.pid} +waits\.py +running +2 +", row), row
    text = job.query("status")
    assert f"waits.py (process {job.pid}): running for " in text and "0 of 0 restarts used" in text
    assert re.search(r"(?m)^RANK +PID +STATE .*\n0 +\d+ +running .* MiB\n1 +\d+ +running .* MiB$", text), text
    status = job.status()
    assert {worker["rank"] for worker in status["workers"]} == {0, 1} and status["kind"] == "script"
    for worker in status["workers"]:
        assert pathlib.Path(f"/proc/{worker['pid']}/environ").read_bytes().count(b"\0RANK=%d\0" % worker["rank"])
    assert job.end() == 0
    assert job.query("ps") == "none of your jobs is running on this machine\n"
    assert "none of your jobs is running on this machine" in job.query("status", code=2)
    assert not list((tmp_path / "runtime" / "ddprun").iterdir())


def test_a_status_for_prometheus(waiting):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    job = waiting()
    text = job.query("status", "--openmetrics")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert text.endswith("# EOF\n") and families["ddprun_restarts"].type == "counter"
    (workers,) = families["ddprun_workers"].samples
    assert workers.value == 2 and workers.labels == {"title": "waits.py", "run_dir": ""}
    assert {sample.labels["rank"]: sample.value for sample in families["ddprun_worker_running"].samples} == {"0": 1, "1": 1}
    assert all(sample.value > 1e6 for sample in families["ddprun_worker_memory_bytes"].samples)
    assert "ddprun_step" not in families and "ddprun_worker_step" not in families  # an unknown value has no line
    assert job.end() == 0


def scrape(port, request=b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(request)
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    return head.decode(), body.decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_prometheus_scrapes_the_agent(waiting, start, tmp_path):
    port = free_port()
    job = waiting("--metrics-port", port)
    head, body = scrape(port)
    assert head.startswith("HTTP/1.1 200 OK\r\n") and "application/openmetrics-text; version=1.0.0" in head
    fetched = re.sub(r"(seconds|memory_bytes)({[^}]*}) .*", r"\1\2", body)
    assert fetched == re.sub(r"(seconds|memory_bytes)({[^}]*}) .*", r"\1\2", job.query("status", "--openmetrics")) and body.endswith("# EOF\n")
    assert scrape(port, b"GET / HTTP/1.1\r\n\r\n")[0].startswith("HTTP/1.1 404 ")
    assert scrape(port, b"POST /metrics HTTP/1.1\r\n\r\n")[0].startswith("HTTP/1.1 405 ")
    with contextlib.suppress(ConnectionError):
        assert scrape(port, b"x" * 5000) == ("", "")
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for client in silent:
        client.close()

    def answers():
        with contextlib.suppress(ConnectionError):
            return scrape(port)[1].endswith("# EOF\n")

    jobs.wait_for(answers, "an answer after the silent ones")
    other = start("--metrics-port", port, "waits.py", READY=str(tmp_path / "other"))
    assert f"--metrics-port {port}: Address already in use; the job runs without a metrics port" in other.until("waits")
    assert other.end() == 0
    assert job.end() == 0


def test_the_metrics_port_answers_despite_silent_connections(waiting):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = waiting("--metrics-port", port)
    with contextlib.ExitStack() as silent:
        for _ in range(200):
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
        assert scrape(port)[0].startswith("HTTP/1.1 200 OK")
    assert job.end() == 0


def test_a_descriptor_shortage_leaves_no_job_unresponsive(waiting, tmp_path):
    """A client connects while the agent cannot open another descriptor. When the agent can open descriptors again, it must
    answer this client."""
    job = waiting()
    path = str(tmp_path / "runtime" / "ddprun" / f"{job.pid}.sock")
    limit = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    numbers = {int(name) for name in os.listdir(f"/proc/{job.pid}/fd")}
    free = next(number for number in range(len(numbers) + 1) if number not in numbers)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (free, limit[1]))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b"status\n")
        assert not select.select([client], [], [], 1)[0]
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, limit)
        assert select.select([client], [], [], PATIENCE)[0]
    assert job.status()["pid"] == job.pid
    assert job.end() == 0


def test_the_metrics_port_answers_after_a_descriptor_shortage(waiting):
    port = free_port()
    job = waiting("--metrics-port", port)
    limit = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    numbers = {int(name) for name in os.listdir(f"/proc/{job.pid}/fd")}
    free = next(number for number in range(len(numbers) + 1) if number not in numbers)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (free, limit[1]))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert not select.select([client], [], [], 1)[0]
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, limit)
        assert select.select([client], [], [], 20)[0]
    assert job.end() == 0


def test_a_job_is_found_without_its_folder(waiting, tmp_path):
    job = waiting()
    folder = tmp_path / "runtime" / "ddprun"
    shutil.rmtree(tmp_path / "runtime")
    assert str(job.pid) in job.query("ps")
    (tmp_path / "runtime").mkdir()
    assert job.status(job.pid)["pid"] == job.pid
    if os.geteuid() == 0:
        folder.mkdir(mode=0o755)
        os.chown(folder, 61008, 61008)
        other = waiting(listens=False)
        jobs.wait_for(lambda: str(other.pid) in job.query("ps"), "the other job")
        assert other.end() == 0
    assert job.query("stop", job.pid).startswith("waits.py has ended: exit code 143: ")
    assert "none of your jobs is running" in job.query("status", code=2)


def test_the_socket_is_private_to_the_user(waiting, tmp_path):
    job = waiting()
    folder = tmp_path / "runtime" / "ddprun"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [entry.name for entry in folder.iterdir()] == [f"{job.pid}.sock"]
    assert job.end() == 0
    # The folder is now accessible to other users. So the agent must not create a socket in it, and the job runs without a
    # socket.
    folder.chmod(0o755)
    other = waiting(listens=False)
    # This job uses a different folder, which its agent accepts. When this job is running, the first agent has already refused
    # its folder.
    later = waiting(XDG_RUNTIME_DIR=str(tmp_path))
    assert not list(folder.iterdir()) and other.end() == 0 and later.end() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_is_not_answered(waiting, tmp_path):
    job = waiting()
    path = tmp_path / "runtime" / "ddprun" / f"{job.pid}.sock"
    for folder in [path.parent, *path.parents]:
        with contextlib.suppress(PermissionError):
            folder.chmod(folder.stat().st_mode | 0o111)
    path.chmod(0o777)
    requests_status = f"import os, socket; os.setuid(65534); s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r}); s.sendall(b'status\\n'); print(len(s.recv(9)))"
    done = subprocess.run([sys.executable, "-c", requests_status], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout == "0\n" or "Reset" in done.stderr or "Broken pipe" in done.stderr, done
    assert job.end() == 0


def test_silent_and_malformed_clients_are_harmless(waiting, tmp_path):
    job = waiting()
    path = str(tmp_path / "runtime" / "ddprun" / f"{job.pid}.sock")
    clients = []
    for text in (b"", b"x" * 8000, b"nonsense\n", *[b"half"] * 20):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)  # connect() blocks if the queue of pending connections is full
        client.settimeout(PATIENCE)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(text)
            if text == b"nonsense\n":
                assert json.loads(client.makefile().readline()) == {"error": "unknown request"}
        clients.append(client)
    for client in clients:
        client.close()
    assert job.status()["state"] == "running"
    assert job.end() == 0


def test_the_job_is_selected_by_name_or_pid(waiting, tmp_path):
    (tmp_path / "other.py").write_text(WAITS)
    first, second = waiting(), waiting("--run-dir", tmp_path / "run", "--quiet", name="other.py")
    for word, job in ((first.pid, first), ("waits.py", first), (tmp_path / "run", second), ("run", second), ("other.py", second)):
        assert first.status(word)["pid"] == job.pid, word
    answer = first.query("status", code=2)
    assert "several jobs run on this machine: select one by its PID or run directory" in answer and "other.py" in answer
    assert "no running job on this machine has the PID, run directory or title 'third'" in first.query("stop", "third", code=2)
    assert first.end() == 0 and second.end() == 0


def test_a_killed_agent_leaves_no_socket(waiting, tmp_path):
    job = waiting()
    job.process.kill()
    job.process.wait()
    assert job.query("ps") == "none of your jobs is running on this machine\n"
    assert not list((tmp_path / "runtime" / "ddprun").iterdir())


@pytest.mark.parametrize("key,code", [(b"q", 0), (b"\x03", -signal.SIGINT)])
def test_top_ends_at_a_key_and_restores_the_terminal(waiting, key, code):
    job = waiting()
    ours, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    with subprocess.Popen([job.bin, "top"], stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, env=clean_environment(**job.variables),
                          preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) as top:
        seen = b""
        while b"running for" not in seen:
            assert select.select([ours], [], [], PATIENCE)[0], seen
            seen += os.read(ours, 65536)
        assert termios.tcgetattr(terminal)[3] & (termios.ICANON | termios.ECHO) == 0
        os.write(ours, b"x" + key)
        assert top.wait(PATIENCE) == code
    assert termios.tcgetattr(terminal) == before
    os.close(ours)
    os.close(terminal)
    assert job.end() == 0


def test_a_suspended_agent_is_reported(waiting):
    job = waiting()
    os.kill(job.pid, signal.SIGSTOP)
    assert re.search(rf"(?m)^{job.pid} +\? +no answer", job.query("ps"))
    assert "does not answer: it may be suspended" in job.query("status", code=2)
    assert "not healthy: the job of process" in job.query("status", "--healthy", code=1)
    os.kill(job.pid, signal.SIGCONT)
    assert job.end() == 0


@pytest.mark.parametrize("state, message", [
    ("running", ""),
    ("restarting", ""),
    ("ending", "ddprun: not healthy: the job ends after a failure: rank 3: exit code 1\\u000adown\n"),
    (None, "ddprun: not healthy: none of your jobs is running on this machine; for a job that has ended, use ddprun report FOLDER or ddprun logs FOLDER\n"),
])
def test_a_probe_of_the_health(ddprun_bin, tmp_path, state, message):
    if state:
        agent = FakeAgent(tmp_path, {"status": {"pid": os.getpid(), "title": "x", "state": state, "last_failure": "rank 3: exit code 1\ndown"}})
        agent.start()
    done = jobs.run([ddprun_bin, "status", "--healthy"], timeout=60, XDG_RUNTIME_DIR=str(tmp_path))
    if state:
        agent.end()
    assert (done.returncode, done.stdout, done.stderr) == (1 if message else 0, "", message)


def test_all_jobs_are_queried_in_parallel(ddprun_bin, tmp_path):
    """Each of two agents answers only after both agents were queried. A client that queried the agents one after the other
    would never receive the first answer."""
    both = threading.Barrier(2)

    def status(title):
        both.wait(PATIENCE)
        return {"pid": os.getpid(), "title": title}

    agents = [FakeAgent(tmp_path, {"status": lambda title=title: status(title)}, pid) for title, pid in (("first", os.getpid()), ("second", os.getppid()))]
    for agent in agents:
        agent.start()
    done = jobs.run([ddprun_bin, "ps"], timeout=60, XDG_RUNTIME_DIR=str(tmp_path))
    both.abort()
    for agent in agents:
        agent.end()
    assert "first" in done.stdout and "second" in done.stdout and "no answer" not in done.stdout, done.stdout


def test_a_job_that_handles_no_signal_is_stopped(waiting, start, tmp_path):
    job = waiting("--signals-to-handle=")
    assert job.query("stop").startswith("waits.py has ended: exit code 143: ")
    assert job.end() == 143
    (tmp_path / "deaf.sh").write_text("trap '' TERM INT\necho waits\nread line\n")
    job = start("--signals-to-handle", "SIGTERM", "--no-python", "sh", "deaf.sh")
    job.until("waits")
    job.until_it_listens()
    assert job.query("stop", "--now").startswith("sh has ended")
    assert job.end() != 0


def test_a_job_runs_without_a_socket_folder(ddprun_bin, tmp_path):
    for place in (tmp_path / "missing", tmp_path / ("long" * 40)):
        done = subprocess.run([ddprun_bin, "--no-python", "echo", "done"], capture_output=True, text=True, timeout=PATIENCE, check=True,
                              env=clean_environment(XDG_RUNTIME_DIR=str(place)))
        assert done.stdout == "done\n" and done.stderr == ""


def test_a_script_is_stopped(waiting):
    job = waiting()
    assert job.query("stop").startswith("waits.py has ended: exit code 143: ")
    assert job.end() == 143


def test_stop_now_ends_a_script_that_ignores_sigterm(start, tmp_path):
    (tmp_path / "deaf.sh").write_text("trap '' TERM INT\necho waits\nread line\n")
    job = start("--no-python", "sh", "deaf.sh")
    job.until("waits")
    job.until_it_listens()
    assert job.query("stop", "--now").startswith("sh has ended")
    assert job.end() != 0


def test_a_stopped_training_saves_and_reports_its_steps(start, tmp_path):
    dataset = jobs.write_small_dataset(tmp_path / "data")
    config = jobs.write_config(tmp_path / "job.json", jobs.config(dataset, epochs=2000))
    job = start("--nproc-per-node", 2, config)
    job.until(r"step \d")
    job.until_it_listens()
    status = job.status()
    assert status["progress"]["step"] > 0 and status["progress"]["steps_total"] == 40000 and status["run_dir"].endswith("/runs/small")
    assert {worker["phase"] for worker in status["workers"]} <= {"running", "evaluating", "saving"}
    assert re.search(r"(?m)^epoch \d.*step [\d,]+/40,000", job.query("status"))
    with subprocess.Popen([job.bin, "top"], stdout=subprocess.PIPE, text=True, env=clean_environment(**job.variables)) as top:
        assert "running for" in top.stdout.readline()
        answer = job.query("stop")
        assert answer.startswith("small has ended: exit code 85: "), answer
        assert top.stdout.read().endswith("the job has ended: " + answer.split("has ended: ")[1])
    assert job.end() == 85
    published = job.query("logs", "runs/small", "--rank", 0)
    assert published == "".join((tmp_path / "runs/small/logs/round-000/rank-00000" / name).read_text() for name in ("stdout.log", "stderr.log"))


def test_logs_are_followed_to_the_end_over_a_restart(start, tmp_path):
    (tmp_path / "job.sh").write_text('echo "first $RANK of $TORCHELASTIC_RESTART_COUNT"; read line; echo "end $RANK" >&2\n'
                                     '[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3\n')
    job = start("--max-restarts", 1, "--nproc-per-node", 2, "--tee", 3, "--log-dir", tmp_path / "logs", "--no-python", "sh", "job.sh")
    job.until(r"(?s)(first.*){2}")
    job.until_it_listens()
    with subprocess.Popen([job.bin, "logs", "-f"], stdout=subprocess.PIPE, text=True, env=clean_environment(**job.variables)) as follower:
        lines = [follower.stdout.readline() for _ in range(2)]
        assert sorted(lines) == ["[rank 0] first 0 of 0\n", "[rank 1] first 1 of 0\n"]
        job.process.stdin.write("\n")
        job.process.stdin.flush()
        job.until(r"(?s)(first \d of 1.*){2}")
        assert job.end() == 0
        rest = follower.stdout.read().splitlines()
    assert {"[rank 0] first 0 of 1", "[rank 1] first 1 of 1", "[rank 0] end 0", "[rank 1] end 1"} <= set(rest), rest
    (folder,) = (tmp_path / "logs").iterdir()
    assert job.query("logs", folder) == "[rank 0] first 0 of 1\n[rank 0] end 0\n[rank 1] first 1 of 1\n[rank 1] end 1\n"
    assert job.query("logs", folder, "--stderr", "--rank", 1) == "end 1\n"
    assert job.query("logs", folder, "--tail", 0) == ""
    (folder / "attempt_1/0/stdout.log").write_text("".join(f"line {number}\n" for number in range(3000)) + "no end")
    assert job.query("logs", folder, "--tail", 3, "--rank", 0) == "line 2998\nline 2999\nno end\nend 0\n"
    assert job.query("logs", folder, "--tail", 5000, "--rank", 0).startswith("line 0\nline 1\n")


def test_logs_without_log_files(waiting):
    job = waiting()
    assert "the job has no log files: to get log files for a script, start it with --tee 3" in job.query("logs", code=2)
    assert "the job has no log files" in job.query("logs", "-f", code=2)
    assert job.end() == 0


@pytest.mark.skipif(not any(shutil.which(tool) for tool in ("py-spy", "eu-stack", "gdb")), reason="needs py-spy, eu-stack or gdb")
def test_stacks_of_the_workers(waiting):
    job = waiting()
    text = job.query("stacks")
    assert re.search(r"(?m)^rank 0, process \d+, by [\w-]+:\n  \S", text) and "rank 1, process" in text, text
    assert "rank 0" not in job.query("stacks", "--rank", 1)
    assert "no worker with rank 7 of the job is running on this machine" in job.query("stacks", "--rank", 7, code=2)
    assert job.end() == 0


def test_attach_starts_the_debugger_on_that_worker(waiting, tmp_path):
    (tmp_path / "tools").mkdir()
    for name in ("gdb", "py-spy"):
        (tmp_path / "tools" / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / "tools" / name).chmod(0o755)
    job = waiting()
    (pid,) = [worker["pid"] for worker in job.status()["workers"] if worker["rank"] == 1]
    job.variables["PATH"] = f"{tmp_path}/tools:{os.environ['PATH']}"
    assert job.query("attach", "--rank", 1) == f"gdb -p {pid}\n"
    assert job.query("attach", "--rank=1", "--py-spy") == f"py-spy top --pid {pid}\n"
    assert "--rank is required" in job.query("attach", code=2)
    assert job.end() == 0


@pytest.mark.parametrize("words, answer", [
    (["status", "a", "b"], "unexpected argument 'b'; usage: ddprun status [JOB | --slurm JOB] [--json|--openmetrics|--healthy] [--here]"),
    (["status", "--healthy", "--json"], "--healthy and --json exclude each other"),
    (["ps", "x"], "unexpected argument 'x'; usage: ddprun ps [--json]"),
    (["logs", "--rank", "first"], "--rank needs a whole number, 0 or more; found 'first'"),
    (["stop", "--later"], "unexpected argument '--later'"),
])
def test_invalid_arguments(ddprun_bin, words, answer):
    done = subprocess.run([ddprun_bin, *words], capture_output=True, text=True, timeout=PATIENCE, check=False, env=clean_environment())
    assert done.returncode == 2 and answer in done.stderr, done.stderr


LOGS_OF_ONE = {"of": 2, "answers": [{"host": "a", "files": True, "first_rank": 0, "ranks": 1, "error": "it keeps no files any more"}]}


@pytest.mark.parametrize("words, nodes, code, answer", [
    (["stop"], None, 2, "does not answer. If it is suspended (Ctrl-Z), run kill -TERM"),
    (["logs"], LOGS_OF_ONE, 1, "ddprun logs: a: it keeps no files any more\n"),
    (["logs", "--rank", "0"], LOGS_OF_ONE, 1, "1 of 2 nodes have not answered in time"),
    (["stacks"], {"of": "2", "answers": [{"host": 7, "stacks": [{"rank": "x", "frames": [1, "f (\x1b[2J)"]}, 5]}, 3]}, 0, "f ("),
    (["stacks"], {"of": 0, "answers": []}, 2, "the other nodes cannot be queried"),
    (["stacks"], {"of": 1, "answers": [{"host": "a", "stacks": []}]}, 2, "no worker of the job is running at the moment"),
    (["stacks", "--rank", "1"], {"of": 1, "answers": [{"host": "a", "stacks": []}]}, 2, "no worker with rank 1 of the job is running at the moment"),
    (["stacks", "--rank", "1"], {"of": 2, "answers": [{"host": "a", "stacks": []}, {"host": "b", "error": "no tool"}]}, 2, "b: no tool\n"),
])
def test_answers_of_other_nodes_are_not_trusted(ddprun_bin, tmp_path, words, nodes, code, answer):
    agent = FakeAgent(tmp_path, {"status": {"pid": os.getpid(), "title": "x", "several_nodes": True}, **({"nodes": nodes} if nodes else {})})
    agent.start()
    done = jobs.run([ddprun_bin, *words], timeout=60, XDG_RUNTIME_DIR=str(tmp_path))
    agent.end()
    assert done.returncode == code and answer in done.stdout + done.stderr and "\x1b" not in done.stdout, (done.returncode, done.stdout, done.stderr)


def test_a_world_writable_socket_folder_is_not_read(ddprun_bin, tmp_path):
    agent = FakeAgent(tmp_path, {"status": {"pid": os.getpid(), "title": "foreign"}})
    agent.start()
    for mode, listed in ((0o777, False), (0o700, True)):
        (tmp_path / "ddprun").chmod(mode)
        done = jobs.run([ddprun_bin, "ps"], timeout=60, XDG_RUNTIME_DIR=str(tmp_path))
        assert ("foreign" in done.stdout) == listed, done.stdout
    agent.end()
