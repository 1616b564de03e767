"""Tests of live recovery on one machine: workers are killed while the other workers keep their state. The final weights,
metrics and used samples must equal the results of an undisturbed run, and no finished step may be repeated. The long tests
kill 200 workers. test_kill_matrix.py loses a worker in each phase of a step."""

import signal
import statistics
import time

import jobs
import pytest
from live_jobs import SHORT, Job, assert_no_sample_lost, assert_same_run, check_random_kills, seed_of_this_run

LIMIT_S = 1.0  # upper limit for the median time from a kill to the next finished step, in seconds, on an idle machine


def test_workers_killed_at_random_moments(ddprun_bin, data, tmp_path, undisturbed):
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed, 3, 4, seed_of_this_run(), **SHORT)


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


def test_a_renamed_worker_program_has_all_features(ddprun_bin, data, tmp_path, undisturbed):
    program = tmp_path / "mytrain"
    program.write_text(f'#!/bin/sh\n[ "$1" = --describe ] || echo started >> "$0.starts"\nexec "{ddprun_bin.parent / "ddptrain"}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    env = {"DDPTRAIN_FAULT": "kill rank=1 step=9", "DDPRUN_WORKER": str(program)}
    with Job(ddprun_bin, tmp_path / "job", data, 2, env=env, epochs=4) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, epochs=4))
    assert [e["kept"] for e in job.of("regrouped")] == [[0]], job.errors
    assert (tmp_path / "mytrain.starts").read_text().count("started") == 3  # two workers and one replacement were started


@pytest.mark.parametrize("model", [{"type": "cnn"}, {"type": "resnet18"}])
def test_convolutions_and_batch_norm_recover_bitwise(ddprun_bin, tiny_images, tmp_path, undisturbed, model):
    short = {"model": model, "data": {"train_samples": 48, "test_samples": 20, "ledger": False}, "batch_size": 8, "epochs": 1,
             "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9}}
    calm = undisturbed(2, tiny_images, **short)
    for fault in ("kill rank=1 step=3 phase=backward", "kill rank=0 step=3 phase=optimizer"):
        with Job(ddprun_bin, tmp_path / fault.replace(" ", "-"), tiny_images, 2, env={"DDPTRAIN_FAULT": fault}, **short) as job:
            assert job.finish() == 0, job.errors
        assert jobs.weights_digest(job.run_dir) == jobs.weights_digest(calm)
        assert len(job.of("regrouped")) == 1


def test_losing_all_workers_resumes_from_the_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 3, **SHORT) as job:
        job.wait_until(lambda j: j.step > 200)
        # After its suspension the agent detects the loss of all workers at the same time.
        job.process.send_signal(signal.SIGSTOP)
        for rank in range(3):
            job.kill(rank)
        job.process.send_signal(signal.SIGCONT)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(3, **SHORT))
    assert job.of("run_ended")[0]["restarts_used"] == 1  # one failure counts as one restart
    assert len(jobs.metrics(job.run_dir, "restart")) == 1


@pytest.mark.long
def test_an_agent_without_cpu_time_loses_no_state(ddprun_bin, data, tmp_path, undisturbed):
    """A worker is killed while the agent is suspended. The other worker must wait for the agent and keep its state. On a busy
    machine, an agent may also get no CPU time for that long."""
    with Job(ddprun_bin, tmp_path / "job", data, 2) as job:
        job.wait_until(lambda j: j.step > 200)
        job.process.send_signal(signal.SIGSTOP)
        job.kill(1)
        time.sleep(7)
        job.process.send_signal(signal.SIGCONT)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2))
    assert [e["kept"] for e in job.of("regrouped")] == [[0]], job.errors


def test_a_replacement_is_killed_while_it_starts(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 2, **SHORT) as job:
        job.wait_until(lambda j: j.step > 200)
        for _ in range(2):
            before = job.pids[1]
            job.kill(1)
            # The test waits only until the replacement has started, so that the replacement is killed before it has loaded any
            # data.
            job.wait_until(lambda j: j.pids[1] != before)
        before = job.pids[1]
        job.kill(1)
        job.wait_until(lambda j: j.pids[1] != before)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, **SHORT))
    assert_no_sample_lost(job)
    assert [e["kept"] for e in job.of("regrouped")] == [[0]]
    assert jobs.metrics(job.run_dir, "restart") == []


def test_a_stop_during_a_regroup_saves_the_state(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 2, **SHORT) as job:
        job.wait_until(lambda j: j.step > 200)
        before = job.pids[1]
        job.kill(1)
        job.wait_until(lambda j: j.pids[1] != before)
        job.process.send_signal(signal.SIGTERM)
        assert job.finish() == 85, job.errors
    assert job.of("regrouped")
    newest = int((job.run_dir / "checkpoints" / "latest").resolve().name.removeprefix("step-"))
    assert newest >= job.of("regrouped")[0]["step"]
    with Job(ddprun_bin, tmp_path / "job", data, 2, **SHORT) as job:
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, **SHORT))


@pytest.mark.parametrize("recovery", ["live", "checkpoint"])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_loss_after_the_run_directory_was_moved_away(ddprun_bin, data, tmp_path, undisturbed, recovery, lost):
    """The job must create the run directory again and store its identity in it. Then neither a replacement worker nor a later
    invocation treats the directory as a new run."""
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


def test_repeated_failures_at_one_step_end_the_job(ddprun_bin, data, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    fault = "exit=7 rank=1 step=16 restart=any"
    command = [ddprun_bin, "--recovery", "live", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config]
    done = jobs.run(command, DDPTRAIN_FAULT=fault)
    assert done.returncode == 83, done.stdout + done.stderr
    assert "step 16" in done.stderr
