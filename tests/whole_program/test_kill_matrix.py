"""Tests that lose a worker in each phase of a run, with both kinds of recovery. The final weights, metrics and used samples
must equal the results of an undisturbed run. With live recovery, the other workers keep their state, and only the lost worker
is replaced. With recovery from a checkpoint, all workers are started again. test_hundred_kills.py is a similar, long test for
each model of killed_models.py."""

import jobs
import pytest
from live_jobs import Job, assert_same_run

SETTINGS = {"epochs": 4, "checkpoint": {"every_steps": 7, "keep": 3}}
LIVE, CHECKPOINT = ["live"], ["checkpoint"]
BOTH = LIVE + CHECKPOINT

# Each entry has the number of workers, the injected fault, the ranks that keep their state with live recovery, and the kinds of
# recovery to test.
MATRIX = [
    (1, "kill rank=0 step=11", [], CHECKPOINT),
    (2, "kill rank=1 phase=joining", [], LIVE),  # before the first step no worker has a state
    (2, "kill rank=1 step=0", [0], BOTH),  # the kill comes before the first checkpoint
    (2, "kill rank=0 step=11", [1], BOTH),  # a loss of rank 0, which writes metrics and checkpoints
    (2, "kill rank=1 step=11", [0], CHECKPOINT),
    (2, "kill rank=1 step=25 phase=backward", [0], BOTH),
    (2, "kill rank=0 step=25 phase=optimizer", [1], BOTH),  # the other rank has already finished this step
    (2, "kill rank=0 step=70 phase=saving", [1], BOTH),  # the kill comes while a checkpoint is being written
    (2, "kill rank=0 step=20 phase=evaluating", [1], LIVE),
    (2, "kill rank=1 step=20 phase=evaluating", [0], BOTH),
    (2, "kill rank=1 step=80 phase=exit", [0], BOTH),
    (2, "segv rank=1 step=9", [0], BOTH),
    (2, "exit=3 rank=0 step=9", [1], BOTH),
    (3, "kill rank=2 step=0 phase=backward", [0, 1], LIVE),  # the kill comes before the order of the buckets is known
    (3, "kill rank=2 step=17 phase=backward", [0, 1], LIVE),
    (3, "kill rank=2 step=17", [0, 1], CHECKPOINT),  # with three ranks, sums depend on the order of the buckets
    (3, "kill rank=0 step=1 phase=optimizer", [1, 2], LIVE),
]


@pytest.mark.parametrize("recovery,workers,fault,kept", [(recovery, *row) for *row, ways in MATRIX for recovery in ways])
def test_a_worker_is_lost_in_each_phase(ddprun_bin, data, tmp_path, undisturbed, recovery, workers, fault, kept):
    with Job(ddprun_bin, tmp_path / "job", data, workers, recovery=recovery, env={"DDPTRAIN_FAULT": fault}, **SETTINGS) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(workers, **SETTINGS))
    lost, after = jobs.report(job.run_dir)["rounds"]
    assert f"rank={lost['first_cause']['rank']}" in fault.split()
    if recovery == "live":
        assert [lost["decision"], after["decision"]] == ["regroup", "end"], job.errors
        assert [e["kept"] for e in job.of("regrouped")] == [after["regroup"]["kept"]] == [kept], job.errors
        assert jobs.metrics(job.run_dir, "restart") == []
        assert len(after["workers"]) == 1  # only one process, the replacement of the lost worker, was started
    else:
        assert [lost["decision"], after["decision"]] == ["restart", "end"], job.errors
        assert [len(r["workers"]) for r in (lost, after)] == [workers] * 2 and after["regroup"] is None
