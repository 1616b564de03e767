"""Tests of queries in unusual situations: readers that close their pipe, narrow terminals, jobs that end or stop during the
query, and names that match no job. Each query must return a correct answer in time."""

import contextlib
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading

import jobs
import pytest
from job_queries import FakeAgent
from jobs import clean_environment
from node_agents import PATIENCE
from test_terminals import Terminal

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def many(start):
    """Returns start_many(workers, body), which starts a job whose workers run `body` and then wait for a line on standard
    input. The output of the workers goes to files."""

    def start_many(workers=1, body="echo waits", *options):
        job = start("--nproc-per-node", workers, "--tee", 3, *options, "--no-python", "sh", "-c", f"{body}; read line; echo continues; read line; exit 0")
        job.until_it_listens()
        return job

    return start_many


@contextlib.contextmanager
def following_client(job, *words, within=()):
    with subprocess.Popen([*within, job.bin, *words], stdout=subprocess.PIPE, text=True, cwd=job.folder, env=clean_environment(**job.variables)) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("words", [["top"], ["logs", "-f"]])
def test_a_watcher_ends_with_its_reader(many, words):
    """The reader of a subcommand's output closes the pipe, for example in `ddprun logs -f | head -1`. The subcommand must then
    end."""
    job = many()
    job.until("waits")
    with following_client(job, *words) as watcher:
        assert watcher.stdout.readline()
        watcher.stdout.close()
        assert watcher.wait(PATIENCE) == 0
    assert job.status()["state"] == "running" and job.end() == 0


def test_top_fits_its_terminal(many):
    job = many(20)
    for _ in range(20):
        job.until("waits")
    terminal = Terminal([job.bin, "top"], columns=40, lines=8, XDG_RUNTIME_DIR=str(job.runtime))
    terminal.until(rb"more lines: ddprun status shows all\n")
    lines = terminal.seen.decode().split("\x1b[H\x1b[2J")[1].splitlines()
    assert len(lines) == 7 and max(len(line) for line in lines) == 40, lines
    assert lines[0].startswith(f"sh (process {job.pid}): running for") and re.fullmatch(r"\d\d more lines: ddprun status shows all", lines[-1])
    terminal.resize(300, 60)
    terminal.until(rb"(?m)^19 +\d+ +running")
    assert job.end() == 0
    terminal.until(rb"the job has ended")
    assert terminal.end() == 0


def test_top_marks_outdated_metrics(many):
    job = many()
    with following_client(job, "top") as top:
        assert "running for" in top.stdout.readline()
        os.kill(job.pid, signal.SIGSTOP)
        while f"process {job.pid} does not answer: it may be suspended (Ctrl-Z) or ending" not in (line := top.stdout.readline()):
            assert line
        os.kill(job.pid, signal.SIGCONT)
        assert job.end() == 0
        assert "the job has ended" in top.stdout.read()


EXITS_ON_SIGTERM = """
import json, os, signal, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(f"{sys.argv[1]}/{os.getpid()}.sock")
listener.listen()
print("listens", flush=True)
while True:
    client, _ = listener.accept()
    if client.makefile().readline() != "status\\n":
        os.kill(os.getpid(), signal.SIGKILL)
    client.sendall(json.dumps({"pid": os.getpid(), "title": "brief"}).encode() + b"\\n")
    client.close()
"""


def test_a_stop_of_an_ending_job(ddprun_bin, tmp_path):
    """The job ends while it is being stopped. This is not an error."""
    (tmp_path / "ddprun").mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", EXITS_ON_SIGTERM, tmp_path / "ddprun"], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout.readline() == "listens\n"
        reaper = threading.Thread(target=agent.wait)
        reaper.start()
        done = jobs.run([ddprun_bin, "stop"], timeout=60, XDG_RUNTIME_DIR=str(tmp_path))
        agent.kill()
        reaper.join()
    assert (done.returncode, done.stdout) == (0, "brief has ended\n"), done.stderr


@pytest.mark.parametrize("words, message", [
    (["stop", ""], "JOB is empty; usage: ddprun stop [JOB | --slurm JOB]"),
    (["report", ""], "FOLDER is empty; usage: ddprun report [FOLDER]"),
    (["status", "--json", "--openmetrics"], "--json and --openmetrics exclude each other; usage: ddprun status"),
    (["report", ".", "--json", "--html", "page.html"], "--json cannot be combined with --html or --open: --json prints the report, the other two write a page; usage: ddprun report"),
    (["report", ".", "--open", "--json"], "--json cannot be combined with --html or --open: --json prints the report, the other two write a page; usage: ddprun report"),
])
def test_unknown_and_ambiguous_arguments(many, words, message):
    job = many()
    assert message in job.query(*words, code=2)
    assert job.status()["state"] == "running" and job.end() == 0
    assert not (job.folder / "page.html").exists()


def test_missing_logs(many, tmp_path):
    job = many(3, "echo waits", "--log-dir", tmp_path / "logs")
    job.until("(?s)(waits.*){3}")
    assert "this machine has no log files of rank 7, only of ranks 0, 1, 2" in job.query("logs", "--rank", 7, code=2)
    (folder,) = (tmp_path / "logs").iterdir()
    assert job.end() == 0
    done = jobs.run([job.bin, "logs", "-f", folder, "--rank", 1], **job.variables)
    assert (done.returncode, done.stdout) == (0, "waits\ncontinues\n")
    assert done.stderr == "ddprun logs: -f has no effect, since none of your running jobs on this machine writes to this folder\n"
    assert job.query("logs", tmp_path / "logs", "--rank", 1) == done.stdout
    for file in folder.rglob("stderr.log"):
        file.unlink()
    assert "the job has no log files of standard error: to get log files for a script, start it with" in jobs.run([job.bin, "logs", folder, "--stderr"], **job.variables).stderr


def test_pipe_logs_are_not_waited_for(ddprun_bin, tmp_path):
    done = jobs.run([ddprun_bin, "--standalone", "--run-dir", "run", "--no-python", "echo", "hello"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    logs = list((tmp_path / "run").rglob("*.log"))
    assert logs
    for log in logs:
        log.unlink()
        os.mkfifo(log)
    assert jobs.run([ddprun_bin, "logs", "run", "--tail", "5"], cwd=tmp_path, timeout=30).stdout == ""


def test_a_line_without_newline_is_shown_in_parts(start):
    """A progress bar, for example, prints carriage returns but no newline. ddprun must show an unfinished line in several
    chunks. If it did not, the line would stay in memory until the job ends."""
    job = start("--redirects", 1, "--no-python", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo waits >&2; read line; echo continues")
    job.until("waits")
    job.until_it_listens()
    with following_client(job, "logs", "-f") as follower:
        assert len(follower.stdout.readline()) >= 1 << 20
        assert job.end() == 0
        rest = follower.stdout.read()
    assert "continues" in rest and rest.count("x") < 2_000_000


def test_logs_are_followed_without_inotify(many):
    """`ddprun logs -f` must also work without inotify: other programs of the user, such as editors, may have used up the
    inotify instances that the system allows."""
    without = ["unshare", "--user", "--map-root-user", "sh", "-c", 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"', "sh"]
    if subprocess.run([*without, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a separate user namespace")
    job = many()
    job.until("waits")
    with following_client(job, "logs", "-f", within=without) as follower:
        assert follower.stdout.readline() == "waits\n"
        job.process.stdin.write("\n")
        job.process.stdin.flush()
        assert select.select([follower.stdout], [], [], PATIENCE)[0] and follower.stdout.readline() == "continues\n"
        assert job.end() == 0


def test_a_job_of_a_scheduler_is_seen_from_a_login_shell(start):
    """A login shell must find the socket of a batch job, even if the two have different values of XDG_RUNTIME_DIR: Slurm
    passes the value of another machine, cron sets none, and `su` keeps the value of another user."""
    job = start("--no-python", "cat", XDG_RUNTIME_DIR="/run/user/of-another-machine")
    socket = pathlib.Path(f"/tmp/ddprun-{os.geteuid()}/{job.pid}.sock")
    jobs.wait_for(socket.exists, "the job's socket")
    for variables in ({"XDG_RUNTIME_DIR": ""}, {"XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"}, job.variables):
        done = jobs.run([job.bin, "status", job.pid, "--json"], **variables)
        assert done.returncode == 0 and json.loads(done.stdout)["pid"] == job.pid, done.stderr
    assert job.end() == 0 and not socket.exists()


def test_agents_with_equal_pids_in_two_containers_are_both_listed(ddprun_bin, tmp_path):
    """Two containers share /tmp but have separate PID namespaces, so both agents have PID 1. In the test's PID namespace the
    agents have different PIDs. Inside a container, the agent of the other container has no PID."""
    apart = ["unshare", "--user", "--map-root-user", "--fork", "--kill-child", "--pid", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs separate namespaces of users and process IDs")
    folder = tmp_path / "ddprun"
    variables = {"XDG_RUNTIME_DIR": str(tmp_path)}

    def names():
        return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []

    def running(*within):
        listed = jobs.run([*within, ddprun_bin, "ps"], **variables)
        assert listed.returncode == 0, listed.stderr
        return re.findall(r"(?m)^(\d+) +cat +running", listed.stdout)

    with contextlib.ExitStack() as ends:
        both = []
        for expected in (["1.sock"], ["1.1.sock", "1.sock"]):
            job = ends.enter_context(subprocess.Popen([*apart, ddprun_bin, "--no-python", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                                      stderr=subprocess.DEVNULL, cwd=tmp_path, env=clean_environment(**variables)))
            ends.callback(job.kill)
            both.append(job)
            jobs.wait_for(lambda: names() == expected, f"{expected}")  # noqa: B023: it is called immediately
        jobs.wait_for(lambda: len(running()) == 2, "both jobs")
        pids = running()
        assert {pathlib.Path(f"/proc/{pid}/comm").read_text() for pid in pids} == {"ddprun\n"} and "1" not in pids
        assert running(*apart) == []
        # In the PID namespace of the test, the PIDs of the workers belong to other processes, so these commands must be
        # refused.
        for words in (["attach", pids[0], "--rank", "0"], ["stacks", pids[0], "--here"]):
            refused = jobs.run([ddprun_bin, *words], **variables)
            assert refused.returncode == 2 and "in a container with its own process ids" in refused.stderr, refused.stderr
        stopped = jobs.run([ddprun_bin, "stop", pids[0]], timeout=60, **variables)
        assert stopped.returncode == 0 and "cat has ended" in stopped.stdout, stopped.stderr
        assert running() == pids[1:] and len(names()) == 1
        for job in both:
            job.communicate(timeout=PATIENCE)
        assert sorted(job.returncode for job in both) == [0, 143] and names() == []


def test_an_agent_waits_while_another_chooses_a_socket_name(ddprun_bin, tmp_path):
    folder = tmp_path / "ddprun"
    folder.mkdir(mode=0o700)
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with subprocess.Popen([ddprun_bin, "--no-python", "sh", "-c", "sleep 0.5; echo up; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          cwd=tmp_path, env=clean_environment(XDG_RUNTIME_DIR=str(tmp_path))) as job:
        assert job.stdout.readline() and list(folder.iterdir()) == []
        os.close(held)
        jobs.wait_for((folder / f"{job.pid}.sock").exists, "the job's socket")
        job.communicate(timeout=PATIENCE)


def test_an_agent_does_not_wait_at_an_unanswered_socket(ddprun_bin, tmp_path):
    """A socket with the agent's name exists. It belongs to an agent with the same PID in another container. That agent is
    suspended, and the queue of pending connections at its socket is full."""
    folder = tmp_path / "ddprun"
    folder.mkdir(mode=0o700)
    with contextlib.ExitStack() as ends:
        job = ends.enter_context(subprocess.Popen(["sh", "-c", 'read line; exec "$0" --no-python sleep 0.5', ddprun_bin], stdin=subprocess.PIPE,
                                                  cwd=tmp_path, env=clean_environment(XDG_RUNTIME_DIR=str(tmp_path))))
        ends.callback(job.kill)
        listener = ends.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(folder / f"{job.pid}.sock"))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = ends.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(folder / f"{job.pid}.sock"))
        job.communicate(b"go\n", timeout=PATIENCE)
        assert job.returncode == 0


def test_a_job_runs_with_a_too_long_socket_name(ddprun_bin, tmp_path):
    deep = tmp_path / ("deep" * 30)
    deep.mkdir(mode=0o700)
    done = jobs.run([ddprun_bin, "--no-python", "sleep", "0.3"], XDG_RUNTIME_DIR=str(deep))
    assert done.returncode == 0 and not list((deep / "ddprun").iterdir()), done.stderr


def test_a_job_is_found_with_a_too_long_socket_name(ddprun_bin, tmp_path):
    deep = tmp_path / ("deep" * 30)
    deep.mkdir(mode=0o700)
    with subprocess.Popen([ddprun_bin, "--no-python", "cat"], stdin=subprocess.PIPE, cwd=tmp_path, env=clean_environment(XDG_RUNTIME_DIR=str(deep))) as job:
        try:
            jobs.wait_for(lambda: str(job.pid) in jobs.run([ddprun_bin, "ps"], XDG_RUNTIME_DIR=str(deep)).stdout, "the job", 20)
        finally:
            job.communicate(timeout=PATIENCE)


def test_a_job_is_selected_by_any_folder_name(many, tmp_path):
    job = many(1, "echo waits", "--run-dir", tmp_path / "two\nlines and \x1b[31mred")
    other = many()
    for words in (["status"], ["logs"]):
        done = jobs.run([job.bin, *words, tmp_path / "two\nlines and \x1b[31mred"], **job.variables)
        assert done.returncode == 0, done.stderr
    assert "\x1b" not in job.query("ps") and "\x1b" not in job.query("status", job.pid)
    assert job.query("stop", job.pid).startswith("sh has ended: ")
    assert other.end() == 0


def test_report_quotes_are_safe_for_a_terminal(ddprun_bin, tmp_path):
    (tmp_path / "report.json").write_text(json.dumps({"version": 1, "title": "clears \x1b[2J", "rounds": [
        {"round": 0, "started_ns": 1, "first_cause": {"rank": 0, "cause": "signal", "stderr_tail": ["\ta bell \a"]}}]}))
    done = jobs.run([ddprun_bin, "report", tmp_path])
    assert done.returncode == 0 and "clears \\u001b[2J" in done.stdout and "| \ta bell \\u0007" in done.stdout, done.stdout + done.stderr


def test_the_node_exporter_recipe_omits_ended_jobs(many, tmp_path):
    [recipe] = [text for text in re.findall(r"(?ms)^```sh\n(.*?)^```$", (DOCS / "watching.md").read_text(encoding="utf-8")) if "$f.prom" in text]
    recipe = recipe.replace("/var/lib/node_exporter", str(tmp_path))
    job = many()
    recipe = recipe.replace("ddprun ", f"{job.bin} ")

    def by_cron():
        subprocess.run(["sh", "-c", recipe], env=clean_environment(**job.variables), cwd=tmp_path, check=False, timeout=PATIENCE, capture_output=True)

    by_cron()
    assert 'state="running"' in (tmp_path / "clothes.prom").read_text()
    assert job.end() == 0
    by_cron()
    assert not list(tmp_path.glob("*.prom"))


@pytest.mark.parametrize("words", [["report", "run", "--html"], ["plot", "run", "--output"]])
def test_a_page_or_plot_may_go_to_stdout(ddprun_bin, tmp_path, words):
    """The output file is a link to /dev/stdout. A write with a rename would replace this link. For root, it would even replace
    /dev/stdout itself."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/report.json").write_text('{"version": 1, "title": "here", "rounds": []}')
    (tmp_path / "run/metrics.jsonl").write_text('{"event":"step","step":1,"loss":5}\n')
    (tmp_path / "out").symlink_to("/dev/stdout")
    done = jobs.run([ddprun_bin, *words, "out"], cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("<") and done.stdout.endswith(("</html>\n", "</svg>\n")), done.stderr
    assert (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("used, message", [(2, "2 of 3 restarts used\n"), (7, ", 7 restarts used\n")])
def test_status_with_more_restarts_than_the_budget(ddprun_bin, tmp_path, used, message):
    """Progress resets the restart budget (--max-restarts), so a job may have used more restarts than the budget in total."""
    agent = FakeAgent(tmp_path, {"status": {"pid": os.getpid(), "title": "long", "restart_count": used, "max_restarts": 3}})
    agent.start()
    done = jobs.run([ddprun_bin, "status"], timeout=60, XDG_RUNTIME_DIR=str(tmp_path))
    agent.end()
    assert message in done.stdout, done.stdout + done.stderr
