"""Tests of the workers' standard input. As under torchrun, users must be able to type commands for a debugger in a script, and
to pipe data into a script."""

import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import time

import pytest
from jobs import clean_environment
from node_agents import PATIENCE


def start(command, stdin, cwd, **more):
    return subprocess.run([str(word) for word in command], stdin=stdin, capture_output=True, text=True, timeout=PATIENCE, cwd=cwd, check=False,
                          env=clean_environment(**more))


def shell(ddprun_bin, script, *options):
    return [ddprun_bin, "--standalone", *options, "--no-python", "sh", "-c", script]


def test_a_file_and_a_pipe_reach_the_worker_unchanged(ddprun_bin, tmp_path):
    text = "".join(f"line {number}\n" for number in range(20000))
    (tmp_path / "input").write_text(text)
    with open(tmp_path / "input") as file:
        assert start(shell(ddprun_bin, "readlink /proc/self/fd/0; cat"), file, tmp_path).stdout == f"{tmp_path}/input\n{text}"
    with subprocess.Popen(["cat", tmp_path / "input"], stdout=subprocess.PIPE) as feeder:
        assert start(shell(ddprun_bin, "cat"), feeder.stdout, tmp_path).stdout == text


def test_a_debugger_takes_its_commands_from_a_pipe(ddprun_bin, tmp_path):
    (tmp_path / "job.py").write_text("x = 41\nbreakpoint()\nprint('answer', input())\n")
    (tmp_path / "typed").write_text("p x + 1\nc\nof a user\n")
    with open(tmp_path / "typed") as typed:
        done = start([ddprun_bin, "--standalone", "job.py"], typed, tmp_path, PYTHON_EXEC=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "(Pdb) 42\n" in done.stdout and done.stdout.endswith("answer of a user\n")


def test_all_workers_of_a_node_share_a_file_as_under_torchrun(ddprun_bin, tmp_path):
    (tmp_path / "input").write_text("x\n")
    with open(tmp_path / "input") as file:
        done = start(shell(ddprun_bin, "readlink /proc/self/fd/0", "--nproc-per-node", 3), file, tmp_path)
    assert done.stdout == f"{tmp_path}/input\n" * 3


def test_a_restart_reports_consumed_input(ddprun_bin, tmp_path):
    (tmp_path / "input").write_text("first\nsecond\nthird\n")
    script = "read line; echo got $line; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"
    with open(tmp_path / "input") as file:
        done = start(shell(ddprun_bin, script, "--max-restarts", 1, "--log-dir", "logs"), file, tmp_path)
    assert done.stdout == "got first\ngot second\n", done.stderr
    assert done.stderr.count("ddprun: 6 bytes of standard input were read before this restart: the restarted workers receive only the bytes after them\n") == 1
    (report,) = (tmp_path / "logs").glob("*/report.json")
    assert json.loads(report.read_text())["invocations"][0]["input_was_read"].startswith("6 bytes")
    with subprocess.Popen(["printf", r"first\nsecond\n"], stdout=subprocess.PIPE) as feeder:
        done = start(shell(ddprun_bin, script, "--max-restarts", 1, "--json"), feeder.stdout, tmp_path)
    assert [json.loads(line)["message"] for line in done.stdout.splitlines() if '"input_was_read"' in line] == [
        "a part of standard input was read before this restart: the restarted workers receive only the remaining part"], done.stdout
    assert "before this restart" not in start(shell(ddprun_bin, script, "--max-restarts", 1), subprocess.DEVNULL, tmp_path).stderr


class Terminal:
    """A job that runs in the foreground of a new terminal."""

    def __init__(self, command):
        self.seen = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], [str(word) for word in command], clean_environment(PYTHON_EXEC=sys.executable, TERM="dumb"))

    def until(self, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.seen):
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], self.seen
            try:
                piece = os.read(self.fd, 4096)
            except OSError:  # the last process that had the terminal open has exited
                piece = b""
            assert piece, self.seen
            self.seen += piece.decode(errors="replace")

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        while True:
            try:
                piece = os.read(self.fd, 4096)
            except OSError:
                break
            if not piece:
                break
            self.seen += piece.decode(errors="replace")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_terminal_goes_to_a_single_worker(ddprun_bin, tmp_path):
    (tmp_path / "job.py").write_text("name = input('name? ')\nbreakpoint()\nprint('hello', name)\n")
    terminal = Terminal([str(ddprun_bin), "--standalone", "--log-dir", "/dev/null", str(tmp_path / "job.py")])
    terminal.until(r"name\? ")
    terminal.type("Ada\n")
    terminal.until(r"\(Pdb\) ")
    terminal.type("p name * 2\n")
    terminal.until("'AdaAda'")
    terminal.type("c\n")
    assert terminal.end() == 0, terminal.seen
    assert "hello Ada" in terminal.seen and "/dev/null" not in terminal.seen


NO_INPUT_REASON = "the workers' standard input is /dev/null: only a single worker (--nproc-per-node 1) in the foreground gets the terminal"


def test_several_workers_do_not_get_the_terminal(ddprun_bin):
    """If there are several workers, no worker gets the terminal as standard input. Few scripts read standard input, so ddprun
    prints the reason only with -v, or if a script fails for this reason."""
    for more, count in ((), 0), (("-v",), 1):
        terminal = Terminal([str(word) for word in shell(ddprun_bin, "readlink /proc/self/fd/0", "--nproc-per-node", 2, *more)])
        assert terminal.end() == 0
        assert terminal.seen.count("\n/dev/null") + terminal.seen.startswith("/dev/null") == 2, terminal.seen
        assert terminal.seen.count(NO_INPUT_REASON) == count, terminal.seen


def test_several_workers_reading_the_terminal_get_a_reason(ddprun_bin, tmp_path):
    (tmp_path / "job.py").write_text("input('name? ')\n")
    terminal = Terminal([str(ddprun_bin), "--standalone", "--nproc-per-node", "2", "--log-dir", "/dev/null", str(tmp_path / "job.py")])
    assert terminal.end() == 1
    assert "EOFError" in terminal.seen and terminal.seen.count(NO_INPUT_REASON) == 1, terminal.seen


def test_a_terminal_is_restored(ddprun_bin, tmp_path):
    """A worker turns off the echo of the terminal and is then killed. ddprun must restore the terminal's settings."""
    terminal = Terminal(["/bin/sh", "-c", " ".join(["stty -a > before;", str(ddprun_bin), "--standalone", "--log-dir", "/dev/null", "--no-python", "sh", "-c",
                                                    "'stty -echo -icanon; kill -9 $$';", "stty -a"]).replace("before", str(tmp_path / "before"))])
    terminal.end()
    assert " -echo " not in (tmp_path / "before").read_text()
    assert " icanon" in terminal.seen and " -icanon" not in terminal.seen, terminal.seen


def state(pid: str) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def until_stopped(pid: str) -> None:
    """Waits until the process has stopped. The shell may be notified before the process has actually stopped, especially on a
    busy machine."""
    deadline = time.monotonic() + 30
    while state(pid) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state(pid) == "T"


@pytest.mark.parametrize("caller", ["", "env --ignore-signal=TTIN "])
def test_ctrl_z_stops_the_foreground_worker_and_fg_continues(ddprun_bin, tmp_path, caller):
    """`set -m` makes bash behave like an interactive shell: each job gets a process group, and the foreground job gets the
    terminal. In one case the caller of ddprun ignores SIGTTIN."""
    # ddprun expands the macros of torchrun in the arguments of a script, so $$$$ becomes $$
    worker = "echo pid $$$$ end; while read line; do echo worker has $line; [ $line = last ] && exit 0; done"
    job = f"{caller}{ddprun_bin} --standalone --log-dir /dev/null --no-python sh -c '{worker}'"
    terminal = Terminal(["/bin/bash", "-c", f"set -m; {job}; echo stopped with $?; read line; echo shell has $line; bg; "
                         "until jobs | grep -i stopped; do sleep 0.05; done; echo again; read line; echo shell has $line; fg"])
    terminal.until("pid (\\d+) end")
    pid = re.search(r"pid (\d+) end", terminal.seen)[1]
    terminal.type("one\n")
    terminal.until("worker has one")
    terminal.type("\x1a")
    terminal.until("stopped with 148")
    until_stopped(pid)
    terminal.type("two\n")
    terminal.until("shell has two")
    terminal.until("again")  # a background process that reads from the terminal is stopped again
    terminal.type("three\n")
    terminal.until("shell has three")
    terminal.type("four\n")
    terminal.until("worker has four")
    terminal.type("last\n")
    assert terminal.end() == 0, terminal.seen
    assert re.findall(r"worker has (\w+)", terminal.seen) == ["one", "four", "last"], terminal.seen


@pytest.mark.needs_torch_python
def test_torchrun_does_the_same_with_a_file(tmp_path):
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    (tmp_path / "input").write_text("x\n")
    (tmp_path / "job.py").write_text("import os\nprint(os.readlink('/proc/self/fd/0'))\n")
    with open(tmp_path / "input") as file:
        done = start([torchrun, "--standalone", "--nproc-per-node", 2, "job.py"], file, tmp_path)
    # The output lines of the two workers can be interleaved.
    assert done.stdout.count(f"{tmp_path}/input") == 2, done.stdout + done.stderr
