"""Tests of how the other nodes of a job react when one node ends. Examples are a finished node whose connection breaks, and a
scheduler that signals all nodes."""

import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import jobs
import pytest
from jobs import free_port
from node_agents import suspended_process


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("small"))


def break_connections_to(port: int) -> None:
    """Breaks all connections to a port, like a NAT that has lost its state. This function closes only the end that opened a
    connection. The other end then receives a reset."""
    subprocess.run(["ss", "-K", "dport", "=", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def connections_to(port: int) -> set[str]:
    """Returns the local addresses of all established connections to a port."""
    shown = subprocess.run(["ss", "-Htn", "state", "established", "dport", "=", str(port)], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.split()[2] for line in shown.splitlines()}


def until_pinged(nodes, port: int, times: int) -> None:
    """Waits until a node has sent data `times` more times over its only connection to the port. When a ping is sent, all data
    that was queued before it has also been sent."""
    seen = set()

    def pinged() -> bool:
        shown = subprocess.run(["ss", "-Htin", "state", "established", "dport", "=", str(port)], stdout=subprocess.PIPE, text=True, check=True).stdout
        seen.update(re.findall(r"bytes_sent:(\d+)", shown))
        return len(seen) > times

    nodes.until(pinged, "pings")


def start_script(nodes, folder: pathlib.Path, text: str, count: int, *more) -> int:
    """Starts one agent for each of `count` nodes. Their workers run the shell script `text`. Returns the port of the
    rendezvous."""
    script = folder / "s.sh"
    script.write_text(f"#!/bin/sh\n{text}")
    script.chmod(0o755)
    port = free_port()
    for rank in range(count):
        nodes.start("--nnodes", count, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={int(rank == 0)}",
                    *more, "--no-python", script)
    return port


def connections_can_be_broken() -> bool:
    """Returns True if `ss -K` can break connections on this machine. If the user lacks the privilege, or the kernel has no
    INET_DIAG_DESTROY, `ss -K` prints nothing and does nothing."""
    if shutil.which("ss") is None:
        return False
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            break_connections_to(server.getsockname()[1])
            client.settimeout(5)
            try:
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True


def test_a_finished_nodes_broken_connection_ends_no_round(nodes, tmp_path):
    if not connections_can_be_broken():
        pytest.skip("ss -K cannot close connections on this machine")
    port = start_script(nodes, tmp_path, f"echo $$ >> {tmp_path}/starts-$GROUP_RANK\n[ $GROUP_RANK = 1 ] && exit 0\n"
                        f"until [ -e {tmp_path}/enough ]; do sleep 0.05; done\n", 2, "--max-restarts", 3)
    starts = [tmp_path / f"starts-{rank}" for rank in range(2)]
    nodes.until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in starts), "both workers")
    finished = int(starts[1].read_text().split()[0])
    nodes.until(lambda: not pathlib.Path(f"/proc/{finished}").exists(), "node 1's worker to end")
    until_pinged(nodes, port, 2)
    for _ in range(2):
        before = [text.count(word) for text, word in ((nodes.text(0), "closed its connection"), (nodes.text(1), "joined the job"))]
        # The agent is suspended until its session has expired, so it cannot reconnect in time.
        with suspended_process(nodes.agents[1].pid):
            break_connections_to(port)
            nodes.until(lambda: nodes.text(0).count("closed its connection") > before[0], "node 1 to be lost")
        nodes.until(lambda: nodes.text(1).count("joined the job") > before[1], "node 1 to come back")
    (tmp_path / "enough").touch()
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert [len(file.read_text().split()) for file in starts] == [1, 1], nodes.all_text()


@pytest.mark.parametrize("apart_ms", [0, 5, 100], ids=lambda ms: f"{ms} ms apart")
def test_a_signal_to_all_elastic_nodes_saves(nodes, small, tmp_path, ddptrain_bin, apart_ms):
    """The node that is not the coordinator gets the signal first."""
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small, epochs=10000, checkpoint={"every_steps": 1000000}))
    port = free_port()
    for rank in range(2):
        nodes.start("--nnodes", "1:2", "--node-rank", rank, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port,
                    "--run-dir", tmp_path / "run", config)
    metrics = tmp_path / "run" / "metrics.jsonl"
    nodes.until(lambda: "2 nodes, 2 workers" in nodes.text(0) and metrics.exists() and metrics.read_text().count('"event":"step"') > 20, "steps of two")
    nodes.agents[1].send_signal(signal.SIGTERM)
    time.sleep(apart_ms / 1000)  # the delay between the two signals, which this test varies
    nodes.agents[0].send_signal(signal.SIGTERM)
    assert nodes.wait() == [85, 85], nodes.all_text()
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()


def test_a_reset_connection_ends_no_round(nodes, tmp_path):
    """Three nodes run one worker each. The test breaks all connections to the coordinator three times. The nodes connect again,
    and no worker is restarted."""
    if not connections_can_be_broken():
        pytest.skip("ss -K cannot close connections on this machine")
    port = start_script(nodes, tmp_path, f"echo $$ >> {tmp_path}/starts-$GROUP_RANK\nuntil [ -e {tmp_path}/enough ]; do sleep 0.05; done\n", 3,
                        "--max-restarts", 3)
    starts = [tmp_path / f"starts-{rank}" for rank in range(3)]
    nodes.until(lambda: all(file.exists() for file in starts), "all workers")
    for _ in range(3):
        before = connections_to(port)
        assert len(before) == 2, nodes.all_text()
        break_connections_to(port)
        nodes.until(lambda: len(connections_to(port)) == 2 and not before & connections_to(port), "both nodes to come back")
    (tmp_path / "enough").touch()
    assert nodes.wait() == [0, 0, 0], nodes.all_text()
    assert [len(file.read_text().split()) for file in starts] == [1, 1, 1], nodes.all_text()
    assert "restart" not in nodes.text(0) and "closed its connection" not in nodes.text(0), nodes.all_text()


def test_a_node_leaving_an_elastic_job_saves_first(nodes, small, tmp_path, ddptrain_bin):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small, epochs=100000, checkpoint={"every_steps": 1000000}))
    port = free_port()
    for rank in range(2):
        nodes.start("--nnodes", "1:2", "--node-rank", rank, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port,
                    "--run-dir", tmp_path / "run", config)
    metrics = tmp_path / "run" / "metrics.jsonl"
    nodes.until(lambda: "2 nodes, 2 workers" in nodes.text(0) and metrics.exists() and metrics.read_text().count('"event":"step"') > 20, "steps of two")
    reached = jobs.metrics(tmp_path / "run", "step")[-1]["step"]
    nodes.agents[1].send_signal(signal.SIGTERM)
    nodes.until(lambda: nodes.agents[1].poll() is not None, "node 1 to leave")
    assert nodes.agents[1].returncode == 85, nodes.all_text()
    nodes.until(lambda: '"event":"restart"' in metrics.read_text(), "the other to continue")
    assert jobs.metrics(tmp_path / "run", "restart")[-1]["step"] >= reached
    nodes.agents[0].send_signal(signal.SIGTERM)
    nodes.until(lambda: nodes.agents[0].poll() is not None, "node 0 to end")
    assert nodes.agents[0].returncode == 85, nodes.all_text()


def test_a_coordinator_leaving_an_elastic_job_hands_over(nodes, small, tmp_path, ddptrain_bin):
    """All workers save, and the agent that is the coordinator ends. The other agents must elect a new coordinator without
    waiting until the lease of the old coordinator expires. In this test, the lease is longer than all time limits of the
    test."""
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small, epochs=100000, checkpoint={"every_steps": 1000000}))
    port = free_port()
    for rank in range(3):
        nodes.start("--nnodes", "2:3", "--node-rank", rank, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port,
                    "--rdzv-conf", "heartbeat_timeout=600", "--run-dir", tmp_path / "run", config)
    metrics = tmp_path / "run" / "metrics.jsonl"
    nodes.until(lambda: "3 nodes, 3 workers" in nodes.text(0) and metrics.exists() and metrics.read_text().count('"event":"step"') > 20, "steps of three")
    reached = jobs.metrics(tmp_path / "run", "step")[-1]["step"]
    nodes.agents[0].send_signal(signal.SIGTERM)
    nodes.until(lambda: nodes.agents[0].poll() is not None, "the coordinator to leave")
    assert nodes.agents[0].returncode == 85, nodes.all_text()
    nodes.until(lambda: '"event":"restart"' in metrics.read_text(), "the others to continue")
    assert jobs.metrics(tmp_path / "run", "restart")[-1]["step"] >= reached
    assert any("the coordinator has left the job" in nodes.text(rank) for rank in (1, 2)), nodes.all_text()
    for agent in nodes.agents[1:]:
        assert agent.poll() is None, nodes.all_text()
        agent.send_signal(signal.SIGTERM)
    assert nodes.wait() == [85, 85, 85], nodes.all_text()


def test_a_signalled_finished_node_exits_with_the_jobs_code(nodes, tmp_path):
    start_script(nodes, tmp_path, f"[ $GROUP_RANK = 1 ] && exit 0\nuntil [ -e {tmp_path}/enough ]; do sleep 0.05; done\n", 2, "--json")
    nodes.until(lambda: '"event":"worker_ended"' in nodes.text(1), "node 1's agent to report its worker's end")
    nodes.agents[1].send_signal(signal.SIGTERM)
    nodes.until(lambda: '"event":"stop_requested"' in nodes.text(1), "node 1's agent to report the signal")
    (tmp_path / "enough").touch()
    assert nodes.wait() == [0, 0], nodes.all_text()
