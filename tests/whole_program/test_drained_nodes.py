"""Tests of `ddprun stop --node`: one node leaves a job, and the job continues on the other nodes without the loss of a step."""

import json
import subprocess

import jobs
import pytest
from live_nodes import NodesJob, assert_trained_through
from node_agents import PATIENCE
from test_node_queries import WAITS, NodeQueries


def command_on(job: NodesJob, *words) -> subprocess.CompletedProcess:
    return jobs.run([job.command[0], *words], TMPDIR=str(job.folder))


def nodes_of(job: NodesJob) -> list[dict]:
    done = command_on(job, "status", job.run_dir, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)["job"]["nodes"]


@pytest.mark.parametrize("leads", [True, False], ids=["coordinator", "member"])
def test_a_drained_node_loses_no_step(ddprun_bin, data, tmp_path, leads):
    """Four nodes with --nnodes 2:4 keep the state in memory. The coordinator's node or another node leaves."""
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2:4", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        job.start(4)
        job.wait_until(lambda: all(agent.at_work() for agent in job.agents))
        node = next(one for one in nodes_of(job) if one["leads"] == leads)
        drained = next(agent for agent in job.agents if agent.process.pid == node["pid"])
        others = [agent for agent in job.agents if agent is not drained]
        before = [agent.pids() for agent in others]
        done = command_on(job, "stop", job.run_dir, "--node", node["node_rank"])
        assert done.returncode == 0 and "has left the job" in done.stdout, (done, job.story())
        # The exit code is 143 if the worker of the drained node saved nothing, because the other nodes have the state.
        assert drained.end() in (85, 143), job.story()
        assert [agent.end() for agent in others] == [0, 0, 0], job.story()
    assert [agent.pids() for agent in others] == before  # no worker of the other nodes was restarted
    assert [event["world_size"] for event in jobs.metrics(job.run_dir, "regroup")][-1] == 3
    assert_trained_through(job)


def test_a_drained_node_saves_first(ddprun_bin, data, tmp_path):
    """With --recovery checkpoint, all workers save at the same step. The other nodes resume from that step."""
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2:3", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5"),
                  checkpoint={"every_steps": 1000000}) as job:
        job.start(3, recovery="checkpoint")
        job.wait_until(lambda: all(agent.at_work() for agent in job.agents))
        node = next(one for one in nodes_of(job) if one["leads"])
        drained = next(agent for agent in job.agents if agent.process.pid == node["pid"])
        done = command_on(job, "stop", job.run_dir, "--node", node["node_rank"])
        assert done.returncode == 0 and "has left the job" in done.stdout, (done, job.story())
        assert drained.end() == 85, job.story()
        assert [agent.end() for agent in job.agents if agent is not drained] == [0, 0], job.story()
    steps = [event["step"] for event in jobs.metrics(job.run_dir, "step")]
    assert steps == sorted(set(steps))  # no step was repeated
    jobs.assert_each_sample_once(job.run_dir, job.config["epochs"])


def test_a_node_is_drained_by_its_host_name(hosts, script, tmp_path):
    queries = NodeQueries(hosts, tmp_path)
    for host in range(3):
        environment = hosts.environment
        hosts.environment = {**environment, "XDG_RUNTIME_DIR": queries.runtime(host)}
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "--rdzv-conf",
                       "last_call_timeout=1", script(WAITS))
        hosts.environment = environment
    queries.until_workers_run(3)
    unknown = queries.query(1, "stop", "--node", "host7", code=2)
    assert unknown == "ddprun: the job has no node 'host7'; it has node 0 on host0, node 1 on host1, node 2 on host2\n"
    assert queries.query(1, "stop", "--node", "host0") == "host0 has left the job, which continues on 2 nodes\n"
    assert hosts.agents[0].wait(PATIENCE) == 143 and "rank 0 saves" in hosts.text(0)
    hosts.until_printed(1, "2 nodes, 2 workers")
    few = queries.query(1, "stop", "--node", "host2", code=2)
    assert "the job needs at least 2 nodes (--nnodes), and 2 are connected: it would stop without host2" in few
    assert few.count("\n") == 1
    assert "has ended" in queries.query(2, "stop")
    assert hosts.wait() == [143, 143, 143], hosts.all_text()


def test_a_job_on_one_machine_has_no_node_to_drain(ddprun_bin, script, nodes, tmp_path):
    queries = NodeQueries(nodes, tmp_path)
    nodes.start(script(WAITS), XDG_RUNTIME_DIR=queries.runtime(0))
    queries.until_workers_run(1)
    assert "the job runs on one machine only" in queries.query(0, "stop", "--node", "0", code=2)
    assert "exclude each other" in queries.query(0, "stop", "--node", "0", "--here", code=2)
    assert "has ended" in queries.query(0, "stop")
    assert nodes.agents[0].wait(PATIENCE) == 143
