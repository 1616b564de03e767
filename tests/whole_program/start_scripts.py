"""Stops jobs with start scripts at random times.

usage: python tests/whole_program/start_scripts.py DDPRUN COUNT SEED [SECONDS_TO_SAVE]

Each of COUNT jobs has two workers. Each worker is a start script of one of seven kinds, and starts a trainer process. The job
is stopped in a random way. The trainer then needs SECONDS_TO_SAVE (default 2) to save. After that, every save must be
complete, no process of the job may be left, and /dev/shm must contain no new files.

Prints the seed, and one line for each failure. The exit code is the number of failures, at most 100."""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# The trainer connects to the store (TCPStore), like a PyTorch script. ddprun uses this connection to recognize a trainer that
# a start script has left in the background.
TRAINER = '''import os, signal, socket, sys, time
from multiprocessing import shared_memory
rank, seconds, how = os.environ["RANK"], float(sys.argv[1]), sys.argv[2]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
saves = False
def stop(*_):
    global saves
    saves = True
for number in SIGNALS:
    signal.signal(number, stop)
memory = shared_memory.SharedMemory(create=True, size=4096, track=False) if sys.version_info >= (3, 13) else shared_memory.SharedMemory(create=True, size=4096)
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
open("up." + rank, "w").write(str(os.getpid()))
while not all(os.path.exists(f"up.{one}") for one in "01"):
    time.sleep(0.01)
fails = how == "peer" and rank == "1"
while not saves:
    if fails and os.path.exists("go"):
        memory.close(); memory.unlink()
        os._exit(9)
    time.sleep(0.01)
for number in SIGNALS:
    signal.signal(number, signal.SIG_IGN)
open("started." + rank, "w").close()
with open("saved." + rank, "w") as file:
    for part in range(20):
        file.write("x" * 1000)
        file.flush()
        time.sleep(seconds / 20)
memory.close()
memory.unlink()
'''

KINDS = {
    "plain": '"$@"\nexit $?\n',
    "exec": 'exec "$@"\n',
    "wait": '"$@" &\nwait $!\n',
    "forwarding": '"$@" & pid=$!\ntrap "kill -TERM $pid" TERM INT USR1 HUP\nwait $pid\nexit 3\n',
    "trap exits with 0": '"$@" & pid=$!\ntrap "kill -TERM $pid; exit 0" TERM INT USR1 HUP\nwait $pid\n',
    "in a new session": 'setsid "$@" & pid=$!\ntrap "kill -TERM $pid; exit 143" TERM INT USR1 HUP\nwait $pid\n',
    "background": 'nohup "$@" > trainer.log.$RANK 2>&1 &\nwhile [ ! -e up.$RANK ]; do sleep 0.02; done\n',
}
STOPS = ["TERM to the agent", "TERM to the group", "TERM to every process", "INT", "USR1", "peer"]


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = parents.get(queue.pop(), [])
        found += below
        queue += below
    return found


def lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def send(process: subprocess.Popen, how: str, folder: pathlib.Path) -> None:
    if how == "peer":
        return (folder / "go").touch()
    if how == "TERM to the group":
        return os.killpg(process.pid, signal.SIGTERM)
    if how == "TERM to every process":
        # A scheduler may signal every process of a job step. ddprun's store process is one of them.
        for pid in [process.pid, *descendants(process.pid)]:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        return None
    return process.send_signal({"TERM to the agent": signal.SIGTERM, "INT": signal.SIGINT, "USR1": signal.SIGUSR1}[how])


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("psm_")}


def one_stop(ddprun: str, kind: str, how: str, seconds: float, python: str = sys.executable) -> str:
    """Runs one job and stops it. Returns a description of the errors, or "" if there are none."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="start-script-"))
    before = shared_memory()
    (folder / "train.py").write_text(TRAINER)
    (folder / "run.sh").write_text("#!/bin/sh\n" + KINDS[kind])
    (folder / "run.sh").chmod(0o755)
    log = (folder / "ddprun.log").open("w")
    process = subprocess.Popen([ddprun, "--nproc-per-node", "2", "--no-python", "./run.sh", python, "train.py", str(seconds), how],
                               cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    wrong = ""
    try:
        limit = time.monotonic() + 60
        while not all((folder / f"up.{rank}").exists() for rank in "01"):
            if process.poll() is not None or time.monotonic() > limit:
                return f"the job did not start: {(folder / 'ddprun.log').read_text()[-500:]}"
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.2))
        below = descendants(process.pid)
        send(process, how, folder)
        code = process.wait(timeout=120)
        for rank in "01":
            if how == "peer" and rank == "1":
                continue
            saved = folder / f"saved.{rank}"
            size = saved.stat().st_size if saved.exists() else 0
            if size != 20_000:
                wrong += f" rank {rank} saved {size} of 20000 bytes;"
        left = [pid for pid in below if lives(pid)]
        if left:
            wrong += f" {len(left)} processes are left;"
        if new := shared_memory() - before:
            wrong += f" left in /dev/shm: {sorted(new)};"
        if wrong:
            wrong += f" code {code}; {(folder / 'ddprun.log').read_text()[-500:]}"
    except subprocess.TimeoutExpired:
        wrong = f" the job did not end: {(folder / 'ddprun.log').read_text()[-500:]}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        log.close()
        shutil.rmtree(folder, ignore_errors=True)
    return wrong


def main() -> int:
    ddprun, count, seed = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 2.0
    print(f"seed {seed}", flush=True)
    random.seed(seed)
    failures = 0
    for number in range(count):
        kind, how = random.choice(list(KINDS)), random.choice(STOPS)
        # With "peer", the failure of one trainer must end the job. A "background" script exits with 0 before its trainer fails,
        # so ddprun cannot detect the failure.
        if kind == "background" and how == "peer":
            how = "INT"
        if wrong := one_stop(ddprun, kind, how, seconds):
            failures += 1
            print(f"stop {number}: '{kind}', {how}:{wrong}", flush=True)
    print(f"{count} stops, {failures} wrong", flush=True)
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
