"""Tests of live recovery on several nodes in special situations: nodes with different options, a checkpoint that is being
written, a stop signal, and a hanging worker."""

import os
import signal

import jobs
import pytest
from live_jobs import assert_same_run
from live_nodes import NodesJob, assert_continued


def two_nodes(ddprun, folder, data, **more) -> NodesJob:
    return NodesJob(ddprun, folder, data, nodes="2", workers=2, **more)


def replaced(job: NodesJob, before: list[dict[int, int]]) -> list[list[int]]:
    """Returns for each node the local ranks whose worker process was replaced."""
    return [[rank for rank, pid in agent.pids().items() if pid != pids[rank]] for agent, pids in zip(job.agents, before)]


@pytest.mark.long
def test_a_node_without_state_takes_it_from_another(ddprun_bin, data, tmp_path, undisturbed):
    with two_nodes(ddprun_bin, tmp_path / "job", data) as job:
        job.start(recovery="live")
        job.start(recovery="checkpoint")
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        before = [a.pids() for a in job.agents]
        job.agents[0].kill_worker(1)
        assert job.finish() == [0, 0], job.story()
    assert replaced(job, before) == [[1], [0, 1]]
    assert_continued(job, undisturbed(4))


@pytest.mark.long
def test_the_node_of_a_lost_worker_decides_the_recovery(ddprun_bin, data, tmp_path, undisturbed):
    with two_nodes(ddprun_bin, tmp_path / "job", data) as job:
        job.start(recovery="live")
        job.start(recovery="checkpoint")
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("checkpoint"))
        before = [a.pids() for a in job.agents]
        job.agents[1].kill_worker(1)
        assert job.finish() == [0, 0], job.story()
    assert replaced(job, before) == [[0, 1], [0, 1]]
    assert_same_run(job, undisturbed(4))
    assert len(jobs.metrics(job.run_dir, "restart")) == 1


@pytest.mark.long
def test_a_worker_is_lost_while_another_node_writes_a_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
    large = {"model": {"type": "mlp", "hidden": [1024, 1024]}, "epochs": 10}  # with this model, saving takes longer than a step
    with two_nodes(ddprun_bin, tmp_path / "job", data, **large) as job:
        job.start()
        job.start(DDPTRAIN_FAULT="kill rank=3 step=70")
        job.wait_until(lambda: all(a.of("regrouped") for a in job.agents))
        assert job.finish() == [0, 0], job.story()
    assert_continued(job, undisturbed(4, **large))
    assert [e["step"] for e in job.agents[0].of("checkpoint")] == [70, 140, 200], job.story()


@pytest.mark.long
def test_a_stopped_worker_is_replaced_and_the_others_stay(ddprun_bin, data, tmp_path, undisturbed):
    with two_nodes(ddprun_bin, tmp_path / "job", data, options=("--hang-timeout", "2")) as job:
        job.start(2)
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        before = [a.pids() for a in job.agents]
        os.kill(before[1][0], signal.SIGSTOP)
        assert job.finish() == [0, 0], job.story()
    failed = [e["first_cause"] for e in job.agents[1].of("round_failed")]
    assert [(f["cause"], f["rank"]) for f in failed] == [("hang", 2)], job.story()
    assert replaced(job, before) == [[], [0]]
    assert_continued(job, undisturbed(4))


@pytest.mark.long
def test_a_signal_during_a_regroup_saves_the_state(ddprun_bin, data, tmp_path, undisturbed):
    with two_nodes(ddprun_bin, tmp_path / "job", data) as job:
        job.start(2)
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        before = [a.pids() for a in job.agents]
        reached = max(a.step() for a in job.agents)
        job.agents[1].kill_worker(0)
        job.wait_until(lambda: job.agents[1].pids()[0] != before[1][0])
        job.agents[0].process.send_signal(signal.SIGTERM)
        assert job.finish() == [85, 85], job.story()
        assert jobs.metrics(job.run_dir)[-1]["step"] >= reached
        job.start(2)
        assert [a.end() for a in job.agents[2:]] == [0, 0], job.story()
    assert_same_run(job, undisturbed(4))


@pytest.mark.long
def test_a_signal_while_waiting_for_a_node_resumes_from_the_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
    with two_nodes(ddprun_bin, tmp_path / "job", data) as job:
        lost = job.start(2)
        stays = job.agents[0]
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and stays.of("checkpoint"))
        waited = len(stays.of("node_waiting"))
        lost.process.kill()
        job.wait_until(lambda: len(stays.of("node_waiting")) > waited)
        stays.process.send_signal(signal.SIGTERM)
        assert stays.end() == 143, job.story()
        job.start(2)
        assert [a.end() for a in job.agents[2:]] == [0, 0], job.story()
    assert_same_run(job, undisturbed(4))
    assert len(jobs.metrics(job.run_dir, "resume")) == 1
