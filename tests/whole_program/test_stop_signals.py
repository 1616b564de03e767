"""Tests of stop signals that are sent to the script itself, because Slurm and systemd send them to every process. `import
ddprun` must report the signal to the agent, and all ranks must save. A rank that blocks in a library call must still exit when
the agent stops it. Signal handlers of the script and of libraries must be kept. Child processes must get the actions that were
set before `import ddprun`."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {"PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]), "PYTHON_EXEC": sys.executable,
       "PYTHONDONTWRITEBYTECODE": "1"}

STEPS = """
import ddprun, os, signal, sys, time
BEFORE
n = 0
def save():
    print('saved', ddprun.rank, n, flush=True)
while True:
    with ddprun.stop_at_step(save):
        n += 1
        time.sleep(0.002 + 0.004 * ddprun.rank)
        if n == 2: print('at work', os.getpid(), flush=True)
"""


@pytest.fixture
def start(ddprun_bin, tmp_path):
    """Returns start(script, *options). It starts the job and returns the process and the workers' pids after both workers have
    started to train."""

    def go(body: str, *options: str, shutdown_timeout: int = 60) -> tuple[subprocess.Popen, list[int]]:
        (tmp_path / "train.py").write_text(body)
        process = jobs.start([ddprun_bin, "--standalone", "--log-dir", tmp_path / "logs", "--nproc-per-node", "2", "--shutdown-timeout", shutdown_timeout, *options,
                              tmp_path / "train.py"], **ENV)
        pids = []
        while len(pids) < 2:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            if line.startswith("at work"):
                pids.append(int(line.split()[2]))
        return process, pids

    return go


def descendants(pid: int) -> list[int]:
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def to_all(agent: int, workers_first: bool) -> None:
    pids = [agent, *descendants(agent)]
    for pid in reversed(pids) if workers_first else pids:
        with contextlib.suppress(ProcessLookupError):  # the first signals can end a process before its own signal
            os.kill(pid, signal.SIGTERM)


def assert_saved(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=120)
    saved = [line.split()[1:] for line in out.splitlines() if line.startswith("saved")]
    assert process.returncode == 85, (out, err)
    assert sorted(rank for rank, _ in saved) == ["0", "1"] and len({step for _, step in saved}) == 1, (out, err)
    return out


@pytest.mark.parametrize("workers_first", [False, True])
def test_sigterm_to_every_process_saves(start, workers_first):
    process, _ = start(STEPS.replace("BEFORE", ""))
    to_all(process.pid, workers_first)
    assert_saved(process)


def test_a_signal_at_interpreter_exit_keeps_the_exit_code(start):
    """The stop signal arrives while Python exits. At this time, Python has already removed its signal handlers."""
    process, _ = start(STEPS.replace("BEFORE", "class Late:\n    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):\n        kill(pid, number)\n"
                                               "late = Late()"))
    process.send_signal(signal.SIGTERM)
    assert_saved(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_workers_group_saves_on_all_ranks(start, number):
    """`kill -- -PGID` sends the signal to the process group of one worker, but not to the agent."""
    process, pids = start(STEPS.replace("BEFORE", ""))
    os.killpg(os.getpgid(pids[1]), number)
    assert_saved(process)


def test_a_rank_blocked_in_a_library_ends(start):
    """A rank waits for a mutex that is never released. This wait blocks like a collective. Python does not run signal handlers
    during this wait. The other rank is killed, and the agent must still be able to stop the blocked rank."""
    process, pids = start("""
import ctypes, ddprun, os
ddprun.should_save()
print('at work', os.getpid(), flush=True)
libc, mutex = ctypes.CDLL(None), (ctypes.c_char * 64)()
while True:
    libc.pthread_mutex_lock(mutex)
""")
    os.kill(pids[0], signal.SIGKILL)
    # the limit is less than the shutdown timeout, so the agent did not have to kill the rank
    _, err = process.communicate(timeout=40)
    assert process.returncode == 137, err


def test_a_script_handler_is_kept(start):
    """For example, submitit sets a handler for SIGTERM that only prints. The agent gets the signal too, and requests a save
    from the ranks."""
    process, _ = start(STEPS.replace("BEFORE", "signal.signal(signal.SIGTERM, lambda *_: print('bypass', flush=True))"))
    to_all(process.pid, True)
    assert "bypass" in assert_saved(process)


def test_without_should_save_the_action_is_the_default_one(start):
    process, pids = start("import ddprun, os, signal\nddprun.step(1)\nprint('at work', os.getpid(), flush=True)\nsignal.pause()\n")
    os.kill(pids[0], signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "failed: signal 15" in err, err


def test_a_signal_before_the_fork_hook_belongs_to_the_child(start):
    """Hooks after a fork run in the order of their registration. The script registers its hook before `import ddprun`
    registers another hook. So the signal that the script's hook sends arrives before ddprun's hook has run."""
    process, _ = start("""
import os, signal
early = False
os.register_at_fork(after_in_child=lambda: early and os.kill(os.getpid(), signal.SIGTERM))
""" + STEPS.replace("BEFORE", """
ddprun.should_save()
early = True
forked = os.fork()
if forked == 0:
    os._exit(1)
early = False
assert os.WTERMSIG(os.waitpid(forked, 0)[1]) == signal.SIGTERM
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
"""))
    process.send_signal(signal.SIGTERM)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 85, out


def test_children_have_the_default_action(start):
    process, _ = start(STEPS.replace("BEFORE", """
import subprocess
ddprun.should_save()
forked = os.fork()
if forked == 0:
    signal.pause(); os._exit(1)
started = subprocess.Popen(['sleep', '1000'])
for pid in (forked, started.pid):
    os.kill(pid, signal.SIGTERM)
assert (os.WTERMSIG(os.waitpid(forked, 0)[1]), -started.wait()) == (signal.SIGTERM, signal.SIGTERM)
"""))
    process.send_signal(signal.SIGTERM)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 85, out


def test_a_closed_channel_removes_the_handler(start):
    process, _ = start("""
import ddprun, os, signal, time
def is_caught():
    (line,) = [line for line in open('/proc/self/status') if line.startswith('SigCgt')]
    return int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1
ddprun.should_save()
assert is_caught()
ddprun._channel._close()
while is_caught():
    time.sleep(0.01)
print('at work', os.getpid(), flush=True)
signal.pause()
""", shutdown_timeout=5)  # the agent waits for a save for most of this timeout
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_an_agent_that_does_not_read_wakes_waiting_threads():
    """should_save() waits for the step at which all ranks save. Meanwhile another thread detects that the agent no longer reads
    the channel, and must wake the waiting thread."""
    code = """
import socket, threading, time
ours, theirs = socket.socketpair()
import ddprun
ddprun._channel = channel = ddprun._worker_channel.Channel(ours)
channel._stopping = True
waiter = threading.Thread(target=ddprun.should_save)
waiter.start()
while not channel._calls:
    time.sleep(0.01)
with channel._state:  # the waiting thread has this lock until it waits
    pass
channel._close()
waiter.join(60)
assert not waiter.is_alive()
print('woken', flush=True)
"""
    done = jobs.run([sys.executable, "-c", code], **ENV)
    assert done.returncode == 0 and done.stdout == "woken\n", done.stderr


LOADER = """
import ddprun, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 100000
    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.tensor(float(i))
if __name__ == '__main__':
    n = 0
    def save():
        time.sleep(0.5)
        print('saved', ddprun.rank, n, flush=True)
    for batch in DataLoader(Slow(), batch_size=4, num_workers=2):
        with ddprun.stop_at_step(save):
            n += 1
            time.sleep(0.02 * ddprun.rank)
            if n == 2: print('at work', os.getpid(), flush=True)
"""


@pytest.mark.needs_torch_python
def test_data_loaders_continue_until_the_save(start):
    process, _ = start(LOADER)
    to_all(process.pid, True)
    assert_saved(process)


@pytest.mark.needs_torch_python
def test_data_loaders_without_should_save_end_by_the_signal(start):
    process, pids = start(LOADER.replace("with ddprun.stop_at_step(save):", "if True:"))
    os.kill(descendants(pids[0])[0], signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    # Either PyTorch reports that the process of the loader has ended, or it first fails to receive a tensor from that process.
    assert process.returncode == 1 and ("DataLoader worker" in err or "ConnectionResetError" in err), err


LIGHTNING = """
import os, time, warnings
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
import ddprun
from ddprun import integrations
warnings.filterwarnings("ignore")
class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, n):
        if n == 2: print('at work', os.getpid(), flush=True)
        time.sleep(0.01)
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
trainer = Trainer(accelerator="cpu", devices=2, num_nodes=1, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False, default_root_dir=os.path.dirname(os.path.abspath(__file__)),
                  callbacks=[integrations.lightning()])
trainer.fit(Small(), DataLoader(torch.randn(100000, 4), batch_size=2))
print('saved', ddprun.rank, trainer.global_step, flush=True)
"""


@pytest.mark.needs_torch_python
def test_lightnings_handler_gives_way_to_the_callback(start):
    if not importlib.util.find_spec("lightning"):
        pytest.skip("needs lightning (requirements/python-programs.txt)")
    process, _ = start(LIGHTNING)
    to_all(process.pid, True)
    assert_saved(process)
