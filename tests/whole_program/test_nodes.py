"""Tests of multi-node jobs. Each node is an agent on the loopback interface. The tests check how nodes join, the ranks,
restarts, lost nodes, nodes that join late, the choice of a new coordinator, and the messages if a node cannot join. Each job
has its own token, state folder and ports. The workers are shell scripts, except in the tests of training."""

import json
import os
import pathlib
import re
import signal
import socket
import sys
import time

import jobs
import pytest
from jobs import free_port
from node_agents import LINE, PATIENCE, suspended_process, keep_records, lives, worker_line


def test_static_rendezvous_with_node_ranks_and_unequal_nodes(nodes, script, tmp_path):
    job = script(LINE + '; echo "$MASTER_ADDR $MASTER_PORT" > $OUT/master-$RANK')
    port = free_port()
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    nodes.start(*common, "--node-rank", "1", "--nproc-per-node", "2", "--role", "b", job)
    nodes.start(*common, "--node-rank", "0", "--nproc-per-node", "1", "--role", "a", job)
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert worker_line(tmp_path, 0) == "0 0 3 1 0 2 a 0 1 0".split()
    assert worker_line(tmp_path, 1) == "1 0 3 2 1 2 b 0 2 0".split()
    assert worker_line(tmp_path, 2) == "2 1 3 2 1 2 b 1 2 0".split()
    assert {(tmp_path / "out" / f"master-{r}").read_text() for r in range(3)} == {f"127.0.0.1 {port}\n"}


def test_the_same_command_on_every_node(nodes, script, tmp_path):
    job = script(LINE)
    command = ["--nnodes", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "j", job]
    for _ in range(3):
        nodes.start(*command)
    assert nodes.wait() == [0, 0, 0], nodes.all_text()
    assert sorted(int(worker_line(tmp_path, r)[4]) for r in range(3)) == [0, 1, 2]


def test_a_first_start_of_all_nodes_waits_for_no_lease(nodes, script, tmp_path):
    """The nodes have no stored state, like new containers. All nodes of the job have joined, so no earlier start of the job
    can still be running. Therefore the job must not wait until the leases of an earlier start expire, which would take 600 s
    in this test."""
    command = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
               "--rdzv-conf", "heartbeat_timeout=600", script("true")]
    for number in range(2):
        nodes.start(*command, XDG_STATE_HOME=str(tmp_path / f"new-{number}"))
    assert nodes.wait() == [0, 0], nodes.all_text()


def test_rank_0_can_open_the_rendezvous_port(nodes, script):
    job = script('''[ $RANK = 0 ] || exit 0
exec python3 -c "
import os, socket
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('::', int(os.environ['MASTER_PORT'])))
s.listen()
"''')
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--agent-store", "off"]
    nodes.start(*common, "--node-rank", "0", job)
    nodes.start(*common, "--node-rank", "1", job)
    assert nodes.wait() == [0, 0], nodes.all_text()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_on_one_node_restarts_both_within_one_budget(nodes, script, tmp_path, failing):
    job = script(f"""{LINE}
[ $RANK = {failing} ] || {{ sleep 1000 & wait; }}
while [ ! -e $OUT/rank-{1 - failing}-$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done
exit 7""")
    common = ["--nnodes", "2", "--max-restarts", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    nodes.start(*common, job)
    nodes.start(*common, job)
    assert nodes.wait() == [7, 7], nodes.all_text()
    for restart in range(3):
        assert [worker_line(tmp_path, r, restart)[9] for r in range(2)] == [str(restart)] * 2
    assert not (tmp_path / "out" / "rank-0-3").exists()
    for number in range(2):
        assert re.search(rf"rank {failing} \(?.*failed: exit code 7", nodes.text(number)), nodes.all_text()
        assert "budget of 2 restarts spent" in nodes.text(number)


def test_a_node_is_lost_and_the_other_continues_alone(nodes, script, tmp_path):
    job = script(f'{LINE}; [ $WORLD_SIZE = 1 ] && echo alone && exit 0; sleep 1000 & wait')
    command = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", job]
    nodes.start(*command)
    nodes.start(*command)
    nodes.until(lambda: (tmp_path / "out" / "rank-0-0").exists() and (tmp_path / "out" / "rank-1-0").exists(), "the workers")
    nodes.until(lambda: any("this is node 1" in nodes.text(n) for n in range(2)), "the node's place")
    victim = next(n for n in range(2) if "this is node 1" in nodes.text(n))
    workers = jobs.children(nodes.agents[victim].pid)
    begin = time.monotonic()
    nodes.agents[victim].kill()
    assert nodes.agents[1 - victim].wait(PATIENCE) == 0, nodes.all_text()
    assert time.monotonic() - begin < 10
    assert workers
    nodes.until(lambda: not any(lives(pid) for pid in workers), "the end of the lost agent's workers")
    # The loss of a node must not count against --max-restarts.
    assert worker_line(tmp_path, 0)[2] == "1" and worker_line(tmp_path, 0)[9] == "0"


def test_a_late_node_joins(nodes, script, tmp_path):
    job = script(f'{LINE}; [ $WORLD_SIZE = 2 ] && exit 0; sleep 1000 & wait')
    command = ["--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=0.3", "--rdzv-backend", "c10d",
               "--rdzv-endpoint", f"127.0.0.1:{free_port()}", job]
    nodes.start(*command)
    nodes.until(lambda: (tmp_path / "out" / "rank-0-0").exists(), "a world of one")
    nodes.start(*command)
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert worker_line(tmp_path, 1)[2] == "2"


def test_a_late_node_uses_the_same_round_numbers(nodes, script, tmp_path):
    """All nodes share one run directory. When the late node joins, a new round starts. Its log folder must contain all
    ranks."""
    (tmp_path / "run" / "logs" / "round-004").mkdir(parents=True)  # this folder was left by an earlier start
    job = script('echo x > $OUT/here-$RANK-of-$WORLD_SIZE; [ $WORLD_SIZE = 3 ] && exit 0; sleep 1000 & wait')
    options = ["--nnodes", "2:3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{jobs.free_port()}", "--rdzv-conf", "last_call_timeout=0.1",
               "--run-dir", tmp_path / "run", job]
    for _ in range(2):
        nodes.start(*options)
    nodes.until(lambda: (tmp_path / "out" / "here-1-of-2").exists(), "two workers")
    nodes.start(*options)
    assert nodes.wait() == [0, 0, 0], nodes.all_text()
    folders = {folder.name: sorted(p.name for p in folder.iterdir()) for folder in (tmp_path / "run" / "logs").glob("round-*")}
    ranks = ["rank-00000", "rank-00001"]
    assert folders == {"round-004": [], "round-005": ranks, "round-006": [*ranks, "rank-00002"]}, nodes.all_text()


def test_another_program_inherits_no_restarts(nodes, script, tmp_path):
    """All agents of a job were killed after its first restart. A different program at the same endpoint is a new job, so its
    restart count must be 0."""
    options = ["--nnodes", "2", "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{jobs.free_port()}"]
    first = script(LINE + '; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 1; sleep 1000 & wait')
    for _ in range(2):
        nodes.start(*options, first)
    nodes.until(lambda: all((tmp_path / "out" / f"rank-{rank}-1").exists() for rank in range(2)), "the restart")
    for agent in nodes.agents:
        agent.kill()
        agent.wait()
    second = tmp_path / "second.sh"
    second.write_text(f"#!/bin/sh\necho $TORCHELASTIC_RESTART_COUNT > {tmp_path}/out/second-$RANK\n")
    second.chmod(0o755)
    again = [nodes.start(*options, second) for _ in range(2)]
    assert [agent.wait(60) for agent in again] == [0, 0], nodes.all_text()
    assert [(tmp_path / "out" / f"second-{rank}").read_text() for rank in range(2)] == ["0\n", "0\n"]


def test_text_of_another_node_is_escaped(nodes, script):
    job = script(r'''[ $RANK = 0 ] && { sleep 1000 & wait; }
printf '{"message": "red \\u001b[31m\\nddprun: all is well", "timestamp": 10}' > $TORCHELASTIC_ERROR_FILE; exit 3''')
    options = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{jobs.free_port()}", job]
    for _ in range(2):
        nodes.start(*options)
    assert nodes.wait() == [3, 3], nodes.all_text()
    # The node with rank 0 prints the error message of the rank on the other node.
    other = next(n for n in range(2) if "this node coordinates" in nodes.text(n))
    assert r"red \u001b[31m" in nodes.text(other) and "\x1b" not in nodes.text(other), nodes.all_text()
    assert "\nddprun: all is well" not in nodes.text(other)


def test_join_transfers_the_restart_policy(nodes, script, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "policy.json").write_text('{"max_restarts": 1}')
    (tmp_path / "token").rename(tmp_path / "own" / "token")
    nodes.token = tmp_path / "own" / "token"
    nodes.start("--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-backend", "c10d", "--restart-policy", "own/policy.json",
                script(LINE + "; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"))
    address = nodes.until_printed(0, r"ddprun join (\S+:\d+)")[1]
    (tmp_path / "own" / "policy.json").unlink()  # another machine would not have this file
    nodes.start("join", address, "--dry-run")  # the plan that it prints also contains the policy
    assert nodes.agents[1].wait(60) == 0, nodes.all_text()
    assert "max_restarts" in nodes.text(1) and re.search(r"max_restarts +1 ", nodes.text(1)), nodes.text(1)
    nodes.start("join", address)
    assert [nodes.agents[n].wait(60) for n in (0, 2)] == [0, 0], nodes.all_text()
    assert worker_line(tmp_path, 1, 1)[9] == "1"


def test_join_refuses_a_command_it_cannot_transfer(nodes, script):
    nodes.start("--nnodes", "1:2", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-backend", "c10d", "--rdzv-conf", "last_call_timeout=0.1",
                script("sleep 100"), "a\udcff\x1b[2J")
    address = nodes.until_printed(0, r"ddprun join (\S+:\d+)")[1]
    nodes.start("join", address)
    assert nodes.agents[1].wait(60) == 2
    assert r"cannot be joined with ddprun join: in its command, 'a\xff\u001b[2J' is not valid UTF-8" in nodes.text(1)


def test_join_needs_address_and_token_only(nodes, script, tmp_path):
    job = script(LINE + '; echo "$1" > $OUT/argument-$RANK')
    nodes.start("--nnodes", "2", "--nproc-per-node", "2", "--master-port", 0, "--rdzv-id", "the job", job, "an argument")
    address = nodes.until_printed(0, r"ddprun join (\S+:\d+)")[1]
    nodes.start("join", address)
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert worker_line(tmp_path, 3)[2] == "4"
    assert (tmp_path / "out" / "argument-3").read_text() == "an argument\n"
    assert "joining the job 'the job'" in nodes.text(1)


def test_wrong_token_and_wrong_run_id_are_one_line(nodes, script, tmp_path):
    job = script("true")
    other = tmp_path / "other-token"
    other.write_text(os.urandom(32).hex())
    other.chmod(0o600)
    port = free_port()
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", port]
    nodes.start(*common, "--node-rank", "0", "--rdzv-id", "a", job)
    nodes.until_printed(0, "coordinates the job")
    begin = time.monotonic()
    wrong_token = nodes.start(*common, "--node-rank", "1", "--rdzv-id", "a", job, token=other)
    assert wrong_token.wait(PATIENCE) == 81
    assert "refuses this node's token" in nodes.text(1)
    assert time.monotonic() - begin < 10
    wrong_id = nodes.start(*common, "--node-rank", "1", "--rdzv-id", "b", job)
    # The job with the other run id may be about to end, so the node retries.
    nodes.until_printed(2, "another run id.*Still trying, for at most 600 s")
    wrong_id.send_signal(signal.SIGINT)
    assert wrong_id.wait(PATIENCE) == 130
    nodes.start(*common, "--node-rank", "1", "--rdzv-id", "a", job)  # the failed attempts have not affected the job
    assert [nodes.agents[0].wait(PATIENCE), nodes.agents[3].wait(PATIENCE)] == [0, 0], nodes.all_text()


def test_silent_ports_and_unknown_names_are_reported_early(nodes, script):
    job = script("true")
    wait = ["--rdzv-conf", "join_timeout=8"]
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begin = time.monotonic()
        nodes.start("--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", silent.getsockname()[1], *wait, job)
        nodes.start("--nnodes", "2", "--node-rank", "1", "--master-addr", "no-such-host.invalid", *wait, job)
        nodes.until_printed(0, "sends nothing.*Still trying, for at most 8 s")
        nodes.until_printed(1, "the name no-such-host.invalid has no address.*Still trying, for at most 8 s")
        assert nodes.wait() == [80, 80], nodes.all_text()
        assert time.monotonic() - begin > 8
    for number, why in enumerate(("sends nothing", "no-such-host.invalid has no address")):
        assert len(re.findall(f"{why}.*Still trying", nodes.text(number))) == 1, nodes.text(number)
        assert re.search(f"no coordinator answered for 8 s: .*{why}", nodes.text(number)), nodes.text(number)


def test_a_silent_port_becomes_the_jobs_port(nodes, script):
    job = script("true")
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", silent.getsockname()[1]]
        nodes.start(*common, "--node-rank", "1", job)
        nodes.until_printed(0, "sends nothing.*Still trying")
    nodes.start(*common, "--node-rank", "0", job)
    assert nodes.wait() == [0, 0], nodes.all_text()


def test_a_signal_to_the_coordinator_stops_all(nodes, script, tmp_path):
    job = script(f'{LINE}; sleep 1000 & wait')
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port()]
    nodes.start(*common, "--node-rank", "0", job)
    nodes.start(*common, "--node-rank", "1", job)
    nodes.until(lambda: (tmp_path / "out" / "rank-0-0").exists() and (tmp_path / "out" / "rank-1-0").exists(), "the workers")
    nodes.agents[0].send_signal(signal.SIGTERM)
    assert nodes.wait() == [143, 143], nodes.all_text()


def test_a_waiting_job_is_stopped_by_a_signal(nodes, script):
    nodes.start("--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--node-rank", "0", script("true"))
    nodes.until_printed(0, "waiting for nodes: 1 of 2")
    nodes.agents[0].send_signal(signal.SIGINT)
    assert nodes.wait() == [130]


def test_the_coordinator_is_lost_and_two_others_continue(nodes, script, tmp_path):
    job = script(f'{LINE}; [ $WORLD_SIZE = 2 ] && exit 0; sleep 1000 & wait')
    common = ["--nnodes", "2:3", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--rdzv-conf", "heartbeat_timeout=1"]
    for rank in range(3):
        nodes.start(*common, "--node-rank", rank, job)
    nodes.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() for r in range(3)), "three workers")
    nodes.agents[0].kill()
    nodes.agents[0].wait()
    assert [nodes.agents[n].wait(PATIENCE) for n in (1, 2)] == [0, 0], nodes.all_text()
    assert sorted(int(worker_line(tmp_path, r)[2]) for r in range(2)) == [2, 2]


@pytest.mark.long
def test_two_nodes_are_lost_within_a_second(nodes, script, tmp_path):
    """A spare replaces the first lost node. After the second loss, the two remaining nodes are not a majority of the members of
    the first round. They can continue only if most members of the round with the spare have already stored this round on
    disk."""
    job = script('echo > $OUT/up-$$; [ $WORLD_SIZE = 2 ] && exit 0; sleep 1000 & wait')
    command = ["--nnodes", "2:3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", job]

    def up() -> int:
        return len(list((tmp_path / "out").glob("up-*")))

    nodes.start(*command)
    nodes.until_printed(0, "this node coordinates")
    for _ in range(2):
        nodes.start(*command)
    nodes.until(lambda: up() == 3, "three workers")
    nodes.start(*command)
    nodes.until_printed(0, "4 of 3 nodes")
    nodes.agents[2].kill()
    nodes.until(lambda: up() == 6, "the spare's round")
    time.sleep(0.4)  # less than the interval between two pings
    nodes.agents[0].kill()
    assert [nodes.agents[n].wait(PATIENCE) for n in (1, 3)] == [0, 0], nodes.all_text()


@pytest.mark.long
def test_a_stopped_job_restarts_despite_a_stale_node(nodes, script, tmp_path):
    again = tmp_path / "again"
    job = script(f'{LINE}; [ -e {again} ] && exit 0; sleep 1000 & wait')
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port()]

    def start(rank: int):
        nodes.start(*common, "--node-rank", rank, job, XDG_STATE_HOME=str(tmp_path / f"state-{rank}"))

    start(0), start(1)
    nodes.until(lambda: (tmp_path / "out" / "rank-0-0").exists() and (tmp_path / "out" / "rank-1-0").exists(), "the workers")
    nodes.agents[1].kill()
    nodes.until_printed(0, "closed its connection")
    nodes.agents[0].terminate()
    assert nodes.agents[0].wait(PATIENCE) == 143, nodes.all_text()
    again.touch()
    start(0), start(1)
    assert [nodes.agents[n].wait(PATIENCE) for n in (2, 3)] == [0, 0], nodes.all_text()
    assert "knows of a later round" in nodes.text(2)


def test_a_suspended_agent_leaves_no_worker_in_the_next_round(nodes, script, tmp_path):
    job = script(f'{LINE}; [ $WORLD_SIZE = 1 ] && exit 0; echo $$ > $OUT/pid-$RANK; sleep 1000 & wait')
    common = ["--nnodes", "1:2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--rdzv-conf", "heartbeat_timeout=2"]
    nodes.start(*common, "--node-rank", "0", job)
    nodes.start(*common, "--node-rank", "1", "--log-dir", tmp_path / "logs", job)
    pid = int(nodes.until(lambda: (tmp_path / "out" / "pid-1").exists() and (tmp_path / "out" / "pid-1").read_text(), "rank 1"))
    nodes.agents[1].send_signal(signal.SIGSTOP)
    nodes.until_printed(0, "1 node, 1 worker")
    assert not lives(pid)
    assert nodes.agents[0].wait(PATIENCE) == 0, nodes.all_text()
    nodes.agents[1].send_signal(signal.SIGCONT)
    nodes.until_printed(1, r"no answer from the coordinator for \d\.\d s: the workers of this node were stopped")
    assert "failed" not in nodes.text(1)  # the guardian's SIGKILL did not count as a failure of the rank
    report = next((tmp_path / "logs").glob("*/report.json"))
    ended = nodes.until(lambda: (last := json.loads(report.read_text())["rounds"][-1])["decision"] and last, "the round's end in the report")
    assert (ended["first_cause"]["cause"], ended["decision"]) == ("cut_off", "rejoin")
    assert 0 <= ended["first_cause"]["seconds"] <= 1.6  # a grant is 0.8 leases (1.6 s), minus the time that the answer took


def test_reports_and_events_name_the_nodes(nodes, script, tmp_path):
    job = script("exit 3")
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--json"]
    nodes.start(*common, "--node-rank", "0", "--log-dir", tmp_path / "logs", job)
    nodes.start(*common, "--node-rank", "1", job)
    assert nodes.wait() == [3, 3], nodes.all_text()
    events = [json.loads(line) for line in nodes.text(0).splitlines()]
    assert [e["text"] for e in events if e["event"] == "node_joined"] == [socket.gethostname()] * 2
    started = next(e for e in events if e["event"] == "round_started")
    assert (started["nodes"], started["group_rank"], started["world_size"]) == (2, 0, 2)
    report = json.loads(next((tmp_path / "logs").glob("*/report.json")).read_text())
    assert [e["event"] for e in report["invocations"][-1]["nodes"]].count("joined") == 2
    assert report["exit"]["code"] == 3


# ---- training ----


@pytest.fixture
def small(tmp_path):
    return jobs.write_small_dataset(tmp_path / "data")


def test_two_nodes_have_the_losses_of_one(nodes, small, tmp_path, ddprun_bin, ddptrain_bin):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small))
    alone = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "alone", config])
    assert alone.returncode == 0, alone.stderr
    command = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", free_port(),
               "--run-dir", tmp_path / "both", config]
    nodes.start(*command)
    nodes.start(*command)
    assert nodes.wait() == [0, 0], nodes.all_text()
    assert jobs.losses(tmp_path / "both") == jobs.losses(tmp_path / "alone")
    assert jobs.weights_digest(tmp_path / "both") == jobs.weights_digest(tmp_path / "alone")
    jobs.assert_each_sample_once(tmp_path / "both", epochs=2)


def test_a_signal_saves_on_all_nodes_for_the_next_start(nodes, small, tmp_path, ddptrain_bin):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small, epochs=60))
    command = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", free_port(),
               "--run-dir", tmp_path / "run", config]
    nodes.start(*command)
    nodes.start(*command)
    metrics = tmp_path / "run" / "metrics.jsonl"
    nodes.until(lambda: metrics.exists() and metrics.read_text().count('"step"') > 20, "some steps")
    nodes.agents[0].send_signal(signal.SIGTERM)
    assert nodes.wait() == [85, 85], nodes.all_text()
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()


def test_a_replaced_node_uses_every_sample_once(nodes, small, tmp_path, ddptrain_bin):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(small, epochs=30))
    command = ["--nnodes", "1:2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", free_port(),
               "--rdzv-conf", "last_call_timeout=0.5", "--run-dir", tmp_path / "run", config]
    nodes.start(*command)
    nodes.until_printed(0, "coordinates the job")
    nodes.start(*command)
    metrics = tmp_path / "run" / "metrics.jsonl"
    nodes.until(lambda: metrics.exists() and metrics.read_text().count('"event":"step"') > 25, "some steps of two")
    nodes.agents[1].kill()
    worker = int(nodes.until_printed(0, r"1 node, 1 worker.*\nrank 0 pid (\d+)")[1])
    nodes.until_printed(0, "up to rounding, not bit for bit")  # the job resumes from the checkpoint
    with suspended_process(worker):
        nodes.start(*command)
        nodes.until(lambda: nodes.text(0).count("the round is over") == 2, "the third node being let in")
    nodes.until(lambda: len(re.findall(r"2 nodes, 2 workers", nodes.text(0))) == 2, "the third node in a round")
    assert [nodes.agents[0].wait(PATIENCE), nodes.agents[2].wait(PATIENCE)] == [0, 0], nodes.all_text()
    jobs.assert_each_sample_once(tmp_path / "run", epochs=30)


def test_a_first_node_without_its_record_leads_no_second_job(nodes, script, tmp_path):
    """The first node is restarted without its stored state, like a new container, while the other nodes continue to train. The
    first node must join their job and must not start a second job."""
    job = script(f'{LINE}; while [ ! -e {tmp_path}/enough ]; do sleep 0.1; done')
    common = ["--nnodes", "1:3", "--master-addr", "127.0.0.1", "--master-port", free_port(),
              "--rdzv-conf", "heartbeat_timeout=2,last_call_timeout=0.1"]
    state = [{"XDG_STATE_HOME": str(tmp_path / f"state-{rank}")} for rank in range(3)]
    for rank in range(3):
        nodes.start(*common, "--node-rank", rank, job, **state[rank])
    nodes.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() for r in range(3)), "three workers")
    for record in (tmp_path / "state-0").rglob("nodes/*/*"):
        record.unlink()
    (tmp_path / "out" / "rank-0-0").unlink()
    nodes.agents[0].kill()
    nodes.agents[0].wait()
    nodes.start(*common, "--node-rank", "0", job, XDG_STATE_HOME=str(tmp_path / "state-again"))
    nodes.until(lambda: all((tmp_path / "out" / f"rank-{r}-0").exists() and worker_line(tmp_path, r)[2] == "3" for r in range(3)), "all three at work again")
    (tmp_path / "enough").touch()
    assert [nodes.agents[n].wait(PATIENCE) for n in (1, 2, 3)] == [0, 0, 0], nodes.all_text()
    assert "starts with 1 node" not in nodes.text(3), nodes.text(3)


def test_the_second_of_two_continues_after_a_death_notice(nodes, script, tmp_path):
    """The agent of the first node is killed, but its machine continues to run, so its guardian process sends a death notice to
    the second node. When the first node is started again, it must join the running job and must not start a second job."""
    job = script(f'echo "x$MASTER_ADDR" >> $OUT/world-$WORLD_SIZE; while [ ! -e {tmp_path}/enough ]; do sleep 0.1; done')
    common = ["--nnodes", "1:2", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--rdzv-conf", "last_call_timeout=0.3"]
    worlds = [tmp_path / "out" / f"world-{size}" for size in (1, 2)]

    def start(rank: int):
        nodes.start(*common, "--node-rank", rank, job, XDG_STATE_HOME=str(tmp_path / f"state-{rank}"))

    def until_started(size: int, count: int):
        path = worlds[size - 1]
        nodes.until(lambda: path.exists() and len(path.read_text().split()) == count, f"{count} workers of {size}")

    start(0)
    start(1)
    until_started(2, 2)
    nodes.agents[0].kill()
    nodes.agents[0].wait()
    until_started(1, 1)
    assert "its agent has died and its workers have ended" in nodes.text(1), nodes.text(1)
    start(0)
    until_started(2, 4)
    (tmp_path / "enough").touch()
    assert [nodes.agents[n].wait(PATIENCE) for n in (1, 2)] == [0, 0], nodes.all_text()
    assert "1 node, 1 worker" not in nodes.text(2), nodes.text(2)
    # MASTER_ADDR must be the same on all nodes, independent of which node has rank 0.
    assert {line for world in worlds for line in world.read_text().split()} == {"x127.0.0.1"}


@pytest.mark.parametrize("home", ["shared", "each its own", "shared, as the run directory"])
def test_a_killed_first_node_rejoins_after_a_restart(nodes, script, tmp_path, home):
    """The agent of the first node is killed. Its guardian process reports this and removes the stored state of the node. Both
    nodes are needed, so the job must wait until the first node is started again."""
    job = script(f'echo "x$MASTER_ADDR" >> $OUT/started; while [ ! -e {tmp_path}/enough ]; do sleep 0.1; done')
    started = tmp_path / "out" / "started"
    common = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", free_port()]
    if home == "shared, as the run directory":
        common += ["--run-dir", tmp_path / "run"]

    def start(rank: int):
        states = {"XDG_STATE_HOME": keep_records(tmp_path / f"state-{rank}")} if home == "each its own" else {}
        nodes.start(*common, "--node-rank", rank, job, **states)

    def until_started(count: int):
        nodes.until(lambda: started.exists() and len(started.read_text().split()) == count, f"{count} workers")

    start(0)
    start(1)
    until_started(2)
    # With separate state folders, the test also suspends the guardian of the killed agent. The guardian's store still occupies
    # the port that the new agent needs. The new agent must wait until the port is closed.
    guardian = next(pid for pid in jobs.children(nodes.agents[0].pid) if "guardian" in pathlib.Path(f"/proc/{pid}/comm").read_text())
    if home == "each its own":
        os.kill(guardian, signal.SIGSTOP)
    nodes.agents[0].kill()
    nodes.agents[0].wait()
    start(0)
    if home == "each its own":
        time.sleep(0.5)
        os.kill(guardian, signal.SIGCONT)
    until_started(4)
    (tmp_path / "enough").touch()
    assert [nodes.agents[n].wait(PATIENCE) for n in (1, 2)] == [0, 0], nodes.all_text()
    assert set(started.read_text().split()) == {"x127.0.0.1"}


@pytest.mark.parametrize("comes", ["between two rounds", "while a round runs"])
def test_a_node_joins_a_static_job_of_a_script_with_its_own_command(nodes, script, tmp_path, comes):
    """The node is a new machine that has only the address and port of the job. After each start, the workers of all nodes must
    share the store at this port."""
    job = script(f"""exec env PYTHONPATH={pathlib.Path(__file__).parent} {sys.executable} -c '
import os, pathlib, time, tcp_store
rank, world, out = os.environ["RANK"], int(os.environ["WORLD_SIZE"]), pathlib.Path("{tmp_path}/out")
store = tcp_store.Store()
store.set("of " + rank, "1")
store.wait(*("of " + str(other) for other in range(world)))
with open(out / "met", "a") as met:
    met.write(str(world) + " ")
while not (out / "enough").exists():
    time.sleep(0.05)
'""")
    counts = "2" if comes == "between two rounds" else "2:3"
    common = ["--nnodes", counts, "--master-addr", "127.0.0.1", "--master-port", free_port(), "--rdzv-conf", "last_call_timeout=0.2"]

    def start(rank: int):
        nodes.start(*common, "--node-rank", rank, job, XDG_STATE_HOME=keep_records(tmp_path / f"state-{len(nodes.agents)}"))

    def meet(worlds: str):
        met = tmp_path / "out" / "met"
        nodes.until(lambda: met.exists() and met.read_text() == worlds, f"workers that meet: {worlds}")

    start(0)
    start(1)
    nodes.until_printed(0, "nodes on other machines cannot reach this node: 127.0.0.1 is a loopback address")
    meet("2 2 ")
    replaces = comes == "between two rounds"
    if replaces:
        nodes.agents[1].kill()
        nodes.until_printed(0, "the round is over")
    start(1 if replaces else 2)
    meet("2 2 2 2 " if replaces else "2 2 3 3 3 ")
    (tmp_path / "out" / "enough").touch()
    assert nodes.wait() == [0, -signal.SIGKILL if replaces else 0, 0], nodes.all_text()


def test_a_replacement_waits_for_the_lease_of_its_rank(nodes, script, tmp_path):
    """The lost node stops answering, as after a power cut. Until the lease expires, the coordinator assumes that the node is
    alive and uses its rank. A replacement for the node must wait until the lease has expired."""
    job = script(f'echo $RANK >> $OUT/started; while [ ! -e {tmp_path}/enough ]; do sleep 0.1; done')
    started = tmp_path / "out" / "started"

    def start(rank: int, machine: int, port: int):
        nodes.start("--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port, "--rdzv-conf", "heartbeat_timeout=1.5",
                    job, XDG_STATE_HOME=keep_records(tmp_path / f"state-{machine}"))

    def until_started(count: int):
        nodes.until(lambda: started.exists() and len(started.read_text().split()) == count, f"{count} workers")

    port = free_port()
    start(0, machine=0, port=port)
    start(1, machine=1, port=port)
    until_started(2)
    with suspended_process(nodes.agents[1].pid):
        start(1, machine=2, port=int(nodes.until_printed(0, r"ddprun join 127\.0\.0\.1:(\d+)")[1]))
        nodes.until_printed(0, "node rank 1 is taken by")
        until_started(4)
        (tmp_path / "enough").touch()
        assert [nodes.agents[n].wait(PATIENCE) for n in (0, 2)] == [0, 0], nodes.all_text()


def test_the_run_directory_or_user_decides_about_an_earlier_start(nodes, script, tmp_path):
    """The first node has no stored state, like a new container. But the run directory contains a marker that an earlier start
    of the job may still be running. So a new start must wait for other nodes, unless the user passes --force-new-job."""
    job = script(f'echo x >> $OUT/started; [ -e {tmp_path}/enough ] || exec sleep 1000')
    started, run = tmp_path / "out" / "started", tmp_path / "run"
    common = ["--nnodes", "1:3", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port", free_port(), "--run-dir", run,
              "--rdzv-conf", "heartbeat_timeout=1,last_call_timeout=0.1"]

    def start(*options) -> int:
        nodes.start(*common, *options, job, XDG_STATE_HOME=keep_records(tmp_path / f"state-{len(nodes.agents)}"))
        return len(nodes.agents) - 1

    def marker() -> str:
        return json.loads((run / "nodes.json").read_text())["job"]

    start()
    nodes.until(started.exists, "a worker")
    assert marker() == "running"
    nodes.agents[0].kill()
    nodes.agents[0].wait()
    waiting = start()
    nodes.until_printed(waiting, "waiting for nodes, since an earlier start of this job may still be running elsewhere: 1 of 3 nodes are present")
    nodes.agents[waiting].send_signal(signal.SIGINT)
    assert nodes.agents[waiting].wait(PATIENCE) == 130
    assert started.read_text().split() == ["x"], nodes.all_text()
    assert marker() == "running"
    (tmp_path / "enough").touch()
    forced = start("--force-new-job")
    assert nodes.agents[forced].wait(PATIENCE) == 0, nodes.all_text()
    assert started.read_text().split() == ["x", "x"]
    assert marker() == "over"
