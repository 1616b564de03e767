"""The measurements of launch_bench.py. Each function receives a Side (one launcher and its processes), runs a small job with
this launcher, and returns one number. The row of the table defines the unit of this number."""

import os
import signal
import socket
import time

from agents import Side, DeadlineExceeded, c10d, free_port, is_alive
from measure import peak_memory_mb, timed

WAIT = "exec sleep 300"
IGNORE = "trap '' TERM INT"
EVENT_TIMEOUT_S = 10.0  # seconds after which an expected event is regarded as missing

# In this worker script, rank 1 fails in the first attempt, after all workers have started. The other workers sleep until they
# are stopped.
FAILS_ONCE = """if [ -e "$NOTES.failed" ]; then exit 0; fi
if [ "$RANK" = 1 ]; then
  while [ "$(grep -c start "$NOTES")" -lt "$WORLD_SIZE" ]; do read -r -t 0.01 _ <> <(:); done
  : > "$NOTES.failed"
  echo "fail $EPOCHREALTIME" >> "$NOTES"
  kill -9 $$
fi
exec sleep 60"""


def milliseconds(begin: float, end: float) -> float:
    return (end - begin) * 1000


def any_worker_lives(side: Side) -> bool:
    return any(is_alive(int(line[4])) for line in side.lines())


# ---- starting ----


def show_help(side: Side) -> float:
    return timed([*side.launcher, "--help"], env=side.environment) * 1000


def nothing_to_do(workers: int):
    def measure(side: Side) -> float:
        return timed([*side.launcher, "--nproc-per-node", str(workers), "--no-python", "true"], env=side.environment) * 1000

    return measure


def many_workers(side: Side) -> float:
    """Starts 64 workers, each of which writes one line. The workers run /bin/sh, since the start of bash would take most of the
    measured time."""
    for name in ("up", "gate"):
        os.mkfifo(side.folder / name)
    up = os.open(side.folder / "up", os.O_RDWR)
    begin = time.time()
    side.start("--nproc-per-node", "64", "--no-python", "/bin/sh", "-c", 'echo > up; read -r word < gate')
    arrived = 0
    while arrived < 64:
        arrived += len(os.read(up, 64))
    end = time.time()
    os.close(up)
    side.agents[0].terminate()
    side.ended()
    return milliseconds(begin, end)


def two_agents(side: Side) -> float:
    port, script, begin = free_port(), side.script("exit 0"), time.time()
    for _ in range(2):
        side.start(*c10d("2:2", port), script)
    return milliseconds(begin, side.until_started(2))


def one_agent_without_state(side: Side, port: int = 0) -> float:
    """Measures the start of one agent with --nnodes 1:2 on a machine without stored state. The agent first searches for other
    nodes of this job, for 1.25 times the worker lease."""
    script, begin = side.script("exit 0"), time.time()
    side.start(*c10d("1:2", port or free_port()), script)
    return side.until_started(1) - begin


def one_agent_of_two(side: Side) -> float:
    """Measures the same as one_agent_without_state(), but a job has already run on this machine."""
    port = free_port()
    if side.ours:
        one_agent_without_state(side, port)
        side.ended()
        side.notes.write_bytes(b"")
    return one_agent_without_state(side, port)


def missing_program(side: Side) -> float:
    begin = time.time()
    side.start("--no-python", "/no/such/program")
    return milliseconds(begin, side.ended())


def memory(side: Side) -> float:
    command = [*side.launcher, "--nproc-per-node", "2", "--no-python", "sleep"]
    return peak_memory_mb([*command, "1"], 0.7) if side.ours else peak_memory_mb([*command, "6"], 5.0)


# ---- failures ----


def failed_and_replaced(side: Side, agents: list[list[str]]) -> tuple[float, list[str]]:
    """One worker kills itself, and all workers are replaced. Returns the milliseconds from this failure to the first line of
    the last new worker, and the restart counts of the new workers."""
    script = side.script(FAILS_ONCE)
    for options in agents:
        side.start("--max-restarts", "1", *options, script)
    # There are five lines: one from each of the two workers, one from the failing worker, and one from each new worker.
    side.until_started(5, 30)
    again = side.lines()[2:]
    return milliseconds(float(side.lines("fail")[0][1]), max(float(line[2]) for line in again)), sorted(line[3] for line in again)


def replaced_on_one_node(side: Side) -> float:
    return failed_and_replaced(side, [["--nproc-per-node", "2", "--no-python"]])[0]


def replaced_on_two_nodes(side: Side) -> float:
    return failed_and_replaced(side, [c10d("2", free_port())] * 2)[0]


def agent_killed(side: Side) -> float:
    agent = side.start("--nproc-per-node", "2", "--no-python", side.script(WAIT))
    side.until_started(2)
    begin = time.time()
    agent.kill()
    return milliseconds(begin, side.until(lambda: not any_worker_lives(side), EVENT_TIMEOUT_S, "workers still alive"))


def node_lost(side: Side) -> float:
    """Kills the agent that is not the coordinator with SIGKILL. Returns the time until the other agent has started its workers
    again."""
    port, script = free_port(), side.script('[ "$WORLD_SIZE" = 1 ] && exit 0\nexec sleep 60')
    side.start(*c10d("1:2", port), script)
    time.sleep(0.2)  # the agent that starts first becomes ddprun's coordinator or hosts torchrun's store
    other = side.start(*c10d("1:2", port), script)
    side.until_started(2)
    begin = time.time()
    other.kill()
    return milliseconds(begin, side.until_started(3, EVENT_TIMEOUT_S))


LAST_CALL = 1  # seconds for which a launcher waits for more nodes before it starts the workers (last_call_timeout)


def node_joins(side: Side) -> float:
    """Measures the time from the start of a second agent until the last worker of both nodes has started."""
    port, script = free_port(), side.script('[ "$WORLD_SIZE" = 2 ] && exit 0\nexec sleep 60')
    command = ["--rdzv-conf", f"last_call_timeout={LAST_CALL}", *c10d("1:2", port), script]
    side.start(*command)
    side.until_started(1)
    begin = time.time()
    side.start(*command)
    return side.until_started(3, EVENT_TIMEOUT_S) - begin


def coordinator_lost(side: Side) -> float:
    """Kills the agent that hosts the rendezvous with SIGKILL. Returns the time until the last worker has started again."""
    port, script = free_port(), side.script('[ "$WORLD_SIZE" = 2 ] && exit 0\nexec sleep 60')
    for number in range(3):
        side.start(*c10d("2:3", port), script)
        if number == 0:
            time.sleep(0.2)
    side.until_started(3)
    begin = time.time()
    side.agents[0].kill()
    try:
        return milliseconds(begin, side.until_started(5, EVENT_TIMEOUT_S))
    except DeadlineExceeded:
        if all(agent.poll() is not None for agent in side.agents):
            raise DeadlineExceeded("every agent dies") from None
        raise


# ---- stopping ----


def sigterm_ignored(side: Side) -> float:
    options = ["--shutdown-timeout", "1"] if side.ours else []  # torchrun has this option since 2.15
    side.start(*options, "--nproc-per-node", "2", "--no-python", side.script(WAIT, before=IGNORE))
    side.until_started(2)
    # torchrun needs this second to reach its main loop. If a signal arrives earlier, torchrun ends after 1 s, but its workers
    # continue to run.
    time.sleep(1)
    begin = time.time()
    side.agents[0].terminate()
    return side.ended() - begin


def second_interrupt(side: Side) -> float:
    side.start("--nproc-per-node", "2", "--no-python", side.script(WAIT, before=IGNORE))
    side.until_started(2)
    begin = time.time()
    side.agents[0].send_signal(signal.SIGINT)
    time.sleep(0.3)  # users typically press Ctrl-C a second time after about this time
    side.agents[0].send_signal(signal.SIGINT)
    side.ended()
    return side.until(lambda: not any_worker_lives(side), 40, "workers still alive") - begin


# ---- mistakes ----


def refused(side: Side, agent: int, what: str, begin: float) -> float:
    """Returns the seconds from `begin` until this agent reports why it cannot join the job."""
    return side.until(lambda: what in side.output(agent), EVENT_TIMEOUT_S, "nothing reported") - begin


def wrong_run_id(side: Side) -> float:
    node = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--no-python", "--node-rank"]
    script, begin = side.script(WAIT), time.time()
    side.start("--rdzv-id", "a", *node, "0", script)
    side.start("--rdzv-id", "b", *node, "1", script)
    return refused(side, 1, "run id", begin)


def silent_port(side: Side) -> float:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begin = time.time()
        side.start(*c10d("2", silent.getsockname()[1]), side.script(WAIT))
        return refused(side, 0, "sends nothing", begin)
