"""Tests of multi-node jobs that lose workers. The other workers must keep their processes and their state, and the final
results must be bit-identical to the results of an undisturbed run. All agents run on this machine. test_live_lost_nodes.py
tests lost nodes, and test_live_recovery.py tests jobs on a single machine."""

import os
import random
import signal
import statistics

import jobs
import pytest
from live_jobs import SHORT, assert_same_run, seed_of_this_run
from live_nodes import NodesJob, assert_continued, pause


@pytest.mark.long
def test_a_worker_is_lost_on_one_of_two_nodes(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2) as job:
        job.start(2)
        # Rank 0, on node 0, is lost last, because it writes metrics and checkpoints.
        for node, local_rank in ((1, 0), (0, 1), (0, 0)):
            job.wait_until(lambda: all(a.at_work() for a in job.agents))
            before = [a.pids() for a in job.agents]
            reached = min(a.step() for a in job.agents)
            regrouped = [len(a.of("regrouped")) for a in job.agents]
            job.agents[node].kill_worker(local_rank)
            job.wait_until(lambda: all(len(a.of("regrouped")) > n for a, n in zip(job.agents, regrouped)))
            after = [a.pids() for a in job.agents]
            changed = [(n, rank) for n in range(2) for rank in range(2) if before[n][rank] != after[n][rank]]
            assert changed == [(node, local_rank)], job.story()
            assert all(a.of("regrouped")[-1]["step"] >= reached for a in job.agents)
        assert job.finish() == [0, 0], job.story()
    assert_continued(job, undisturbed(4))
    kept = [(e["kept"], e["replaced"]) for agent in job.agents for e in agent.of("regrouped")]
    assert kept == [([0, 1], []), ([0], [1]), ([1], [0]), ([3], [2]), ([2, 3], []), ([2, 3], [])], job.story()
    assert len(jobs.metrics(job.run_dir, "regroup")) == 3


def seconds_to_next_step(job: NodesJob) -> list[float]:
    """Returns a recovery time for each lost worker: the seconds from the failure to the end of the next step."""
    steps = sorted((e["time_ns"], e["step"]) for e in jobs.metrics(job.run_dir, "step"))
    found = []
    for regroup in jobs.metrics(job.run_dir, "regroup"):
        lost = max((e["first_cause"]["time_ns"] for agent in job.agents for e in agent.of("round_failed")
                    if e["first_cause"]["time_ns"] < regroup["time_ns"]), default=None)
        after = [t for t, step in steps if step > regroup["step"] and t > regroup["time_ns"]]
        if lost and after:
            found.append((min(after) - lost) / 1e9)
    return found


def check_random_kills(ddprun, data, folder, calm, kills: int, seed: int, nodes=2, workers=2, **changes) -> list[float]:
    print(f"seed {seed}, {nodes} nodes of {workers}")
    chance = random.Random(seed)
    places = [(node, rank) for node in range(nodes) for rank in range(workers)]
    with NodesJob(ddprun, folder, data, nodes=str(nodes), workers=workers, **changes) as job:
        job.start(nodes)
        job.wait_until(lambda: all(len(a.pids()) == workers for a in job.agents))
        done, last = 0, None
        while done < kills and all(a.process.poll() is None for a in job.agents):
            if chance.random() < 0.75:
                job.wait_until(lambda: all(a.at_work() or a.of("run_ended") for a in job.agents))
            pause(job, chance.uniform(0, 0.4))
            victim = chance.choice(places)
            # Kills a different worker each time, because two failures of a worker at the same step would end the job.
            if victim == last and not all(a.at_work() for a in job.agents):
                victim = places[(places.index(victim) + workers) % len(places)]
            last, agent = victim, job.agents[victim[0]]
            before = agent.pids()[victim[1]]
            agent.kill_worker(victim[1])
            done += 1
            job.wait_until(lambda: agent.pids()[victim[1]] != before or agent.of("run_ended"))
        assert job.finish() == [0] * nodes, job.story()
    assert done >= kills / 2, "the run ended before half of the kills"
    assert_same_run(job, calm)
    assert all(agent.of("regroup_failed") == [] for agent in job.agents), job.story()
    times = seconds_to_next_step(job)
    assert times, "the job survived no lost worker"
    print(f"{done} kills; seconds to the next step: median {statistics.median(times):.2f}, most {max(times):.2f}")
    return times


@pytest.mark.long
def test_workers_of_two_nodes_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed):
    short = {"epochs": 60}
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed(4, **short), 4, seed_of_this_run(), **short)


@pytest.mark.long
@pytest.mark.parametrize("run", range(10))
def test_many_workers_of_two_nodes_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed, run):
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed(4), 10, seed_of_this_run() + run)


@pytest.mark.long
@pytest.mark.parametrize("nodes", [2, 3])
def test_lone_workers_of_nodes_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed, nodes):
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed(nodes), 10, seed_of_this_run(), nodes=nodes, workers=1)


def test_another_worker_is_killed_during_a_regroup(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2, **SHORT) as job:
        job.start(2)
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        survivor = job.agents[0].pids()[0]
        before = job.agents[1].pids()[1]
        job.agents[1].kill_worker(1)
        job.wait_until(lambda: job.agents[1].pids()[1] != before)
        job.agents[0].kill_worker(1)
        assert job.finish() == [0, 0], job.story()
    assert_continued(job, undisturbed(4, **SHORT))
    assert job.agents[0].pids()[0] == survivor


@pytest.mark.long
def test_an_unresponsive_survivor_restarts_all_from_the_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2, options=("--shutdown-timeout", "1")) as job:
        job.start(2)
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("checkpoint"))
        first = [a.pids() for a in job.agents]
        os.kill(first[0][1], signal.SIGSTOP)
        job.agents[1].kill_worker(1)
        job.wait_until(lambda: job.agents[0].of("regroup_failed"), 100)
        assert job.finish() == [0, 0], job.story()
    assert_same_run(job, undisturbed(4))
    assert len(jobs.metrics(job.run_dir, "restart")) == 1
    assert [set(a.pids().values()) & set(before.values()) for a, before in zip(job.agents, first)] == [set(), set()]


@pytest.mark.long
def test_checkpoint_recovery_restarts_all_workers(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2) as job:
        job.start(2, recovery="checkpoint")
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("checkpoint"))
        before = [a.pids() for a in job.agents]
        job.agents[1].kill_worker(0)
        assert job.finish() == [0, 0], job.story()
    assert_same_run(job, undisturbed(4))
    assert len(jobs.metrics(job.run_dir, "restart")) == 1
    assert [set(a.pids().values()) & set(b.values()) for a, b in zip(job.agents, before)] == [set(), set()]
