"""Tests of unusual environments and uses: actions of shells, daemons and users for which a launcher must be prepared."""

import select
import json
import os
import pathlib
import signal
import subprocess
import sys

import jobs
import pytest


@pytest.fixture
def config(data, tmp_path) -> pathlib.Path:
    return jobs.write_config(tmp_path / "train.json", jobs.config(data))


def launch(ddprun, config, run_dir, *flags, **env):
    return jobs.run([ddprun, "--nproc-per-node", 2, "--run-dir", run_dir, *flags, config], **env)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_harmless(ddprun_bin, config, run_dir, closed):
    """A daemon may start ddprun with descriptor 0, 1 or 2 closed. ddprun's lock file and sockets must not get these numbers."""
    done = jobs.run(["sh", "-c", f'"$@" {closed}', "sh", ddprun_bin, "--nproc-per-node", 2, "--run-dir", run_dir, config], timeout=60)
    assert done.returncode == 0, done.stderr
    assert jobs.report(run_dir)["exit"]["code"] == 0


def test_resume_accepts_the_latest_link(ddprun_bin, ddptrain_bin, config, tmp_path):
    first = tmp_path / "first"
    assert launch(ddprun_bin, config, first).returncode == 0
    latest = first / "checkpoints" / "latest"
    again = jobs.run([ddprun_bin, "--run-dir", tmp_path / "second", "--resume", latest, config, "epochs=3"])
    assert again.returncode == 0, again.stderr
    assert "continuing from step 40" in again.stdout
    alone = jobs.run([ddptrain_bin, "--run-dir", tmp_path / "third", "--resume", latest, config, "epochs=3"])
    assert alone.returncode == 0, alone.stderr
    fresh = launch(ddprun_bin, config, first, "--fresh", "--resume", latest)
    assert fresh.returncode == 2 and "inside it" in fresh.stderr and latest.exists()


def test_resume_refuses_a_folder_without_a_checkpoint_before_start(ddprun_bin, config, tmp_path, run_dir):
    done = launch(ddprun_bin, config, run_dir, "--resume", tmp_path)
    assert done.returncode == 2
    assert "manifest.json" in done.stderr and not run_dir.exists()


def test_a_run_with_deleted_checkpoints_reports_its_restart(ddprun_bin, config, run_dir):
    assert launch(ddprun_bin, config, run_dir).returncode == 0
    subprocess.run(["rm", "-r", run_dir / "checkpoints"], check=True)
    done = launch(ddprun_bin, config, run_dir)
    assert done.returncode == 0, done.stderr
    assert "no checkpoint of the earlier start was found" in done.stdout


def test_a_deleted_current_folder_is_named(ddprun_bin, config, tmp_path):
    (tmp_path / "gone").mkdir()
    done = jobs.run(["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", ddprun_bin, config], cwd=tmp_path)
    assert done.returncode == 2
    assert "current folder" in done.stderr


def test_an_empty_program_name_is_refused(ddprun_bin):
    done = jobs.run([ddprun_bin, ""])
    assert done.returncode == 2 and "nothing to run" in done.stderr


def test_a_lost_guardian_ends_the_job_with_a_reason(ddprun_bin, config, run_dir):
    agent = jobs.start([ddprun_bin, "--nproc-per-node", "2", "--run-dir", run_dir, config, "epochs=100000"])
    for line in agent.stdout:
        if "step" in line:
            break
    processes = jobs.children(agent.pid)
    guardian = next(pid for pid in processes if pathlib.Path(f"/proc/{pid}/exe").resolve() == ddprun_bin)
    os.kill(guardian, signal.SIGKILL)
    _, errors = agent.communicate(timeout=30)
    assert agent.returncode == 89
    assert errors.count("the process job-guardian, which ddprun starts to supervise the workers, died or was killed") == 1
    assert not [pid for pid in processes if pathlib.Path(f"/proc/{pid}").exists()]
    exit_of_report = jobs.report(run_dir)["exit"]
    assert exit_of_report["code"] == 89 and "guardian" in exit_of_report["why"]


def test_exit_codes_arrive_although_the_caller_ignores_sigchld(ddprun_bin):
    """The caller starts ddprun with SIGCHLD ignored. If ddprun did not change this, the kernel would reap child processes
    itself, and waitpid() could not return their status."""
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    job = jobs.start([sys.executable, "-c", ignoring, ddprun_bin, "--nproc-per-node", 2, "--no-python", "sh", "-c", "exit 7"])
    job.communicate(timeout=20)
    assert job.returncode == 7


def test_too_few_descriptors_are_reported(ddprun_bin, config, run_dir):
    done = jobs.run(["sh", "-c", 'ulimit -n 20; exec "$@"', "sh", ddprun_bin, "--json", "--nproc-per-node", 4, "--run-dir", run_dir, config])
    assert done.returncode == 89
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "run_ended"
    assert "ulimit" in jobs.report(run_dir)["exit"]["why"]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_exit_code_is_that_of_the_first_failure(ddprun_bin, config, run_dir, rank):
    done = launch(ddprun_bin, config, run_dir, "--max-restarts", 0, DDPTRAIN_FAULT=f"exit=7 rank={rank} phase=evaluating")
    assert done.returncode == 7, done.stderr
    assert f"rank {rank} " in done.stderr


def test_a_run_that_reached_max_steps_names_what_limits_it(ddprun_bin, config, run_dir):
    for _ in range(2):
        done = jobs.run([ddprun_bin, "--run-dir", run_dir, config, "max_steps=5"])
        assert done.returncode == 0, done.stderr
    assert 'already done: 5 steps' in done.stdout and '"max_steps"' in done.stdout


def test_a_slow_reader_gets_all_output(ddprun_bin):
    """The workers write to a pipe that is read slowly, and have no log file. They must block, as they would without ddprun,
    and no output may be lost."""
    # The length of a line is 8 bytes, and the page size is a multiple of 8. So a pipe of one page contains only whole lines.
    # The reader never waits for the rest of a line while the writer of that line gets no CPU time.
    size = 8 * 600_000
    job = jobs.start([ddprun_bin, "--nproc-per-node", 2, "--no-python", "sh", "-c", f"yes abcdefg | head -c {size}"], text=False)
    fd = os.pidfd_open(job.pid)
    # The job is still running, because the test has not read the pipe yet and the workers are blocked.
    assert not select.select([fd], [], [], 0.5)[0]
    os.close(fd)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0
    assert len(output) == 2 * size
    assert set(output.split(b"\n")) <= {b"abcdefg", b""}


def test_an_interrupt_ends_a_job_with_unread_output(ddprun_bin):
    job = jobs.start([ddprun_bin, "--no-python", "sh", "-c", "yes abcdefgh | head -c 30000000"])
    fd = os.pidfd_open(job.pid)
    assert not select.select([fd], [], [], 0.3)[0]
    job.send_signal(signal.SIGINT)
    assert select.select([fd], [], [], 10)[0]
    os.close(fd)


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.long)])
def test_ddp_options_do_not_change_accumulated_gradients(ddprun_bin, config, tmp_path, workers):
    """With ddp.static_graph, PyTorch's Reducer counts how often each gradient is ready. It must not count micro-batches whose
    gradients are not reduced."""
    digests = set()
    for n, options in enumerate([[], ["ddp.static_graph=true"], ["ddp.static_graph=true", "ddp.find_unused_parameters=true"],
                                 ["ddp.find_unused_parameters=true"]]):
        run = tmp_path / f"run-{n}"
        done = jobs.run([ddprun_bin, "-q", "--nproc-per-node", workers, "--run-dir", run, config, "max_steps=4", "micro_batch_size=4", *options])
        assert done.returncode == 0, done.stderr
        digests.add((run / "checkpoints" / "latest" / "model.safetensors").read_bytes())
    assert len(digests) == 1


def test_an_unlikely_run_length_gets_a_note(ddprun_bin, ddptrain_bin, tmp_path):
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), max_steps=1000))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config])
    assert done.returncode == 0 and done.stderr.count("max_steps is 1000, but the run ends after 40 steps") == 1, done.stderr
