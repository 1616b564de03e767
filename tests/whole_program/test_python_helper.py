"""Tests of `import ddprun` in a script.

The script's reports must appear on the console and in the job's report, and must affect the decisions about restarts. All ranks
must save and stop at the same step. In three cases the calls must have no effect: outside a job, with an agent of a different
protocol version, and in a child process of a worker."""

import contextlib
import importlib.util
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
LAUNCH = ["--standalone", "--log-dir", "logs"]


@pytest.fixture
def job(ddprun_bin, run, tmp_path):
    """Returns job(body, *options), which runs a script under ddprun until it ends."""

    def go(body: str, *options: str, **env: str) -> subprocess.CompletedProcess:
        (tmp_path / "train.py").write_text("import ddprun, os, sys\n" + body)
        return run([ddprun_bin, *LAUNCH, *options, "train.py"], **{**ENV, **env})

    return go


def report_in(folder: pathlib.Path) -> dict:
    (report,) = (folder / "logs").glob("*/report.json")
    return json.loads(report.read_text())


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


# ---- what the script reports ----


def test_progress_and_checkpoints_are_reported(job, tmp_path):
    done = job("for n in range(1, 31):\n    ddprun.step(n, loss=1 / n, samples=8, total=30, epoch=0, epochs=1, accuracy=lambda: 0.5)\n"
               "if ddprun.rank == 0:\n    open('model.pt', 'wb').write(b'x' * 1000)\n    ddprun.saved('model.pt', seconds=0.25)\n", "-v", "--nproc-per-node", "2")
    assert done.returncode == 0, done.stderr
    first, *_, last = lines_of(done.stderr, "ddprun: epoch 1/1  step ")
    assert first == "ddprun: epoch 1/1  step 1/30  loss 1.0000  accuracy 0.5"
    assert last.startswith("ddprun: epoch 1/1  step 30/30  loss 0.0333  accuracy 0.5")
    assert f"ddprun: checkpoint of step 30 (0.0 MB, training paused for 250 ms): {tmp_path}/model.pt\n" in done.stderr
    report = report_in(tmp_path)
    assert report["last_step"] == 30
    assert report["checkpoints"]["latest"] == {"step": 30, "path": f"{tmp_path}/model.pt", "bytes": 1000, "save_s": 0.25}
    (round_,) = report["rounds"]
    assert round_["from_step"] == 0 and round_["reached_step"] == 30


def test_the_last_step_is_always_sent(job, tmp_path):
    """The script runs a thousand steps without a pause. The agent receives reports of only a few steps, but always receives a
    report of the last step, which is sent when Python exits."""
    done = job("for n in range(1, 1001):\n    ddprun.step(n)\nraise ValueError('no more')\n", "--json")
    assert done.returncode == 1
    steps = [event["step"] for line in done.stdout.splitlines() if (event := json.loads(line))["event"] == "progress"]
    assert steps[0] == 1 and steps[-1] == 1000 and len(steps) < 100
    assert report_in(tmp_path)["rounds"][0]["first_cause"]["step"] == 1000


def test_only_reported_steps_show_a_progress_bar(ddprun_bin, tmp_path):
    for body, bar in (("ddprun.step(5, total=10)", True), ("pass", False)):
        (tmp_path / "train.py").write_text(f"import ddprun\n{body}\n")
        ours, theirs = pty.openpty()
        with subprocess.Popen([ddprun_bin, *LAUNCH, "train.py"], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=tmp_path,
                              env=jobs.clean_environment(**ENV)) as process:
            os.close(theirs)
            text = b""
            with contextlib.suppress(OSError):  # at the end of the terminal's output, the read fails with EIO
                while part := os.read(ours, 4096):
                    text += part
            assert process.wait() == 0
        os.close(ours)
        assert (re.search(rb"\[#+\.+\]  step 5/10", text) is not None) == bar and (b"\x1b[K" in text) == bar, text


def test_a_restarted_script_gets_the_cause(job):
    done = job("print('cause', ddprun.restart, ddprun.cause, ddprun.rank, ddprun.local_rank, ddprun.world_size, flush=True)\n"
               "if ddprun.restart == 0:\n    ddprun.error('oom', 'Tried to allocate 2.00 GiB')\n    os._exit(3)\n", "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout, "cause") == ["cause 0 None 0 0 1", "cause 1 out_of_memory 0 0 1"]
    assert ") failed: exit code 3: Tried to allocate 2.00 GiB\n" in done.stderr


@pytest.mark.parametrize(("kind", "cause", "why", "starts"), [
    ("data", "usage", "no restart after a usage error", 1),
    ("diverged", "diverged", "no restart after divergence: the run would diverge again", 1),
    ("cosmic", "exception", "budget of 1 restart spent", 2),
])
def test_typed_errors_decide_about_a_restart(job, tmp_path, kind, cause, why, starts):
    done = job(f"ddprun.step(7 + ddprun.restart)\nddprun.error('{kind}', 'shard 3')\nraise ValueError('another text')\n", "--max-restarts", "1")
    assert done.returncode == 1 and why in done.stderr, done.stderr
    report = report_in(tmp_path)
    assert len(report["rounds"]) == starts
    found = report["rounds"][0]["first_cause"]
    assert (found["cause"], found["step"]) == (cause, 7)
    assert found["message"] == ("cosmic: shard 3" if kind == "cosmic" else "shard 3")


def test_a_data_error_ends_the_job(job, tmp_path):
    """Rank 1 reports an error in its data. In the first case rank 0 has already called should_save(). In the second case the
    script has reported a step before an earlier restart."""
    os.mkfifo(tmp_path / "begun")
    for body in ("if ddprun.rank == 0: ddprun.should_save()\n", "if ddprun.restart == 0:\n    ddprun.step(1)\n    os._exit(3)\n"):
        done = job("import signal\n" + body + "if ddprun.rank == 0:\n    open('begun', 'w').close()\n    signal.pause()\nopen('begun').read()\n"
                   "print('no data', ddprun.restart, flush=True)\nddprun.error('data', 'no such dataset')\nsys.exit(1)\n",
                   "--nproc-per-node", "2", "--max-restarts", "3")
        assert done.returncode == 1 and "no restart after a usage error" in done.stderr, done.stderr
        assert len(lines_of(done.stdout, "no data")) == 1


def test_two_failures_at_one_reported_step_end_the_job(job):
    done = job("ddprun.step(12)\nraise ValueError('again')\n", "--max-restarts", "9")
    assert done.returncode == 83 and "the same failure at step 12 in two rounds without progress" in done.stderr
    # A checkpoint between two failures counts as progress, so the second failure must not count as a repetition of the first.
    done = job("ddprun.step(12)\nddprun.saved(ddprun.restart)\nraise ValueError('again')\n", "--max-restarts", "2")
    assert done.returncode == 1 and "budget of 2 restarts spent" in done.stderr, done.stderr


def test_decreasing_steps_are_reported_once(job):
    done = job("for n in (5, 4, 3, 6):\n    ddprun.step(n)\n")
    assert done.returncode == 0
    assert lines_of(done.stderr, "ddprun: rank 0: step() went back") == \
        ["ddprun: rank 0: step() went back from 5 to 4; perhaps an older state was loaded"]


def test_an_invalid_metric_is_reported_once_and_ignored(job, tmp_path):
    """After an invalid metric the script must continue. Outside a job no message is printed."""
    body = ("for n in (1, 2):\n    ddprun.step(n, total=-1, epoch=float('nan'), epochs='many', samples=1.5)\n"
            "ddprun.step(29, samples=32.0)\nddprun.step(30, total=30.0, epoch=True, epochs=2)\nddprun.saved(30, seconds='long')\nprint('at the end')\n")
    done = job(body, "-v")
    assert (done.returncode, done.stdout) == (0, "at the end\n"), done.stderr
    ignored = lines_of(done.stderr, "ddprun: rank 0: ")
    assert [line.split(" ")[3] for line in ignored] == ["step(samples=...)", "step(total=...)", "step(epoch=...)", "step(epochs=...)", "saved(seconds=...)"], ignored
    assert ignored[0] == "ddprun: rank 0: step(samples=...) is ignored: expected a whole number, 0 or more: found 1.5"
    assert lines_of(done.stderr, "ddprun: epoch 2/2  step 30/30"), done.stderr
    done = jobs.run([sys.executable, "train.py"], **ENV, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "at the end\n", "")


# ---- saving and stopping ----

# A script whose steps take longer on rank 1 than on rank 0. If $TOGETHER is set, the ranks wait for each other in each step, as
# in an all-reduce.
SAVING = """
import socket, time
together, other = os.environ.get("TOGETHER"), None
if together:
    if ddprun.rank == 0:
        server = socket.socket(socket.AF_UNIX); server.bind(together + "~"); server.listen(); os.rename(together + "~", together)
        other = server.accept()[0]
    else:
        while other is None:
            try:
                other = socket.socket(socket.AF_UNIX); other.connect(together)
            except OSError:
                other = None; time.sleep(0.01)
for n in range(1, 100000):
    time.sleep(0.001 + 0.004 * ddprun.rank)
    if other:
        other.sendall(b"x")
        assert other.recv(1) == b"x"
    ddprun.step(n, total=100000)
    save = ddprun.should_save()
    if n == 1:
        print("at work", ddprun.rank, flush=True)
    if save:
        ddprun.saved(n)
        print("saved", ddprun.rank, n, flush=True)
        END
"""


def start_saving(ddprun_bin, tmp_path, end: str, **env: str) -> subprocess.Popen:
    """Starts two ranks. Returns after both have called should_save()."""
    (tmp_path / "train.py").write_text("import ddprun, os, sys\n" + SAVING.replace("END", end))
    process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--nproc-per-node", "2", "--shutdown-timeout", "60", tmp_path / "train.py"], **ENV, **env)
    for _ in range(2):
        while "at work" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
    return process


@pytest.mark.parametrize(("together", "end"), [(False, "ddprun.stopped()"), (True, "sys.exit(ddprun.REQUEUE)"), (True, "break")])
def test_all_ranks_save_at_one_step_for_a_requeue(ddprun_bin, tmp_path, together, end):
    env = {"TOGETHER": str(tmp_path / "socket")} if together else {}
    process = start_saving(ddprun_bin, tmp_path, end, **env)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 85, err
    saved = sorted(tuple(line.split()[1:]) for line in lines_of(out, "saved"))
    assert [rank for rank, _ in saved] == ["0", "1"] and len({step for _, step in saved}) == 1, out
    assert "ended with exit code 85: stopped by SIGTERM after saving: run the job again to continue" in err


def test_a_block_round_each_step_saves_and_stops(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text(
        "import ddprun, os, sys, time\nn = 0\n"
        "def save():\n    print('saved', ddprun.rank, n, flush=True)\n"
        "while True:\n    with ddprun.stop_at_step(save):\n        n += 1\n        time.sleep(0.001 + 0.004 * ddprun.rank)\n"
        "        ddprun.step(n)\n    if n == 1: print('at work', flush=True)\n")
    process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--nproc-per-node", "2", tmp_path / "train.py"], **ENV)
    for _ in range(2):
        assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    saved = sorted(tuple(line.split()[1:]) for line in lines_of(out, "saved"))
    assert process.returncode == 85 and [rank for rank, _ in saved] == ["0", "1"] and len({step for _, step in saved}) == 1, (out, err)


def test_a_block_whose_step_fails_saves_nothing(job):
    done = job("with ddprun.stop_at_step(lambda: print('saved', flush=True)):\n    raise ValueError('of the step')\n")
    assert done.returncode == 1 and "ValueError: of the step" in done.stderr and not done.stdout


def test_all_ranks_of_two_nodes_save_at_one_step(nodes, tmp_path):
    """Only one of the two agents receives the stop signal, but the ranks of both nodes must save."""
    (tmp_path / "train.py").write_text("import ddprun, os, sys\n" + SAVING.replace("END", "ddprun.stopped()"))
    port = jobs.free_port()
    for node in ("0", "1"):
        nodes.start("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node, "train.py",
                    **ENV, TOGETHER=str(tmp_path / "socket"))
    for node in (0, 1):
        nodes.until_printed(node, "at work")
    nodes.agents[1].send_signal(signal.SIGTERM)
    assert nodes.wait() == [85, 85], nodes.all_text()
    saved = dict(re.findall(r"^saved (\d) (\d+)$", nodes.all_text(), re.M))
    assert set(saved) == {"0", "1"} and len(set(saved.values())) == 1, nodes.all_text()


def test_a_script_that_saves_too_late_is_stopped(ddprun_bin, tmp_path):
    """Rank 1 is suspended. Rank 0 waits for rank 1 in should_save(), but not longer than the shutdown timeout."""
    (tmp_path / "train.py").write_text(
        "import ddprun, os, signal, sys, time\nddprun.should_save()\nprint('at work', flush=True)\n"
        "if ddprun.rank == 1:\n    os.kill(os.getpid(), signal.SIGSTOP)\nwhile not ddprun.should_save():\n    time.sleep(0.01)\n")
    process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--nproc-per-node", "2", "--shutdown-timeout", "2", tmp_path / "train.py"], **ENV)
    for _ in range(2):
        assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "stopped by SIGTERM before it could save" in err


def test_a_script_without_should_save_gets_the_signal(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text("import ddprun, signal, sys\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
                                       "ddprun.step(1)\nprint('at work', flush=True)\nsignal.pause()\n")
    process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", tmp_path / "train.py"], **ENV)
    assert process.stdout.readline() == "at work\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert report_in(tmp_path)["rounds"][0]["workers"][0]["exit_code"] == 7


@pytest.mark.long
@pytest.mark.needs_torch_python
@pytest.mark.parametrize(("library", "program", "saved"), [("transformers", "stopped_trainer.py", "checkpoint-{step}"),
                                                           ("lightning", "stopped_lightning.py", "ddprun.ckpt"),
                                                           ("accelerate", "stopped_accelerate.py", "model.pt")])
def test_third_party_loops_save_and_stop(ddprun_bin, tmp_path, library, program, saved):
    """The scripts use the callbacks of ddprun.integrations. After a stop signal, train() or fit() returns, and the script
    continues with the next statement."""
    if not (importlib.util.find_spec(library) and importlib.util.find_spec("accelerate")):
        pytest.skip("needs transformers, lightning and accelerate (requirements/python-programs.txt)")
    path = os.pathsep.join([ENV["PYTHONPATH"], *filter(None, [os.environ.get("PYTHONPATH")])])
    process = jobs.start([ddprun_bin, "--standalone", "--run-dir", tmp_path / "run", "--nproc-per-node", "2",
                          ROOT / "tests/whole_program/reference/programs" / program, tmp_path / "out"],
                         **{**ENV, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "huggingface")})
    for _ in range(2):
        while "at work" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 85, err
    (end,) = {line.split()[2] for line in lines_of(out, "ended")}
    assert re.search(r"^ddprun: (epoch 1/\d+  )?step [\d,]+", err, re.M), err
    report = json.loads((tmp_path / "run/report.json").read_text())
    latest = report["checkpoints"]["latest"]
    assert latest["path"] == str(tmp_path / "out" / saved.format(step=end)) and latest["step"] == int(end) and pathlib.Path(latest["path"]).exists()
    assert report["figures"]["loss"] >= 0


@pytest.mark.long
@pytest.mark.needs_torch_python
def test_lightning_trains_on_data_without_a_length(job):
    """Lightning cannot compute the number of steps, so the callback must not report a total."""
    if not importlib.util.find_spec("lightning"):
        pytest.skip("needs lightning (requirements/python-programs.txt)")
    path = os.pathsep.join([ENV["PYTHONPATH"], *filter(None, [os.environ.get("PYTHONPATH")])])
    done = job(LIGHTNING, PYTHONPATH=path)
    assert done.returncode == 0 and "ended 20" in done.stdout and ") is ignored: " not in done.stderr, done.stderr


LIGHTNING = """
import warnings
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, IterableDataset
from ddprun import integrations
warnings.filterwarnings("ignore")
class Stream(IterableDataset):
    def __iter__(self):
        return (torch.randn(4) for _ in range(20))
class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
trainer = Trainer(accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False, callbacks=[integrations.lightning()])
trainer.fit(Small(), DataLoader(Stream(), batch_size=2))
print("ended", trainer.global_step, flush=True)
"""


# ---- hangs ----


def test_the_rank_one_step_behind_is_blamed(job):
    """The rank continues to print. Output does not count as progress for a script that reports steps."""
    done = job("import threading\nddprun.step(4 - ddprun.rank)\n"
               "while not threading.Event().wait(0.1):\n    print('alive', flush=True)\n", "--nproc-per-node", "2", "--hang-timeout", "1")
    assert done.returncode == 82, done.stderr
    assert re.search(r"rank 1 \(pid \d+\) hangs: no progress for .*; it is in step 4; rank 0 waits in step 5", done.stderr), done.stderr


# ---- cases in which the calls have no effect ----


def test_outside_a_job_it_does_nothing():
    code = ("import ddprun, threading; ddprun.step(3, loss=float('nan')); ddprun.step(1); ddprun.saved('x'); ddprun.error('oom', 'y')\n"
            "with ddprun.stop_at_step(): pass\n"
            "print(ddprun.should_save(), ddprun.in_job(), ddprun.rank, ddprun.world_size, ddprun.restart, ddprun.cause, threading.active_count())\n")
    done = jobs.run([sys.executable, "-c", code], **ENV)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False False 0 1 0 None 1\n", "")
    # A child process of a worker may inherit the variable of the channel but not the descriptor. Then the number in the
    # variable belongs to another file.
    done = jobs.run([sys.executable, "-c", code], **ENV, DDPRUN_CHANNEL="fd:1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False False 0 1 0 None 1\n", "")
    # A wrapper such as sudo closes inherited descriptors. A socket of the script may then get the number of the channel's
    # descriptor, but its inode differs.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        inode = os.fstat(theirs.fileno()).st_ino
        for right, spoken in ((False, False), (True, True)):
            done = subprocess.run([sys.executable, "-c", "import ddprun; ddprun.step(1); print(ddprun.in_job())"], pass_fds=[theirs.fileno()], capture_output=True, text=True,
                                  timeout=60, check=False, env=jobs.clean_environment(**ENV, DDPRUN_CHANNEL=f"fd:{theirs.fileno()}",
                                                                                      DDPRUN_CHANNEL_INODE=str(inode if right else inode + 1)))
            assert (done.stdout, done.stderr) == (f"{spoken}\n", "")
            ours.setblocking(False)
            try:
                received = ours.recv(4096)
            except BlockingIOError:
                received = b""
            assert (b'"hello"' in received) == spoken, received
    for wrong, kind in (("'x'", "TypeError"), ("-1", "ValueError"), ("1.5", "TypeError")):
        assert kind in jobs.run([sys.executable, "-c", f"import ddprun; ddprun.step({wrong})"], **ENV).stderr


def test_child_processes_send_no_messages(job, tmp_path):
    """A forked process (such as a DataLoader worker), a process started by multiprocessing, and another program inherit the
    environment variable or the descriptor of the channel. These processes must not send messages, because the channel belongs
    to the worker alone."""
    done = job("""
import subprocess
def child():
    import ddprun
    ddprun.step(1000)
    ddprun.error('data', 'of the child')
    print('child', ddprun.in_job(), ddprun.should_save(), os.path.exists('/proc/self/fd/3'), flush=True)
if __name__ == '__main__':
    ddprun.step(1)
    pid = os.fork()
    if pid == 0:
        child()
        os._exit(0)
    os.waitpid(pid, 0)
    subprocess.run([sys.executable, '-c', 'import train; train.child()'], close_fds=False, check=True)
    ddprun.step(2)
    raise SystemExit(4)
""")
    assert done.returncode == 4, done.stderr
    assert lines_of(done.stdout, "child") == ["child False False False"] * 2
    report = report_in(tmp_path)
    assert report["last_step"] == 2 and report["rounds"][0]["first_cause"]["cause"] == "exit_code"


def test_threads_may_send_concurrently(job, tmp_path):
    done = job("import threading\ndef work(k):\n    for n in range(200):\n        ddprun.saved(k * 1000 + n); ddprun.step(n)\n"
               "threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]\n"
               "[t.start() for t in threads]; [t.join() for t in threads]\n")
    assert done.returncode == 0 and "ignored" not in done.stderr
    assert report_in(tmp_path)["checkpoints"]["published"] == 800


def test_another_major_version_is_ignored_with_one_line(job, tmp_path):
    done = job("ddprun._worker_channel.PROTOCOL = (2, 0)\nfor n in range(3):\n    ddprun.step(n); ddprun.saved(n)\n"
               "assert not ddprun.should_save()\nprint('continued', flush=True)\n", "--nproc-per-node", "2")
    assert done.returncode == 0 and len(lines_of(done.stdout, "continued")) == 2
    ignored = [line for line in done.stderr.splitlines() if "ignored" in line]
    assert len(ignored) == 1 and re.fullmatch(r"ddprun: rank \d: import ddprun of Python .* uses version 2\.0 of the worker channel, this "
                                           r"ddprun uses version 1\.\d+: install both from the same release; its reports are ignored, and the job continues",
                                           ignored[0]), done.stderr
    assert report_in(tmp_path)["last_step"] is None


def test_a_newer_minor_version_is_understood(job, tmp_path):
    done = job("ddprun._worker_channel.PROTOCOL = (1, 99)\nddprun.step(1)\nddprun._channel._send({'type': 'dance'})\n"
               "ddprun._channel._send({'type': 'checkpoint', 'step': 3, 'path': '', 'pause_s': 0, 'save_s': 0, 'bytes': 0, 'more': [1]})\n")
    assert done.returncode == 0 and "ignored" not in done.stderr
    assert report_in(tmp_path)["checkpoints"]["latest"]["step"] == 3


def test_an_invalid_protocol_is_ignored_with_one_line(ddprun_bin, script, run):
    """The agent stops reading the channel. The worker continues to write to the full socket and must not be killed by
    SIGPIPE."""
    body = "n=0; while [ $n -lt 3000 ]; do echo 'not for you, and it never ends: 0123456789 0123456789' >&3; n=$((n + 1)); done; exit 0"
    done = run([ddprun_bin, "--no-python", script(body)])
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"ddprun: rank 0: its messages to ddprun do not follow the worker protocol \(.*\); its reports are ignored, and the job "
                        r"continues\n", done.stderr), done.stderr


def test_metrics_are_sent_with_the_next_message(tmp_path):
    """The test runs `import ddprun` without an agent, in a program with a default socket timeout of 1 ms. The second step
    follows the first too soon for a separate message, so its metrics must be sent with the next message."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    code = ("import socket\nsocket.setdefaulttimeout(0.001)\nimport ddprun\nddprun.step(1)\nddprun.step(2, loss=0.25)\nddprun.saved('\\udce9', seconds=float('nan'))\n"
            "input()\nddprun.step(3, total=3)\nassert not ddprun._channel._closed\n")
    with theirs, subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, text=True,
                                  env=jobs.clean_environment(**ENV, DDPRUN_CHANNEL=f"fd:{theirs.fileno()}")) as process:
        theirs.close()
        received = b""
        while b'"checkpoint"' not in received:
            received += ours.recv(65536)
        process.communicate("\n", timeout=60)
        while more := ours.recv(65536):
            received += more
    ours.close()
    assert process.returncode == 0
    assert b'"loss": 0.25' in received.split(b'"step": 3')[1] and b"NaN" not in received and b"udce9" not in received


def test_a_lost_agent_does_not_disturb_the_script(tmp_path):
    """The test runs `import ddprun` without an agent, and closes the agent's end of the socket pair."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    code = ("import ddprun\nassert ddprun.in_job()\nddprun.step(1)\ninput()\n"
            "for n in range(2, 50):\n    ddprun.step(n); ddprun.saved(n)\nassert not ddprun.should_save()\nddprun.error('oom')\nprint('continued')\n")
    with theirs, subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  text=True, env=jobs.clean_environment(**ENV, DDPRUN_CHANNEL=f"fd:{theirs.fileno()}")) as process:
        theirs.close()
        with ours.makefile("rb") as received:
            assert b'"hello"' in received.read(64)
        ours.close()
        out, _ = process.communicate("\n", timeout=60)
        assert (process.returncode, out) == (0, "continued\n")
