"""The observations of launch_bench.py, for rows of the table without a number. Each function receives a Side (one launcher and
its processes), creates a situation with this launcher, and describes the result in a few words."""

import os
import pathlib
import resource
import socket
import subprocess
import sys
import time

import private_hosts
from agents import NotAvailable, Side, DeadlineExceeded, c10d, free_port, listening
from launch_measurements import failed_and_replaced

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "whole_program"))


# ---- messages ----


def exit_code(side: Side) -> str:
    side.start("--no-python", "sh", "-c", "exit 7")
    side.ended()
    return str(side.agents[0].returncode)


def missing_program_lines(side: Side) -> str:
    side.start("--no-python", "/no/such/program")
    side.ended()
    count = len(side.output().splitlines())
    return f"{count} line{'s' if count > 1 else ''}"


def left_early(side: Side) -> str:
    """Observes what is reported if rank 0 ends successfully, and rank 1 fails later because it still needs rank 0."""
    side.start("--nproc-per-node", "2", "--no-python", "sh", "-c", '[ "$RANK" = 0 ] && exit 0; sleep 1.5; exit 3')
    side.ended()
    return "reported" if "rank 0 had ended before" in side.output() else "nothing reported"


ERROR_FILE_WRITER = """import json, os, time
now = time.time()
time.sleep(1.1 - now % 1 if now % 1 > 0.1 else 0.1 - now % 1)  # both within one second
if os.environ["RANK"] == "0": time.sleep(0.03)
json.dump({"message": {"message": "", "extraInfo": {"py_callstack": "", "timestamp": str(int(time.time()))}}},
          open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
os._exit(3)
"""


def root_cause(side: Side) -> str:
    """Observes which rank is reported as the root cause if rank 1 fails first, and rank 0 fails 30 ms later. torchrun polls its
    workers every 0.1 s, so it finds both failures in the same poll."""
    side.start("--nproc-per-node", "2", "--no-python", "python3", "-c", ERROR_FILE_WRITER)
    side.ended()
    summary = side.output().partition("Root Cause")[2].splitlines()
    return next((f"rank {line.split()[2]}" for line in summary if line.strip().startswith("rank ")), "none")


def out_of_memory(side: Side) -> str:
    """Observes what is reported if one worker fills the memory of the job's cgroup. The limit of the cgroup is high, because
    torchrun's agent alone needs half a gigabyte."""
    import cgroups  # this module is in tests/whole_program
    import pytest

    greedy = "import signal, os\nhoard = []\nwhile os.environ['RANK'] == '1': hoard.append(os.urandom(1) * (1 << 20))\nsignal.pause()"
    try:
        with cgroups.limited(1200 << 20) as folder:
            side.start("--nproc-per-node", "2", "--no-python", "python3", "-c", greedy,
                       prefix=("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(folder)))
            side.ended()
    except pytest.skip.Exception as reason:
        raise NotAvailable(reason) from None
    text = side.output()
    return "out of memory" if "out of memory" in text.lower() else "SIGKILL" if "SIGKILL" in text else "nothing reported"


def torn_lines(side: Side) -> str:
    """Observes whether lines of different workers are mixed. The workers write to a pipe, in which writes of more than 4 KiB
    are not atomic. In a file, lines could not be mixed."""
    side.start("--nproc-per-node", "4", "--no-python", "python3", "-c",
               "import os\nline = (os.environ['RANK'] * 6000 + '\\n').encode()\nfor _ in range(200): os.write(1, line)",
               prefix=("/bin/sh", "-c", '"$@" 2>&1 | cat', "sh"))
    side.ended()
    lines = [line for line in side.output().splitlines() if len(line) > 100]
    torn = sum(len(line) < 6000 or len(set(line[-6000:])) != 1 or len(line) > 6100 for line in lines)
    return f"{torn} of {len(lines)} lines torn" if torn or len(lines) != 800 else "none torn"


# ---- several nodes ----


def restart_counts(side: Side) -> str:
    return " and ".join(failed_and_replaced(side, [c10d("2", free_port())] * 2)[1])


def budget(side: Side) -> str:
    """Observes how many restarts are made if the workers of two nodes fail alternately. In attempt N, rank N modulo 2 fails."""
    script = side.script('''while [ $(($(grep -c start "$NOTES") % 2)) = 1 ]; do read -r -t 0.01 _ <> <(:); done
attempt=$(($(grep -c start "$NOTES") / 2))
[ $((attempt % 2)) = "$RANK" ] && exit 5
exec sleep 60''')
    port = free_port()
    for _ in range(2):
        side.start("--max-restarts", "2", *c10d("2", port), script)
    side.until(lambda: any(agent.poll() is not None for agent in side.agents), 60, "not ended")
    return f"{(len(side.lines()) - 1) // 2} restarts"


def late_node(side: Side) -> str:
    port, script = free_port(), side.script('[ "$WORLD_SIZE" = 2 ] && exit 0\nexec sleep 60')
    side.start("--rdzv-conf", "last_call_timeout=1", *c10d("1:2", port), script)
    side.until_started(1)
    side.start(*c10d("1:2", port), script)
    try:
        side.until_started(3, 20)
    except DeadlineExceeded:
        return "still alone after 20 s"
    return "joins"


def idle_connections(side: Side) -> str:
    """Observes whether 1,000 idle connections disturb an agent that may open 1,024 descriptors. Many systems have this limit by
    default."""
    def few_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

    port, script = free_port(), side.script("exit 0")
    first = side.start(*c10d("2", port), script, preexec_fn=few_descriptors)
    side.until(lambda: listening(port), 30, "no listener")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    held = []
    try:
        for _ in range(1000):
            try:
                held.append(socket.create_connection(("localhost", port), timeout=2))
            except OSError:
                break
        side.start(*c10d("2", port), script)
        side.until_started(2, 20)
        return "the job starts"
    except DeadlineExceeded:
        return "the agent dies" if first.poll() is not None else "the job does not start in 20 s"
    finally:
        for each in held:
            each.close()


def two_jobs(side: Side) -> str:
    port = free_port()
    script = side.script('[ "$TORCHELASTIC_RUN_ID" = one ] && { read -r -t 60 _ < gate; exit 0; }\nexec sleep 3')
    os.mkfifo(side.folder / "gate")
    side.start(*c10d("1:1", port, "one"), script)
    side.until_started(1)
    side.start(*c10d("1:1", port, "two"), script)
    side.until_started(2)
    (side.folder / "gate").write_text("\n", encoding="utf-8")
    side.ended(0, 20)
    side.ended(1)
    return "continues to its end" if side.agents[1].returncode == 0 else f"fails, exit code {side.agents[1].returncode}"


FOREIGN_WORKER = """import datetime, sys, torch.distributed as dist
store = dist.TCPStore("localhost", int(sys.argv[1]), is_master=False, timeout=datetime.timedelta(seconds=4))
print(len(store.get("torch.rendezvous.job")))
"""


def foreign_worker(side: Side) -> str:
    """Observes whether PyTorch's own client can read a job's store if it knows the address but not the token of the job."""
    port = free_port()
    side.start(*c10d("2", port), side.script("exit 0"))
    side.until(lambda: listening(port), 30, "no listener")
    time.sleep(1)  # by then torchrun's agent has written the state of the job to the store
    done = subprocess.run([sys.executable, "-c", FOREIGN_WORKER, str(port)], capture_output=True, text=True, timeout=60, check=False)
    return f"reads the job's state ({done.stdout.strip()} bytes)" if done.returncode == 0 else "gets nothing"


def names_of_loopback(side: Side) -> str:
    """Observes on two hosts whether rank 1 can connect to rank 0's master port. Each host resolves its own name to 127.0.1.1,
    and cannot resolve the name of the other host."""
    meet = ('if [ "$RANK" = 0 ] && [ "$TORCHELASTIC_USE_AGENT_STORE" != True ]; then\n'
            'python3 -c "import socket, os; socket.create_server((\'\', int(os.environ[\'MASTER_PORT\']))).accept()"\nelse\n'
            'for _ in 1 2 3 4 5; do : < "/dev/tcp/$MASTER_ADDR/$MASTER_PORT" && echo met >> "$NOTES" && exit 0; read -r -t 1 _ <> <(:); done\nexit 1\nfi')
    script = side.script(meet)
    with private_hosts.two_hosts(side.folder) as hosts:
        for prefix in hosts.commands:
            side.start(*c10d("2", 29400, host=hosts.first_address), script, prefix=prefix)
        try:
            side.until_started(2, 20)
            side.until(lambda: "met" in side.notes.read_text(encoding="utf-8"), 15, "workers do not meet")
            return "works"
        except DeadlineExceeded as late:
            return str(late)
        finally:
            for agent in side.agents:
                agent.kill()
