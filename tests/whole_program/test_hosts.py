"""Jobs on hosts of their own: network namespaces on a bridge, each with an address and a host name. What only a network shows: which addresses
nodes tell each other, cables that are pulled, hosts that go silent. Skipped where namespaces cannot be made."""

import pathlib
import re

import jobs
from node_agents import LINE, PATIENCE, lives, said


def test_nodes_find_each_other_by_address(hosts, script, tmp_path):
    job = script(LINE + '; echo "$MASTER_ADDR" > $OUT/master-$RANK')
    for host in range(3):
        hosts.start_on(host, "--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts.address(0)}:29400", job)
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    assert {(tmp_path / "out" / f"master-{r}").read_text() for r in range(3)} == {"10.77.0.10\n"}
    assert "node host1 joined" in hosts.text(0) and "node host2 joined" in hosts.text(0)


def test_a_pulled_cable_costs_a_node_and_nothing_else(hosts, script, tmp_path):
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


def test_the_coordinators_cable_is_pulled(hosts, script, tmp_path):
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
