"""What the end of one node means for the others: it has finished and its connection breaks, or a scheduler signals all of them."""

import pathlib
import shutil
import signal
import socket
import subprocess
import time

import jobs
import pytest
from jobs import free_port


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("small"))


def break_connections_to(port: int) -> None:
    """As a reset or a NAT that forgets does. The end that dialled is enough: the other one is told, and each loss counts."""
    subprocess.run(["ss", "-K", "dport", "=", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def connections_can_be_broken() -> bool:
    """Not without the right, nor by a kernel without INET_DIAG_DESTROY: ss -K then says nothing."""
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


def test_a_finished_nodes_broken_connection_ends_nobodys_round(nodes, tmp_path):
    if not connections_can_be_broken():
        pytest.skip("ss -K breaks no connections here")
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/starts-$GROUP_RANK\n[ $GROUP_RANK = 1 ] && exit 0\n"
                      f"until [ -e {tmp_path}/enough ]; do sleep 0.05; done\n")
    script.chmod(0o755)
    port = free_port()
    for rank in range(2):
        nodes.start("--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", f"is_host={int(rank == 0)}",
                    "--max-restarts", 3, "--no-python", script)
    starts = [tmp_path / f"starts-{rank}" for rank in range(2)]
    nodes.until(lambda: all(file.exists() and file.read_text().endswith("\n") for file in starts), "both workers")
    finished = int(starts[1].read_text().split()[0])
    nodes.until(lambda: not pathlib.Path(f"/proc/{finished}").exists(), "node 1's worker to end")
    for _ in range(2):
        before = nodes.text(1).count("joined the job")
        break_connections_to(port)
        nodes.until(lambda: nodes.text(1).count("joined the job") > before, "node 1 to come back")
    (tmp_path / "enough").touch()
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert [len(file.read_text().split()) for file in starts] == [1, 1], nodes.all_text()


@pytest.mark.parametrize("apart_ms", [0, 5, 100], ids=lambda ms: f"{ms} ms apart")
def test_a_scheduler_that_signals_all_nodes_of_an_elastic_job_gets_a_save(nodes, small, tmp_path, ddptrain_bin, apart_ms):
    """The node that does not coordinate hears it first."""
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small, epochs=10000, checkpoint={"every_steps": 1000000}))
    port = free_port()
    for rank in range(2):
        nodes.start("--nnodes", "1:2", "--node-rank", rank, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port,
                    "--run-dir", tmp_path / "run", config)
    metrics = tmp_path / "run" / "metrics.jsonl"
    nodes.until(lambda: "2 nodes, 2 workers" in nodes.text(0) and metrics.exists() and metrics.read_text().count('"event":"step"') > 20, "steps of two")
    nodes.agents[1].send_signal(signal.SIGTERM)
    time.sleep(apart_ms / 1000)  # what is tried
    nodes.agents[0].send_signal(signal.SIGTERM)
    assert nodes.wait() == [85, 85], nodes.all_text()
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()
