"""Tests of the history of nodes. Failures of nodes are recorded in all runs. A node that failed three times within seven days
is reported and can be excluded."""

import json
import pathlib
import signal
import socket
import time

import jobs
from node_agents import PATIENCE
from test_node_queries import WAITS

HISTORY = pathlib.Path("ddprun") / "node-failures.json"


def failures_in(state: pathlib.Path) -> list[dict]:
    file = state / HISTORY
    return json.loads(file.read_text())["failures"] if file.exists() else []


def write_failures(state: pathlib.Path, host: str, count: int = 3, age_s: int = 3600):
    (state / HISTORY).parent.mkdir(parents=True, exist_ok=True)
    one = {"time_s": int(time.time()) - age_s, "host": host, "cause": "lost", "run": "/runs/earlier"}
    failures = [{**one, "time_s": one["time_s"] - number} for number in range(count)]
    (state / HISTORY).write_text(json.dumps({"format": 1, "failures": failures}))


def failing_nodes_in(run_dir: pathlib.Path) -> list[str]:
    return [event["text"] for event in jobs.report(run_dir)["invocations"][-1]["nodes"] if event["event"] == "failing"]


def test_a_node_that_failed_three_times_is_reported(nodes, script, tmp_path):
    """The second agent of a job is killed three times. The next invocation of the job must report these failures."""
    port, job, run = jobs.free_port(), script(WAITS), tmp_path / "run"
    options = ["--nnodes", "1:2", "--master-addr", "127.0.0.1", "--master-port", port, "--rdzv-conf", "last_call_timeout=0.2", "--run-dir", run, job]
    first = nodes.start("--node-rank", 0, *options)
    nodes.until_printed(0, "coordinates the job")
    for number in range(3):
        second = nodes.start("--node-rank", 1, *options)
        nodes.until(lambda number=number: nodes.text(0).count("2 nodes, 2 workers") == number + 1, "the second node")
        # Several failures of a node in the same second are recorded as one failure.
        nodes.until(lambda: all(int(time.time()) > one["time_s"] for one in failures_in(tmp_path / "state")), "the next second")
        second.kill()
        nodes.until(lambda number=number: len(failures_in(tmp_path / "state")) == number + 1, "the record of the failure")
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 143, nodes.all_text()
    host = socket.gethostname()
    assert [(one["host"], one["cause"], one["run"]) for one in failures_in(tmp_path / "state")] == [(host, "lost", str(run))] * 3
    assert "times in the last 7 days" not in nodes.text(0)
    again = nodes.start("--nproc-per-node", 1, "--run-dir", run, job)
    line = f"node {host} failed 3 times in the last 7 days (3 lost)"
    nodes.until_printed(4, "times in the last 7 days")
    again.send_signal(signal.SIGTERM)
    assert again.wait(PATIENCE) == 143
    assert nodes.text(4).count(line) == 1
    assert failing_nodes_in(run) == [line]
    assert len(failures_in(tmp_path / "state")) == 3  # a stop is not a failure


def test_an_excluded_node_waits_until_it_is_needed(hosts, script, tmp_path):
    write_failures(tmp_path / "state-0", "host1")
    job = script(WAITS)
    for host in range(3):
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "--exclude-failing-nodes", "--rdzv-conf",
                       "last_call_timeout=3", "--run-dir", tmp_path / f"run-{host}", job)
    hosts.until_printed(0, "2 nodes, 2 workers")
    hosts.until_printed(1, "this node failed several times in the last days, so it waits as a spare")
    assert hosts.text(0).count("node host1 failed 3 times in the last 7 days (3 lost)") == 1
    hosts.agents[2].kill()
    hosts.until_printed(1, "2 nodes, 2 workers")  # the job needs two nodes, so the failing node takes part
    assert [one["host"] for one in failures_in(tmp_path / "state-0")] == ["host1"] * 3 + ["host2"]
    hosts.agents[0].send_signal(signal.SIGTERM)
    assert [hosts.agents[host].wait(PATIENCE) for host in (0, 1)] == [143, 143], hosts.all_text()
    assert failing_nodes_in(tmp_path / "run-0") == ["node host1 failed 3 times in the last 7 days (3 lost)"]


def test_the_successor_records_a_lost_coordinator(hosts, script, tmp_path):
    job = script(WAITS)
    for host in range(3):
        hosts.start_on(host, "--nnodes", "2:3", "--master-addr", hosts.address(0), "--node-rank", host, "--rdzv-conf",
                       "last_call_timeout=1,heartbeat_timeout=3", job)
    hosts.until(lambda: all("3 nodes, 3 workers" in hosts.text(host) for host in range(3)), "three nodes")
    hosts.agents[0].kill()
    hosts.until(lambda: all("2 nodes, 2 workers" in hosts.text(host) for host in (1, 2)), "two nodes")
    recorded = hosts.until(lambda: failures_in(tmp_path / "state-1") + failures_in(tmp_path / "state-2"), "the record of the failure")
    assert [(one["host"], one["cause"], one["run"]) for one in recorded] == [("host0", "lost", "job.sh")]
    for host in (1, 2):
        hosts.agents[host].send_signal(signal.SIGTERM)
    assert [hosts.agents[host].wait(PATIENCE) for host in (1, 2)] == [143, 143], hosts.all_text()


def test_a_damaged_history_is_set_aside(ddprun_bin, tmp_path):
    state = tmp_path / "state"
    (state / HISTORY).parent.mkdir(parents=True)
    (state / HISTORY).write_text('{"format": 1, "failures": [')
    done = jobs.run([ddprun_bin, "--no-python", "true"], XDG_STATE_HOME=str(state))
    assert done.returncode == 0 and done.stderr.count("\n") == 1, done
    assert f"the history of node failures, {state / HISTORY}, was damaged: it is kept as node-failures.json.damaged" in done.stderr
    again = jobs.run([ddprun_bin, "--no-python", "true"], XDG_STATE_HOME=str(state))
    assert (again.returncode, again.stderr) == (0, "")


def test_exclusion_needs_a_range_of_nodes(ddprun_bin):
    done = jobs.run([ddprun_bin, "--exclude-failing-nodes", "--no-python", "true"])
    assert done.returncode == 0 and "--exclude-failing-nodes has no effect: the job needs all of its nodes" in done.stderr
