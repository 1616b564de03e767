"""Tests of --interface and --port-range on hosts with several network interfaces and with firewalls. The tests are skipped if
network namespaces cannot be created."""

import contextlib
import re
import socket
import subprocess

import jobs
import pytest
from hosts import Hosts, ip

LINE = 'echo "$MASTER_ADDR $MASTER_PORT $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME" > $OUT/rank-$RANK; sleep 0.2'


def second_interfaces(hosts: Hosts) -> None:
    """Adds the interface data0 to each host, on the same bridge but with separate addresses."""
    for host in range(hosts.count):
        space = hosts.space(host)
        ip("-n", space, "link", "add", "data0", "type", "veth", "peer", "name", f"data{host}", "netns", hosts.space("sw"))
        ip("-n", hosts.space("sw"), "link", "set", f"data{host}", "master", "bridge", "up")
        ip("-n", space, "link", "set", "data0", "up")
        hosts.add_address(host, f"10.78.0.{10 + host}", "data0")


def test_an_interface_applies_to_agents_gloo_and_nccl(make_hosts, script, tmp_path):
    hosts = make_hosts(2)
    second_interfaces(hosts)
    job = script(LINE)
    for host in range(2):
        hosts.start_on(host, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts.address(0)}:29400", "--interface", "data0", job)
    assert hosts.wait() == [0, 0], hosts.all_text()
    for rank in range(2):
        addr, _, gloo, nccl = (tmp_path / "out" / f"rank-{rank}").read_text().split()
        assert (addr, gloo, nccl) == ("10.78.0.10", "data0", "data0")


def test_a_port_range_covers_all_ports(make_hosts, script, tmp_path):
    hosts = make_hosts(3)
    hosts.drop("ip protocol tcp tcp dport != 30000-30015 tcp sport != 30000-30015")
    job = script(LINE + "; [ $TORCHELASTIC_RESTART_COUNT = 1 ]")
    for host in range(3):
        hosts.start_on(host, "--nnodes", "3", "--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.address(0), "--port-range",
                       "30000-30015", job)
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    assert 30000 <= int((tmp_path / "out" / "rank-0").read_text().split()[1]) <= 30015


def test_ddptrain_gloo_uses_the_port_range(make_hosts, tmp_path):
    """A lost worker is replaced during the run, so ddptrain also creates a second process group. Both groups must use ports of
    the range."""
    hosts = make_hosts(2)
    hosts.drop("ip protocol tcp tcp dport != 30000-30015 tcp sport != 30000-30015")
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=3))
    for host in range(2):
        hosts.start_on(host, "--nnodes", "2", "--nproc-per-node", "2", "--node-rank", host, "--master-addr", hosts.address(0), "--port-range", "30000-30015",
                       "--max-restarts", "1", "--recovery", "live", "--chaos", "kill rank=1 step=20", "--run-dir", tmp_path / "run", config)
    assert hosts.wait() == [0, 0], hosts.all_text()
    assert jobs.report(tmp_path / "run")["failures"] == {"signal": 1}
    assert "no port is free for Gloo" not in hosts.all_text()


def open_ports(hosts: Hosts, host: int) -> set[str]:
    """Returns the TCP ports on which a process of the host listens, and its UDP ports, as texts such as "tcp 30000"."""
    found = set()
    for protocol, state in (("tcp", "0A"), ("udp", "07")):
        files = [f"/proc/net/{protocol}", f"/proc/net/{protocol}6"]
        table = subprocess.run(["nsenter", f"--net=/run/netns/{hosts.space(host)}", "cat", *files], check=True, capture_output=True, text=True).stdout
        for words in (line.split() for line in table.splitlines()):
            if words[3] == state:
                found.add(f"{protocol} {int(words[1].rsplit(':', 1)[1], 16)}")
    return found


def open_ports_until_the_end(hosts: Hosts) -> list[set[str]]:
    """Returns all ports that processes of each host open until the last agent ends."""
    found = [set() for _ in range(hosts.count)]
    while any(agent.poll() is None for agent in hosts.agents):
        for host in range(hosts.count):
            found[host] |= open_ports(hosts, host)
    return found


TEN_PORTS = {f"{protocol} {port}" for protocol in ("tcp", "udp") for port in range(30000, 30010)}


@pytest.mark.parametrize("killed", [1, 0])
def test_a_train_json_listens_on_ten_ports_only(make_hosts, tmp_path, killed):
    """A worker is replaced during the run. Rank 0 runs on the node of the coordinator."""
    hosts = make_hosts(3)
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=3))
    for host in range(3):
        hosts.start_on(host, "--nnodes", "3", "--nproc-per-node", "2", "--node-rank", host, "--master-addr", hosts.address(0), "--port-range", "30000-30009",
                       "--max-restarts", "1", "--recovery", "live", "--chaos", f"kill rank={killed} step=20", "--run-dir", tmp_path / "run", config)
    found = open_ports_until_the_end(hosts)
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    assert jobs.report(tmp_path / "run")["failures"] == {"signal": 1}
    assert set().union(*found) <= TEN_PORTS
    assert "tcp 30000" in found[0] and all(len(ports) >= 3 for ports in found), found  # the agent, its UDP port and a worker


def test_a_script_listens_on_ten_ports_only(make_hosts, script):
    hosts = make_hosts(3)
    job = script(LINE + "; [ $TORCHELASTIC_RESTART_COUNT = 1 ]")
    for host in range(3):
        hosts.start_on(host, "--nnodes", "3", "--nproc-per-node", "2", "--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.address(0),
                       "--port-range", "30000-30009", job)
    found = open_ports_until_the_end(hosts)
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    assert set().union(*found) <= TEN_PORTS
    assert "tcp 30000" in found[0] and all(len(ports) >= 2 for ports in found), found


def test_a_job_on_one_machine_listens_on_ten_ports_only(make_hosts, script, tmp_path):
    hosts = make_hosts(1)
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=2, ddp={"backend": "gloo"}))
    for program in (["--run-dir", tmp_path / "run", config], [script(LINE)]):
        hosts.start_on(0, "--nproc-per-node", "2", "--port-range", "30000-30009", *program)
        found = open_ports_until_the_end(hosts)[0]
        assert hosts.wait()[-1] == 0, hosts.all_text()
        assert found and found <= TEN_PORTS


def test_an_exhausted_range_is_one_line(ddprun_bin, run, tmp_path):
    low = jobs.free_port()
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=1))
    with contextlib.ExitStack() as sockets:
        for port in range(low, low + 4):
            with contextlib.suppress(OSError):  # another program uses this port
                sockets.enter_context(socket.create_server(("", port)))
        for program in ([config], ["--no-python", "true"]):
            done = run([ddprun_bin, "--port-range", f"{low}-{low + 3}", "--run-dir", tmp_path / "run", *program])
            assert done.returncode == 2 and done.stderr.count("\n") == 1, done
            assert f"--port-range: all ports from {low} to {low + 3} are in use" in done.stderr, done


def test_the_master_port_is_within_the_range(ddprun_bin, run):
    done = run([ddprun_bin, "--port-range", "31000-31050", "--interface", "lo", "--no-python", "sh", "-c",
                "echo $MASTER_PORT $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"], NCCL_SOCKET_IFNAME="^docker0")
    port, gloo, nccl = done.stdout.split()
    assert 31000 <= int(port) <= 31050 and (gloo, nccl) == ("lo", "^docker0")


@pytest.mark.parametrize("options, message", [
    (["--interface", "nosuch0"], r"--interface: expected a network interface of this machine that has an address, but got 'nosuch0'; available: .*\blo\b"),
    (["--port-range", "5-4"], r"--port-range: expected LOW-HIGH with at least 4 ports"),
    (["--port-range", "30000"], r"--port-range: expected LOW-HIGH"),
    (["--port-range", "0-9"], r"--port-range: expected LOW-HIGH"),
    (["--port-range", "29999-a"], r"--port-range: expected LOW-HIGH"),
])
def test_invalid_interfaces_are_refused(ddprun_bin, run, options, message):
    done = run([ddprun_bin, *options, "--no-python", "true"])
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr


def test_an_explicit_port_outside_the_range_is_reported(ddprun_bin, run):
    done = run([ddprun_bin, "--port-range", "31000-31050", "--master-port", "31999", "--no-python", "true"])
    assert "warning: the requested port 31999 is outside --port-range 31000-31050" in done.stderr
