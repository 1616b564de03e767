"""Tests of `ddprun submit --slurm` with a real Slurm cluster of three hosts, which all tests share. Slurm checks time limits
only every 30 s. So the job that reaches its time limit starts first, and runs in parallel with the other tests."""

import os
import pathlib
import re
import signal
import subprocess

import jobs
import pytest
from hosts import Hosts
from node_agents import suspended_process
from slurm import cluster_on, skip_without_slurm

# Jobs of the partition `urgent` preempt jobs of the partition `low`. A preempted job has 30 s to save.
PARTITIONS = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=host2 PriorityTier=1 GraceTime=30 MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=host2 PriorityTier=10 MaxTime=INFINITE State=UP
"""
EPOCHS = 100
STEPS_OF_EPOCH = jobs.TRAIN // 32


@pytest.fixture(scope="module")
def cluster(ddprun_bin, tmp_path_factory):
    skip_without_slurm()
    if os.geteuid() != 0:
        pytest.skip("network namespaces as hosts need root")
    hosts = Hosts(ddprun_bin, tmp_path_factory.mktemp("hosts"), 3)
    try:
        with cluster_on(hosts, PARTITIONS) as cluster:
            yield cluster
    finally:
        hosts.close()


def write_config(folder, dataset, epochs):
    return jobs.write_config(folder / "train.json", jobs.config(dataset, epochs=epochs, log={"every_steps": 5}, checkpoint={"every_steps": 100000}))


def submit(slurm, ddprun, run_dir, *args) -> str:
    """Submits a job and returns its id."""
    done = slurm.run(ddprun, "submit", "--slurm", "--run-dir", run_dir, *args)
    assert done.returncode == 0, done.stdout + done.stderr + slurm.logs()
    job = done.stdout.removeprefix("submitted Slurm job ").split(":")[0]
    assert (run_dir / "slurm" / "job").read_text() == job + "\n"
    return job


def output_of(run_dir, job: str) -> str:
    file = run_dir / "slurm" / f"{job}.out"
    return file.read_text(errors="replace") if file.exists() else ""


def starts_of(run_dir) -> list[tuple]:
    """Returns the Slurm job, SLURM_RESTART_COUNT and the exit code of each invocation in the report."""
    return [(start["slurm"]["job"], start["slurm"]["restarts"], start["exit"]["code"]) for start in jobs.report(run_dir)["invocations"]]


def assert_same_end(run_dir, alone):
    assert jobs.losses(run_dir) == jobs.losses(alone)
    assert jobs.weights_digest(run_dir) == jobs.weights_digest(alone)


@pytest.fixture(scope="module")
def limited(cluster, ddprun_bin, data, tmp_path_factory):
    """Starts a job with a time limit of one minute, which would train for hours. Returns its id, run directory and config."""
    folder = tmp_path_factory.mktemp("limited")
    # On the slowed network a step takes a tenth of a second and hardly any CPU time. If the kernel does not have this kind of
    # queue, the test only takes longer.
    for host in (0, 1):
        subprocess.run(["tc", "-n", cluster.hosts.space(host), "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8mbit", "burst", "64kb",
                        "latency", "400ms"], check=False, capture_output=True)
    config = write_config(folder, data, 100_000)
    job = submit(cluster, ddprun_bin, folder / "run", "--nodes", 2, "--time", 1, "--signal-before", 30, "--sbatch", "nodelist=host[0-1]", config)
    return job, folder / "run", config


@pytest.fixture
def slurm(cluster, limited):
    return cluster


def test_a_preempted_job_is_requeued_and_continues(slurm, ddprun_bin, data, tmp_path):
    config, run = write_config(tmp_path, data, EPOCHS), tmp_path / "run"
    job = submit(slurm, ddprun_bin, run, "--partition", "low", config)
    metrics = run / "metrics.jsonl"
    slurm.hosts.until(lambda: metrics.exists() and metrics.read_bytes().count(b'"step"') > 5, "the first steps")
    worker = int(re.search(r"rank 0 pid (\d+)", output_of(run, job))[1])
    with suspended_process(worker):
        slurm.run("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true")
        slurm.hosts.until(lambda: "PreemptTime=None" not in slurm.run("scontrol", "show", "job", job).stdout, "the preemption")
    slurm.until_gone(job)
    assert starts_of(run) == [(job, 0, 85), (job, 1, 0)], output_of(run, job)
    assert jobs.run([ddprun_bin, "--run-dir", tmp_path / "alone", config]).returncode == 0
    assert_same_end(run, tmp_path / "alone")


def test_two_jobs_share_their_nodes(slurm, ddprun_bin, script, tmp_path):
    """Rank 0 of each job waits until rank 0 of the other job opens the other end of a FIFO, so both jobs run at the same time."""
    program = script('[ "$RANK" = 0 ] || exit 0\n'
                     'case $1 in 1) echo "$MASTER_PORT" >"$OUT/fifo";; *) echo "$MASTER_PORT" >"$OUT/own"; cat "$OUT/fifo" >"$OUT/other";; esac')
    os.mkfifo(tmp_path / "out" / "fifo")
    options = ["--nodes", 2, "--sbatch", "nodelist=host[0-1]", program]
    ids = [submit(slurm, ddprun_bin, tmp_path / f"run{n}", *options, n) for n in (1, 2)]
    for job in ids:
        slurm.until_gone(job)
    assert [starts_of(tmp_path / f"run{n}") for n in (1, 2)] == [[(job, 0, 0)] for job in ids], output_of(tmp_path / "run2", ids[1])
    assert (tmp_path / "out" / "own").read_text() != (tmp_path / "out" / "other").read_text()


def test_tasks_of_an_array_run_together_and_are_requeued_alone(slurm, ddprun_bin, script, tmp_path):
    """Task 1 fails once. Task 1 has the same job id as the whole array, but only this task must be requeued."""
    program = script('[ "$RANK" = 0 ] && [ ! -e "$OUT/again" ] || exit 0\n'
                     'if [ "$1" = 0 ]; then echo "$MASTER_PORT" >"$OUT/fifo"; exit; fi\n'
                     'cat "$OUT/fifo"; touch "$OUT/again"; exit 1')
    os.mkfifo(tmp_path / "out" / "fifo")
    run = tmp_path / "run"
    job = submit(slurm, ddprun_bin, run, "--nodes", 2, "--array", "0-1", "--sbatch", "nodelist=host[0-1]", program, "%a")
    slurm.until_gone(job)
    assert starts_of(run / "task-0") == [(f"{job}_0", 0, 0)], output_of(run, f"{job}_0")
    assert starts_of(run / "task-1") == [(f"{job}_1", 0, 1), (f"{job}_1", 1, 0)], output_of(run, f"{job}_1")
    assert "failure 1 of 3" in output_of(run, f"{job}_1")


def test_failures_are_counted_across_requeues(slurm, ddprun_bin, tmp_path):
    run = tmp_path / "run"
    job = submit(slurm, ddprun_bin, run, "--max-failures", 1, "--no-python", "sh", "-c", "exit 7")
    slurm.until_gone(job)
    text = output_of(run, job)
    assert starts_of(run) == [(job, 0, 7), (job, 1, 7)], text
    assert f"Slurm job {job}: failure 1 of 1 (exit code 7); the job returns to the queue" in text
    assert f"Slurm job {job}: failed with exit code 7, and all 1 requeues after failures are used" in text
    # Exit code 2 ends the job without a requeue.
    job = submit(slurm, ddprun_bin, run, "--no-python", "sh", "-c", "exit 2")
    slurm.until_gone(job)
    assert starts_of(run)[2:] == [(job, 0, 2)], output_of(run, job)


def test_the_login_node_shows_and_stops_a_job(slurm, ddprun_bin, script, tmp_path):
    program = script('echo "step 3/10  loss=0.5"; echo "hello from $SLURMD_NODENAME"; cat "$OUT/fifo"')
    os.mkfifo(tmp_path / "out" / "fifo")
    run = tmp_path / "run"
    job = submit(slurm, ddprun_bin, run, "--sbatch", "nodelist=host1", program)
    slurm.hosts.until(lambda: "hello" in output_of(run, job), "the worker")
    for name in (job, run):
        # An agent opens its socket a fraction of a second after its start, so the first query may be too early.
        slurm.hosts.until(lambda name=name: f"run directory {run}\n" in slurm.run(ddprun_bin, "status", "--slurm", name).stdout, "the status")
    logs = slurm.run(ddprun_bin, "logs", "--slurm", job, "--tail", 1)
    assert logs.stdout == "hello from host1\n", logs.stderr
    shown = "Comment=ddprun: step 3/10, loss 0.5000"
    slurm.hosts.until(lambda: shown in slurm.run("scontrol", "show", "job", job).stdout, "the progress in the job's comment")
    stopped = slurm.run(ddprun_bin, "stop", "--slurm", job)
    assert "exit code 143" in stopped.stdout, stopped.stdout + stopped.stderr
    slurm.until_gone(job)
    assert starts_of(run) == [(job, 0, 143)]
    assert "may not be requeued" in output_of(run, job)
    gone = slurm.run(ddprun_bin, "status", "--slurm", job)
    assert gone.returncode == 2 and f"Slurm job {job} is not in the queue" in gone.stderr, gone.stderr


def test_a_spare_replaces_a_lost_node(slurm, ddprun_bin, script, tmp_path):
    """One of the three nodes is a spare. The agent of rank 1 is killed, and the remaining agent and the spare complete the
    job. srun then returns 137, but the job is complete."""
    program = script('if [ ! -e "$OUT/lost" ]; then echo "$PPID" >"$OUT/new-$RANK"; mv "$OUT/new-$RANK" "$OUT/guardian-$RANK"; '
                     'cat "$OUT/fifo"; fi\n[ "$WORLD_SIZE" = 2 ] && touch "$OUT/done-$RANK"')
    os.mkfifo(tmp_path / "out" / "fifo")
    run = tmp_path / "run"
    job = submit(slurm, ddprun_bin, run, "--nodes", 2, "--spares", 1, "--max-restarts", 3, program)
    slurm.hosts.until(lambda: "waits as a spare" in output_of(run, job) and all((tmp_path / "out" / f"guardian-{rank}").exists() for rank in (0, 1)),
                      "two nodes and a spare")
    guardian = int((tmp_path / "out" / "guardian-1").read_text())
    agent = int(pathlib.Path(f"/proc/{guardian}/stat").read_text().rsplit(")", 1)[1].split()[1])
    (tmp_path / "out" / "lost").touch()
    os.kill(agent, signal.SIGKILL)
    slurm.until_gone(job)
    text = output_of(run, job)
    assert starts_of(run) == [(job, 0, 0)], text
    assert all((tmp_path / "out" / f"done-{rank}").exists() for rank in (0, 1)), text
    assert "Killed" in text and "returns to the queue" not in text, text


def test_the_login_node_cancels_a_waiting_job(slurm, ddprun_bin, tmp_path):
    run = tmp_path / "run"
    job = submit(slurm, ddprun_bin, run, "--sbatch", "hold", "--no-python", "true")
    assert f"Slurm job {job} is PENDING (JobHeldUser)\nrun directory {run}\n" == slurm.run(ddprun_bin, "status", "--slurm", job).stdout
    assert "ddprun logs" in slurm.run(ddprun_bin, "logs", "--slurm", run).stderr
    assert f"cancelled Slurm job {job}, which was PENDING (JobHeldUser); to resume" in slurm.run(ddprun_bin, "stop", "--slurm", run).stdout
    slurm.until_gone(job)


def test_a_failed_sbatch_loses_nothing(slurm, ddprun_bin, tmp_path):
    run = tmp_path / "run"
    file = run / "slurm" / "submit.sbatch"
    failed = slurm.run(ddprun_bin, "submit", "--slurm", "--run-dir", run, "--partition", "nowhere", "--no-python", "true")
    assert failed.returncode == 2
    assert failed.stderr == (f"ddprun: sbatch failed: invalid partition specified: nowhere; the batch file is {file}: correct the option, "
                             "and run the command again\n")
    file.write_text(file.read_text() + "# my note\n")
    slurm.until_gone(submit(slurm, ddprun_bin, run, "--no-python", "true"))
    assert "# my note\n" in file.with_name("submit.sbatch.1").read_text()
    assert starts_of(run)[-1][2] == 0


def ended_starts(run_dir) -> int:
    return sum(start["exit"] is not None for start in jobs.report(run_dir)["invocations"]) if (run_dir / "report.json").exists() else 0


def test_a_job_reaches_its_time_limit_and_ends_as_if_undisturbed(slurm, limited, ddprun_bin, data):
    """After two time limits, the config is changed so that the next invocation ends soon."""
    job, run, config = limited
    jobs.wait_for(lambda: ended_starts(run) >= 2, "two time limits", 240)
    other = run.parent / "changed"
    other.mkdir()
    os.replace(write_config(other, data, jobs.newest_step(run) // STEPS_OF_EPOCH + 3), config)
    slurm.until_gone(job)
    starts = starts_of(run)
    assert len(starts) >= 3 and [start[1] for start in starts] == list(range(len(starts))), output_of(run, job)
    assert {start[2] for start in starts[:-1]} <= {85, 143} and starts[-1][2] == 0, starts
    assert "stopped at the time limit, with a newer checkpoint" in output_of(run, job)
    assert jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", run.parent / "alone", config], timeout=400).returncode == 0
    assert_same_end(run, run.parent / "alone")


def test_a_batch_script_without_scontrol_ends_with_85(ddprun_bin, tmp_path):
    after = [ddprun_bin, "submit", "--slurm", "--after", 143, "--run-dir", tmp_path / "run", "--max-timeouts", 1]
    first = jobs.run(after, PATH=str(tmp_path), SLURM_JOB_ID="17")
    assert first.returncode == 85 and "scontrol was not found on PATH" in first.stderr and "RequeueExit=85" in first.stderr
    second = jobs.run(after, PATH=str(tmp_path), SLURM_JOB_ID="17", SLURM_RESTART_COUNT="1")
    assert second.returncode == 143 and "the job ends" in second.stderr
    assert jobs.run(after, PATH=str(tmp_path)).returncode == 2
    # If a script exits with code 85, ddprun assumes that it has saved its state. For a job with a train.json, ddprun checks for a new
    # checkpoint instead. After config.json is written below, this job counts as such a job, and it has no checkpoint.
    after[after.index(143)] = 85
    for _ in range(2):
        assert "with a newer checkpoint" in jobs.run(after, PATH=str(tmp_path), SLURM_JOB_ID="18").stderr
    (tmp_path / "run" / "config.json").write_text("{}")
    assert "(1 of 1, exit code 85)" in jobs.run(after, PATH=str(tmp_path), SLURM_JOB_ID="18").stderr
    assert jobs.run(after, PATH=str(tmp_path), SLURM_JOB_ID="18").returncode == 82


def test_a_dry_run_prints_the_file_and_writes_nothing(ddprun_bin, data, tmp_path):
    config = write_config(tmp_path, data, 1)
    done = jobs.run([ddprun_bin, "submit", "--slurm", "--dry-run", "--nodes", 2, "--time=4:00:00", config], cwd=tmp_path, DDPRUN_TOKEN="a" * 64)
    assert done.returncode == 0, done.stderr
    assert f"run_dir={tmp_path}/runs/small\n" in done.stdout and "#SBATCH --nodes=2\n" in done.stdout
    assert "a" * 64 not in done.stdout and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("args, expected", [
    (["train.json"], "the first argument must name the scheduler"),
    (["--slurm"], "nothing to run"),
    (["--slurm", "missing.py"], "missing.py does not exist"),
    (["--slurm", "--time", "2", "--no-python", "true"], "the time limit is shorter than a save"),
    (["--slurm", "--run-dir", "saved", "--time", "60", "--no-python", "true"], "the newest save of this run took 500 s"),
    (["--slurm", "--max-restarts", "many", "--no-python", "true"], "--max-restarts"),
    (["--slurm", "--sbatch", "ntasks-per-node=4", "--no-python", "true"], "#SBATCH --ntasks-per-node=1"),
])
def test_mistakes_are_refused_before_the_queue(ddprun_bin, tmp_path, args, expected):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "report.json").write_text('{"checkpoints": {"published": 1, "latest": {"save_s": 500}}}')
    done = jobs.run([ddprun_bin, "submit", *args], cwd=tmp_path)
    assert done.returncode == 2 and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("command, expected", [
    ("status", "the job's state is unknown: try again"),
    ("logs", "the job's state is unknown: try again"),
    ("stop", "the job was not stopped: try again"),
])
def test_the_message_about_a_failing_squeue_fits_the_command(ddprun_bin, tmp_path, command, expected):
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    squeue.chmod(0o755)
    done = jobs.run([ddprun_bin, command, "--slurm", "99"], PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert "Unable to contact slurm controller" in done.stderr and expected in done.stderr, done
