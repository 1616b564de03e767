"""Tests of pseudo-terminals. If ddprun writes to a terminal, the workers of a script must get terminals, too. Programs then
print the same colors, progress bars and widths as without ddprun."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time

import pytest
from jobs import clean_environment
from node_agents import PATIENCE

PRINTS_ITS_STREAMS = """
import os
def kind(fd):
    return f"{os.get_terminal_size(fd).columns}x{os.get_terminal_size(fd).lines}" if os.isatty(fd) else "none"
print(f"out {kind(1)} err {kind(2)}")
"""


class Terminal:
    """A job whose standard output and error are a terminal of the given size. Its standard input is /dev/null or also the
    terminal."""

    def __init__(self, command, columns=100, lines=30, has_input=False, **variables):
        self.seen = b""
        self.fd, side = pty.openpty()
        settings = termios.tcgetattr(side)
        settings[1] &= ~termios.OPOST  # the terminal does not translate "\n"
        termios.tcsetattr(side, termios.TCSANOW, settings)
        self.resize(columns, lines)

        def lead():
            os.setsid()
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([str(word) for word in command], stdin=side if has_input else subprocess.DEVNULL, stdout=side, stderr=side,
                                        preexec_fn=lead, env=clean_environment(PYTHON_EXEC=sys.executable, **variables))
        os.close(side)

    def resize(self, columns, lines):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        try:
            return os.read(self.fd, 65536)
        except OSError:  # all processes have closed the terminal
            return b""

    def until(self, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.seen):
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], self.seen
            piece = self.read()
            assert piece, self.seen
            self.seen += piece

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        while piece := self.read():
            self.seen += piece
        os.close(self.fd)
        return self.process.wait(timeout=PATIENCE)


@pytest.fixture
def script(tmp_path):
    def write(text):
        (tmp_path / "job.py").write_text(text)
        return tmp_path / "job.py"

    return write


def test_workers_have_a_terminal_of_the_same_size(ddprun_bin, script):
    terminal = Terminal([ddprun_bin, "--standalone", "--nproc-per-node", 2, script(PRINTS_ITS_STREAMS)])
    assert terminal.end() == 0
    assert terminal.seen.count(b"out 100x30 err 100x30\n") == 2, terminal.seen


@pytest.mark.parametrize("options, expected", [
    (["--no-pty"], b"out none err none"),
    (["-t", "3"], b"out none err none"),
    (["-t", "1"], b"out none err 100x30"),
    (["-r", "2"], b"out 100x30 err none"),
    (["--json"], b"out none err none"),
])
def test_no_terminal_if_output_is_also_redirected(ddprun_bin, tmp_path, script, options, expected):
    terminal = Terminal([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", *options, script(PRINTS_ITS_STREAMS)])
    assert terminal.end() == 0, terminal.seen
    assert expected in terminal.seen, terminal.seen


def test_only_terminal_streams_become_terminals(ddprun_bin, tmp_path, script):
    with open(tmp_path / "out", "wb") as out:
        terminal = Terminal(["/bin/sh", "-c", f'exec "$@" > {tmp_path}/out', "sh", ddprun_bin, "--standalone", script(PRINTS_ITS_STREAMS)])
        assert terminal.end() == 0, terminal.seen
    assert (tmp_path / "out").read_text() == "out none err 100x30\n"


def test_no_pty_applies_to_scripts_only(ddprun_bin, script):
    done = subprocess.run([ddprun_bin, "--standalone", "--no-pty", "--dry-run", script(PRINTS_ITS_STREAMS)], capture_output=True, text=True, check=True,
                          env=clean_environment(PYTHON_EXEC=sys.executable))
    assert re.search(r"no_pty\s+1\s+\(flag --no-pty\)", done.stdout), done.stdout


def test_a_new_size_reaches_the_workers(ddprun_bin, script):
    job = script("""
import os, signal
changed = lambda *_: os.get_terminal_size(1).columns == 77 and (print("now", os.get_terminal_size(1), os.get_terminal_size(2)), os._exit(0))
signal.signal(signal.SIGWINCH, changed)
print("ready")
while True:
    signal.pause()
""")
    terminal = Terminal([ddprun_bin, "--standalone", "--nproc-per-node", 2, job])
    terminal.until(rb"ready\n(?s:.*)ready\n")
    terminal.resize(77, 20)
    assert terminal.end() == 0, terminal.seen
    assert terminal.seen.count(b"now os.terminal_size(columns=77, lines=20) os.terminal_size(columns=77, lines=20)\n") == 2, terminal.seen


def test_bytes_of_a_single_worker_pass_unchanged(ddprun_bin, script):
    """The bytes of each stream keep their order, and ddprun does not insert newlines."""
    job = script(r"""
import os
os.write(1, b"\x1b[2Ka\rbc")
os.write(1, b"\xff\x00|")
os.write(2, b"\x1b[31mred")
""")
    terminal = Terminal([ddprun_bin, "--standalone", job])
    assert terminal.end() == 0
    assert terminal.seen in (b"\x1b[2Ka\rbc\xff\x00|\x1b[31mred", b"\x1b[31mred\x1b[2Ka\rbc\xff\x00|"), terminal.seen


def test_a_prompt_echoes_input(ddprun_bin, script):
    """Python uses readline if standard input and output are terminals. Readline in the worker then echoes each key."""
    job = script("import readline\nprint('got', input('name? '))\n")
    terminal = Terminal([ddprun_bin, "--standalone", "--log-dir", "/dev/null", job], has_input=True, TERM="dumb")
    terminal.until(rb"name\? ")
    for typed in (b"s", b"o", b"me"):
        terminal.type(typed)
        terminal.until(typed)
    terminal.type(b"\r")
    assert terminal.end() == 0, terminal.seen
    assert b"got some\n" in terminal.seen, terminal.seen


def test_the_cause_has_no_color_codes(ddprun_bin, tmp_path, script):
    """Python 3.13 colors tracebacks on a terminal, and the reported cause must not contain the color codes. The script of this
    test prints color codes itself, so the test works with each Python version."""
    job = script(r"""
import os, sys
if os.environ["RANK"] == "0":
    sys.stderr.write("Traceback (most recent call last):\n")
    sys.stderr.write('  File \x1b[35m"job.py"\x1b[0m, line \x1b[35m1\x1b[0m, in \x1b[35m<module>\x1b[0m\n')
    sys.stderr.write("\x1b[1;35mValueError\x1b[0m: \x1b[35mno such layer\x1b[0m\nwandb: synced\n")
    os._exit(3)
sys.stdin.read() or __import__("signal").pause()
""")
    terminal = Terminal([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--log-dir", tmp_path / "logs", job])
    assert terminal.end() == 3
    assert re.search(rb"rank 0[^\n]*ValueError: no such layer", terminal.seen), terminal.seen
    (report,) = (tmp_path / "logs").glob("*/report.json")
    assert "\\u001b" not in report.read_text() and "ValueError: no such layer" in report.read_text()


def test_the_last_output_of_a_dying_worker_is_shown(ddprun_bin, script):
    job = script("import os, signal\nos.write(2, b'x' * 3000 + b'the end\\n')\nos.kill(os.getpid(), signal.SIGKILL)\n")
    terminal = Terminal([ddprun_bin, "--standalone", "--nproc-per-node", 2, "--log-dir", "/dev/null", job])
    assert terminal.end() == 137
    assert b"the end\n" in terminal.seen, terminal.seen


def test_more_output_than_the_terminal_buffers(ddprun_bin, script):
    """The reader is slow, and no log file contains the output. No output may be lost."""
    job = script("import os\nfor i in range(20000): print(os.environ['RANK'], i, 'x' * 80)\n")
    terminal = Terminal([ddprun_bin, "--standalone", "--nproc-per-node", 2, job])
    terminal.until(rb"x")
    assert terminal.end() == 0
    for rank in (0, 1):
        assert [int(line.split()[1]) for line in terminal.seen.splitlines() if line.startswith(b"%d " % rank)] == list(range(20000))


def test_without_free_terminals_workers_get_pipes(ddprun_bin, script):
    """In a container without /dev/pts no terminals can be created. The test hides /dev/pts under another mount. Only the mount
    of /dev/pts is made private, because in a chroot the propagation of other mounts cannot be changed."""
    job = script(PRINTS_ITS_STREAMS)
    hidden = ["unshare", "-m", "--propagation", "unchanged", "sh", "-c", 'mount --make-private /dev/pts && mount -t tmpfs none /dev/pts && exec "$@"', "sh"]
    if os.geteuid() != 0 or not shutil.which("unshare") or subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot hide /dev/pts on this machine: it needs root and a private mount")
    terminal = Terminal([*hidden, ddprun_bin, "--standalone", job])
    assert terminal.end() == 0, terminal.seen
    assert b"out none err none\n" in terminal.seen, terminal.seen
