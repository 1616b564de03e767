"""Tests of standby workers (--standby), which replace lost workers. A standby is a worker process that has loaded everything
and waits for a rank. The final weights, metrics and used samples must equal the results of an undisturbed run. Failures of
waiting standbys must not affect the job. The long tests kill 200 workers."""

import os
import pathlib
import signal
import statistics

import jobs
import pytest
from live_jobs import SHORT, Job, assert_no_sample_lost, assert_same_run, check_random_kills, seconds_to_next_step, seed_of_this_run
from test_stopping import wait_gone

ENDLESS = {"epochs": 100000}
GONE_S = 10


def waiting(job: Job) -> list[int]:
    """Returns the pids of the standbys (started worker processes) that wait for a rank."""
    ended = {e["pid"] for e in job.of("standby_ended") + job.of("worker_started")}
    return [e["pid"] for e in job.of("standby_waits") if e["pid"] not in ended]


def step_is_finished(job: Job) -> bool:
    """Returns True if a step has finished since the newest process group was formed. Only then does the agent start standbys
    (waiting worker processes)."""
    last = max([n for n, e in enumerate(job.events) if e["event"] == "regrouped"], default=-1)
    start = job.events[last]["step"] if last >= 0 else 0
    return any(e["event"] == "progress" and e["step"] > start for e in job.events[last + 1:])


def await_standbys(job: Job, count: int = 1) -> list[int]:
    job.wait_until(lambda j: len(waiting(j)) == count)
    assert len(waiting(job)) == count, job.errors
    return waiting(job)


def await_standbys_with_stopped_workers(job: Job, count: int = 1) -> list[int]:
    """Waits until the standbys wait for a rank. Meanwhile the workers are suspended, because on a fast machine the run could
    end earlier."""
    job.wait_until(step_is_finished)
    workers = list(job.pids.values())
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        return await_standbys(job, count)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


def cpu_ticks(pid: int) -> int:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.parametrize("workers", [2, 3])
def test_a_standby_takes_over_and_the_next_one_waits(ddprun_bin, data, tmp_path, undisturbed, workers):
    with Job(ddprun_bin, tmp_path / "job", data, workers, standbys=1, **SHORT) as job:
        taken = []
        for rank in (1, 0, workers - 1):  # one of the killed workers is rank 0, which writes metrics and checkpoints
            taken += await_standbys_with_stopped_workers(job)
            before = len(job.of("regrouped"))
            job.kill(rank)
            job.wait_until(lambda j: len(j.of("regrouped")) > before)
            assert job.pids[rank] == taken[-1]
        assert job.finish() == 0, job.errors
    print("seconds to the next step:", [f"{s:.3f}" for s in seconds_to_next_step(job)])
    assert_same_run(job, undisturbed(workers, **SHORT))
    assert_no_sample_lost(job)
    assert [e["by_standby"] for e in job.of("regrouped")] == [[1], [0], [workers - 1]]
    report = jobs.report(job.run_dir)
    assert report["restarts"]["used"] == 3
    assert [[(w["rank"], w["pid"], w.get("standby")) for w in r["workers"]] for r in report["rounds"][1:]] == [
        [(1, taken[0], True)], [(0, taken[1], True)], [(workers - 1, taken[2], True)]]
    summary = jobs.run([ddprun_bin, "report", job.run_dir]).stdout
    assert summary.count(" replaced by a standby in ") == 3, summary
    assert (job.run_dir / "logs" / "round-001" / "rank-00001" / "stderr.log").exists()
    assert not list((job.run_dir / "logs").glob("standby-*")), "a waiting standby must not write logs"


def test_two_standbys_replace_two_lost_workers(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 3, standbys=2, **SHORT) as job:
        standbys = await_standbys_with_stopped_workers(job, 2)
        # After its suspension the agent detects the end of both processes at the same time.
        job.process.send_signal(signal.SIGSTOP)
        for rank in (0, 2):
            job.kill(rank)
        job.process.send_signal(signal.SIGCONT)
        job.wait_until(lambda j: j.of("regrouped"))
        assert {job.pids[0], job.pids[2]} == set(standbys)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(3, **SHORT))
    assert job.of("run_ended")[0]["restarts_used"] == 1


def test_without_survivors_standbys_resume_from_the_checkpoint(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 2, standbys=1, **SHORT) as job:
        job.wait_until(lambda j: j.of("checkpoint"))
        standbys = await_standbys_with_stopped_workers(job)
        job.process.send_signal(signal.SIGSTOP)
        for rank in range(2):
            job.kill(rank)
        job.process.send_signal(signal.SIGCONT)
        job.wait_until(lambda j: j.of("regrouped"))
        assert standbys[0] in job.pids.values()
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, **SHORT))
    assert len(jobs.metrics(job.run_dir, "restart")) == 1


def test_a_waiting_standby_has_no_rank(ddprun_bin, data, tmp_path):
    with Job(ddprun_bin, tmp_path / "job", data, 2, standbys=1, **ENDLESS) as job:
        [standby] = await_standbys(job)
        variables = {v.split("=", 1)[0] for v in pathlib.Path(f"/proc/{standby}/environ").read_text().split("\0")}
        assert "WORLD_SIZE" in variables and "DDPRUN_CHANNEL" in variables
        assert variables.isdisjoint({"RANK", "LOCAL_RANK", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT"})
        assert "--standby" in pathlib.Path(f"/proc/{standby}/cmdline").read_text().split("\0")
        ticks, step = cpu_ticks(standby), job.step
        job.wait_until(lambda j: j.step > step + 300)
        assert cpu_ticks(standby) - ticks <= 3, "expected at most 0.03 s of CPU time while the workers ran 300 steps"
        os.kill(standby, signal.SIGTERM)  # the standby must ignore SIGTERM, because its agent decides when it exits
        step = job.step
        job.wait_until(lambda j: j.step > step)
        job.process.send_signal(signal.SIGTERM)
        assert job.finish() == 85, job.errors
    assert job.of("standby_ended") == []


def test_a_killed_standby_is_replaced_without_a_restart(ddprun_bin, data, tmp_path):
    with Job(ddprun_bin, tmp_path / "job", data, 2, standbys=1, **ENDLESS) as job:
        [first] = await_standbys(job)
        os.kill(first, signal.SIGKILL)
        job.wait_until(lambda j: j.of("standby_ended"))
        [second] = await_standbys(job)
        job.kill(0)
        job.wait_until(lambda j: j.of("regrouped"))
        assert job.pids[0] == second != first
        job.process.send_signal(signal.SIGTERM)
        assert job.finish() == 85, job.errors
    [ended] = job.of("standby_ended")
    assert (ended["pid"], ended["signal"], ended["next_in_s"]) == (first, 9, 1)
    report = jobs.report(job.run_dir)
    assert report["restarts"]["used"] == 1 and len(report["rounds"]) == 2
    assert report["invocations"][0]["standbys_ended"]["count"] == 1


def test_a_standby_lost_with_a_worker_costs_no_restart(ddprun_bin, data, tmp_path, undisturbed):
    with Job(ddprun_bin, tmp_path / "job", data, 2, standbys=1, **SHORT) as job:
        [standby] = await_standbys_with_stopped_workers(job)
        job.process.send_signal(signal.SIGSTOP)
        job.kill(1)
        os.kill(standby, signal.SIGKILL)
        job.process.send_signal(signal.SIGCONT)
        assert job.finish() == 0, job.errors
    assert_same_run(job, undisturbed(2, **SHORT))
    assert job.of("run_ended")[0]["restarts_used"] == 1
    assert [e["kept"] for e in job.of("regrouped")] == [[0]]


def test_failing_standby_starts_back_off(ddprun_bin, tmp_path):
    dataset = jobs.write_small_dataset(tmp_path / "data")
    with Job(ddprun_bin, tmp_path / "job", dataset, 2, standbys=1, **ENDLESS) as job:
        [standby] = await_standbys(job)
        dataset.rename(tmp_path / "elsewhere")  # the data is gone for new processes, but the workers keep their files open
        os.kill(standby, signal.SIGKILL)
        job.wait_until(lambda j: len(j.of("standby_ended")) == 3)
        job.process.send_signal(signal.SIGTERM)
        assert job.finish() == 85, job.errors
    ended = job.of("standby_ended")
    assert [(e.get("signal"), e.get("exit_code"), e["next_in_s"]) for e in ended] == [(9, None, 1), (None, 2, 2), (None, 2, 4)]
    assert "data set missing" in ended[1]["message"]
    assert "ddptrain: a standby: data set missing" in (job.run_dir / "logs" / "standby-000" / "stderr.log").read_text(encoding="utf-8")
    assert job.of("round_failed") == []
    assert "standbys that ended while they waited: 3, the newest with exit code 2: data set missing" in jobs.run([ddprun_bin, "report", job.run_dir]).stdout


@pytest.mark.parametrize("number,code", [(signal.SIGTERM, 85), (signal.SIGKILL, -9)])
def test_no_standby_outlives_the_job(ddprun_bin, data, tmp_path, number, code):
    with Job(ddprun_bin, tmp_path / "job", data, 2, standbys=2, **ENDLESS) as job:
        standbys = await_standbys(job, 2)
        processes = jobs.children(job.process.pid)
        assert set(standbys) <= set(processes)
        job.process.send_signal(number)
        assert job.finish() == code, job.errors
        assert wait_gone(processes, GONE_S) == []


def test_workers_killed_at_random_moments_with_a_standby(ddprun_bin, data, tmp_path, undisturbed):
    check_random_kills(ddprun_bin, data, tmp_path / "job", undisturbed, 3, 5, seed_of_this_run(), standbys=1, **SHORT)


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 3])
def test_a_hundred_workers_killed_at_random_moments_with_a_standby(ddprun_bin, data, tmp_path, undisturbed, workers):
    seed, times = seed_of_this_run(), []
    for run in range(10):
        times += check_random_kills(ddprun_bin, data, tmp_path / str(run), undisturbed, workers, 10, seed + run, standbys=1)
    print(f"seconds to the next step: median {statistics.median(times):.3f}, most {max(times):.3f}")
