"""Tests of the commands that query or stop a multi-node job from any of its nodes. ddprun status, top, stacks and stop query
all nodes."""

import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import jsonschema
import pytest
from node_agents import PATIENCE, suspended_process

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas/status.schema.json").read_text(encoding="utf-8"))
WAITS = 'touch $OUT/here-$RANK; trap "echo rank $RANK saves; exit 0" TERM; while :; do sleep 0.1; done'


class NodeQueries:
    """The nodes of one job. Each node has a separate folder for sockets, so a subcommand on a node connects only to the node's
    own agent."""

    def __init__(self, nodes, tmp_path):
        self.nodes, self.folder = nodes, tmp_path
        (tmp_path / "out").mkdir(exist_ok=True)

    def runtime(self, node):
        (self.folder / f"run-{node}").mkdir(exist_ok=True)
        return str(self.folder / f"run-{node}")

    def until_workers_run(self, workers):
        self.nodes.until(lambda: all((self.folder / "out" / f"here-{rank}").exists() for rank in range(workers)), "the workers")
        self.nodes.until(lambda: all(list(self.folder.glob(f"run-{node}/ddprun/*.sock")) for node in range(len(self.nodes.agents))), "sockets")

    def query(self, node, *words, code=0):
        done = subprocess.run([self.nodes.ddprun, *[str(word) for word in words]], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**self.nodes.environment, "XDG_RUNTIME_DIR": self.runtime(node)})
        assert done.returncode == code, done.stdout + done.stderr + self.nodes.all_text()
        return done.stdout if code == 0 else done.stderr

    def followed(self, node, *words):
        return subprocess.Popen([self.nodes.ddprun, "logs", "-f", *[str(word) for word in words]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**self.nodes.environment, "XDG_RUNTIME_DIR": self.runtime(node)})


def start_two(nodes, job, tmp_path, nnodes="2", conf="heartbeat_timeout=4", options=lambda node: ()):
    """Starts two agents on this machine, the first with one worker and the second with two workers. `options(node)` returns
    additional options for the agent of this node."""
    queries = NodeQueries(nodes, tmp_path)
    port = nodes_port()
    for node in range(2):
        nodes.start("--nnodes", nnodes, "--node-rank", node, "--nproc-per-node", node + 1, "--master-addr", "127.0.0.1", "--master-port", port,
                    "--rdzv-conf", conf, *options(node), job, XDG_RUNTIME_DIR=queries.runtime(node), XDG_STATE_HOME=str(tmp_path / f"state-{node}"))
    queries.until_workers_run(3)
    return queries


@pytest.fixture
def two(nodes, script, tmp_path):
    return start_two(nodes, script(WAITS), tmp_path)


def nodes_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def statuses(queries, node):
    status = json.loads(queries.query(node, "status", "--json"))
    jsonschema.validate(status, SCHEMA)
    for one in status["job"]["nodes"]:
        jsonschema.validate(one, SCHEMA)
    return status


def test_either_node_lists_all_workers(two):
    for node in (0, 1):
        status = statuses(two, node)
        assert status["node_rank"] == node and status["leads"] == (node == 0)
        assert status["job"]["answered"] == status["job"]["of"] == 2
        assert [[worker["rank"] for worker in one["workers"]] for one in status["job"]["nodes"]] == [[0], [1, 2]]
        text = two.query(node, "status")
        assert f"node {node} of 2 with 3 workers in all" in text
        assert len(re.findall(r"(?m)^\S+ +[012] +\d+ +running .*MiB$", text)) == 3, text
    here = two.query(1, "status", "--here")
    assert len(re.findall(r"(?m)^\S+ +\d +\d+ +running", here)) == 2, here
    (pid,) = [one["pid"] for one in statuses(two, 1)["job"]["nodes"] if one["node_rank"] == 0]
    assert pid == two.nodes.agents[0].pid


def test_top_and_stop_on_a_member_node(nodes, script, tmp_path):
    two = start_two(nodes, script(WAITS), tmp_path, "1:2")  # one node would be enough for this job, but both are stopped
    with subprocess.Popen([nodes.ddprun, "top"], stdout=subprocess.PIPE, text=True,
                          env={**nodes.environment, "XDG_RUNTIME_DIR": two.runtime(1)}) as top:
        assert "running for" in top.stdout.readline()
        assert "has ended" in two.query(1, "stop")
        assert "the job has ended on this node" in top.stdout.read()
    assert nodes.wait() == [143, 143], nodes.all_text()
    assert nodes.all_text().count("saves") == 3  # each worker saved before it exited, and no further round started


def test_two_agents_of_one_job_on_one_machine_are_one_job(nodes, script, tmp_path):
    """Two agents on one machine share a run directory, so they must be shown as one job. Examples are agents in two terminals,
    or under several slurmd on one machine."""
    one = NodeQueries(nodes, tmp_path)
    port, run_dir = nodes_port(), tmp_path / "shared"
    for node in range(2):
        nodes.start("--nnodes", 2, "--node-rank", node, "--nproc-per-node", 1, "--master-addr", "127.0.0.1", "--master-port", port, "--run-dir", run_dir,
                    script(WAITS), XDG_RUNTIME_DIR=one.runtime(0), XDG_STATE_HOME=str(tmp_path / f"state-{node}"))
    nodes.until(lambda: all((tmp_path / "out" / f"here-{rank}").exists() for rank in range(2)), "the workers")
    nodes.until(lambda: len(list(tmp_path.glob("run-0/ddprun/*.sock"))) == 2, "sockets")
    for word in ((run_dir,), ()):
        ranks = [line.split()[1] for line in one.query(0, "status", *word).splitlines() if " running " in line and line.split()[1].isdigit()]
        assert ranks == ["0", "1"], one.query(0, "status", *word)
    answer = one.query(0, "status", "--here", run_dir, code=2)
    assert "several ddprun processes of the same job run on this machine: select one by its PID" in answer and str(nodes.agents[1].pid) in answer
    assert "has ended" in one.query(0, "stop", run_dir)
    assert nodes.wait() == [143, 143], nodes.all_text()


def test_here_stops_one_node(nodes, script, tmp_path):
    two = start_two(nodes, script(WAITS), tmp_path, "1:2", "heartbeat_timeout=4,last_call_timeout=0.2")
    assert "has ended on this node" in two.query(1, "stop", "--here")
    assert nodes.agents[1].wait(PATIENCE) == 143 and "rank 1 saves" in nodes.text(1)
    nodes.until_printed(0, "1 nodes?, 1 workers?")  # the next round runs without the stopped node
    assert "has ended" in two.query(0, "stop")
    assert nodes.agents[0].wait(PATIENCE) == 143


def test_stop_now_ends_both(nodes, script, tmp_path):
    queries = start_two(nodes, script('trap "" TERM INT; touch $OUT/here-$RANK; while :; do sleep 0.1; done'), tmp_path)
    started = time.monotonic()
    assert "has ended" in queries.query(1, "stop", "--now")
    assert all(code != 0 for code in nodes.wait())
    assert time.monotonic() - started < 20  # less than the shutdown timeout of 30 s


def test_a_suspended_node_is_reported_as_silent(two):
    with suspended_process(two.nodes.agents[1].pid):
        assert "1 of 2 nodes have not answered in time" in two.query(0, "status")
        status = statuses(two, 0)
        assert (status["job"]["answered"], status["job"]["of"]) == (1, 2)
    for agent in two.nodes.agents:
        agent.send_signal(signal.SIGTERM)
    two.nodes.wait()


@pytest.mark.skipif(not any(shutil.which(tool) for tool in ("py-spy", "eu-stack", "gdb")), reason="needs py-spy, eu-stack or gdb")
def test_stacks_of_all_nodes(two):
    text = two.query(1, "stacks")
    assert len(re.findall(r"(?m)^rank [012] on \S+, process \d+, by [\w-]+:\n  \S", text)) == 3, text
    text = two.query(1, "stacks", "--rank", 0)
    assert "rank 0 on" in text and "rank 1" not in text
    assert "no worker with rank 7 of the job is running" in two.query(0, "stacks", "--rank", 7, code=2)


def test_programs_of_an_agent_inherit_no_socket(nodes, script, tmp_path):
    """A hook that outlives a killed agent must not keep the sockets of the agent open, because then the next agent could not
    use the ports. The same is true for the tools that read stacks."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("hook", "py-spy", "gdb", "eu-stack"):
        (tools / name).write_text(f'#!/bin/sh\nfor d in /proc/self/fd/*; do readlink "/proc/$$/fd/${{d##*/}}"; done > {tmp_path}/out/{name}.$$\n')
        (tools / name).chmod(0o755)
    nodes.environment["PATH"] = f"{tools}:{nodes.environment['PATH']}"
    body = f'[ $RANK = 0 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 3\n{WAITS}'
    two = start_two(nodes, script(body), tmp_path, options=lambda node: ("--max-restarts", "1", "--on-failure", f"{tools}/hook"))
    out = tmp_path / "out"
    nodes.until(lambda: list(out.glob("hook.*")), "the hook")
    subprocess.run([nodes.ddprun, "stacks"], capture_output=True, timeout=PATIENCE, check=False, env={**nodes.environment, "XDG_RUNTIME_DIR": two.runtime(1)})
    lists = [path for path in out.iterdir() if path.name.startswith(("hook.", "py-spy.", "gdb.", "eu-stack."))]
    assert len({path.name.split(".")[0] for path in lists}) >= 2, [path.name for path in lists]
    for path in lists:
        text = nodes.until(path.read_text, f"the descriptors in {path.name}")
        assert "socket:" not in text and "/dev/null" in text, f"{path.name}: {text}"


def test_a_record_that_cannot_be_written_is_reported_once(nodes, script, tmp_path):
    """The node cannot write its record (identity, vote and rounds) to the disk. The job must continue, because the record is
    needed only if the agent is killed later."""
    job = script("touch $OUT/here-$RANK\n[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0\nwhile [ ! -e $OUT/go ]; do sleep 0.02; done\nexit 3")
    two = start_two(nodes, job, tmp_path, options=lambda node: ("--max-restarts", "2"))
    for node in range(2):
        shutil.rmtree(tmp_path / f"state-{node}")
    (two.folder / "out/go").touch()
    assert nodes.wait() == [0, 0], nodes.all_text()
    for node in range(2):
        assert nodes.text(node).count("the rendezvous record of this node cannot be written to ") == 1, nodes.all_text()


def test_a_node_without_the_token_gets_no_answer(two, script, tmp_path):
    other = tmp_path / "other-token"
    other.write_text("0123456789abcdef" * 2 + "fedcba98765432100f1e2d3c4b5a6978\n")
    other.chmod(0o600)
    words = pathlib.Path(f"/proc/{two.nodes.agents[0].pid}/cmdline").read_bytes().split(b"\0")
    port = words[words.index(b"--master-port") + 1].decode()
    foreign = two.nodes.start("--nnodes", "2", "--node-rank", 1, "--master-addr", "127.0.0.1", "--master-port", port, script(WAITS), token=other,
                               XDG_RUNTIME_DIR=two.runtime(9), XDG_STATE_HOME=str(tmp_path / "state-9"))
    two.nodes.until(lambda: list(tmp_path.glob("run-9/ddprun/*.sock")) or foreign.poll() is not None, "the foreign agent's socket or end")
    if foreign.poll() is None:
        done = subprocess.run([two.nodes.ddprun, "status"], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**two.nodes.environment, "XDG_RUNTIME_DIR": two.runtime(9)})
        assert not re.search(r"(?m)^\S+ +[012] +\d+ +running", done.stdout), done.stdout
        done = subprocess.run([two.nodes.ddprun, "logs"], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**two.nodes.environment, "XDG_RUNTIME_DIR": two.runtime(9)})
        assert done.returncode == 2 and done.stdout == "", done.stdout
        foreign.kill()
    foreign.wait(PATIENCE)
    assert statuses(two, 0)["job"]["of"] == 2


def test_a_member_of_three_hosts_lists_and_stops_the_job(hosts, script, tmp_path):
    queries = NodeQueries(hosts, tmp_path)
    job = script("echo first $RANK; " + WAITS.replace("while :; do", "while [ ! -e $OUT/go ]; do sleep 0.1; done; echo went; while :; do"))
    for host in range(3):
        environment = hosts.environment
        hosts.environment = {**environment, "XDG_RUNTIME_DIR": queries.runtime(host)}
        hosts.start_on(host, "--nnodes", "3", "--master-addr", hosts.address(0), "--node-rank", host, "--run-dir", tmp_path / f"run-of-{host}", job)
        hosts.environment = environment
    queries.until_workers_run(3)
    status = statuses(queries, 2)
    assert [one["host"] for one in status["job"]["nodes"]] == ["host0", "host1", "host2"]
    assert [one["leads"] for one in status["job"]["nodes"]] == [True, False, False]
    assert re.search(r"(?m)^host0 +0 +\d+ +running .*\nhost1 +1 +\d+ +running .*\nhost2 +2 +", queries.query(1, "status"))
    series = [line.rpartition(" ")[0] for line in queries.query(1, "status", "--openmetrics").splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series)) and sum(one.startswith("ddprun_worker_running{") for one in series) == 3
    # Each host has only the log files of the rank that runs on this host, so the other log files are queried over the network.
    assert queries.query(2, "logs") == "[rank 0] first 0\n[rank 1] first 1\n[rank 2] first 2\n"
    assert queries.query(2, "logs", "--rank", 0) == "first 0\n"
    with queries.followed(1) as follower:
        assert {follower.stdout.readline() for _ in range(3)} == {f"[rank {rank}] first {rank}\n" for rank in range(3)}
        (tmp_path / "out/go").write_text("")
        assert {follower.stdout.readline() for _ in range(3)} == {f"[rank {rank}] went\n" for rank in range(3)}
        with queries.followed(0) as leaver:
            assert leaver.stdout.readline()
            leaver.stdout.close()  # closing the pipe must end the subcommand
            assert leaver.wait(PATIENCE) == 0
        assert "has ended" in queries.query(2, "stop")  # a subcommand that follows the log ends as well
    assert hosts.wait() == [143, 143, 143], hosts.all_text()
