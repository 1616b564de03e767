"""Tests of `ddprun doctor` in a job on several nodes: they meet at the job's address, and the first node compares them. The unit
tests in tests/launcher/doctor/nodes cover the differences. This file checks that the nodes meet, or state why they do not."""

import json
import os
import pathlib
import socket
import subprocess

import jobs
import jsonschema
import node_agents
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs/schemas/doctor.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def config(data, tmp_path) -> pathlib.Path:
    return jobs.write_config(tmp_path / "train.json", jobs.config(data, device="cpu", epochs=1))


@pytest.fixture
def endpoint() -> list[str]:
    return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{jobs.free_port()}"]


def checks_in(nodes, number: int) -> list[dict]:
    """Returns the JSON lines that this doctor printed."""
    checks = [json.loads(line) for line in nodes.text(number).splitlines() if line.startswith("{")]
    for check in checks:
        jsonschema.validate(check, SCHEMA)
    return checks


def findings_of(checks: list[dict], node: str = "*") -> dict[str, tuple[str, str]]:
    return {one["check"]: (one["verdict"], one["found"]) for one in checks if one["node"] == node and one["verdict"] != "ok"}


def leads(conf: str = "") -> list[str]:
    return ["--rdzv-conf", "is_host=true" + conf]


def follows() -> list[str]:
    return ["--rdzv-conf", "is_host=false"]


def test_three_equal_nodes_have_no_differences(nodes, endpoint, config):
    for role in (leads(), follows(), follows()):
        nodes.start("doctor", "--json", "--nnodes", 3, *endpoint, *role, config)
    codes = nodes.wait()
    checks = checks_in(nodes, 0)
    host = socket.gethostname()
    assert {one["node"] for one in checks} == {"*", *(f"{host}#{n}" for n in range(3))}, nodes.all_text()
    assert findings_of(checks) == {}
    compared = {one["check"]: one["found"] for one in checks if one["node"] == "*"}
    assert compared["nodes"] == f"all 3 nodes came: {host}#0, {host}#1, {host}#2"
    assert compared["same-libtorch"].endswith("on all 3 nodes") and compared["same-ddprun"].startswith("0.")
    assert {"same-protocol", "same-config", "same-nnodes", "open-file-limits", "free-memory", "clocks", "connections"} <= set(compared)
    # Each node has also printed nothing but a summary, and the exit code follows the worst verdict on all nodes.
    worst = 1 if any(one["verdict"] == "error" for one in checks) else 0
    assert codes == [worst] * 3, nodes.all_text()
    for number in (1, 2):
        assert checks_in(nodes, number) == [] and f"The doctor on {host} prints the tables of all nodes" in nodes.text(number)


def test_a_difference_is_an_error_on_every_node(nodes, config, tmp_path):
    other = json.loads(config.read_text()) | {"batch_size": 24}
    (tmp_path / "other.json").write_text(json.dumps(other))
    # The variables that Kubeflow Trainer sets in init containers.
    variables = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(jobs.free_port())}
    nodes.start("doctor", config, PET_NODE_RANK="0", **variables)
    nodes.start("doctor", tmp_path / "other.json", PET_NODE_RANK="1", **variables)
    assert nodes.wait() == [1, 1], nodes.all_text()
    text = nodes.text(0)
    assert f"\nnode {socket.gethostname()}#0 (this node)\nok       ddprun " in text and "\nall nodes\nok       nodes " in text
    assert "\nerror    same-config        the digest of the config differs between the nodes: " in text
    assert "do: copy the same train.json to all nodes" in text
    assert " on this node; on all nodes: 1 error, " in nodes.text(1), nodes.all_text()


def test_another_token_is_refused_and_the_others_meet(nodes, endpoint, tmp_path):
    wrong = tmp_path / "wrong-token"
    wrong.write_text(os.urandom(32).hex())
    wrong.chmod(0o600)
    first = nodes.start("doctor", "--json", "--nnodes", 2, *endpoint, *leads())
    bad = nodes.start("doctor", "--json", "--nnodes", 2, *endpoint, *follows(), token=wrong)
    assert bad.wait(timeout=node_agents.PATIENCE) == 1
    verdict, found = findings_of(checks_in(nodes, 1), socket.gethostname())["token"]
    assert verdict == "error" and "refuses this node's token" in found
    assert first.poll() is None, "the first node must wait for a node with the right token"
    nodes.start("doctor", "--json", "--nnodes", 2, *endpoint, *follows())
    nodes.wait()
    assert findings_of(checks_in(nodes, 0)) == {}, nodes.all_text()


def test_a_node_that_does_not_come_is_a_finding(nodes, config):
    place = ["--master-addr", "127.0.0.1", "--master-port", jobs.free_port(), "--rdzv-conf", "timeout=1"]
    host = socket.gethostname()
    nodes.start("doctor", "--json", "--nnodes", 3, "--node-rank", 0, *place, config)
    assert nodes.wait() == [1]
    verdict, found = findings_of(checks_in(nodes, 0))["nodes"]
    assert verdict == "error" and found == f"1 of 3 nodes came within 1 s: {host}; missing node ranks: 1, 2"
    nodes.start("doctor", "--json", "--nnodes", "1:3", "--node-rank", 0, *place, config)
    nodes.wait()
    assert findings_of(checks_in(nodes, 1))["nodes"][0] == "warning"
    # Without the first node, the others state its address.
    nodes.start("doctor", "--json", "--nnodes", 3, "--node-rank", 1, *place, config)
    assert nodes.wait()[-1] == 1
    verdict, found = findings_of(checks_in(nodes, 2), host)["nodes"]
    assert verdict == "error" and "no process listens on 127.0.0.1" in found and "within 1 s" in found


def test_an_address_that_never_resolves_ends_the_doctor(nodes, config):
    nodes.start("doctor", "--json", "--nnodes", 2, "--master-addr", "no-such-host.invalid", config)
    assert nodes.wait() == [1]
    found = findings_of(checks_in(nodes, 0), socket.gethostname())
    assert "neither an address nor a possible name" in found["nodes"][1] and found["master-address"][0] == "error"


def test_a_running_job_is_not_a_doctor(nodes, endpoint, config):
    job = nodes.start("--nnodes", 2, *endpoint, *leads(), config)
    nodes.until_printed(0, "waiting for nodes|listens|join")
    doctor = nodes.start("doctor", "--json", "--nnodes", 2, *endpoint, *follows(), config)
    assert doctor.wait(timeout=node_agents.PATIENCE) == 1, nodes.all_text()
    assert "an agent of a running job answers" in findings_of(checks_in(nodes, 1), socket.gethostname())["nodes"][1]
    assert job.poll() is None


def test_quick_and_here_check_this_node_only(ddprun_bin, config):
    command = [ddprun_bin, "doctor", "--json", "--nnodes", 2, "--master-addr", "127.0.0.1", "--node-rank", 0]
    for flag in ("--quick", "--here"):
        done = jobs.run([*command, flag, config])
        checks = [json.loads(line) for line in done.stdout.splitlines()]
        assert checks and all("node" not in one for one in checks) and done.stderr == "", done
        # Only the full examination reads samples of the data.
        assert any(one["check"] == "data" and one["found"].startswith("read ") for one in checks) == (flag == "--here"), done


def test_names_connections_and_packet_sizes_between_hosts(make_hosts, config):
    hosts = make_hosts(3)
    names = {f"host{n}": hosts.address(n) for n in range(3)}
    subprocess.run(["ip", "-n", hosts.space(2), "link", "set", "eth0", "mtu", "1400"], check=True)
    hosts.refuse(1, 2)
    for host in range(3):
        known = {name: address for name, address in names.items() if host != 0 or name != "host2"}
        hosts.start_on(host, "doctor", "--json", "--nnodes", 3, "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.endpoint(0), config, names=known)
    assert hosts.wait() == [1, 1, 1], hosts.all_text()
    checks = checks_in(hosts, 0)
    findings = findings_of(checks)
    assert set(findings) == {"names", "connections", "same-mtu"}, hosts.all_text()
    assert findings["names"] == ("warning", "host names of other nodes do not resolve: host2 (on host0)")
    assert findings["same-mtu"][1].endswith("differs between the nodes: 1500 on host0, host1; 1400 on host2")
    verdict, found = findings["connections"]
    assert verdict == "error" and "to host2 from host1: 10.77.0.12:" in found and "refused" in found
    assert {one["node"] for one in checks} == {"*", "host0", "host1", "host2"}
