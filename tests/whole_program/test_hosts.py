"""Jobs on hosts of their own: network namespaces on a bridge, each with an address and a host name. What only a network shows: which addresses
nodes tell each other, cables that are pulled, hosts that go silent. Skipped where namespaces cannot be made."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import jobs
from test_nodes import LINE, PATIENCE, Nodes, lives, said, script  # noqa: F401

NAME = f"ddp{os.getpid()}"
COUNT = 3


def ip(*words: str):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts(Nodes):
    """Agents on hosts 0 to COUNT - 1; the bridge is in a namespace of its own, so that nothing is seen outside."""

    def __init__(self, ddprun: pathlib.Path, folder: pathlib.Path):
        super().__init__(ddprun, folder)
        ip("netns", "add", f"{NAME}-sw")
        ip("-n", f"{NAME}-sw", "link", "add", "bridge", "type", "bridge")
        ip("-n", f"{NAME}-sw", "link", "set", "bridge", "up")
        for host in range(COUNT):
            ip("netns", "add", f"{NAME}-h{host}")
            ip("-n", f"{NAME}-h{host}", "link", "add", "eth0", "type", "veth", "peer", "name", f"port{host}", "netns", f"{NAME}-sw")
            ip("-n", f"{NAME}-sw", "link", "set", f"port{host}", "master", "bridge", "up")
            ip("-n", f"{NAME}-h{host}", "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", f"{NAME}-h{host}", "link", "set", "lo", "up")
            ip("-n", f"{NAME}-h{host}", "link", "set", "eth0", "up")

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{10 + host}"

    def start_on(self, host: int, *args) -> subprocess.Popen:
        number = len(self.agents)
        words = [str(a) for a in args]
        first = [words.pop(0), words.pop(0)] if words[0] == "join" else []
        command = ["nsenter", f"--net=/run/netns/{NAME}-h{host}", "unshare", "-u", "sh", "-c", f'hostname host{host}; exec "$@"', "sh",
                   str(self.ddprun), *first, "--token-file", str(self.token), *words]
        with open(self.output(number), "wb") as output:
            self.agents.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                                cwd=self.folder, env=self.environment))
        return self.agents[-1]

    def cable(self, host: int, state: str):
        ip("-n", f"{NAME}-sw", "link", "set", f"port{host}", state)

    def close(self):
        super().close()
        for name in ["sw", *(f"h{host}" for host in range(COUNT))]:
            subprocess.run(["ip", "netns", "delete", f"{NAME}-{name}"], check=False, capture_output=True)


@pytest.fixture
def hosts(ddprun_bin, tmp_path):
    if os.geteuid() != 0 or not shutil.which("nsenter") or not shutil.which("ip"):
        pytest.skip("needs root, ip and nsenter for hosts of its own")
    try:
        hosts = Hosts(ddprun_bin, tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
    yield hosts
    hosts.close()


def test_nodes_find_each_other_by_address(hosts, script, tmp_path):  # noqa: F811
    job = script(LINE + '; echo "$MASTER_ADDR" > $OUT/master-$RANK')
    for host in range(3):
        hosts.start_on(host, "--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts.address(0)}:29400", job)
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    assert {(tmp_path / "out" / f"master-{r}").read_text() for r in range(3)} == {"10.77.0.10\n"}
    assert "node host1 joined" in hosts.text(0) and "node host2 joined" in hosts.text(0)


def test_a_pulled_cable_costs_a_node_and_nothing_else(hosts, script, tmp_path):  # noqa: F811
    job = script(f"{LINE}; [ $WORLD_SIZE = 2 ] && exit 0; sleep 1000 & wait")
    for host in range(3):
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "--rdzv-conf",
                       "heartbeat_timeout=2,last_call_timeout=0.5", job)
    hosts.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() for r in range(3)), "three workers")
    workers = [pid for pid in jobs.children(hosts.agents[2].pid) if b"sleep" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]
    hosts.cable(2, "down")
    assert [hosts.agents[n].wait(PATIENCE) for n in (0, 1)] == [0, 0], hosts.all_text()
    assert said(tmp_path, 0)[2] == "2" and said(tmp_path, 0)[9] == "0"
    assert workers and not any(lives(pid) for pid in workers)  # gone before the others went on


def test_the_coordinators_cable_is_pulled(hosts, script, tmp_path):  # noqa: F811
    job = script(f"{LINE}; [ $WORLD_SIZE = 2 ] && exit 0; sleep 1000 & wait")
    for host in range(3):
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "--rdzv-conf",
                       "heartbeat_timeout=2,last_call_timeout=0.5", job)
    hosts.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() for r in range(3)), "three workers")
    hosts.cable(0, "down")
    assert [hosts.agents[n].wait(PATIENCE) for n in (1, 2)] == [0, 0], hosts.all_text()
    assert re.search("2 nodes, 2 workers", hosts.text(1))


def test_training_between_hosts(hosts, tmp_path, ddprun_bin, ddptrain_bin):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data")))
    alone = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "alone", config])
    assert alone.returncode == 0, alone.stderr
    for host in range(2):
        hosts.start_on(host, "--nnodes", "2", "--nproc-per-node", "1", "--master-addr", hosts.address(0), "--run-dir", tmp_path / "both",
                       config)
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert jobs.losses(tmp_path / "both") == jobs.losses(tmp_path / "alone")
