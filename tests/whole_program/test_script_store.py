"""The store of scripts at MASTER_PORT: it outlives rank 0, starts empty in each round, listens only on its addresses, ends with the job, and costs
nothing if no worker needs it. Most workers speak its protocol without torch; a few tests use torch's own clients."""

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
    """job(body, *options): runs two workers of that script to their end."""

    def go(body: str, *options: str, timeout: float = 60, **env: str):
        (tmp_path / "train.py").write_text("import os, signal, socket, sys\nimport tcp_store\nrank = int(os.environ['RANK'])\n"
                                           "round_ = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n" + body)
        return run([ddprun_bin, "--nproc-per-node", "2", *options, "train.py"], timeout=timeout, **{**ENV, **env})

    return go


def named_port() -> list[str]:
    return ["--master-port", str(jobs.free_port())]


# ---- its life ----


def test_it_outlives_rank_0(job):
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
def test_each_round_has_a_new_one(job, options):
    """Rank 0 dies with a connection open, and the other rank is stopped with one open. The next round finds no key."""
    done = job("""
store = tcp_store.Store()
if round_ == 0:
    store.set(f"of {rank}", "1")
    store.wait("of 0", "of 1")
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
print(rank, store.num_keys() if rank == 0 else store.get("told"))
if rank == 0:
    store.set("told", "new")
""", *(options or named_port()), "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 0", "1 new"]


def test_it_starts_with_the_first_client_and_listens_on_loopback_alone(job):
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


def test_it_dies_with_an_agent_that_is_killed(ddprun_bin, tmp_path):
    (tmp_path / "train.py").write_text("import signal, tcp_store\nstore = tcp_store.Store()\nstore.ping()\n"
                                       "print(tcp_store.stores()[0], flush=True)\nsignal.pause()\n")
    process = jobs.start([ddprun_bin, "--standalone", tmp_path / "train.py"], **ENV)
    store = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    assert select.select([store], [], [], 60)[0]
    os.close(store)


def test_a_store_that_dies_is_said(job):
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
    assert "ddprun: the workers' store ended by signal 9: scripts that use it fail\n" in done.stderr


@pytest.mark.parametrize("where", [[], ["--nnodes", "1:2", "--node-rank", "0", "--master-addr", "127.0.0.1"]], ids=["one machine", "several"])
def test_a_lack_of_descriptors_delays_new_clients_only(job, where):
    """No client leaves, so no descriptor is freed. On several machines the agent passes the new client to the store. A client that is lost on this
    way is closed soon: hence the wait."""
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
    assert done.stderr.count("ddprun: the workers' store lets no clients in for the moment: Too many open files\n") == 1, done.stderr
    assert where or done.stderr.count("\n") == 1, done.stderr


# ---- permissions ----


def test_an_unknown_query_cuts_off_its_client_with_one_line(job):
    done = job("""
other = tcp_store.Store()
other.set("a", "1")
store = tcp_store.Store()
store.send(bytes([99]))
try:
    store.read(1)
except ConnectionError as reason:
    print(reason)
with socket.create_connection(tcp_store.where()) as stranger:
    stranger.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    print(stranger.recv(1))
print(other.get("a"))
""", *named_port(), "--nproc-per-node", "1")
    assert done.stdout == "the store has closed the connection\nb''\n1\n"
    first, second = done.stderr.splitlines()
    assert first.startswith("ddprun: the workers' store cut off a client at 127.0.0.1 port ")
    assert first.endswith(": query 99 is not known") and second.endswith(": query 71 is not known")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_another_user_of_the_machine_is_not_let_in(job):
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
    assert "it is of user 65534, and this job of user 0 (--agent-store off lets all in)\n" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_another_user_who_is_gone_at_once_leaves_no_key(job):
    """After a reset, the kernel no longer knows the user of the connection, but it still has the bytes."""
    done = job("""
import struct
hello = struct.pack("=BI", tcp_store.VALIDATE, 0x3C85F7CE)
store = tcp_store.Store()
[pid] = tcp_store.stores()
os.kill(pid, signal.SIGSTOP)  # so that it finds them all when they are gone
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
print(tcp_store.Store().num_keys())  # a client that comes after them
""", *named_port(), "--nproc-per-node", "1")
    assert done.stdout == "0\n", done.stderr


def test_another_name_of_this_machine_is_a_way_in(job):
    """A name may mean any address of this machine. In that case the store listens on all of them, for clients of this machine."""
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
def test_rank_0_hosts_it_where_it_is_off(job, options, env):
    done = job(HOSTED, *named_port(), *options, **env)
    assert (done.returncode, done.stdout) == (0, "False set()\n"), done.stderr


def test_the_option_wins_over_pytorchs_variable(job):
    done = job("print(os.environ['TORCHELASTIC_USE_AGENT_STORE'])", "--nproc-per-node", "1", "--agent-store", "on", *named_port(),
               TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert done.stdout == "True\n"


def test_another_word_is_refused(run, ddprun_bin):
    done = run([ddprun_bin, "--agent-store", "maybe", "--no-python", "true"])
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--agent-store" in done.stderr


# ---- several nodes ----


def test_ranks_of_all_nodes_share_it(nodes, script, tmp_path):
    """The store runs on rank 0's node, whichever node leads. The other node's agent has it switched off, which has no effect there."""
    job = script(f"""exec env PYTHONPATH={HERE} {sys.executable} -c '
import os, tcp_store
store = tcp_store.Store()
rank = int(os.environ["RANK"])
if rank == 0:
    store.set("pid", str(os.getpid()))
else:
    tcp_store.ended(int(store.get("pid")))
    store.set("said", "late")
    open("{tmp_path}/out/told", "w").write(store.get("said"))
'""")
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(jobs.free_port())]
    nodes.start(*common, "--node-rank", "1", "--agent-store", "off", job)
    nodes.start(*common, "--node-rank", "0", job)
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert (tmp_path / "out" / "told").read_text() == "late"


def test_a_restart_after_rank_0_was_done_has_the_same_port_again(nodes, script, tmp_path):
    """Rank 0's node has no worker to clean up then, but the store of the previous round still listens there."""
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


# ---- torch's clients ----


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
    """DDPRUN_TORCH_PYTHONS=PYTHON:PYTHON names interpreters with other versions of torch."""
    pythons = [name for name in os.environ.get("DDPRUN_TORCH_PYTHONS", "").split(":") if name]
    if not pythons:
        pytest.skip("DDPRUN_TORCH_PYTHONS names no interpreter")
    for python in pythons:
        check_torchs_clients(run, ddprun_bin, tmp_path, 2, python)
