"""Two nodes of a job in which either may continue alone (--nnodes 1:2). An arbiter decides which one does: an etcd server, or a shared run directory.
Private hosts; a third one runs Debian's etcd."""

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
    """An etcd server on its own host, with its data in a folder of the test."""

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
        pytest.skip("etcd is not here: ./dev test gets Debian's package etcd-server")
    (tmp_path / "etcd").mkdir()
    server = Etcd(hosts, program, tmp_path / "etcd")
    server.start()
    yield server
    server.end()


class Job:
    """A job of two nodes with one worker each, which works until the test ends it."""

    def __init__(self, hosts, script, folder: pathlib.Path, *options, second_dials_first: bool = False):
        self.hosts, self.folder = hosts, folder
        self.program = script(f'echo $$ >> $OUT/begun-$HOST-$WORLD_SIZE; while [ ! -e {folder}/enough ]; do sleep 0.1; done')
        start = folder / "start"
        if second_dials_first:
            os.mkfifo(start)
            on = hosts.on
            hosts.on = lambda host, command, names=None: on(host, command if host else ["sh", "-c", 'read -r _ < "$0"; exec "$@"', str(start), *command], names)
        for host in (0, 1):
            hosts.start_on(host, "--nnodes", "1:2", "--node-rank", host, "--master-addr", hosts.address(0), "--rdzv-conf",
                           "heartbeat_timeout=2,last_call_timeout=0.3", *options, self.program)
        if second_dials_first:
            hosts.until_said(1, "looking for the job")
            start.write_text("now\n")
        hosts.until(lambda: self.begun(0, 2) and self.begun(1, 2), "two workers")

    def begun(self, host: int, size: int) -> list[str]:
        file = self.folder / "out" / f"begun-{host}-{size}"
        return file.read_text().split() if file.exists() else []

    def goes_on(self, host: int):
        self.hosts.until(lambda: self.begun(host, 1), f"host {host} going on alone")

    def is_enough(self):
        (self.folder / "enough").touch()

    def end(self, host: int) -> int:
        return self.hosts.agents[host].wait(PATIENCE)

    def lose_power(self, host: int):
        """Simulates a power loss: agent, guardian and workers are killed without a network, so no message leaves the node."""
        self.hosts.cable(host, "down")
        agent = self.hosts.agents[host].pid
        below = [pid for child in jobs.children(agent) for pid in [child, *jobs.children(child)]]
        os.kill(agent, signal.SIGSTOP)  # so that the guardian is killed before it can react
        for pid in [*below, agent]:
            with contextlib.suppress(ProcessLookupError):  # workers die with their guardian
                os.kill(pid, signal.SIGKILL)
        self.hosts.agents[host].wait()


def test_the_second_of_two_goes_on_when_the_arbiter_chooses_it(hosts, script, etcd, tmp_path):
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    job.lose_power(0)
    job.goes_on(1)
    assert "the arbiter chose this node" in hosts.text(1), hosts.text(1)
    job.is_enough()
    assert job.end(1) == 0, hosts.all_text()


def test_of_two_that_are_cut_off_from_each_other_one_goes_on(hosts, script, etcd, tmp_path):
    """Both nodes reach the arbiter. The coordinator asks first, and its worker is not killed meanwhile."""
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    hosts.cut((0, 1), (1, 0))
    hosts.until_said(1, "the arbiter chose the other node")
    job.goes_on(0)
    assert "no answer from the coordinator" not in hosts.text(0), hosts.text(0)
    assert not job.begun(1, 1)
    job.is_enough()
    assert job.end(0) == 0, hosts.all_text()


@pytest.mark.parametrize("second_dials_first", [False, True])
def test_the_run_directory_that_both_share_is_an_arbiter(hosts, script, tmp_path, second_dials_first):
    """The first node to take the lock wins. A node that dials before the lock is held is sent the lock's owner once it is connected."""
    job = Job(hosts, script, tmp_path, "--run-dir", tmp_path / "run", second_dials_first=second_dials_first)
    job.lose_power(0)
    job.goes_on(1)
    assert "the arbiter chose this node" in hosts.text(1), hosts.text(1)
    assert [len(link.readlink().name) for link in (tmp_path / "run" / "arbiter").iterdir()] == [32]
    job.is_enough()
    assert job.end(1) == 0, hosts.all_text()


@pytest.mark.long
def test_a_refused_connection_is_no_proof_that_the_other_one_is_dead(hosts, script, tmp_path):
    """The second node's connection is reset, and each new one is refused. The first node is alive and continues."""
    job = Job(hosts, script, tmp_path)
    hosts.refuse(1, 0)
    assert job.end(1) == 86, hosts.all_text()
    job.goes_on(0)
    assert not job.begun(1, 1)
    job.is_enough()
    assert job.end(0) == 0, hosts.all_text()


@pytest.mark.long
def test_the_other_one_ends_and_says_so(hosts, script, etcd, tmp_path):
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    hosts.cut((0, 1), (1, 0))
    assert job.end(1) == 86, hosts.all_text()
    assert "cut off from the majority of the nodes for 15 s: the arbiter chose the other node, which goes on" in hosts.text(1)
    job.goes_on(0)
    job.is_enough()
    assert job.end(0) == 0, hosts.all_text()


@pytest.mark.long
def test_without_an_answer_of_the_arbiter_nobody_goes_on(hosts, script, etcd, tmp_path):
    """This includes the node with group rank 0, because the arbiter may have chosen the other one."""
    job = Job(hosts, script, tmp_path, "--arbiter", f"etcd://{etcd.address()}")
    etcd.end()
    hosts.cut((0, 1), (1, 0))
    assert [job.end(host) for host in (0, 1)] == [86, 86], hosts.all_text()
    for host in (0, 1):
        assert f"the arbiter at {etcd.address()} did not answer: Connection refused" in hosts.text(host), hosts.text(host)
    assert not job.begun(0, 1) and not job.begun(1, 1)


@pytest.mark.long
def test_a_directory_of_its_own_is_no_arbiter(hosts, script, tmp_path):
    """Each node has the path on its own disk, so there is no common arbiter, and the second node ends."""
    for host in (0, 1):
        (tmp_path / f"disk-{host}").mkdir()
    (tmp_path / "disk").mkdir()
    on = hosts.on
    hosts.on = lambda host, command, names=None: on(host, ["sh", "-c", f'mount --bind {tmp_path}/disk-{host} {tmp_path}/disk; exec "$@"', "sh", *command], names)
    job = Job(hosts, script, tmp_path, "--run-dir", tmp_path / "disk" / "run")
    job.lose_power(0)
    assert job.end(1) == 86, hosts.all_text()
    assert "or with an arbiter (--arbiter, or one --run-dir of both)" in hosts.text(1)
    assert not job.begun(1, 1)
