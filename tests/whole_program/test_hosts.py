"""Tests of jobs on private hosts, which are network namespaces on a bridge. Each host has an address and a host name. The
tests check behavior that needs a real network: the addresses that nodes exchange, disconnected cables, and hosts that stop
answering. The tests are skipped if namespaces cannot be created."""

import collections
import itertools
import json
import pathlib
import re

import jobs
import pytest
from node_agents import LINE, PATIENCE, suspended_process, lives, worker_line


def test_nodes_find_each_other_by_address(hosts, script, tmp_path):
    job = script(LINE + '; echo "$MASTER_ADDR" > $OUT/master-$RANK')
    for host in range(3):
        hosts.start_on(host, "--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts.address(0)}:29400", job)
    assert hosts.wait() == [0, 0, 0], hosts.all_text()
    assert {(tmp_path / "out" / f"master-{r}").read_text() for r in range(3)} == {"10.77.0.10\n"}
    assert "node host1 joined" in hosts.text(0) and "node host2 joined" in hosts.text(0)


def test_a_pulled_cable_costs_only_its_node(hosts, script, tmp_path):
    job = script(f"{LINE}; [ $WORLD_SIZE = 2 ] && exit 0; sleep 1000 & wait")
    for host in range(3):
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "--rdzv-conf",
                       "heartbeat_timeout=2,last_call_timeout=0.5", job)
    hosts.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() for r in range(3)), "three workers")

    def that_sleep() -> list[int]:
        return [pid for pid in jobs.children(hosts.agents[2].pid) if b"sleep" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()]

    workers = hosts.until(that_sleep, "the worker's child on the last host")
    hosts.cable(2, "down")
    assert [hosts.agents[n].wait(PATIENCE) for n in (0, 1)] == [0, 0], hosts.all_text()
    assert worker_line(tmp_path, 0)[2] == "2" and worker_line(tmp_path, 0)[9] == "0"
    assert not any(lives(pid) for pid in workers)  # the workers of the disconnected host ended before the other hosts continued
    hosts.until_printed(2, "no answer from the coordinator for")
    assert "failed" not in hosts.text(2)


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


def kill_agent(hosts, host: int):
    hosts.agents[host].kill()


def pull_cable(hosts, host: int):
    hosts.cable(host, "down")


def world_sizes(run_dir: pathlib.Path) -> list[int]:
    """Returns the world size of each step. The world size is the number of ranks whose ledgers (records of used samples)
    contain the step."""
    ranks = collections.Counter(json.loads(line)["step"] for file in (run_dir / "ledger").glob("rank-*.jsonl")
                                for line in file.read_text(encoding="utf-8").splitlines())
    return [ranks[step] for step in sorted(ranks)]


@pytest.mark.parametrize(("count", "fault"), [pytest.param(2, kill_agent, marks=pytest.mark.long), (3, pull_cable)])
def test_a_replaced_host_keeps_the_losses_of_each_world_size(make_hosts, tmp_path, ddprun_bin, ddptrain_bin, count, fault):
    hosts = make_hosts(count + 1)
    epochs = 25
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=epochs, batch_size=30))
    run_dir = tmp_path / "run"
    command = ["--nnodes", f"{count - 1}:{count}", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", hosts.endpoint(0),
               "--rdzv-conf", "heartbeat_timeout=2,last_call_timeout=0.3", "--run-dir", run_dir, config]
    for host in range(count):
        hosts.start_on(host, *command)
        hosts.until_printed(0, "coordinates the job")

    def until_steps_of(world: int, steps: int):
        hosts.until(lambda: (run_dir / "ledger").exists() and whole_world_sizes().count(world) >= steps, f"{steps} steps of {world}")

    def whole_world_sizes() -> list[int]:
        try:
            return world_sizes(run_dir)
        except json.JSONDecodeError:
            return []  # a rank has written only a part of a line so far

    until_steps_of(count, 50)
    fault(hosts, count - 1)
    until_steps_of(count - 1, 50)
    with suspended_process(int(re.findall(r"rank 0 pid (\d+)", hosts.text(0))[-1])):
        over = hosts.text(0).count("the round is over")
        hosts.start_on(count, *command)
        hosts.until(lambda: hosts.text(0).count("the round is over") > over, "the new host being let in")
    assert [hosts.agents[n].wait(PATIENCE) for n in (*range(count - 1), count)] == [0] * count, hosts.all_text()
    jobs.assert_each_sample_once(run_dir, epochs)

    sizes = world_sizes(run_dir)
    assert [size for size, _ in itertools.groupby(sizes)] == [count, count - 1, count]
    step = 0
    # Runs the same number of steps with each world size on one machine, without faults.
    for size, steps in itertools.groupby(sizes):
        step += len(list(steps))
        done = jobs.run([ddprun_bin, "--nproc-per-node", size, "--run-dir", tmp_path / "calm", config, f"max_steps={step}"])
        assert done.returncode == 0, done.stderr
    assert jobs.losses(run_dir) == jobs.losses(tmp_path / "calm")
    assert jobs.weights_digest(run_dir) == jobs.weights_digest(tmp_path / "calm")
