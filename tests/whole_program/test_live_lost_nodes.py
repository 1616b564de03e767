"""Tests of multi-node jobs that lose nodes, and of nodes that join. The workers on the other nodes must keep their processes
and state. Even though the number of workers changes, no step may be repeated and each sample must be used once. All agents run
on this machine."""

import random

import jobs
import pytest
from live_jobs import SHORT, seed_of_this_run
from live_nodes import NodesJob, assert_trained_through, assert_continued, pause
from node_agents import suspended_process


def test_a_node_is_lost_and_another_comes(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="1:2", workers=2, options=("--rdzv-conf", "last_call_timeout=0.5"), **SHORT) as job:
        first = job.start(2)
        stays = job.agents[0]
        job.wait_until(lambda: all(a.at_work() for a in job.agents))
        before = stays.pids()
        first.process.kill()
        job.wait_until(lambda: len(stays.of("regrouped")) == 1)
        job.wait_until(lambda: stays.at_work())
        with suspended_process(before[0]):
            second = job.start()
            job.wait_until(lambda: len(stays.of("node_round_over")) == 2)
        job.wait_until(lambda: len(stays.of("regrouped")) == 2)
        assert stays.pids() == before
        assert [stays.end(), second.end()] == [0, 0], job.story()
    assert [(e["kept"], e["replaced"]) for e in stays.of("regrouped")] == [([0, 1], []), ([0, 1], [])]
    assert [e["world_size"] for e in jobs.metrics(job.run_dir, "regroup")] == [2, 4]
    assert_trained_through(job)


@pytest.mark.long
def test_the_last_worker_grows_into_a_group(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="1:2", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        first = job.start()
        job.wait_until(lambda: first.at_work())
        before = first.pids()
        with suspended_process(before[0]):
            second = job.start()
            job.wait_until(lambda: first.of("node_round_over"))
        job.wait_until(lambda: first.of("regrouped"))
        assert [first.end(), second.end()] == [0, 0], job.story()
    assert first.pids() == before
    assert [e["world_size"] for e in jobs.metrics(job.run_dir, "regroup")] == [2]
    assert_trained_through(job)


@pytest.mark.long
def test_survivors_keep_the_state_while_waiting_for_a_node(ddprun_bin, data, tmp_path, undisturbed):
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
    assert_continued(job, undisturbed(4))


def test_the_coordinators_agent_is_killed(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2:3", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5"), **SHORT) as job:
        job.start(3)
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("round_started")[-1]["world_size"] == 3)
        left = job.agents[1:]
        before = [a.pids() for a in left]
        job.agents[0].process.kill()
        job.wait_until(lambda: all(a.of("regrouped") for a in left))
        assert [a.end() for a in left] == [0, 0], job.story()
    assert [a.pids() for a in left] == before
    assert [e["world_size"] for e in jobs.metrics(job.run_dir, "regroup")][-1] == 2
    assert_trained_through(job)


@pytest.mark.long
def test_the_coordinators_agent_is_killed_during_a_regroup(ddprun_bin, data, tmp_path):
    with NodesJob(ddprun_bin, tmp_path / "job", data, nodes="2:3", workers=1, options=("--rdzv-conf", "last_call_timeout=0.5")) as job:
        job.start(3)
        job.wait_until(lambda: all(a.at_work() for a in job.agents) and job.agents[0].of("round_started")[-1]["world_size"] == 3)
        left = job.agents[1:]
        replaced = left[1].pids()
        left[1].kill_worker(0)
        job.wait_until(lambda: left[1].pids() != replaced)
        job.agents[0].process.kill()
        assert [a.end() for a in left] == [0, 0], job.story()
    assert_trained_through(job)


# ---- nodes killed at random times ----


class Members:
    """The agents that are still running, and the agents that the test must not kill."""

    def __init__(self, job: NodesJob):
        self.job = job

    def here(self) -> list:
        return [a for a in self.job.agents if a.process.poll() is None]

    def over(self) -> bool:
        return not self.here() or any(a.of("run_ended") for a in self.here())

    def indispensable(self):
        """Returns the agents without which the job could not continue. If only two nodes are left, the node with group rank 0
        counts as the majority."""
        here = self.here()
        return [a for a in here if a.of("round_started")[-1]["group_rank"] == 0] if len(here) == 2 else []

    def together(self) -> bool:
        """Returns True if all running nodes train together. In this case the job can continue with any majority of these
        nodes."""
        here = self.here()
        return all(a.at_work() and a.of("round_started")[-1]["nodes"] == len(here) for a in here)

    def wait(self):
        self.job.wait_until(lambda: self.over() or self.together())


def lost_steps(agent) -> list[dict]:
    """Returns the recoveries in which workers of this node kept their state but went back to an earlier step. Progress between
    the start of a recovery and its end is ignored, because it may belong to the new process group."""
    reached, counts, back = -1, True, []
    for event in agent.events:
        if event["event"] == "progress" and counts:
            reached = max(reached, event["step"])
        elif event["event"] == "round_started":
            counts = not event["regroup"]
            reached = reached if event["regroup"] else -1
        elif event["event"] == "regrouped":
            if event["kept"] and not event["replaced"] and event["step"] < reached:
                back.append({"reached": reached, **event})
            counts = True
    return back


def check_random_losses(ddprun, data, folder, calm, losses: int, seed: int, least: int, most: int, workers: int, **changes) -> None:
    print(f"seed {seed}, {least} to {most} nodes of {workers}")
    chance = random.Random(seed)
    options = ("--rdzv-conf", "last_call_timeout=0.3")
    with NodesJob(ddprun, folder, data, nodes=f"{least}:{most}", workers=workers, options=options, **changes) as job:
        job.start(most)
        members, killed = Members(job), []
        job.wait_until(lambda: members.over() or members.together() and len(members.here()) == most)
        while len(killed) < losses and not members.over():
            members.wait()
            pause(job, chance.uniform(0, 0.4))
            if members.over():
                break
            here = members.here()
            victim = chance.choice([a for a in here if a not in members.indispensable()])
            stay = [a for a in here if a is not victim]
            victim.process.kill()
            victim.end()
            killed.append(victim)
            # Sometimes kills a worker while the nodes recover. Another worker on the same node still has the state.
            if workers > 1 and chance.random() < 0.5:
                pause(job, chance.uniform(0, 0.3))
                chance.choice(stay).kill_worker(chance.randrange(workers))
            pause(job, chance.uniform(0, 0.6))
            if len(stay) > 1 and chance.random() < 0.3:
                continue
            while len(members.here()) < most and not members.over():
                job.start()
        assert {agent.end() for agent in job.agents if agent not in killed} == {0}, job.story()
    assert len(killed) >= losses / 2, "the run ended before half of the losses"
    assert_trained_through(job)
    assert [back for agent in job.agents for back in lost_steps(agent)] == [], job.story()
    ends = [jobs.metrics(run, "eval")[-1] for run in (job.run_dir, calm)]
    # The losses must be equal except for rounding differences, which 2,000 steps have amplified.
    assert ends[0]["loss"] == pytest.approx(ends[1]["loss"], rel=0.05)
    print(f"{len(killed)} nodes lost; the last evaluation's loss is {ends[0]['loss']:.6f}, that of the undisturbed run {ends[1]['loss']:.6f}")


@pytest.mark.long
@pytest.mark.parametrize(("least", "most", "workers"), [(1, 2, 2), (1, 2, 1), (2, 3, 1), (2, 3, 2)])
def test_nodes_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed, least, most, workers):
    longer = {"epochs": 600 // (most * workers)}  # a step takes longer with many workers on one machine
    check_random_losses(ddprun_bin, data, tmp_path / "job", undisturbed(most * workers, **longer), 8, seed_of_this_run(), least, most,
                        workers, **longer)
