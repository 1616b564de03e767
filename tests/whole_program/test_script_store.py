"""Tests of the key-value store (TCPStore) at MASTER_PORT, which the agent runs instead of rank 0. The store continues after
the end of rank 0, is empty after each restart, listens only on the addresses that it needs, and ends with the job. The process
of the store starts only when a worker connects. Most workers in these tests implement the protocol of TCPStore without torch.
A few tests use the clients of torch."""

import os
import pathlib
import select
import sys

import jobs
import pytest

HERE = pathlib.Path(__file__).resolve().parent
ENV = {"PYTHONPATH": str(HERE), "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def job(ddprun_bin, run, tmp_path):
    """Returns job(body, *options), which runs a script with this body on two workers until they end."""

    def go(body: str, *options: str, timeout: float = 60, **env: str):
        (tmp_path / "train.py").write_text("import os, signal, socket, sys\nimport tcp_store\nrank = int(os.environ['RANK'])\n"
                                           "round_ = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n" + body)
        return run([ddprun_bin, "--nproc-per-node", "2", *options, "train.py"], timeout=timeout, **{**ENV, **env})

    return go


def named_port() -> list[str]:
    return ["--master-port", str(jobs.free_port())]


# ---- start and end of the store ----


def test_the_store_outlives_rank_0(job):
    done = job("""
store = tcp_store.Store()
if rank == 0:
    store.set("pid", str(os.getpid()))
else:
    tcp_store.ended(int(store.get("pid")))
    print(os.environ["TORCHELASTIC_USE_AGENT_STORE"], store.ping(), store.add("n", 41) + tcp_store.Store().add("n", 1))
""", "--standalone")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True 77 83\n", "")


@pytest.mark.parametrize("options", [["--standalone"], None], ids=["free port", "named port"])
def test_each_round_has_a_new_store(job, options):
    """In round 0, both ranks have a connection to the store. Rank 0 is killed, and the agent stops rank 1. In the next round
    the store is empty."""
    done = job("""
store = tcp_store.Store()
if round_ == 0:
    store.set(f"of {rank}", "1")
    store.wait("of 0", "of 1")
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
print(rank, store.num_keys() if rank == 0 else store.get("value"))
if rank == 0:
    store.set("value", "new")
""", *(options or named_port()), "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 0", "1 new"]


def test_the_store_starts_on_demand_and_on_loopback(job):
    done = job("""
if rank == 0:
    print(tcp_store.stores(), *sorted(tcp_store.listening()))
    store = tcp_store.Store()
    store.ping()
    print(len(tcp_store.stores()), *sorted(tcp_store.listening()))
""", *named_port(), "--nproc-per-node", "1")
    before, after = done.stdout.splitlines()
    addresses = "127.0.0.1 ::1" if pathlib.Path("/proc/net/if_inet6").exists() and "00000000000000000000000000000001" in pathlib.Path(
        "/proc/net/if_inet6").read_text() else "127.0.0.1"
    assert (before, after) == (f"[] {addresses}", f"1 {addresses}")


def test_the_store_ends_with_a_killed_agent(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text("import signal, tcp_store\nstore = tcp_store.Store()\nstore.ping()\n"
                                       "print(tcp_store.stores()[0], flush=True)\nsignal.pause()\n")
    process = jobs.start([ddprun_bin, "--standalone", tmp_path / "train.py"], **ENV)
    store = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    assert select.select([store], [], [], 60)[0]
    os.close(store)


def test_a_dead_store_is_reported(job):
    done = job("""
store = tcp_store.Store()
if rank == 0:
    store.ping()
    (pid,) = tcp_store.stores()
    os.kill(pid, signal.SIGKILL)
    tcp_store.ended(pid)
try:
    store.wait("never")
except ConnectionError as reason:
    print(reason)
""", *named_port(), "--nproc-per-node", "1")
    assert done.stdout == "the store has closed the connection\n"
    assert "ddprun: the workers' store ended unexpectedly with signal 9: scripts that use it will fail\n" in done.stderr


@pytest.mark.parametrize("where", [[], ["--nnodes", "1:2", "--node-rank", "0", "--master-addr", "127.0.0.1"]], ids=["one machine", "several"])
def test_a_lack_of_descriptors_delays_new_clients_only(job, where):
    """The store has no free descriptor for a new client, and no client leaves. With several nodes, the agent passes the new
    client to the store. If the client were lost on the way, its connection would be closed soon after. The test waits long
    enough to see that this does not happen."""
    done = job("""
import resource, select, struct
socket.setdefaulttimeout(20)
store = tcp_store.Store()
(pid,) = tcp_store.stores()
limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, limit[1]))
late = socket.create_connection(tcp_store.where())
late.sendall(struct.pack("=BIBI", tcp_store.VALIDATE, 0x3C85F7CE, tcp_store.PING, 78))
print(select.select([late], [], [], 0.5)[0], store.ping(), store.ping())
resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
print(struct.unpack("=I", late.recv(4))[0])
""", *named_port(), "--nproc-per-node", "1", *where, DDPRUN_TOKEN=os.urandom(32).hex())
    assert (done.returncode, done.stdout) == (0, "[] 77 77\n78\n"), done.stderr
    assert done.stderr.count("ddprun: the workers' store accepts no clients at the moment: Too many open files\n") == 1, done.stderr
    assert where or done.stderr.count("\n") == 1, done.stderr


# ---- permissions ----


def test_an_unknown_query_closes_its_client(job):
    done = job("""
other = tcp_store.Store()
other.set("a", "1")
store = tcp_store.Store()
store.send(bytes([99]))
try:
    store.read(1)
except ConnectionError as reason:
    print(reason)
with socket.create_connection(tcp_store.where()) as foreign:
    foreign.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    print(foreign.recv(1))
print(other.get("a"))
""", *named_port(), "--nproc-per-node", "1")
    assert done.stdout == "the store has closed the connection\nb''\n1\n"
    first, second = done.stderr.splitlines()
    assert first.startswith("ddprun: the workers' store cut off a client at 127.0.0.1 port ")
    assert first.endswith(": query 99 is not known") and second.endswith(": query 71 is not known")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run as another user")
def test_another_local_user_is_refused(job):
    done = job("""
store = tcp_store.Store()
if os.fork() == 0:
    os.setuid(65534)
    try:
        tcp_store.Store().ping()
    except ConnectionError:
        print("not let in", flush=True)
    os._exit(0)
os.wait()
print(store.ping())
""", *named_port(), "--nproc-per-node", "1")
    assert done.stdout == "not let in\n77\n"
    assert "the client belongs to user 65534, but this job belongs to user 0 (--agent-store off accepts all users)\n" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run as another user")
def test_a_short_connection_of_another_user_sets_no_key(job):
    """After a reset, the kernel no longer knows which user opened a connection, but the store can still read the received
    bytes. The store must not execute these queries."""
    done = job("""
import struct
hello = struct.pack("=BI", tcp_store.VALIDATE, 0x3C85F7CE)
store = tcp_store.Store()
[pid] = tcp_store.stores()
os.kill(pid, signal.SIGSTOP)  # suspends the store, so that it reads these connections only after they are closed
if os.fork() == 0:
    os.setuid(65534)
    for number in range(300):
        peer = socket.create_connection(tcp_store.where())
        peer.sendall(hello + bytes([tcp_store.SET]) + tcp_store.text(f"key {number}") + tcp_store.text("mine"))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    os._exit(0)
os.wait()
os.kill(pid, signal.SIGCONT)
print(tcp_store.Store().num_keys())  # a client that connects after these clients
""", *named_port(), "--nproc-per-node", "1")
    assert done.stdout == "0\n", done.stderr


def test_another_name_of_this_machine_is_accepted(job):
    """MASTER_ADDR may be a name that means any address of this machine. Then the store listens on all addresses, but accepts
    only clients of this machine."""
    done = job("""
os.environ["MASTER_ADDR"] = "127.0.1.1"
print(tcp_store.Store().ping(), *sorted(tcp_store.listening()))
""", *named_port(), "--nproc-per-node", "1", "--master-addr", "some-name.invalid")
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("77 ::\n", "77 0.0.0.0\n")


# ---- without the store ----


HOSTED = """
if rank == 0:
    print(os.environ["TORCHELASTIC_USE_AGENT_STORE"], tcp_store.listening())
    socket.create_server(("", tcp_store.where()[1])).close()
"""


@pytest.mark.parametrize("options,env", [(["--agent-store", "off"], {}), ([], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
                                         ([], {"DDPRUN_AGENT_STORE": "off"})])
def test_rank_0_hosts_the_store_if_disabled(job, options, env):
    done = job(HOSTED, *named_port(), *options, **env)
    assert (done.returncode, done.stdout) == (0, "False set()\n"), done.stderr


def test_the_option_overrides_pytorchs_variable(job):
    done = job("print(os.environ['TORCHELASTIC_USE_AGENT_STORE'])", "--nproc-per-node", "1", "--agent-store", "on", *named_port(),
               TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert done.stdout == "True\n"


def test_an_invalid_option_value_is_refused(run, ddprun_bin):
    done = run([ddprun_bin, "--agent-store", "maybe", "--no-python", "true"])
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--agent-store" in done.stderr


# ---- several nodes ----


def test_ranks_of_all_nodes_share_the_store(nodes, script, tmp_path):
    """The store runs on the node of rank 0, whichever node is the coordinator. `--agent-store off` on the other node has no
    effect."""
    job = script(f"""exec env PYTHONPATH={HERE} {sys.executable} -c '
import os, tcp_store
store = tcp_store.Store()
rank = int(os.environ["RANK"])
if rank == 0:
    store.set("pid", str(os.getpid()))
else:
    tcp_store.ended(int(store.get("pid")))
    store.set("written", "late")
    open("{tmp_path}/out/value", "w").write(store.get("written"))
'""")
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(jobs.free_port())]
    nodes.start(*common, "--node-rank", "1", "--agent-store", "off", job)
    nodes.start(*common, "--node-rank", "0", job)
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert (tmp_path / "out" / "value").read_text() == "late"


def test_a_restart_after_rank_0_ended_keeps_the_port(nodes, script, tmp_path):
    """Rank 0 has exited successfully, so its node has no worker to stop before the restart. The old store still listens on
    MASTER_PORT. The new store must get this port from the old one."""
    job = script(f"""exec env PYTHONPATH={HERE} {sys.executable} -c '
import os, sys, tcp_store
store = tcp_store.Store()
rank, round_ = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
store.set(f"of {{rank}}", "1")
store.wait("of 0", "of 1")
if rank == 0:
    store.set("pid", str(os.getpid()))
else:
    tcp_store.ended(int(store.get("pid")))
    sys.exit(3 if round_ < 2 else 0)
'""")
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(jobs.free_port()), "--max-restarts", "2"]
    for rank in (0, 1):
        nodes.start(*common, "--node-rank", str(rank), job)
    assert nodes.wait() == [0, 0], nodes.all_text()


# ---- torch's own clients ----


TORCH = """
import datetime, os, select, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(3, 1))
for _ in range(2):
    model(torch.ones(2, 3) * (rank + 1)).sum().backward()
mean = sum(range(1, world + 1)) / world * 2 * 2
assert torch.allclose(model.module.weight.grad, torch.full((1, 3), mean)), model.module.weight.grad

store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=datetime.timedelta(seconds=60))
if rank == 0:
    store.set("a", "1")
    assert store.get("a") == b"1" and store.add("n", 5) == 5 and store.add("n", -2) == 3
    assert store.compare_set("a", "1", "2") == b"2" and store.compare_set("a", "1", "3") == b"2"
    assert store.compare_set("new", "", "x") == b"x" and store.compare_set("newer", "y", "x") == b"y"
    assert store.check(["a", "n"]) and not store.check(["a", "nowhere"])
    assert store.delete_key("n") and not store.delete_key("n")
    store.append("a", "34")
    store.multi_set(["m1", "m2"], ["one", "two"])
    assert store.multi_get(["a", "m1", "m2"]) == [b"234", b"one", b"two"]
    before = store.num_keys()
    store.set("big", b"x" * 3_000_000)
    assert store.num_keys() == before + 1 and len(store.get("big")) == 3_000_000
    if hasattr(store, "queue_push"):
        store.queue_push("q", "job")
        assert store.queue_len("q") == 1 and store.queue_pop("q") == b"job" and store.queue_len("q") == 0
    if hasattr(store, "list_keys"):
        assert {"a", "m1", "big"} <= set(store.list_keys())
    try:
        store.wait(["never"], datetime.timedelta(milliseconds=50))
    except dist.DistStoreError:
        pass
    else:
        sys.exit("no timeout")
    store.set("never", "but now")
    store.wait(["never"], datetime.timedelta(seconds=60))
    assert not hasattr(store, "clone") or store.clone().get("a") == b"234"  # torch 2.3 has none
dist.barrier()
if rank == 0:
    store.set("pid", str(os.getpid()))
    os._exit(0)
pidfd = os.pidfd_open(int(store.get("pid")))
select.select([pidfd], [], [])
assert store.add("late", 1) >= 1
print("rank", rank, store.get("a").decode(), flush=True)
os._exit(0)
"""


def check_torchs_clients(run, ddprun_bin, tmp_path, workers: int, python: str) -> None:
    (tmp_path / "train.py").write_text(TORCH)
    done = run([ddprun_bin, "--standalone", "--nproc-per-node", str(workers), "train.py"], timeout=300, PYTHON_EXEC=python)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} 234" for rank in range(1, workers)]


@pytest.mark.needs_torch_python
@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.long)])
def test_torchs_clients(run, ddprun_bin, tmp_path, workers):
    check_torchs_clients(run, ddprun_bin, tmp_path, workers, sys.executable)


@pytest.mark.long
def test_clients_of_other_torch_versions(run, ddprun_bin, tmp_path):
    """DDPRUN_TORCH_PYTHONS=PYTHON:PYTHON names interpreters that have other versions of torch."""
    pythons = [name for name in os.environ.get("DDPRUN_TORCH_PYTHONS", "").split(":") if name]
    if not pythons:
        pytest.skip("DDPRUN_TORCH_PYTHONS names no interpreter")
    for python in pythons:
        check_torchs_clients(run, ddprun_bin, tmp_path, 2, python)
