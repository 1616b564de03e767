"""Tests of jobs with two nodes, of which one may continue alone (--nnodes 1:2). If the nodes cannot reach each other, an
arbiter decides which node continues. The arbiter is an etcd server or a shared run directory. The nodes are two private hosts,
and a third host runs the etcd of Debian."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import jobs
import pytest

PATIENCE = 120
ETCD_HOST = 2


class Etcd:
    """An etcd server on a third host. Its data is in the test's folder."""

    def __init__(self, hosts, program: str, folder: pathlib.Path):
        self.hosts, self.program, self.folder = hosts, program, folder
        self.process: subprocess.Popen | None = None

    def address(self) -> str:
        return f"{self.hosts.address(ETCD_HOST)}:2379"

    def start(self):
        listens = [f"--listen-client-urls=http://{self.address()}", f"--advertise-client-urls=http://{self.address()}",
                   "--listen-peer-urls=http://127.0.0.1:0", f"--data-dir={self.folder}/data", "--logger=zap"]
        with open(self.folder / "etcd.log", "ab") as log:
            self.process = subprocess.Popen(self.hosts.on(ETCD_HOST, [self.program, *listens]), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.hosts.until(lambda: b"serving client traffic" in (self.folder / "etcd.log").read_bytes(), "etcd")

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def etcd(hosts, tmp_path):
    own = pathlib.Path(__file__).parents[2] / ".env/etcd/usr/bin/etcd"
    program = shutil.which("etcd") or (str(own) if own.exists() else None)
    if program is None:
        pytest.skip("etcd is not installed: ./dev test installs Debian's package etcd-server")
    (tmp_path / "etcd").mkdir()
    server = Etcd(hosts, program, tmp_path / "etcd")
    server.start()
    yield server
    server.end()


class Job:
    """A job of two nodes with one worker each. The workers run until one_node_is_sufficient() is called."""

    def __init__(self, hosts, script, folder: pathlib.Path, *options, second_dials_first: bool = False):
        self.hosts, self.folder = hosts, folder
        self.program = script(f'echo $$ >> $OUT/started-$HOST-$WORLD_SIZE; while [ ! -e {folder}/enough ]; do sleep 0.1; done')
        start = folder / "start"
        if second_dials_first:
            os.mkfifo(start)
            on = hosts.on
            hosts.on = lambda host, command, names=None: on(host, command if host else ["sh", "-c", 'read -r _ < "$0"; exec "$@"', str(start), *command], names)
        for host in (0, 1):
            hosts.start_on(host, "--nnodes", "1:2", "--node-rank", host, "--master-addr", hosts.address(0), "--rdzv-conf",
                           "heartbeat_timeout=2,last_call_timeout=0.3", *options, self.program)
        if second_dials_first:
            hosts.until_printed(1, "looking for the job")
            start.write_text("now\n")
        hosts.until(lambda: self.started(0, 2) and self.started(1, 2), "two workers")

    def started(self, host: int, size: int) -> list[str]:
        file = self.folder / "out" / f"started-{host}-{size}"
        return file.read_text().split() if file.exists() else []

    def continues(self, host: int):
        self.hosts.until(lambda: self.started(host, 1), f"host {host} to continue alone")

    def one_node_is_sufficient(self):
        (self.folder / "enough").touch()

    def end(self, host: int) -> int:
        return self.hosts.agents[host].wait(PATIENCE)

    def lose_power(self, host: int):
        """Simulates a power failure of the host. Its network is disconnected first, and then its agent, guardian and workers
        are killed, so no message leaves the host."""
        self.hosts.cable(host, "down")
        agent = self.hosts.agents[host].pid
        below = [pid for child in jobs.children(agent) for pid in [child, *jobs.children(child)]]
        os.kill(agent, signal.SIGSTOP)  # suspends the agent, because its guardian would react to the end of the agent
        for pid in [*below, agent]:
            # Workers exit when their guardian is killed, so some processes may have ended already.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.hosts.agents[host].wait()


def test_the_second_of_two_continues_with_the_arbiters_vote(hosts, script, etcd, tmp_path):
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    job.lose_power(0)
    job.continues(1)
    assert "the arbiter chose this node" in hosts.text(1), hosts.text(1)
    job.one_node_is_sufficient()
    assert job.end(1) == 0, hosts.all_text()


def test_of_two_partitioned_nodes_one_continues(hosts, script, etcd, tmp_path):
    """The nodes cannot reach each other, but both reach the arbiter. The coordinator's request must arrive first, and the
    answer must arrive before the worker lease of the coordinator's own worker expires."""
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    hosts.cut((0, 1), (1, 0))
    hosts.until_printed(1, "the arbiter chose the other node")
    job.continues(0)
    assert "no answer from the coordinator" not in hosts.text(0), hosts.text(0)
    assert not job.started(1, 1)
    job.one_node_is_sufficient()
    assert job.end(0) == 0, hosts.all_text()


@pytest.mark.parametrize("second_dials_first", [False, True])
def test_a_shared_run_directory_is_an_arbiter(hosts, script, tmp_path, second_dials_first):
    """The arbiter is a lock in the run directory. In one case the second node connects before the coordinator has created the
    lock. Then the coordinator must send the name of the lock's owner later."""
    job = Job(hosts, script, tmp_path, "--run-dir", tmp_path / "run", second_dials_first=second_dials_first)
    job.lose_power(0)
    job.continues(1)
    assert "the arbiter chose this node" in hosts.text(1), hosts.text(1)
    assert [len(link.readlink().name) for link in (tmp_path / "run" / "arbiter").iterdir()] == [32]
    job.one_node_is_sufficient()
    assert job.end(1) == 0, hosts.all_text()


@pytest.mark.long
def test_a_refused_connection_does_not_prove_a_death(hosts, script, tmp_path):
    """The second node's connection is reset, and each new connection is refused, as if the first node had failed. But the first
    node is running and continues, so the second node must end."""
    job = Job(hosts, script, tmp_path)
    hosts.refuse(1, 0)
    assert job.end(1) == 86, hosts.all_text()
    job.continues(0)
    assert not job.started(1, 1)
    job.one_node_is_sufficient()
    assert job.end(0) == 0, hosts.all_text()


@pytest.mark.long
def test_the_partitioned_node_ends_with_a_message(hosts, script, etcd, tmp_path):
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    hosts.cut((0, 1), (1, 0))
    assert job.end(1) == 86, hosts.all_text()
    assert "cut off from the majority of the nodes for 15 s: the arbiter chose the other node, which continues" in hosts.text(1)
    job.continues(0)
    job.one_node_is_sufficient()
    assert job.end(0) == 0, hosts.all_text()


@pytest.mark.long
def test_without_the_arbiter_no_node_continues(hosts, script, etcd, tmp_path):
    """If the arbiter cannot be reached, no node may continue, not even the node with group rank 0. The arbiter could have
    chosen the other node."""
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    etcd.end()
    hosts.cut((0, 1), (1, 0))
    assert [job.end(host) for host in (0, 1)] == [86, 86], hosts.all_text()
    for host in (0, 1):
        assert f"the arbiter at {etcd.address()} made no decision: Connection refused" in hosts.text(host), hosts.text(host)
    assert not job.started(0, 1) and not job.started(1, 1)


@pytest.mark.long
def test_an_unshared_directory_is_not_an_arbiter(hosts, script, tmp_path):
    """Each node has its own disk at the path of the run directory, so the directory cannot be an arbiter for both nodes. The
    second node must end."""
    for host in (0, 1):
        (tmp_path / f"disk-{host}").mkdir()
    (tmp_path / "disk").mkdir()
    on = hosts.on
    hosts.on = lambda host, command, names=None: on(host, ["sh", "-c", f'mount --bind {tmp_path}/disk-{host} {tmp_path}/disk; exec "$@"', "sh", *command], names)
    job = Job(hosts, script, tmp_path, "--run-dir", tmp_path / "disk" / "run")
    job.lose_power(0)
    assert job.end(1) == 86, hosts.all_text()
    assert "or if an arbiter chooses it. The arbiter is an etcd server (--arbiter) or a --run-dir that both nodes share" in hosts.text(1)
    assert not job.started(1, 1)
