"""A job on several nodes loses workers and nodes: whoever is left keeps its process and its state, and where the number of workers is the
same, the run ends with the bits of one that nothing happened to. The agents all run here; live recovery on one machine has its own tests."""

import os
import random
import signal
import statistics

import jobs
import pytest
from live_jobs import assert_same_run, data, seed_of_this_run, undisturbed  # noqa: F401
from live_nodes import NodesJob


def steps_made_twice(run) -> list[int]:
    """By the order in which they were written: a step at or below one that was there before."""
    steps = [e["step"] for e in jobs.metrics(run, "step")]
    return [step for before, step in zip(steps, steps[1:]) if step <= before]


def assert_went_on(job: NodesJob, calm) -> None:
    assert_same_run(job, calm)
    assert jobs.metrics(job.run_dir, "restart") == [], job.story()
    assert steps_made_twice(job.run_dir) == []
    assert all(agent.of("regroup_failed") == [] for agent in job.agents), job.story()


def test_a_worker_is_lost_on_one_of_two_nodes(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2) as job:
        job.start(2)
        for node, local_rank in ((1, 0), (0, 1), (0, 0)):  # rank 0 last: who writes metrics and checkpoints
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
    assert_went_on(job, undisturbed(4))
    kept = [(e["kept"], e["replaced"]) for agent in job.agents for e in agent.of("regrouped")]
    assert kept == [([0, 1], []), ([0], [1]), ([1], [0]), ([3], [2]), ([2, 3], []), ([2, 3], [])], job.story()
    assert len(jobs.metrics(job.run_dir, "regroup")) == 3


def seconds_to_next_step(job: NodesJob) -> list[float]:
    """From each first cause to the end of the next step that was made after it."""
    steps = sorted((e["time_ns"], e["step"]) for e in jobs.metrics(job.run_dir, "step"))
    found = []
    for regroup in jobs.metrics(job.run_dir, "regroup"):
        lost = max((e["first_cause"]["time_ns"] for agent in job.agents for e in agent.of("round_failed")
                    if e["first_cause"]["time_ns"] < regroup["time_ns"]), default=None)
        after = [t for t, step in steps if step > regroup["step"] and t > regroup["time_ns"]]
        if lost and after:
            found.append((min(after) - lost) / 1e9)
    return found


def check_random_kills(ddprun, data, folder, calm, kills: int, seed: int, **changes) -> list[float]:
    print(f"seed {seed}")
    chance = random.Random(seed)
    with NodesJob(ddprun, folder, data, nodes="2", workers=2, **changes) as job:
        job.start(2)
        job.wait_until(lambda: all(len(a.pids()) == 2 for a in job.agents))
        done, last = 0, None
        while done < kills and all(a.process.poll() is None for a in job.agents):
            if chance.random() < 0.75:
                job.wait_until(lambda: all(a.at_work() or a.of("run_ended") for a in job.agents))
            with job.changed:  # at a random moment: whatever is said in the meantime is read
                job.changed.wait_for(lambda: False, chance.uniform(0, 0.4))
            victim = (chance.randrange(2), chance.randrange(2))
            if victim == last and not all(a.at_work() for a in job.agents):
                victim = (1 - victim[0], victim[1])  # the same failure at the same step twice ends a job
            last, agent = victim, job.agents[victim[0]]
            before = agent.pids()[victim[1]]
            agent.kill_worker(victim[1])
            done += 1
            job.wait_until(lambda: agent.pids()[victim[1]] != before or agent.of("run_ended"))
        assert job.finish() == [0, 0], job.story()
    assert done >= kills / 2, "the run was too short for the kills"
    assert_same_run(job, calm)
    assert all(agent.of("regroup_failed") == [] for agent in job.agents), job.story()
    times = seconds_to_next_step(job)
    assert times, "no loss was outlived"
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


def test_another_worker_is_killed_while_they_come_together_again(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2) as job:
        job.start(2)
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        survivor = job.agents[0].pids()[0]
        before = job.agents[1].pids()[1]
        job.agents[1].kill_worker(1)
        job.wait_until(lambda: job.agents[1].pids()[1] != before)
        job.agents[0].kill_worker(1)
        assert job.finish() == [0, 0], job.story()
    assert_went_on(job, undisturbed(4))
    assert job.agents[0].pids()[0] == survivor


@pytest.mark.long
def test_a_survivor_that_does_not_follow_sends_all_back_to_the_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
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
def test_recovery_by_checkpoint_starts_all_anew(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2, options=("--recovery", "checkpoint")) as job:
        job.start(2)
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("checkpoint"))
        before = [a.pids() for a in job.agents]
        job.agents[1].kill_worker(0)
        assert job.finish() == [0, 0], job.story()
    assert_same_run(job, undisturbed(4))
    assert len(jobs.metrics(job.run_dir, "restart")) == 1
    assert [set(a.pids().values()) & set(b.values()) for a, b in zip(job.agents, before)] == [set(), set()]


# ---- a node is lost, or comes ----


def assert_trained_through(job: NodesJob, epochs: int) -> None:
    """Nothing was made twice, nothing left out, whatever the number of workers was."""
    assert jobs.metrics(job.run_dir, "restart") == [], job.story()
    assert [e["step"] for e in jobs.metrics(job.run_dir, "step")] == list(range(1, 20 * epochs + 1))
    jobs.assert_each_sample_once(job.run_dir, epochs)
    assert all(agent.of("regroup_failed") == [] for agent in job.agents), job.story()


def test_a_node_is_lost_and_another_comes(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="1:2", workers=2, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        first = job.start(2)
        stays = job.agents[0]
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        before = stays.pids()
        first.process.kill()
        job.wait_until(lambda: len(stays.of("regrouped")) == 1)
        job.wait_until(lambda: stays.at_work())
        second = job.start()
        job.wait_until(lambda: len(stays.of("regrouped")) == 2)
        assert stays.pids() == before
        assert [stays.end(), second.end()] == [0, 0], job.story()
    assert [(e["kept"], e["replaced"]) for e in stays.of("regrouped")] == [([0, 1], []), ([0, 1], [])]
    assert [e["world_size"] for e in jobs.metrics(job.run_dir, "regroup")] == [2, 4]
    assert_trained_through(job, 100)


@pytest.mark.long
def test_the_last_worker_grows_into_a_group(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="1:2", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        first = job.start()
        job.wait_until(lambda: first.at_work())
        before = first.pids()
        second = job.start()
        job.wait_until(lambda: first.of("regrouped"))
        assert [first.end(), second.end()] == [0, 0], job.story()
    assert first.pids() == before
    assert [e["world_size"] for e in jobs.metrics(job.run_dir, "regroup")] == [2]
    assert_trained_through(job, 100)


@pytest.mark.long
def test_a_lost_node_is_waited_for_with_the_state(ddprun_bin, data, tmp_path, undisturbed):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2", workers=2) as job:
        lost = job.start(2)
        stays = job.agents[0]
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        before = stays.pids()
        lost.process.kill()
        job.wait_until(lambda: any(e["event"] == "node_waiting" for e in stays.events))
        comes = job.start()
        assert [stays.end(), comes.end()] == [0, 0], job.story()
    assert stays.pids() == before
    assert_went_on(job, undisturbed(4))


def test_the_coordinators_agent_is_killed(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2:3", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        job.start(3)
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("round_started")[-1]["world_size"] == 3)
        left = job.agents[1:]
        before = [a.pids() for a in left]
        job.agents[0].process.kill()
        job.wait_until(lambda: all(a.of("regrouped") for a in left))
        assert [a.end() for a in left] == [0, 0], job.story()
    assert [a.pids() for a in left] == before
    assert [e["world_size"] for e in jobs.metrics(job.run_dir, "regroup")][-1] == 2
    assert_trained_through(job, 100)


@pytest.mark.long
def test_the_coordinators_agent_is_killed_while_workers_come_together(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2:3", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        job.start(3)
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("round_started")[-1]["world_size"] == 3)
        left = job.agents[1:]
        replaced = left[1].pids()
        left[1].kill_worker(0)
        job.wait_until(lambda: left[1].pids() != replaced)
        job.agents[0].process.kill()
        assert [a.end() for a in left] == [0, 0], job.story()
    assert_trained_through(job, 100)
