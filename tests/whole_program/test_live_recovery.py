"""Workers are lost while the others keep their state: the run ends with exactly the bits, metrics and samples of an undisturbed run, and no finished
step is repeated. The long form kills 200 workers."""

import signal
import statistics
import time

import jobs
import pytest
from live_jobs import Job, assert_nothing_lost, assert_same_run, check_random_kills, data, seed_of_this_run, undisturbed  # noqa: F401

LIMIT_S = 1.0  # seconds from a kill to the next finished step, on an idle machine


def test_workers_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed):
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed, 3, 4, seed_of_this_run(), epochs=40)


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 3])
def test_ten_workers_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed, workers):
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed, workers, 10, seed_of_this_run())


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 3])
def test_a_hundred_workers_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed, workers):
    seed, times = seed_of_this_run(), []
    for run in range(10):
        times += check_random_kills(ddprun_bin, data, tmp_path / str(run), undisturbed, workers, 10, seed + run)
    assert statistics.median(times) <= LIMIT_S


@pytest.mark.parametrize("workers,fault,kept", [
    (2, "kill rank=1 phase=joining", []),  # no worker has state yet
    (2, "kill rank=1 step=0", [0]),
    (2, "kill rank=0 step=11", [1]),  # rank 0 writes metrics and checkpoints
    (2, "kill rank=1 step=25 phase=backward", [0]),
    (2, "kill rank=0 step=25 phase=optimizer", [1]),  # the other rank has finished this step
    (2, "kill rank=0 step=70 phase=saving", [1]),  # during the writing of a checkpoint
    (2, "kill rank=0 step=20 phase=evaluating", [1]),
    (2, "kill rank=1 step=20 phase=evaluating", [0]),
    (2, "kill rank=1 step=80 phase=exit", [0]),
    (2, "segv rank=1 step=9", [0]),
    (2, "exit=3 rank=0 step=9", [1]),
    (3, "kill rank=2 step=0 phase=backward", [0, 1]),  # before the order of the buckets is known
    (3, "kill rank=2 step=17 phase=backward", [0, 1]),
    (3, "kill rank=0 step=1 phase=optimizer", [1, 2]),
])
def test_a_worker_is_lost_in_each_phase(ddprun_bin, data, tmp_path, undisturbed, workers, fault, kept):
    short = {"epochs": 4}
    with Job(ddprun_bin, tmp_path / "job", data, workers, env={"DDPTRAIN_FAULT": fault}, **short) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(workers, **short))
    regrouped = job.of("regrouped")
    assert [e["kept"] for e in regrouped] == [kept], job.errors
    assert jobs.metrics(job.run_dir, "restart") == []
    rounds = jobs.report(job.run_dir)["rounds"]
    assert [r["decision"] for r in rounds] == ["regroup", "end"]
    assert rounds[1]["regroup"]["kept"] == kept
    assert len(rounds[1]["workers"]) == 1  # only the lost worker was started again


def test_a_worker_program_that_is_named_otherwise_has_all_that_ddptrain_has(ddprun_bin, data, tmp_path, undisturbed):
    program = tmp_path / "mytrain"
    program.write_text(f'#!/bin/sh\n[ "$1" = --describe ] || echo started >> "$0.starts"\nexec "{ddprun_bin.parent / "ddptrain"}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    env = {"DDPTRAIN_FAULT": "kill rank=1 step=9", "DDPRUN_WORKER": str(program)}
    with Job(ddprun_bin, tmp_path / "job", data, 2, env=env, epochs=4) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, epochs=4))
    assert [e["kept"] for e in job.of("regrouped")] == [[0]], job.errors
    assert (tmp_path / "mytrain.starts").read_text().count("started") == 3  # two workers, and the replacement of one


@pytest.mark.parametrize("model", [{"type": "cnn"}, {"type": "resnet18"}])
def test_models_with_convolutions_and_batch_norm_go_on_to_the_same_bits(ddprun_bin, data, tmp_path, undisturbed, model):
    short = {"model": model, "data": {"train_samples": 48, "test_samples": 20, "ledger": False}, "batch_size": 8, "epochs": 1,
             "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9}}
    calm = undisturbed(2, **short)
    for fault in ("kill rank=1 step=3 phase=backward", "kill rank=0 step=3 phase=optimizer"):
        with Job(ddprun_bin, tmp_path / fault.replace(" ", "-"), data, 2, env={"DDPTRAIN_FAULT": fault}, **short) as job:
            assert job.finish() == 0, job.errors
        assert jobs.weights_digest(job.run_dir) == jobs.weights_digest(calm)
        assert len(job.of("regrouped")) == 1


def test_all_workers_lost_at_once_go_on_from_the_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 3) as job:
        job.wait_until(lambda j: j.step > 200)
        job.process.send_signal(signal.SIGSTOP)  # so that the agent detects all losses at the same time
        for rank in range(3):
            job.kill(rank)
        job.process.send_signal(signal.SIGCONT)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(3))
    assert job.of("run_ended")[0]["restarts_used"] == 1  # one failure counts as one restart
    assert len(jobs.metrics(job.run_dir, "restart")) == 1


@pytest.mark.long
def test_an_agent_that_gets_no_processor_for_seconds_loses_no_state(ddprun_bin, data, tmp_path, undisturbed):
    """The survivors' group is broken, but they wait for the agent's order, and a machine may be busy for that long."""
    with Job(ddprun_bin, tmp_path / "job", data, 2) as job:
        job.wait_until(lambda j: j.step > 200)
        job.process.send_signal(signal.SIGSTOP)
        job.kill(1)
        time.sleep(7)
        job.process.send_signal(signal.SIGCONT)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2))
    assert [e["kept"] for e in job.of("regrouped")] == [[0]], job.errors


def test_the_successor_is_killed_while_it_starts(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 2) as job:
        job.wait_until(lambda j: j.step > 200)
        for _ in range(2):
            before = job.pids[1]
            job.kill(1)
            job.wait_until(lambda j: j.pids[1] != before)  # and before it has loaded anything
        before = job.pids[1]
        job.kill(1)
        job.wait_until(lambda j: j.pids[1] != before)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2))
    assert_nothing_lost(job)
    assert [e["kept"] for e in job.of("regrouped")] == [[0]]
    assert jobs.metrics(job.run_dir, "restart") == []


def test_a_stop_that_comes_while_workers_regroup_saves_what_was_kept(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 2) as job:
        job.wait_until(lambda j: j.step > 200)
        before = job.pids[1]
        job.kill(1)
        job.wait_until(lambda j: j.pids[1] != before)
        job.process.send_signal(signal.SIGTERM)
        assert job.finish() == 85, job.errors
    assert job.of("regrouped")
    newest = int((job.run_dir / "checkpoints" / "latest").resolve().name.removeprefix("step-"))
    assert newest >= job.of("regrouped")[0]["step"]
    with Job(ddprun_bin, tmp_path / "job", data, 2) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2))


@pytest.mark.parametrize("recovery", ["live", "checkpoint"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_loss_after_the_run_directory_was_moved_away(ddprun_bin, data, tmp_path, undisturbed, recovery, lost):
    """The job creates the folder again, with its own term, so neither a replacement nor a later start counts as a new run."""
    with Job(ddprun_bin, tmp_path / "job", data, 2, recovery=recovery) as job:
        job.wait_until(lambda j: j.step > 200)
        job.run_dir.rename(tmp_path / "moved")
        job.wait_until(lambda j: j.of("run_directory_removed"))
        before = job.pids[lost]
        job.kill(lost)
        job.wait_until(lambda j: j.pids[lost] != before)
        assert job.finish() == 0, job.errors
    assert len(job.of("round_failed")) == 1, job.errors
    assert jobs.weights_digest(job.run_dir) == jobs.weights_digest(undisturbed(2))
    with Job(ddprun_bin, tmp_path / "job", data, 2, recovery=recovery) as later:
        assert later.finish() == 0, later.errors


def test_recovery_by_checkpoint_starts_all_anew(ddprun_bin, data, tmp_path, undisturbed):
    short = {"epochs": 4, "checkpoint": {"every_steps": 7, "keep": 3}}
    with Job(ddprun_bin, tmp_path / "job", data, 2, recovery="checkpoint", env={"DDPTRAIN_FAULT": "kill rank=1 step=11"},
             **short) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, **short))
    rounds = jobs.report(job.run_dir)["rounds"]
    assert [(r["decision"], len(r["workers"]), r["regroup"]) for r in rounds] == [("restart", 2, None), ("end", 2, None)]


def test_a_worker_that_fails_at_one_step_again_and_again_ends_the_job(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    fault = "exit=7 rank=1 step=16 restart=any"
    command = [ddprun_bin, "--recovery", "live", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config]
    done = jobs.run(command, DDPTRAIN_FAULT=fault)
    assert done.returncode == 83, done.stdout + done.stderr
    assert "step 16" in done.stderr
