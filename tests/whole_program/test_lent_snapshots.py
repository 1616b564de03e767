"""Tests of ddprun.restore() on a node that has no snapshot. The node must receive (borrow) a snapshot from another node, and
the job must continue from its last step. Clients outside the job must not receive a snapshot."""

import hashlib
import os
import pathlib
import re
import signal
import socket
import sys
import threading

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from ddprun import _lending, _snapshot, _snapshot_choice  # noqa: E402

PROGRAMS = ROOT / "tests/whole_program/reference/programs"
ENV = {"PYTHONPATH": str(ROOT / "python"), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


# ---- which node sends its snapshot to which ----


def offer(at: int, own=(), replicated=None, refused=(), why: str = "", able: bool = True) -> dict:
    """Returns the offer (list of snapshots) of one rank on node `at`. A snapshot is given as a step number, which means round
    0, or as a pair of step and round."""
    kinds = {"own": own, "replicated": own if replicated is None else replicated, "refused": refused}
    return {**{kind: [list(step) if isinstance(step, tuple) else [step, 0] for step in steps] for kind, steps in kinds.items()},
            "why": why, "able": able, "at": at}


def decide(offers: list[dict]) -> dict:
    """Returns the decision of decide(), without the key `round` if it is 0."""
    decision = _snapshot_choice.decide(offers)
    return {key: value for key, value in decision.items() if key != "round" or value}


def test_a_node_without_a_copy_borrows_the_most_common_newest():
    assert decide([offer(0, [9, 10]), offer(1)]) == {"step": 10, "lend": [0], "borrow": [1]}
    # With two ranks per node, only one rank of each node sends or receives.
    assert decide([offer(0, [9, 10])] * 2 + [offer(1)] * 2 + [offer(2, [9, 10])] * 2) == {"step": 10, "lend": [0, 4], "borrow": [2]}
    # In the first case, a node is one step behind and keeps its own copy. In the second case, the copies of a node are much
    # older, so it receives a newer copy.
    assert decide([offer(0, [9, 10]), offer(1, [10, 11]), offer(2)]) == {"step": 10, "lend": [0, 1], "borrow": [2]}
    assert decide([offer(0, [9, 10]), offer(1, [4, 5]), offer(2, [4, 5])]) == {"step": 10, "lend": [0], "borrow": [1, 2]}
    # If every node already has a copy of this step, no node receives a copy. It does not matter which rank has written the
    # copy.
    assert decide([offer(0, [9, 10]), offer(0)]) == {"step": 10}
    # A node has a copy of a step if at least one of its ranks has a copy of this step.
    assert decide([offer(0, [9, 10]), offer(0), offer(1), offer(1, [9])]) == {"step": 9}


def test_the_same_step_of_another_round_is_another_state():
    """Before the restart, only node 0 had finished step 11. All ranks restarted from step 10. After that, node 1 repeated step
    11 in round 1, so the two snapshots of step 11 differ."""
    ahead, repeated = offer(0, [10, 11]), offer(1, [10, (11, 1)])
    assert decide([ahead, repeated]) == {"step": 10}
    assert decide([{**ahead, "own": []}, {**repeated, "own": []}]) == {"step": 10}
    assert decide([ahead, repeated, offer(2)]) == {"step": 10, "lend": [0, 1], "borrow": [2]}
    assert decide([offer(0, [9, (11, 1)]), offer(1, [9, (11, 1)]), offer(2)]) == {"step": 11, "round": 1, "lend": [0, 1], "borrow": [2]}


def test_states_that_cannot_be_borrowed():
    none = {"step": None, "why": "no snapshot is restored: rank 1 has none"}
    # The state is not replicated. Each rank has a different state, so no rank can use the copy of another rank.
    assert decide([offer(0, [9], replicated=[]), offer(1)]) == none
    # A rank that has no snapshot memory cannot read the copies of its node.
    unable = {"step": None, "why": "no snapshot is restored: rank 1 has no memory for snapshots"}
    assert decide([offer(0, [9]), offer(1, able=False)]) == decide([offer(0, [9]), offer(0, able=False)]) == unable
    assert decide([offer(0, [9]), offer(1), offer(1, able=False)]) == {**unable, "why": unable["why"].replace("1", "2")}
    refused = "the snapshot of step 5 is not restored, because it differs from the state of the script: x is missing in the snapshot"
    assert decide([offer(0, [9]), offer(1, why=refused)]) == {"step": None, "why": refused}
    assert decide([offer(0, [9]), offer(1, [], refused=[9], why=refused)]) == {"step": None, "why": refused}
    assert decide([offer(0, [5, 9]), offer(0, refused=[9], why=refused)]) == {"step": 5}
    assert decide([offer(0), offer(1)]) == decide([offer(0), offer(1, able=False)]) == {"step": None, "why": ""}


# ---- the transfer ----

SECRET = bytes(range(32))


class Two:
    """The snapshot memories of two nodes. The first node has a snapshot and can send it to the second node."""

    def __init__(self):
        self.printed = []
        self.files = []
        self.rich, self.poor = (self.memory(rank) for rank in (0, 1))
        assert self.rich.take({"data": bytes(range(256)) * 20000}, 7, True)
        self.lenders = []

    def memory(self, rank: int) -> _snapshot.Snapshots:
        file = os.memfd_create("test")
        self.files.append(file)
        os.ftruncate(file, 1 << 41)
        return _snapshot.Snapshots(f"/proc/self/fd/{file}:0", rank, 2, 3, lambda text, with_rank=True: self.printed.append(text))

    def lend(self, ports: str = "", receivers=(1,)) -> _lending.Lender:
        self.lenders.append(_lending.Lender(self.rich.copy_to_lend((7, 3)), SECRET, list(receivers), "127.0.0.1", ports, self.printed.append))
        return self.lenders[-1]

    def borrow(self, port: int, secret: bytes = SECRET, like=None) -> None:
        self.poor._like = like
        self.poor.borrow((7, 3), 0, "127.0.0.1", lambda: _lending._Receiver(1, "127.0.0.1", port, secret))

    def kept(self) -> list[int]:
        self.poor._like = None
        return [step for step, _ in self.poor._offer()["replicated"]]


@pytest.fixture
def two():
    two = Two()
    yield two
    for lender in two.lenders:
        lender.close()
    for file in two.files:
        os.close(file)


def rest_of(connection: socket.socket) -> bytes:
    """Reads until the peer closes the connection, and returns the data. A reset also counts as the end, because the kernel
    sends a reset if the peer closes the connection before it has read all data."""
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


def test_a_borrowed_copy_is_identical(two):
    two.borrow(two.lend().port)
    assert two.kept() == [7]
    mine, header = two.poor._of_all_ranks((7, 3))
    assert mine.read(header)[0] == {"data": bytes(range(256)) * 20000} and header["rank"] == 0
    assert re.fullmatch(r"the snapshot of step 7 was received from rank 0 at 127\.0\.0\.1: 4\.(89|9) MiB in \d+\.\d s", two.printed[-1])


def test_a_borrower_without_the_secret_gets_nothing(two):
    lender = two.lend()
    with pytest.raises(ConnectionError, match="does not know the secret"):
        two.borrow(lender.port, secret=bytes(32))
    assert two.kept() == []

    # A malicious client can skip the check of the lender's proof, but it must send its own proof. If this proof is wrong, the
    # client must not receive more data.
    for proof in (bytes(32), b""):
        with socket.create_connection(("127.0.0.1", lender.port)) as client:
            client.sendall(_lending._MAGIC + bytes(32) + (1).to_bytes(4, "little"))
            hello = client.recv(64, socket.MSG_WAITALL)
            # If `proof` is empty, the client returns the lender's own proof, which must also be rejected.
            client.sendall(proof or hello[32:])
            assert rest_of(client) == b""
    # The lender rejects a rank that may not receive a snapshot, and a client that uses another protocol.
    for hello in (_lending._MAGIC + bytes(32) + (0).to_bytes(4, "little"), b"GET / HTTP/1.1\r\nHost: a-name-of-some-length\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", lender.port)) as client:
            client.sendall(hello)
            assert rest_of(client) == b""
    two.borrow(lender.port)  # a client with the secret is still served after these attacks
    assert two.kept() == [7]
    refusals = [line for line in two.printed if "does not know the secret" in line]
    assert refusals == ["a process at 127.0.0.1 requested the snapshot that this rank lends but does not know the secret: the request was refused"]


def test_a_lender_without_the_secret_is_refused(two):
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        def answer():
            connection = impostor.accept()[0]
            hello = connection.recv(44, socket.MSG_WAITALL)
            connection.sendall(hello[8:40] + bytes(32))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionError, match="the process at that address does not know the secret of this round"):
            two.borrow(impostor.getsockname()[1])
        thread.join()
    assert two.kept() == []


@pytest.mark.parametrize("at", [100, 64 + 80 + 32 + 100, 64 + 80 + 32 + (3 << 20)], ids=["header", "first piece", "later piece"])
def test_a_modified_transfer_is_not_restored(two, at):
    lender = two.lend()

    def read(source):
        try:
            return source.recv(65536)
        except OSError:
            return b""

    with socket.create_server(("127.0.0.1", 0)) as between:
        def pass_on():
            theirs, mine = between.accept()[0], socket.create_connection(("127.0.0.1", lender.port))
            threading.Thread(target=carry, args=(theirs, mine, -1)).start()
            carry(mine, theirs, at)

        def carry(source, sink, changed):
            passed = 0
            while data := read(source):
                if passed <= changed < passed + len(data):
                    data = data[:changed - passed] + bytes([data[changed - passed] ^ 1]) + data[changed - passed + 1:]
                passed += len(data)
                try:
                    sink.sendall(data)
                except OSError:
                    break
            sink.close()

        thread = threading.Thread(target=pass_on)
        thread.start()
        with pytest.raises(ConnectionError, match="the data was changed in transit"):
            two.borrow(between.getsockname()[1])
        thread.join()
    assert two.kept() == []


def test_silent_connections_do_not_block_borrowers(two):
    lender = two.lend()
    clients = [socket.create_connection(("127.0.0.1", lender.port)) for _ in range(_lending._MAX_UNPROVEN + 20)]
    two.borrow(lender.port)
    assert two.kept() == [7]
    for client in clients:
        client.close()


def test_a_silent_lender_is_abandoned(two, monkeypatch):
    monkeypatch.setattr(_lending, "_SILENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(socket.timeout):
            two.borrow(silent.getsockname()[1])
    lender, over = two.lend(), threading.Event()
    monkeypatch.setattr(lender, "_send", lambda connection, codes: over.wait())
    with pytest.raises(socket.timeout):
        two.borrow(lender.port)
    over.set()
    assert two.kept() == []


def test_a_copy_without_enough_memory_is_refused(two, monkeypatch):
    monkeypatch.setattr(_snapshot, "free_memory", lambda: 1 << 20)
    with pytest.raises(ValueError, match=r"^it needs 4\.(89|9) MiB of memory, but only 1 MiB are left$"):
        two.borrow(two.lend().port)
    assert two.kept() == []


def test_a_copy_of_another_shape_is_refused(two):
    class Shaped:
        shape = (1,)

    with pytest.raises(ValueError, match=r"^the snapshot of step 7 is not restored, because it differs from the state of the script: weight is missing in the snapshot$"):
        two.borrow(two.lend().port, like={"weight": Shaped()})
    assert two.kept() == []


def test_the_lender_listens_within_the_port_range(two):
    first = jobs.free_port()
    assert two.lend(ports=f"{first}-{first}").port == first
    with pytest.raises(OSError, match=rf"^no port of --port-range {first}-{first} is free$"):
        two.lend(ports=f"{first}-{first}")


# ---- jobs ----

# The script that all ranks run. They wait for each other in every step, through the store of the worker channel. At step 20 of
# the first round they wait until the test kills a node.
LOCKSTEP = """
import hashlib, os, signal, sys, time
import ddprun
HARM

def meet(n):
    request = ddprun._channel.request_store
    request("set", "test/%d/%d" % (n, ddprun.rank), b"here")
    for other in range(ddprun.world_size):
        request("get", "test/%d/%d" % (n, other))

out = os.environ["OUT"]
state = ddprun.restore() or {"step": 0, "sum": "", "bytes": bytearray(3 << 20)}
print("starts after %d" % state["step"], flush=True)
log = open("%s.%d.%d" % (out, ddprun._round, ddprun.rank), "w")
for n in range(state["step"] + 1, 31):
    meet(n)
    state["step"], state["sum"] = n, hashlib.sha1(("%s %d" % (state["sum"], n)).encode()).hexdigest()
    state["bytes"][n * 99991 % (3 << 20)] = n
    log.write("%d %s %s\\n" % (n, state["sum"], hashlib.sha1(state["bytes"]).hexdigest())); log.flush()
    assert ddprun.snapshot(state, step=n, replicated=True)
    if n == 20 and ddprun._round == 0:
        meet(1000)
        open("%s.waits.%d" % (out, ddprun.rank), "w").close()
        signal.pause()
"""


def undisturbed() -> list[str]:
    total, data, lines = "", bytearray(3 << 20), []
    for n in range(1, 31):
        total = hashlib.sha1(f"{total} {n}".encode()).hexdigest()
        data[n * 99991 % (3 << 20)] = n
        lines.append(f"{n} {total} {hashlib.sha1(data).hexdigest()}")
    return lines


@pytest.fixture
def write(tmp_path):
    """Returns write(harm), which writes the script with the lines `harm` after its imports."""
    def write(harm: str = "") -> pathlib.Path:
        (tmp_path / "train.py").write_text(LOCKSTEP.replace("HARM", harm))
        return tmp_path / "train.py"

    return write


def options(port: int, node: int, *more, nodes: str = "2") -> list:
    return ["--nnodes", nodes, "--master-addr", "127.0.0.1", "--master-port", port, "--node-rank", node, *more, "train.py"]


def until_ranks_wait(nodes, tmp_path, ranks: int) -> None:
    nodes.until(lambda: len(list(tmp_path.glob("out.waits.*"))) == ranks, "all ranks at step 20")


def kill_node(nodes, number: int) -> None:
    """Kills the agent of a node. The guardian of the agent then ends the workers, and the snapshot memory is lost with the
    agent."""
    nodes.agents[number].kill()
    nodes.agents[number].wait()


def of_round(tmp_path, number: int) -> dict[int, list[str]]:
    return {int(file.suffix[1:]): file.read_text().splitlines() for file in tmp_path.glob(f"out.{number}.*")}


def test_a_new_node_continues_from_the_last_step_of_another(nodes, write, tmp_path):
    """Each of two nodes has two ranks. The agent of the second node is killed, and a new agent without snapshots replaces
    it."""
    write()
    port, env = jobs.free_port(), {**ENV, "OUT": str(tmp_path / "out")}
    for node in (0, 1):
        nodes.start(*options(port, node, "--nproc-per-node", "2"), **env)
    until_ranks_wait(nodes, tmp_path, 4)
    kill_node(nodes, 1)
    nodes.start(*options(port, 1, "--nproc-per-node", "2"), **env)
    assert [nodes.agents[n].wait(60) for n in (0, 2)] == [0, 0], nodes.all_text()
    printed = nodes.all_text()
    assert printed.count("starts after 20\n") == 4, printed
    assert of_round(tmp_path, 1) == {rank: undisturbed()[20:] for rank in range(4)}
    # On the new node only one rank receives the copy. The other rank reads it from the memory of the node.
    assert len(re.findall(r"rank 2: the snapshot of step 20 was received from rank 0 at 127\.0\.0\.1: 3\.\d+ MiB in ", printed)) == 1 and printed.count(" was received from rank ") == 1
    assert re.findall(r"rank (\d): the state of step 20 is a copy of another rank's state", printed) in (["2", "3"], ["3", "2"])


# Script code that kills one end of a transfer once, while the first block of data is sent.
DIES = {
    "receiver": """
def dies(self, data, check=ddprun._lending._Receiver._check):
    check(self, data)
    if len(data) == 1 << 20 and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
ddprun._lending._Receiver._check = dies
""",
    "lender": """
def dies(self, connection, codes, send=ddprun._lending.Lender._send):
    if not os.path.exists("died"):
        connection.sendall(self._header + codes.next(self._header))
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    send(self, connection, codes)
ddprun._lending.Lender._send = dies
""",
    "lending node": """
agent = int(open("/proc/self/environ").read().split("DDPRUN_SNAPSHOTS=/proc/")[1].split("/")[0])
def dies(self, connection, codes, send=ddprun._lending.Lender._send):
    if not os.path.exists("died"):
        connection.sendall(self._header + codes.next(self._header))
        open("died", "w").close()
        # Until all nodes have recorded that the round has started, two of three nodes are not a majority
        # (commit-sent-immediately.md).
        time.sleep(2.5)
        os.kill(agent, signal.SIGKILL)
        signal.pause()
    send(self, connection, codes)
ddprun._lending.Lender._send = dies
""",
}


@pytest.mark.parametrize("process", ["receiver", "lender"])
def test_a_kill_during_the_transfer_loses_no_step(nodes, write, tmp_path, process):
    """The kill ends the round. In the next round the snapshot is lent again, so no rank starts from scratch."""
    write("import ddprun._lending" + DIES[process])
    port, env = jobs.free_port(), {**ENV, "OUT": str(tmp_path / "out")}
    for node in (0, 1):
        nodes.start(*options(port, node, "--max-restarts", "1"), **env)
    until_ranks_wait(nodes, tmp_path, 2)
    kill_node(nodes, 1)
    nodes.start(*options(port, 1, "--max-restarts", "1"), **env)
    assert [nodes.agents[n].wait(60) for n in (0, 2)] == [0, 0], nodes.all_text()
    assert (tmp_path / "died").exists() and "signal 9 (SIGKILL)" in nodes.all_text()
    assert of_round(tmp_path, 1) == {} and of_round(tmp_path, 2) == {rank: undisturbed()[20:] for rank in range(2)}, nodes.all_text()


def test_a_failed_transfer_is_one_line_and_all_start_over(nodes, write, tmp_path):
    write("""import ddprun._lending
def fails(address, ports):
    raise OSError("no sockets are left")
ddprun._lending._listening = fails
""")
    port, env = jobs.free_port(), {**ENV, "OUT": str(tmp_path / "out")}
    for node in (0, 1):
        nodes.start(*options(port, node), **env)
    until_ranks_wait(nodes, tmp_path, 2)
    kill_node(nodes, 1)
    nodes.start(*options(port, 1), **env)
    assert [nodes.agents[n].wait(60) for n in (0, 2)] == [0, 0], nodes.all_text()
    printed = nodes.all_text()
    line = "ddprun: rank 1 could not get the snapshot of step 20 from rank 0: that rank cannot listen: no sockets are left; no snapshot is restored\n"
    assert printed.count(line) == 1 and printed.count("no snapshot is restored") == 1 and printed.count("starts after 0\n") == 4, printed
    assert of_round(tmp_path, 1) == {rank: undisturbed() for rank in range(2)}


def test_a_node_without_snapshot_memory_delays_no_rank(nodes, write, tmp_path):
    """The new node has a limit on file sizes, so it has no snapshot memory. No restart was counted, so only the round number
    shows the worker of that node that other ranks wait for its answer."""
    write("ddprun.snapshot = lambda *given, really=ddprun.snapshot, **more: really(*given, **more) or True")
    port, env = jobs.free_port(), {**ENV, "OUT": str(tmp_path / "out")}
    for node in (0, 1):
        nodes.start(*options(port, node), **env)
    until_ranks_wait(nodes, tmp_path, 2)
    kill_node(nodes, 1)
    limited = tmp_path / "limited.sh"
    limited.write_text(f'#!/bin/sh\nulimit -f 1000000\nexec {nodes.ddprun} "$@"\n')
    limited.chmod(0o755)
    nodes.ddprun = limited
    nodes.start(*options(port, 1), **env)
    assert [nodes.agents[n].wait(60) for n in (0, 2)] == [0, 0], nodes.all_text()
    printed = nodes.all_text()
    assert printed.count("ddprun: no snapshot is restored: rank 1 has no memory for snapshots\n") == 1 and printed.count("starts after 0\n") == 4, printed
    assert of_round(tmp_path, 1) == {rank: undisturbed() for rank in range(2)}


def newest_round(tmp_path) -> int:
    return max(int(file.name.split(".")[1]) for file in tmp_path.glob("out.[0-9]*.[0-9]*"))


def test_a_lost_lender_loses_no_step(make_hosts, write, tmp_path):
    """Three hosts train, and a fourth host is a spare. The third host is killed, and the spare replaces it. The coordinator's
    host is killed while it sends its snapshot to the new host. Then the second host must send its own snapshot."""
    hosts = make_hosts(4)
    write("import ddprun._lending" + DIES["lending node"])
    hosts.environment |= {**ENV, "OUT": str(tmp_path / "out")}
    for host in (0, 1, 2):
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "train.py")
    until_ranks_wait(hosts, tmp_path, 3)
    # The fourth host is a spare. It joins the job only after another node is lost.
    hosts.start_on(3, "join", hosts.until_printed(0, r"ddprun join (\S+) ")[1])
    hosts.until_printed(3, "joined the job")
    kill_node(hosts, 2)
    assert hosts.wait() == [-signal.SIGKILL, 0, -signal.SIGKILL, 0], hosts.all_text()
    assert of_round(tmp_path, newest_round(tmp_path)) == {rank: undisturbed()[20:] for rank in range(2)}, hosts.all_text()
    assert hosts.all_text().count("starts after 0\n") == 3


def test_added_nodes_get_the_state_of_the_first(make_hosts, write, tmp_path):
    """One node trains alone until two more nodes join. Both new nodes receive the snapshot of the first node over the network.
    The nodes are in separate network namespaces."""
    hosts = make_hosts(3)
    write()
    hosts.environment |= {**ENV, "OUT": str(tmp_path / "out")}
    common = ["--nnodes", "1:3", "--master-addr", hosts.address(0), "--port-range", "29400-29449"]
    hosts.start_on(0, *common, "--node-rank", 0, "train.py")
    until_ranks_wait(hosts, tmp_path, 1)
    for host in (1, 2):
        hosts.start_on(host, "join", hosts.until_printed(0, r"ddprun join (\S+) ")[1])
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    printed = hosts.all_text()
    assert of_round(tmp_path, newest_round(tmp_path)) == {rank: undisturbed()[20:] for rank in range(3)}, printed
    assert printed.count("starts after 0\n") == 1
    assert sorted(re.findall(r"rank (\d): the snapshot of step 20 was received from rank 0 at 10\.77\.0\.10: 3\.\d+ MiB in ", printed)) == ["1", "2"], printed


# A DDP script. The data of a step depends only on the step and the rank, and the script uses no other random numbers. So the
# losses must be bit-identical to the losses of an undisturbed run.
DDP = """
import os, signal, sys
import ddprun, torch, torch.distributed
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")
torch.manual_seed(3)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

def state(n):
    return {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": n}

done = 0
if kept := ddprun.restore(like=state(0)):
    model.module.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    done = kept["step"]
print("starts after %d" % done, flush=True)
with open(os.environ["OUT"] + ".%d" % ddprun.rank, "a") as log:
    for n in range(done + 1, 41):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(1000 * n + ddprun.rank))
        loss = (model(x) - x[:, :8].sin()).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        log.write("%d %s\\n" % (n, loss.item().hex())); log.flush()
        assert ddprun.snapshot(state(n), step=n, replicated=True)
        if n == 20 and "WAITS" in os.environ and ddprun._round == 0:
            torch.distributed.barrier()
            open("%s.waits.%d" % (os.environ["OUT"], ddprun.rank), "w").close()
            signal.pause()
torch.distributed.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.needs_torch_python
@pytest.mark.parametrize("lost", [1, 0])
def test_a_lost_node_keeps_the_losses_of_a_ddp_script(nodes, tmp_path, lost):
    (tmp_path / "train.py").write_text(DDP)

    def start(port: int, node: int, out: str, **env: str) -> None:
        nodes.start(*options(port, node), **{**ENV, "OUT": str(tmp_path / out), **env})

    port = jobs.free_port()
    for node in (0, 1):
        start(port, node, "out", WAITS="1")
    until_ranks_wait(nodes, tmp_path, 2)
    kill_node(nodes, lost)
    start(port, lost, "out")
    assert [nodes.agents[n].wait(120) for n in (1 - lost, 2)] == [0, 0], nodes.all_text()
    printed = nodes.all_text()
    assert printed.count("starts after 20\n") == 2 and printed.count(" was received from rank ") == 1, printed
    port = jobs.free_port()
    for node in (0, 1):
        start(port, node, "expected")
    assert [agent.wait(120) for agent in nodes.agents[3:]] == [0, 0], nodes.all_text()

    def losses(out: str) -> list[list[str]]:
        """Returns the losses of both ranks in a fixed order, because a replaced node may get another rank."""
        return sorted(sorted((tmp_path / f"{out}.{rank}").read_text().splitlines(), key=lambda line: int(line.split()[0])) for rank in (0, 1))

    assert losses("out") == losses("expected")
